"""The box as `run` builds it, for an ordinary user, where the tests run as root."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from stepfold.engine.capabilities.boxes import (
    DEFAULT_LIMITS,
    Limits,
    box_for,
    bubblewrap_program,
    bubblewrap_words,
    fence_words,
    launcher_words,
    limited,
)
from stepfold.engine.capabilities.workspace import Workspace

NOBODY = 65534
LIMITED = Limits(cpu_seconds=10, processes=64)
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
CAN_BE_NOBODY = os.geteuid() == 0 and bool(
    shutil.which("setpriv") and shutil.which("python3", path="/usr/bin")
)


def ordinary_words(command: str, project: Path, backend: str, kept: Sequence[str] = ()) -> list[str]:
    """Without the interpreter of the tests, which that user may not read."""
    box = box_for(Workspace(project), DEFAULT_LIMITS)
    box = msgspec.structs.replace(
        box,
        kept=tuple(kept),
        readable=tuple(
            path for path in box.readable if Path(path).stat().st_mode & 0o5 == 0o5 and readable_by_all(path)
        ),
    )
    if backend == "bubblewrap":
        outer = bubblewrap_words(box, 2, bubblewrap_program())
    else:
        outer = launcher_words(box, 2) if backend == "landlock" else fence_words(box, 2)
        outer[0] = "/usr/bin/python3"
    return [*AS_NOBODY, *outer, *limited(command, LIMITED)]


def run_as_nobody(
    command: str, project: Path, backend: str, kept: Sequence[str] = (), *, timeout: float
) -> bytes:
    """Run a command in such a box; all that it said. Raises TimeoutExpired."""
    return subprocess.run(
        ordinary_words(command, project, backend, kept),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout,
        check=False,
        env={},
        pass_fds=(2,),
        start_new_session=True,
    ).stdout


def given_to_nobody(project: Path) -> None:
    """Make a project that user's."""
    for path in (project, *project.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def readable_by_all(path: str) -> bool:
    """Whether every folder on the way lets everybody through."""
    return all(parent.stat().st_mode & 0o1 for parent in Path(path).resolve().parents)
