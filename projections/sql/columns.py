"""The columns of the event table, read off the event structs: one owner of how a field becomes a column."""

from functools import lru_cache
from typing import Any

import msgspec

from stepfold.events.vocabulary import KINDS

TYPES: dict[Any, str] = {
    str: "VARCHAR",
    int: "BIGINT",
    int | None: "BIGINT",
    float: "DOUBLE",
    bool: "BOOLEAN",
}
"""Plain fields by their type; anything nested is kept as JSON."""

RENAMED = {"to": "state", "end": "span_end", "start": "span_start", "limit": "limit_name"}
"""Fields whose names DuckDB reserves, and their columns (`start` goes with `end`)."""

ENVELOPE = ("v", "run_id", "seq", "step", "ts", "kind")


@lru_cache(maxsize=1)
def columns() -> dict[str, str]:
    """Each field of any event, and the DuckDB type that holds it in every kind; JSON where kinds differ."""
    found = {"kind": "VARCHAR"}
    for event in KINDS.values():
        for field in msgspec.structs.fields(event):
            kind = TYPES.get(field.type, "JSON")
            known = found.setdefault(field.encode_name, kind)
            found[field.encode_name] = kind if known == kind else "JSON"
    return found


def column_name(field: str) -> str:
    """What the column of a field is called."""
    return RENAMED.get(field, field)
