"""The one file of a page: markup, style, program and data, sealed off from the network by its own policy."""

import json
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Any

from stepfold.engine.core.decide import LOOPS
from stepfold.engine.core.diagram import guard_names
from stepfold.engine.core.machine import Table

_ESCAPED = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&"}


def document(runs: Sequence[dict[str, Any]], first_difference: int | None = None) -> str:
    """The page of one run or of several, as HTML in UTF-8.

    Whatever a model or a tool said is in the data, which no browser reads as markup, and the program
    puts it into the page as text. `first_difference` is the step where the first two runs part.
    """
    style, program = _asset("page.css"), _asset("page.js")
    loops = {run["loop"]: table_data(LOOPS[run["loop"]].table) for run in runs if run["loop"] in LOOPS}
    data = {"runs": runs, "tables": loops, "difference": first_difference}
    policy = (
        f"default-src 'none'; script-src '{_source(program)}'; style-src '{_source(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {"policy": policy, "style": style, "program": program, "data": embedded(data)}
    page = _asset("page.html")
    # From the last place on, so that what is filled in is never looked at again.
    for name in sorted(parts, key=lambda name: page.index(f"{{{{{name}}}}}"), reverse=True):
        place = f"{{{{{name}}}}}"
        before, _, after = page.partition(place)
        page = before + parts[name] + after
    return page


def embedded(data: Any) -> str:
    """JSON that may stand in a script element: in ASCII, and without a mark that could end the element.

    Such marks stand inside JSON strings alone, where an escape means the same.
    """
    return json.dumps(data, separators=(",", ":")).translate(_ESCAPED)


def table_data(table: Table) -> dict[str, Any]:
    """The rows of a table, for the drawing of a run's path."""
    return {
        "states": list(table.states),
        "rows": [
            {
                "name": row.name,
                "on": list(row.on),
                "sources": list(row.sources),
                "dest": row.dest,
                "guards": guard_names(row),
                "sort": row.sort,
                "event": row.event,
            }
            for row in table.rows
        ],
    }


def _asset(name: str) -> str:
    return files("stepfold.engine.studies.page").joinpath(name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    """How a content security policy names an inline script or style: by the digest of its text."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
