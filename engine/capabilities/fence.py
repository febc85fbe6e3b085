"""A program of its own: closes a command in with Landlock and a system call filter, without namespaces.

It is started as a file by `stepfold.engine.capabilities.sandbox` where the machine grants no namespaces,
as in most containers. It shares the machine's files and processes with everything else, so it keeps
what it can only by refusing more: no socket, no /proc, no /dev/shm. What changes a file of the project
is handed to `steward.py`, which runs in this process.

Two Landlock domains lie in each other. This process is in the outer one, from which signals reach only
what it started; so it can end all of that with one signal to everybody, that nothing can outrun. The
command is in the inner one, from which not even this process can be reached.
"""

# pathlib would double the start-up time of a program that runs once a command.
# ruff: noqa: PTH100, PTH102, PTH106, PTH118, PTH120
import _socket
import binascii
import contextlib
import ctypes
import os
import select
import signal
import struct
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING or __package__:
    from stepfold.engine.capabilities import launcher
    from stepfold.engine.capabilities.steward import Steward
    from stepfold.engine.capabilities.stewarded_call import Rule
else:
    # Run as a file in isolated mode, it finds its neighbour by the folder that both lie in.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import launcher
    from steward import Steward
    from stewarded_call import Rule

    del sys.path[0]

NEEDED_VERSION = 6
"""Of Landlock: from Linux 6.12 on it keeps signals inside, without which a command could end any process."""

TCP, SCOPES, SIGNALS = 1 | 2, 1 | 2, 2
PR_SET_CHILD_SUBREAPER = 36
SET_FILTER, LISTENED, WAITING_UNDISTURBED = 1, 1 << 3, 1 << 5
CAPABILITY_VERSION = 0x20080522
GRACE_SECONDS = 1.0
ASKED_TO_END = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
MACHINE_FACTS = tuple(
    f"/proc/{name}" for name in ("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version")
)
"""What programs read of /proc that tells of no process; its folders show every command line."""

READING = launcher.EXECUTE | launcher.READ_FILE | launcher.READ_DIR


class Waking:
    """Signals from here on: each wakes whoever waits for `woken`, and `asked` holds those to end.

    None may end us before we have ended what we started.
    """

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.woken, waking = os.pipe()
        for end in (self.woken, waking):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, _: None)
        for one in ASKED_TO_END:
            # Not told by the pipe alone, which a command could have filled with the ends of its children.
            signal.signal(one, lambda number, _: self.asked.append(number))


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
    enter(ruleset)


def refuse_calls(box: launcher.Box) -> int:
    """Install the filter, see for ourselves that it bites, and return the descriptor that hears of calls."""
    instructions = binascii.a2b_base64(box["filter"])
    program = launcher.Program(len(instructions) // 8, instructions)
    (number,) = (int(number) for number, name in box["calls"].items() if name == "seccomp")
    listener = launcher.checked(
        launcher.LIBC.syscall(number, SET_FILTER, LISTENED | WAITING_UNDISTURBED, ctypes.byref(program)),
        "seccomp",
    )
    for tried in (launcher.LIBC.socket(1, 1, 0), launcher.LIBC.unshare(launcher.CLONE_NEWUSER)):
        if tried >= 0:
            raise OSError("the filter of system calls refuses nothing")
    return listener


def become(box: launcher.Box, private: str, told: "_socket.socket", status: int, command: list[str]) -> None:
    """As the process inside: close the fence around us, then become the command."""
    os.setsid()
    os.chdir(box["project"])
    close_in(box, private)
    listener = refuse_calls(box)
    told.sendmsg([b"!"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", listener))])
    os.close(listener)
    told.close()
    launcher.checked(
        launcher.LIBC.prctl(launcher.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "die with the parent"
    )
    # A file that is there and may not be read is an error to git, where one that is not there is none.
    ours = {"HOME": f"{private}/home", "TMPDIR": f"{private}/tmp", "GIT_CONFIG_NOSYSTEM": "1"}
    launcher.start(command, launcher.environment_of(box) | ours, status)


def received(told: "_socket.socket") -> int:
    """The descriptor that the process inside sends; -1 where it failed before."""
    _, extra, _, _ = told.recvmsg(1, 64)
    return int(struct.unpack("i", extra[0][2])[0]) if extra else -1


def until_ended(child: int, waking: Waking, steward: Steward) -> int:
    """The wait status of the command, whose calls are answered meanwhile.

    Asked to end, we ask its group, and a second later kill it. Each round does a little of everything:
    a command that keeps us busy with one thing must not keep us from another.
    """
    poll = select.poll()
    poll.register(waking.woken, select.POLLIN)
    if steward.listener >= 0:
        poll.register(steward.listener, select.POLLIN)
    deadline = 0.0
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == child:
            return status
        if waking.asked and not deadline:
            deadline = time.monotonic() + GRACE_SECONDS
            ask(child)
        left = max(deadline - time.monotonic(), 0) if deadline else None
        if left == 0:
            os.kill(child, signal.SIGKILL)
        # One that has ended may not be the only one.
        ready = poll.poll(0 if ended else None if left is None else left * 1000)
        for descriptor, event in ready:
            if descriptor == waking.woken:
                os.read(descriptor, select.PIPE_BUF)
            elif event & select.POLLIN:
                steward.attend()
            else:
                poll.unregister(descriptor)


def ask(child: int) -> None:
    """Ask the command's group to end."""
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


def give_up_capabilities() -> None:
    """Be no more than the user, for root too: what the steward does, it does with these rights."""
    launcher.drop_capabilities()
    header = ctypes.c_char_p(struct.pack("=Ii", CAPABILITY_VERSION, 0))
    launcher.checked(launcher.LIBC.capset(header, ctypes.c_char_p(bytes(24))), "capset")


def private_folder() -> str:
    """A home and a folder for temporary files that only this command has."""
    path = f"{os.path.realpath('/tmp')}/stepfold-{os.urandom(12).hex()}"
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
    """Run the command behind the fence; `launcher.given` says how both are asked for."""
    box, status, command = launcher.given()
    waking = Waking()
    for option, value in ((launcher.PR_SET_PDEATHSIG, signal.SIGTERM), (PR_SET_CHILD_SUBREAPER, 1)):
        launcher.checked(launcher.LIBC.prctl(option, value, 0, 0, 0), "prctl")
    keep_signals_in()
    give_up_capabilities()
    private = private_folder()
    telling, told = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    child = os.fork()
    if child == 0:
        try:
            become(box, private, telling, status, command)
        except OSError as reason:
            launcher.fail(reason)
    telling.close()
    if status >= 0:
        os.close(status)
    steward = Steward(
        received(told), box["calls"], Rule(box["project"], private, [*box["read_only"], *box["kept"]])
    )
    code = launcher.code_of(until_ended(child, waking, steward))
    end_all()
    remove(private)
    os._exit(code)


if __name__ == "__main__":
    try:
        main()
    except OSError as reason:
        launcher.fail(reason)
