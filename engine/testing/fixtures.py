"""What the fuzzer found, as files: one a fault, failing until it is mended.

A file holds the target, the shrunk case and what it showed. Its name is a digest of the case, so the same
case found twice is one file.
"""

import json
from pathlib import Path
from typing import Any

from stepfold.engine.testing.moves import as_json
from stepfold.engine.testing.targets import JUDGES, Case, Fault, fault_of
from stepfold.projections.digest import digest_of

SUFFIX = ".fuzz.json"
FOLDER = ".stepfold/fuzz"


class FixtureError(ValueError):
    """A file that is no fixture of the fuzzer: which, and why."""


def save(folder: Path, target: str, case: Case, fault: Fault) -> Path:
    """Write a case beside those already found, and return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{target}-{digest_of(as_json(case))[:12]}{SUFFIX}"
    content = {"target": target, "rule": fault.rule, "why": fault.why, "case": case}
    path.write_text(json.dumps(json.loads(as_json(content)), indent=2, ensure_ascii=True) + "\n")
    return path


def judge(path: Path) -> Fault | None:
    """Judge a saved case again: what it shows now, or None when it is mended. Raises FixtureError."""
    try:
        content: Any = json.loads(path.read_text())
        target, case = content["target"], content["case"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FixtureError(f"{path}: not a fixture of `stepfold fuzz` ({error})") from None
    if target not in JUDGES:
        raise FixtureError(f"{path}: the target {target!r} is not one of {', '.join(JUDGES)}")
    return fault_of(target, case)
