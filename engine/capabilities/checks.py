"""Acceptance checks: which ones a project shows by itself, and running one for its evidence."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from stepfold.engine.capabilities.boxes import DEFAULT_LIMITS, Limits
from stepfold.engine.capabilities.output import cap
from stepfold.engine.capabilities.sandbox import SandboxBroken, run
from stepfold.engine.capabilities.shell import ending
from stepfold.engine.capabilities.workspace import Workspace
from stepfold.events.configuration import CheckSpec
from stepfold.events.vocabulary import BLANK, CheckReturned

NO_TEST = "no test specified"
"""What `npm init` puts where a test script belongs: it always fails, and checks nothing."""

_CHECK_TARGET = re.compile(r"^check\s*:(?!=)", re.MULTILINE)
_READ_LIMIT = 256 * 1024


def detect(root: str | Path) -> tuple[CheckSpec, ...]:
    """The checks that the files of a project's root stand for; none is guessed.

    pytest: a configuration of it or test files; npm test: a test script; cargo test, go test: their
    manifest; make check: the target.
    """
    folder = Path(root)
    found = (
        ("pytest", "python -m pytest -q", _has_pytest(folder)),
        ("npm-test", "npm test", _has_npm_test(folder)),
        ("cargo-test", "cargo test", (folder / "Cargo.toml").is_file()),
        ("go-test", "go test ./...", (folder / "go.mod").is_file()),
        ("make-check", "make check", _has_make_check(folder)),
    )
    return tuple(CheckSpec(name, command) for name, command, shown in found if shown)


async def run_check(
    spec: CheckSpec,
    workspace: Workspace,
    backend: str,
    limits: Limits = DEFAULT_LIMITS,
    readable: Sequence[str] = (),
) -> CheckReturned:
    """Run one check in the sandbox. Its exit code is the evidence; None means that it did not end by itself.

    The output is capped to head and tail, and the digest is of the whole. Never raises on what a check does.
    """
    if not backend:
        return _not_run("there is no sandbox to run it in: see `stepfold doctor`")
    try:
        completed = await run(
            spec.command,
            workspace=workspace,
            backend=backend,
            timeout=spec.timeout,
            limits=limits,
            readable=readable,
        )
    except (SandboxBroken, OSError) as reason:
        return _not_run(f"the sandbox could not be built: {reason}")
    output = completed.output.decode()
    if completed.exit_code is None:
        output = f"{output.rstrip()}\n{spec.id}: {ending(completed, spec.timeout)}".lstrip()
    if completed.left:
        output = f"{output.rstrip()}\n{completed.left}".lstrip()
    return CheckReturned(*BLANK, exit_code=completed.exit_code, output=output, digest=completed.digest)


def _not_run(why: str) -> CheckReturned:
    return CheckReturned(*BLANK, exit_code=None, output=f"not run: {why}", digest=cap(b"").digest)


def _has_pytest(folder: Path) -> bool:
    if (folder / "pytest.ini").is_file() or (folder / "conftest.py").is_file():
        return True
    configured = (("pyproject.toml", "[tool.pytest"), ("setup.cfg", "[tool:pytest]"), ("tox.ini", "[pytest]"))
    if any(mark in _text(folder / name) for name, mark in configured):
        return True
    return any(
        next(below.glob(pattern), None) is not None
        for below in (folder, folder / "tests", folder / "test")
        for pattern in ("test_*.py", "*_test.py", "*/test_*.py")
    )


def _has_npm_test(folder: Path) -> bool:
    try:
        package = msgspec.json.decode(_text(folder / "package.json") or "null")
    except msgspec.DecodeError:
        return False
    match package:
        case {"scripts": {"test": str(script)}}:
            return bool(script.strip()) and NO_TEST not in script
        case _:
            return False


def _has_make_check(folder: Path) -> bool:
    names = ("GNUmakefile", "makefile", "Makefile")
    first = next((folder / name for name in names if (folder / name).is_file()), None)
    return first is not None and _CHECK_TARGET.search(_text(first)) is not None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as opened:
            return opened.read(_READ_LIMIT).decode("utf-8", "replace")
    except OSError:
        return ""
