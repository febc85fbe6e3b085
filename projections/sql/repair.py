"""Log files that DuckDB can't take as they are: lone surrogates replaced, broken lines named and left out."""

import json
import re
from collections.abc import Iterable

from msgspec import Struct

from stepfold.events.texts import named

_ESCAPES = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)
"""Every escape of a JSON text, so that a backslash is never taken for the start of the next one."""


class Broken(Struct, frozen=True):
    """A line that is no event, from 1; without a line, a whole file that could not be read."""

    file: str
    line: int | None
    why: str


def repaired(lines: Iterable[bytes], file: str) -> tuple[bytes, list[Broken]]:
    """The lines that are events, in JSON that DuckDB reads; and those that are none, with the reason."""
    kept: list[bytes] = []
    broken: list[Broken] = []
    for number, given in enumerate(lines, 1):
        line = given.removesuffix(b"\n")
        if not line.strip():
            continue
        why = _why_broken(line)
        if why:
            torn = "" if given.endswith(b"\n") else " (the last line: a write was cut off)"
            broken.append(Broken(file, number, why + torn))
        else:
            kept.append(without_lone_surrogates(line.decode()).encode())
    return b"".join(line + b"\n" for line in kept), broken


def without_lone_surrogates(text: str) -> str:
    """JSON text with each escaped half of a pair as U+FFFD: one character for one, so spans still fit."""
    return _ESCAPES.sub(lambda found: "\\ufffd" if found["lone"] else found[0], text)


def _why_broken(line: bytes) -> str:
    if lost := named(line):
        return f"its text {min(lost)} is missing or was changed: see `stepfold log RUN --verify`"
    try:
        event = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        return "not UTF-8"
    except json.JSONDecodeError as error:
        return f"no JSON: {error.msg}"
    except (ValueError, RecursionError):
        return "no JSON that can be read"
    match event:
        case {"kind": str(), "run_id": str(), "seq": int(seq)} if 0 <= seq < 2**63:
            return ""
        case _:
            return "no event: kind, run_id or seq is missing"
