"""Running a command where it can do no harm, and finding out once whether this machine can.

Backends: `bubblewrap`; `landlock`, which is our own launcher with namespaces and Landlock, for machines
without bwrap; `seccomp`, which is our fence of Landlock and a system call filter, for machines that
grant no namespaces; and `none`, only where the config waives the sandbox. All run the same box (`boxes.py`).
"""

import asyncio
import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from stepfold.engine.capabilities.box_ending import GRACE_SECONDS, Report, leave_nothing, status_pipe
from stepfold.engine.capabilities.boxes import (
    DEFAULT_LIMITS,
    NO_STATUS,
    Box,
    Limits,
    box_for,
    bubblewrap_program,
    bubblewrap_words,
    fence_words,
    launcher_words,
    limited,
)
from stepfold.engine.capabilities.guarded_entries import Unguarded, guarded_entries
from stepfold.engine.capabilities.output import Capture
from stepfold.engine.capabilities.syscall_filter import NoFilter
from stepfold.engine.capabilities.workspace import Workspace

BACKENDS = ("bubblewrap", "landlock", "seccomp")
"""In the order in which they are tried."""

KEEPS_LESS = {
    "seccomp": "without namespaces: no socket, /proc or /dev/shm for commands, and what lies elsewhere "
    "can't be opened but its names and sizes can be asked for"
}
"""What is different in a weaker backend, for whoever is told that it was taken."""

PROBE_SECONDS = 15
_PIECE = 64 * 1024


class Probe(Struct, frozen=True):
    """What was found: the backend to use (empty when there is none), and why."""

    backend: str
    why: str


class Completed(Struct, frozen=True, kw_only=True):
    """A command that ended, or was ended: then `exit_code` is None.

    `output` holds head and tail of both streams in the order they came; `size` in bytes and
    `digest` are of the whole. `flooded`: it was ended for writing more than the limit. `left` says what
    of what it made could not stay, mostly nothing.
    """

    exit_code: int | None
    output: bytes
    size: int
    digest: str
    truncated: bool = False
    timed_out: bool = False
    flooded: bool = False
    left: str = ""


class SandboxBroken(Exception):
    """The box could not be built, so nothing ran. The text is the backend's own."""


def probe(backend: str = "auto") -> Probe:
    """Find a sandbox by running `true` in it, for real.

    `auto` tries all in turn; a name tries that one; `none` is taken as waived.
    An unknown name is no sandbox: it must not lead to running bare.
    """
    if backend == "none":
        return Probe("none", "waived by the config: commands run without containment")
    wanted = BACKENDS if backend == "auto" else (backend,)
    faults: list[str] = []
    for name in wanted:
        fault = _fault_of(name)
        if not fault:
            found = (f"`true` ran in it as user {os.getuid()}", KEEPS_LESS.get(name, ""), *faults)
            return Probe(name, "; ".join(filter(None, found)))
        faults.append(f"{name}: {fault}")
    return Probe("", "; ".join(faults))


def _fault_of(backend: str) -> str:
    """Why a backend does not work here, or an empty string."""
    if backend not in BACKENDS:
        return f"no such backend; there are auto, {', '.join(BACKENDS)}, none"
    if backend == "bubblewrap" and not bubblewrap_program():
        return "bwrap is not installed"
    if os.uname().sysname != "Linux":
        return "needs Linux"
    with tempfile.TemporaryDirectory() as folder, status_pipe() as report:
        box = box_for(Workspace(folder), DEFAULT_LIMITS)
        try:
            words = _words(box, backend, report.status, "true", DEFAULT_LIMITS)
            ended = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PROBE_SECONDS,
                pass_fds=(report.status,),
                env={},
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired, NoFilter) as reason:
            return str(reason)
    said = " ".join(ended.stderr.decode("utf-8", "replace").split())[:300]
    return "" if ended.returncode == 0 else said or f"exit code {ended.returncode}"


async def run(
    command: str,
    *,
    workspace: Workspace,
    backend: str,
    timeout: float = 120.0,
    limits: Limits = DEFAULT_LIMITS,
    readable: Sequence[str] = (),
) -> Completed:
    """Run a shell command in the project's folder, in the box of `backend`, for `timeout` seconds at most.

    However it ends (by itself, late, flooding, or because this task was cancelled), no process of
    it is left, and no repository in the project that was not there before, but where there is no box.
    Raises SandboxBroken when the box could not be built, ValueError for no backend.
    """
    box = box_for(workspace, limits, readable)
    if backend == "none":
        return await _run_in(box, command, backend, timeout, limits)
    try:
        async with guarded_entries(workspace) as guard:
            guarded = msgspec.structs.replace(box, kept=guard.kept)
            completed = await _run_in(guarded, command, backend, timeout, limits)
    except Unguarded as reason:
        raise SandboxBroken(str(reason)) from reason
    return msgspec.structs.replace(completed, left=guard.said)


async def look(
    command: str,
    *,
    workspace: Workspace,
    backend: str,
    timeout: float,
    limits: Limits = DEFAULT_LIMITS,
    readable: Sequence[str] = (),
) -> Completed:
    """As `run`, for a command that only looks: the project is read-only to it."""
    box = _read_only(box_for(workspace, limits, readable))
    return await _run_in(box, command, backend, timeout, limits)


