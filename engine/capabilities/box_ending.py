"""How a command ends with all that it started: asked, then killed, and waited for until nothing is left."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

GRACE_SECONDS = 1.0
"""Between asking a process group to end and ending it; also how long its last output is waited for."""

FENCE_SECONDS = 15.0
"""How long the fence may take to end what it fenced, before it is killed itself."""

GONE_SECONDS = 5.0
"""How long the kernel may take to end what is left in a box."""

_INNER = re.compile(rb'"child-pid": *(\d+)')


class Report:
    """What a box says of how it fares: that the command was started, which an exit code alone can't tell.

    It is written to the descriptor `status`, which the box takes along.
    """

    def __init__(self, heard: int, status: int) -> None:
        self.status = status
        self._heard = heard
        self._said = b""

    def said(self) -> bytes:
        """All that was reported until now."""
        with contextlib.suppress(BlockingIOError):
            self._said += os.read(self._heard, 4096)
        return self._said

    @property
    def inner(self) -> int:
        """The first process of a box that bwrap builds, told of before it may go on; 0 until then."""
        told = _INNER.search(self.said())
        return int(told[1]) if told else 0


@contextlib.contextmanager
def status_pipe() -> Iterator[Report]:
    """A report, and the pipe that it comes by."""
    heard, status = os.pipe()
    os.set_blocking(heard, False)
    try:
        yield Report(heard, status)
    finally:
        os.close(heard)
        os.close(status)


async def leave_nothing(process: asyncio.subprocess.Process, report: Report, backend: str) -> None:
    """End what is left of a command: it is asked to end, and a second later killed with all around it."""
    cut_off = process.returncode is None
    patience = FENCE_SECONDS if backend == "seccomp" else GRACE_SECONDS
    with _watched(_inner_of(process, report, backend)) as inner:
        try:
            if cut_off and _asked_to_end(process.pid, backend):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), patience)
        finally:
            _signal_group(process.pid, signal.SIGKILL)
            if cut_off:
                _kill_inner(report)
        await process.wait()
        await _until_gone(inner)


def _inner_of(process: asyncio.subprocess.Process, report: Report, backend: str) -> int:
    """The first process of a box, with which all others of it end; 0 where it has none, or is gone already.

    bwrap itself ends before it, and so does our launcher when it is killed.
    """
    if backend == "bubblewrap":
        return report.inner
    found = _children(process.pid) if backend == "landlock" and process.returncode is None else []
    return found[0] if found else 0


@contextlib.contextmanager
def _watched(process: int) -> Iterator[int]:
    """A descriptor by which a process, and no other that gets its number, is waited for; -1 for none."""
    try:
        descriptor = os.pidfd_open(process) if process else -1
    except OSError:
        descriptor = -1
    try:
        yield descriptor
    finally:
        if descriptor >= 0:
            os.close(descriptor)


async def _until_gone(watched: int) -> None:
    """Wait for the first process of a box. The kernel lets it go when it has ended all others."""
    if watched < 0:
        return
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(watched, gone.set)
    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(gone.wait(), GONE_SECONDS)
    finally:
        loop.remove_reader(watched)


def _asked_to_end(outer: int, backend: str) -> bool:
    """Send SIGTERM to the group of the command itself; whether there is one to be asked.

    In a box that is the group of process 2: process 1 ignores the signal, as the first of every process
    namespace does, and the outer half must not go first, for the inner one could then go on without it.
    While a box is being built there is no such group, and nothing that could clean up after itself.
    """
    if backend in ("none", "seccomp"):
        # The fence itself asks, waits and kills: only it knows of all that runs behind it.
        _signal_group(outer, signal.SIGTERM)
        return True
    commands = [command for inner in _children(outer) for command in _children(inner)]
    groups = {_group_of(command) for command in commands} - {0, outer}
    for group in groups:
        _signal_group(group, signal.SIGTERM)
    return bool(groups)


def _children(process: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except (OSError, ValueError):
        return []


def _group_of(process: int) -> int:
    try:
        return os.getpgid(process)
    except ProcessLookupError:
        return 0


def _kill_inner(report: Report) -> None:
    """Kill the inner half of a box, of which bwrap tells before it lets it go on.

    It leaves the group for a session of its own a moment before it binds its life to the outer half;
    a box that is ended in that moment would go on without it.
    """
    inner = report.inner
    if inner:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(inner, signal.SIGKILL)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
