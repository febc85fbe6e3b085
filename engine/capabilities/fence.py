"""A program of its own: closes a command in with Landlock and a system call filter, without namespaces.

It is started as a file by `stepfold.engine.capabilities.sandbox` where the machine grants no namespaces,
as in most containers. It shares the machine's files and processes with everything else, so it keeps
what it can only by refusing more: no entry is made, renamed or removed in the project's top folder (for
Landlock can't take `.git` out of a folder that may be written), no socket, no /proc, no /dev/shm.

Two Landlock domains lie in each other. This process is in the outer one, from which signals reach only
what it started; so it can end all of that with one signal to everybody, that nothing can outrun. The
command is in the inner one, from which not even this process can be reached.
"""

# pathlib would double the start-up time of a program that runs once a command.
# ruff: noqa: PTH102, PTH103, PTH106, PTH114, PTH118, PTH120, PTH208
import contextlib
import ctypes
import json
import os
import signal
import stat
import struct
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepfold.engine.capabilities import launcher
else:
    # Run as a file in isolated mode, it finds its neighbour by the folder that both lie in.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import launcher

    del sys.path[0]

NEEDED_VERSION = 6
"""Of Landlock: from Linux 6.12 on it keeps signals inside, without which a command could end any process."""

TCP, SCOPES, SIGNALS = 1 | 2, 1 | 2, 2
PR_SET_CHILD_SUBREAPER = 36
GRACE_SECONDS = 1.0
ASKED_TO_END = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
MACHINE_FACTS = tuple(
    f"/proc/{name}" for name in ("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version")
)
"""What programs read of /proc that tells of no process. Its folders stay shut: they show every command line."""

READING = launcher.EXECUTE | launcher.READ_FILE | launcher.READ_DIR


def new_ruleset(files: int, ports: int, scopes: int) -> int:
    """A Landlock ruleset that handles these rights, and so refuses what no rule of it grants."""
    attributes = ctypes.c_char_p(struct.pack("=QQQ", files, ports, scopes))
    return launcher.checked(
        launcher.LIBC.syscall(launcher.LANDLOCK_CREATE, attributes, 24, 0), "landlock ruleset"
    )


