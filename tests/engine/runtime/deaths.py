"""Real deaths: a forked process sends itself SIGKILL from within a write of its log."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from stepfold.events.journal import Journal


def killed(work: Callable[[], object], events: int, torn: float) -> bool:
    """Do the work in a process that dies with this many events written, and this part of the next.

    Whether it came that far.
    """
    life = multiprocessing.get_context("fork").Process(target=_lives, args=(work, events, torn))
    life.start()
    life.join()
    return life.exitcode == -signal.SIGKILL


def _lives(work: Callable[[], object], events: int, torn: float) -> None:
    whole_append = Journal.append
    written = 0

    def append(journal: Journal, batch: bytes) -> None:
        nonlocal written
        lines = batch.splitlines(keepends=True)
        if written + len(lines) > events:
            rest = events - written
            last = lines[rest]
            os.write(journal._file, b"".join(lines[:rest]) + last[: int(len(last) * torn)])
            os.kill(os.getpid(), signal.SIGKILL)
        written += len(lines)
        whole_append(journal, batch)

    Journal.append = append  # type: ignore[method-assign]
    work()


def killed_at_touch(work: Callable[[], object], folder: Path, touches: int) -> bool:
    """Do the work in a process that dies before it opens, renames or removes anything in this folder for the
    so-manieth time. Whether it came that far.
    """
    life = multiprocessing.get_context("fork").Process(target=_touches, args=(work, str(folder), touches))
    life.start()
    life.join()
    return life.exitcode == -signal.SIGKILL


def _touches(work: Callable[[], object], folder: str, touches: int) -> None:
    left = touches

    def heard(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in _TOUCHING and str(arguments[0]).startswith(folder):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(heard)
    work()


_TOUCHING = {"open", "os.mkdir", "os.rename", "os.remove"}
