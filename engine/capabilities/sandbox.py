"""Running a command where it can do no harm, and finding out once whether this machine can.

Backends: `bubblewrap`; `landlock`, which is our own launcher with namespaces and Landlock, for machines
without bwrap; `seccomp`, which is our fence of Landlock and a system call filter, for machines that
grant no namespaces; and `none`, only where the config waives the sandbox. All run the same box (`boxes.py`).
"""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

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
from stepfold.engine.capabilities.guarded_entries import guarded_entries
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
GRACE_SECONDS = 1.0
"""Between asking a process group to end and ending it; also how long its last output is waited for."""

FENCE_SECONDS = 15.0
"""How long the fence may take to end what it fenced, before it is killed itself."""

_PIECE = 64 * 1024
_INNER = re.compile(rb'"child-pid": *(\d+)')


class Probe(Struct, frozen=True):
    """What was found: the backend to use (empty when there is none), and why."""

    backend: str
    why: str


class Completed(Struct, frozen=True, kw_only=True):
    """A command that ended, or was ended: then `exit_code` is None.

    `output` holds head and tail of both streams in the order they came; `size` in bytes and
    `digest` are of the whole. `flooded`: it was ended for writing more than the limit.
    """

    exit_code: int | None
    output: bytes
    size: int
    digest: str
    truncated: bool = False
    timed_out: bool = False
    flooded: bool = False


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
    with tempfile.TemporaryDirectory() as folder, _status_pipe() as (_, status):
        box = box_for(Workspace(folder), DEFAULT_LIMITS)
        try:
            words = _words(box, backend, status, "true", DEFAULT_LIMITS)
            ended = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PROBE_SECONDS,
                pass_fds=(status,),
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
    it is left. Raises SandboxBroken when the box could not be built, ValueError for no backend.
    """
    box = box_for(workspace, limits, readable)
    with guarded_entries(workspace), _status_pipe() as (heard, status):
        with _words_for(box, backend, status, command, limits) as (words, environment):
            process, output, transport = await _start(
                words, environment, backend, box.project, (heard, status)
            )
            capture = Capture(limits.kept)
            timed_out = flooded = False
            try:
                async with asyncio.timeout(timeout):
                    flooded = await _until_ended(process, output, capture, limits.output)
            except TimeoutError:
                timed_out = True
            finally:
                try:
                    await _leave_nothing(process, heard, backend)
                finally:
                    # Only now: a command that cleans up, and says so, would die of the closed pipe.
                    transport.close()
        if not (timed_out or flooded or backend == "none") and b"exit-code" not in _said(heard):
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
    box = box_for(workspace, limits, readable)
    read_only = (box.project, *box.read_only)
    lasting = msgspec.structs.replace(box, read_only=read_only, passed=tuple(passed))
    return _words(lasting, backend, NO_STATUS, command, limits)


async def _start(
    words: Sequence[str], environment: dict[str, str], backend: str, folder: str, pipe: tuple[int, int]
) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader, asyncio.ReadTransport]:
    """Start a command in a process group of its own, with both its streams on one pipe.

    The pipe is ours and not asyncio's, whose `wait` ends only when every holder of the pipe is gone.
    """
    heard, status = pipe
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
                pass_fds=(status,),
            )
        )
        try:
            process = await _whole(spawning, heard, backend)
        except BaseException:
            transport.close()
            raise
    finally:
        os.close(writing)
    return process, output, transport


async def _whole(
    spawning: "asyncio.Future[asyncio.subprocess.Process]", heard: int, backend: str
) -> asyncio.subprocess.Process:
    """Wait for a start even when cancelled in the middle of it, so that its whole group can be ended.

    Left to asyncio, a cancelled start kills one process: a box that is being built outlives that,
    until it has asked the kernel to die with its parent.
    """
    try:
        return await asyncio.shield(spawning)
    except asyncio.CancelledError:
        await _leave_nothing(await spawning, heard, backend)
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


@contextlib.contextmanager
def _status_pipe() -> Iterator[tuple[int, int]]:
    """A pipe on which the box says that the command was started, which an exit code alone can't tell."""
    heard, status = os.pipe()
    os.set_blocking(heard, False)
    try:
        yield heard, status
    finally:
        os.close(heard)
        os.close(status)


def _said(heard: int) -> bytes:
    """What the box has reported until now; it is taken out of the pipe."""
    try:
        return os.read(heard, 4096)
    except BlockingIOError:
        return b""


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


async def _leave_nothing(process: asyncio.subprocess.Process, heard: int, backend: str) -> None:
    """End what is left of a command: it is asked to end, and a second later killed with all around it."""
    cut_off = process.returncode is None
    patience = FENCE_SECONDS if backend == "seccomp" else GRACE_SECONDS
    try:
        if cut_off and _asked_to_end(process.pid, backend):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), patience)
    finally:
        _signal_group(process.pid, signal.SIGKILL)
        if cut_off:
            _kill_inner(heard)
    await process.wait()


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


def _kill_inner(heard: int) -> None:
    """Kill the inner half of a box, of which bwrap tells before it lets it go on.

    It leaves the group for a session of its own a moment before it binds its life to the outer half;
    a box that is ended in that moment would go on without it.
    """
    told = _INNER.search(_said(heard))
    if told:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(int(told[1]), signal.SIGKILL)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