def enter(ruleset: int) -> None:
    """Restrict this process, and all that it starts, to a ruleset."""
    launcher.checked(launcher.LIBC.prctl(launcher.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    launcher.checked(launcher.LIBC.syscall(launcher.LANDLOCK_RESTRICT, ruleset, 0), "landlock")
    os.close(ruleset)


def keep_signals_in() -> None:
    """Enter the outer domain, and make sure that it is one, for everybody in reach will be signalled."""
    version = launcher.checked(launcher.LIBC.syscall(launcher.LANDLOCK_CREATE, None, 0, 1), "landlock")
    if version < NEEDED_VERSION:
        raise OSError(
            f"Landlock of this kernel is version {version}; "
            f"{NEEDED_VERSION} (Linux 6.12) is needed to keep signals inside"
        )
    enter(new_ruleset(0, 0, SIGNALS))
    with contextlib.suppress(PermissionError):
        os.kill(os.getppid(), 0)
        raise OSError("Landlock does not keep signals inside")


def close_in(box: launcher.Box, private: str) -> None:
    """Enter the inner domain: files by what the box names, no TCP, no signal and no socket to the outside."""
    ruleset = new_ruleset(launcher.ALL_FROM_5, TCP, SCOPES)
    for path in (*box["readable"], *MACHINE_FACTS):
        launcher.allow(ruleset, path, READING)
    for path in launcher.DEVICES:
        rights = launcher.READ_FILE | launcher.WRITE_FILE | launcher.TRUNCATE | launcher.IOCTL_DEV
        launcher.allow(ruleset, path, rights)
    launcher.allow(ruleset, private, launcher.ALL_FROM_5)
    launcher.allow(ruleset, box["project"], READING)
    opened = os.open(box["project"], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    grant_writing(ruleset, opened, box["project"], frozenset(box["read_only"]))
    os.close(opened)
    enter(ruleset)


def grant_writing(ruleset: int, opened: int, path: str, read_only: frozenset[str]) -> None:
    """Let a folder be written, or each of its entries where one of them, however deep, may not be.

    No link is followed: it would carry the right to where it points.
    """
    if path in read_only:
        return
    if not any(one.startswith(f"{path}/") for one in read_only):
        launcher.grant(ruleset, opened, launcher.ALL_FROM_5)
        return
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=opened)
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            entry = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            kind = os.fstat(entry).st_mode
            if stat.S_ISDIR(kind) or stat.S_ISREG(kind):
                grant_writing(ruleset, entry, f"{path}/{name}", read_only)
            os.close(entry)
    os.close(folder)


def refuse_calls(program: str) -> None:
    """Install the filter, and see for ourselves that it bites."""
    launcher.filter_calls(program)
    for tried in (launcher.LIBC.socket(1, 1, 0), launcher.LIBC.unshare(launcher.CLONE_NEWUSER)):
        if tried >= 0:
            raise OSError("the filter of system calls refuses nothing")


def become(box: launcher.Box, private: str, status: int, command: list[str]) -> None:
    """As the process inside: close the fence around us, then become the command."""
    os.setsid()
    os.chdir(box["project"])
    launcher.drop_capabilities()
    close_in(box, private)
    refuse_calls(box["filter"])
    launcher.checked(
        launcher.LIBC.prctl(launcher.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "die with the parent"
    )
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    folders = {"HOME": f"{private}/home", "TMPDIR": f"{private}/tmp"}
    launcher.start(command, launcher.environment_of(box) | folders, status)


def until_ended(child: int) -> int:
    """The wait status of the command. Asked to end, we ask its group, and a second later kill it."""
    deadline = 0.0
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == child:
            return status
        if ended:
            continue
        left = deadline - time.monotonic() if deadline else 3600.0
        told: Any = signal.sigtimedwait((signal.SIGCHLD, *ASKED_TO_END), max(left, 0.0))
        if told is None and deadline:
            os.kill(child, signal.SIGKILL)
        elif told is not None and told.si_signo != signal.SIGCHLD and not deadline:
            deadline = time.monotonic() + GRACE_SECONDS
            try:
                os.killpg(child, signal.SIGTERM)
            except ProcessLookupError:
                # It hasn't become the command yet, so there is nothing to be cleaned up.
                os.kill(child, signal.SIGKILL)


def end_all() -> None:
    """Kill all that was started from here: one signal, under a lock that no fork gets past."""
    with contextlib.suppress(OSError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def private_folder() -> str:
    """A home and a folder for temporary files that only this command has."""
    path = f"/tmp/stepfold-{os.urandom(12).hex()}"
    os.mkdir(path, 0o700)
    os.mkdir(f"{path}/home")
    os.mkdir(f"{path}/tmp")
    return path


def remove(path: str) -> None:
    """Remove a private folder, whatever a command has made of it."""
    try:
        for name in ("home", "tmp", ""):
            os.rmdir(os.path.join(path, name))
    except OSError:
        for words in (["/bin/chmod", "-R", "u+rwX", "--", path], ["/bin/rm", "-rf", "--", path]):
            os.spawnve(os.P_WAIT, words[0], words, {})


def main() -> None:
    """`fence.py BOX STATUS WORD…`: STATUS is the descriptor that hears `exit-code` once the box stands."""
    box, status, command = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    # Held back until somebody waits for them: none may end us before we have ended what we started.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, *ASKED_TO_END))
    for option, value in ((launcher.PR_SET_PDEATHSIG, signal.SIGTERM), (PR_SET_CHILD_SUBREAPER, 1)):
        launcher.checked(launcher.LIBC.prctl(option, value, 0, 0, 0), "prctl")
    keep_signals_in()
    private = private_folder()
    child = os.fork()
    if child == 0:
        try:
            become(box, private, status, command)
        except OSError as reason:
            launcher.fail(reason)
    if status >= 0:
        os.close(status)
    code = launcher.code_of(until_ended(child))
    end_all()
    remove(private)
    os._exit(code)


if __name__ == "__main__":
    try:
        main()
    except OSError as reason:
        launcher.fail(reason)
