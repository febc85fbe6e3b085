"""How logs of older schema versions are read: a chain, one function a version, each one step up.

To change the meaning or name of a field, kind, row or state: raise VERSION in `vocabulary`, add the
step from the old version here, and keep a golden log of the old version in `replay_fixtures/`.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _from_0(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 0, the trial of the core, counted `ts` in integer microseconds since 1970."""
    ts = fields.get("ts")
    if isinstance(ts, int) and not isinstance(ts, bool):
        moment = _EPOCH + timedelta(microseconds=ts)
        fields["ts"] = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return fields


UPCASTERS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {0: _from_0}
"""From version n to n + 1."""


def upcast(fields: dict[str, Any], version: int) -> dict[str, Any]:
    """Bring the fields of one old line to the current version, step by step."""
    upgraded = dict(fields)
    while version in UPCASTERS:
        upgraded = UPCASTERS[version](upgraded)
        version += 1
        upgraded["v"] = version
    return upgraded
