"""A program of its own: enters namespaces, closes the file system with Landlock, and runs a command.

It is started as a file by `stepfold.engine.capabilities.sandbox` where bubblewrap is missing, and
imports nothing but the standard library. Landlock alone can't cut the network off (it knows TCP
and not UDP), so an empty network namespace does that; where the kernel refuses one, this refuses too.

The exit code is the command's; 125 with a line that starts `sandbox:` when the box could not be built.
"""

# pathlib would double the start-up time of a program that runs once a command.
# ruff: noqa: PTH103, PTH112, PTH114, PTH115, PTH120, PTH123, PTH211
import binascii
import ctypes
import json
import os
import signal
import stat
import struct
import sys
from typing import Any

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000
CLONE_NEWIPC, CLONE_NEWUTS = 0x08000000, 0x04000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 1, 22, 24, 38, 47
SECCOMP_MODE_FILTER = 2
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
ALL_BY_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
ALL_FROM_5 = (1 << 16) - 1
NEW_ROOT = "/tmp"
MNT_DETACH = 2
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
BROKEN = 125
STARTED = b"exit-code"

Box = dict[str, Any]
"""A `stepfold.engine.capabilities.boxes.Box`, out of its JSON."""

LIBC = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    """The result of a C call, or OSError with what was tried."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def enter_namespaces() -> None:
    """A user namespace with only ourselves in it, and in it namespaces of everything else."""
    user, group = os.getuid(), os.getgid()
    flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
    checked(LIBC.unshare(flags), "unshare")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as opened:
            opened.write(text)


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """mount(2), with text."""
    arguments = [text.encode() if text is not None else None for text in (source, target, kind)]
    options = data.encode() or None
    checked(LIBC.mount(*arguments, ctypes.c_ulong(flags), options), f"mount {target}")


def build_root(box: Box) -> None:
    """A root of its own: what the box names, and nothing else of the machine, its sockets least of all."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    # Opened before /tmp is covered, for any of them may lie in it.
    shown = [
        (path, held(path)) for path in (*box["readable"], box["project"], *DEVICES) if os.path.lexists(path)
    ]
    mount("tmpfs", NEW_ROOT, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    private = f"size={box['private_space']},mode=1777"
    for path in ("/tmp", box["home"], "/dev", "/dev/shm"):
        os.makedirs(NEW_ROOT + path, exist_ok=True)
        # A sticky /dev, open to all, would have the kernel refuse to write to another's /dev/null.
        options = "size=1m,mode=755" if path == "/dev" else private
        mount("tmpfs", NEW_ROOT + path, "tmpfs", MS_NOSUID | MS_NODEV, options)
    os.makedirs(NEW_ROOT + "/proc")
    mount("proc", NEW_ROOT + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for path, source in shown:
        show(path, source, read_only=path != box["project"] and path not in DEVICES)
    for path in box["read_only"]:
        if os.path.lexists(NEW_ROOT + path):
            show(path, held(NEW_ROOT + path), read_only=True)
    for path in box["kept"]:
        show(path, held(NEW_ROOT + path), read_only=True)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"{NEW_ROOT}/dev/{name}")
    os.chdir(NEW_ROOT)
    checked(LIBC.pivot_root(b".", b"."), "pivot_root")
    checked(LIBC.umount2(b".", MNT_DETACH), "umount")
    os.chdir("/")
    mount(None, "/", None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)


def held(path: str) -> int | str:
    """A handle on a path, or where it points if it is one of the system's links (`/bin`)."""
    if os.path.islink(path):
        return os.readlink(path)
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def show(path: str, source: int | str, *, read_only: bool) -> None:
    """Put one path into the new root."""
    target = NEW_ROOT + path
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if isinstance(source, str):
        if not os.path.lexists(target):
            os.symlink(source, target)
        return
    behind = f"/proc/self/fd/{source}"
    if os.path.isdir(behind):
        os.makedirs(target, exist_ok=True)
    elif not os.path.lexists(target):
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    mount(behind, target, None, MS_BIND | MS_REC)
    os.close(source)
    if read_only:
        # Flags that the mount has already may not be dropped, so they are given again.
        mount(None, target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | flags_in_force(target))


def flags_in_force(path: str) -> int:
    """The mount flags in force at a path, as mount(2) wants them."""
    found = os.statvfs(path).f_flag
    return sum(
        flag
        for flag, shown in ((MS_NOSUID, os.ST_NOSUID), (MS_NODEV, os.ST_NODEV), (MS_NOEXEC, os.ST_NOEXEC))
        if found & shown
    )


def close_file_system(box: Box) -> None:
    """Landlock: what is not named is not there to be opened, whatever the mounts show."""
    version = checked(LIBC.syscall(LANDLOCK_CREATE, None, 0, 1), "landlock")
    every = ALL_BY_VERSION.get(version, ALL_FROM_5)
    ruleset = checked(
        LIBC.syscall(LANDLOCK_CREATE, ctypes.c_char_p(struct.pack("=Q", every)), 8, 0), "landlock"
    )
    reading = EXECUTE | READ_FILE | READ_DIR
    for path in box["readable"]:
        allow(ruleset, path, reading & every)
    for path in DEVICES:
        allow(ruleset, path, (READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV) & every)
    allow(ruleset, "/", READ_DIR)
    allow(ruleset, "/proc", (READ_FILE | READ_DIR) & every)
    for path in (box["project"], "/tmp", box["home"], "/dev/shm"):
        allow(ruleset, path, every)
    checked(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    checked(LIBC.syscall(LANDLOCK_RESTRICT, ruleset, 0), "landlock")
    os.close(ruleset)


def allow(ruleset: int, path: str, rights: int) -> None:
    """Add one path; on a file only the rights that a file can have are taken."""
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        grant(ruleset, opened, rights)
    finally:
        os.close(opened)


def grant(ruleset: int, opened: int, rights: int) -> None:
    """Add what an open descriptor names, and all that lies beneath it."""
    if not stat.S_ISDIR(os.fstat(opened).st_mode):
        rights &= EXECUTE | READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
    rule = ctypes.c_char_p(struct.pack("=Qi", rights, opened))
    checked(LIBC.syscall(LANDLOCK_ADD, ruleset, 1, rule, 0), "landlock")


class Program(ctypes.Structure):
    """`struct sock_fprog`: a filter of system calls, as the kernel takes it."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filter_calls(encoded: str) -> None:
    """Have the kernel run a filter (base64 of its instructions) before each system call from here on."""
    instructions = binascii.a2b_base64(encoded)
    program = Program(len(instructions) // 8, instructions)
    checked(LIBC.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0), "seccomp")


def start(command: list[str], environment: dict[str, str], status: int) -> None:
    """Become the command, once it has been told on `status` that the box stands."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        # Python ignores both, and what is ignored stays so in the command.
        signal.signal(number, signal.SIG_DFL)
    if status >= 0:
        os.write(status, STARTED)
        os.close(status)
    os.execve(command[0], command, environment)


def environment_of(box: Box) -> dict[str, str]:
    """The environment of the command: the box's own, and what it lets pass of ours."""
    passed = {name: os.environ[name] for name in box.get("passed", ()) if name in os.environ}
    return dict(box["environment"]) | passed


def drop_capabilities() -> None:
    """Nothing left to undo the above with, for root either: exec takes what the bounding set holds."""
    for number in range(64):
        if LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) < 0:
            break
    LIBC.prctl(PR_CAP_AMBIENT, 4, 0, 0, 0)


def run_inside(box: Box, status: int, command: list[str]) -> None:
    """As process 1 of the box: build it, then run the command as process 2 and wait for it."""
    checked(LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    build_root(box)
    os.chdir(box["project"])
    child = os.fork()
    if child == 0:
        os.setsid()
        drop_capabilities()
        close_file_system(box)
        if box["filter"]:
            filter_calls(box["filter"])
        start(command, environment_of(box), status)
    if status >= 0:
        os.close(status)
    while True:
        ended, code = os.wait()
        if ended == child:
            os._exit(code_of(code))


def code_of(status: int) -> int:
    """An exit code from a wait status: 128 and the signal, as shells have it."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def given() -> tuple[Box, int, list[str]]:
    """What the command line says: the box, the descriptor that hears `exit-code`, the command.

    `STATUS COUNT PIECE… WORD…`: so many pieces make the box.
    """
    status, last = int(sys.argv[1]), 3 + int(sys.argv[2])
    return json.loads("".join(sys.argv[3:last])), status, sys.argv[last:]


def main() -> None:
    """Build the box and run the command in it; STATUS hears `exit-code` once the box stands."""
    box, status, command = given()
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    enter_namespaces()
    inside = os.fork()
    if inside == 0:
        try:
            run_inside(box, status, command)
        except OSError as reason:
            fail(reason)
    os._exit(code_of(os.waitpid(inside, 0)[1]))


def fail(reason: OSError) -> None:
    """Say why on stderr and leave with the code for a box that could not be built."""
    os.write(2, f"sandbox: {reason}\n".encode())
    os._exit(BROKEN)


if __name__ == "__main__":
    try:
        main()
    except OSError as reason:
        fail(reason)