def _read_only(box: Box) -> Box:
    return msgspec.structs.replace(box, read_only=(box.project, *box.read_only))


async def _run_in(box: Box, command: str, backend: str, timeout: float, limits: Limits) -> Completed:
    with status_pipe() as report:
        with _words_for(box, backend, report.status, command, limits) as (words, environment):
            process, output, transport = await _start(words, environment, backend, box.project, report)
            capture = Capture(limits.kept)
            timed_out = flooded = False
            try:
                async with asyncio.timeout(timeout):
                    flooded = await _until_ended(process, output, capture, limits.output)
            except TimeoutError:
                timed_out = True
            finally:
                try:
                    await leave_nothing(process, report, backend)
                finally:
                    # Only now: a command that cleans up, and says so, would die of the closed pipe.
                    transport.close()
        if not (timed_out or flooded or backend == "none") and b"exit-code" not in report.said():
            raise SandboxBroken(capture.capped().text.strip() or f"{backend} ended with {process.returncode}")
    capped = capture.capped()
    return Completed(
        exit_code=None if timed_out or flooded else process.returncode,
        output=capped.text.encode(),
        size=capped.size,
        digest=capped.digest,
        truncated=capped.truncated,
        timed_out=timed_out,
        flooded=flooded,
    )


def server_words(
    command: str,
    *,
    workspace: Workspace,
    backend: str,
    limits: Limits = DEFAULT_LIMITS,
    readable: Sequence[str] = (),
    passed: Sequence[str] = (),
) -> list[str]:
    """The words that run a lasting program in a box where it can read the project and change nothing.

    `passed` are variables of the environment it is started in that reach it: their values stand in no
    command line, which everybody on the machine can read.
    """
    lasting = msgspec.structs.replace(_read_only(box_for(workspace, limits, readable)), passed=tuple(passed))
    return _words(lasting, backend, NO_STATUS, command, limits)


async def _start(
    words: Sequence[str], environment: dict[str, str], backend: str, folder: str, report: Report
) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader, asyncio.ReadTransport]:
    """Start a command in a process group of its own, with both its streams on one pipe.

    The pipe is ours and not asyncio's, whose `wait` ends only when every holder of the pipe is gone.
    """
    reading, writing = os.pipe()
    try:
        output = asyncio.StreamReader(limit=_PIECE)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(reading, "rb", buffering=0)
        )
        spawning = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                cwd=folder,
                env=environment,
                start_new_session=True,
                pass_fds=(report.status,),
            )
        )
        try:
            process = await _whole(spawning, report, backend)
        except BaseException:
            transport.close()
            raise
    finally:
        os.close(writing)
    return process, output, transport


async def _whole(
    spawning: "asyncio.Future[asyncio.subprocess.Process]", report: Report, backend: str
) -> asyncio.subprocess.Process:
    """Wait for a start even when cancelled in the middle of it, so that its whole group can be ended.

    Left to asyncio, a cancelled start kills one process: a box that is being built outlives that,
    until it has asked the kernel to die with its parent.
    """
    try:
        return await asyncio.shield(spawning)
    except asyncio.CancelledError:
        await leave_nothing(await spawning, report, backend)
        raise


@contextlib.contextmanager
def _words_for(
    box: Box, backend: str, status: int, command: str, limits: Limits
) -> Iterator[tuple[list[str], dict[str, str]]]:
    if backend in BACKENDS:
        yield _words(box, backend, status, command, limits), {}
        return
    if backend != "none":
        raise ValueError(f"no sandbox backend {backend!r}: probe() names the one there is")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        path = dict(box.environment)["PATH"]
        outside = {"HOME": home, "PATH": f"{path}:{os.environ.get('PATH', os.defpath)}"}
        yield limited(command, limits), dict(box.environment) | outside


def _words(box: Box, backend: str, status: int, command: str, limits: Limits) -> list[str]:
    if backend == "bubblewrap":
        outer = bubblewrap_words(box, status, bubblewrap_program())
    elif backend == "landlock":
        outer = launcher_words(box, status)
    else:
        outer = fence_words(box, status)
        # The kernel counts all that the user runs here, so what runs already comes on top.
        limits = msgspec.structs.replace(limits, processes=limits.processes + _tasks_of(os.getuid()))
    return [*outer, *limited(command, limits)]


def _tasks_of(user: int) -> int:
    """How many threads a user has on this machine."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == user:
                count += sum(1 for _ in (process / "task").iterdir())
    return count


async def _until_ended(
    process: asyncio.subprocess.Process, output: asyncio.StreamReader, capture: Capture, limit: int
) -> bool:
    """Take the output until the command ends; whether it wrote more than `limit` bytes.

    A process that it leaves behind may hold the pipe open, so the end of the command is waited
    for, and the end of its output only a little longer.
    """
    reading = asyncio.ensure_future(_take(output, capture, limit))
    ending = asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
        if reading.done() and reading.result():
            return True
        await ending
        await asyncio.wait({reading}, timeout=GRACE_SECONDS)
        return reading.done() and reading.result()
    finally:
        reading.cancel()
        ending.cancel()
        await asyncio.gather(reading, ending, return_exceptions=True)


async def _take(output: asyncio.StreamReader, capture: Capture, limit: int) -> bool:
    while piece := await output.read(_PIECE):
        capture.feed(piece)
        if capture.size > limit:
            return True
    return False
