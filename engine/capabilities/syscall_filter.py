"""Which system calls a boxed process may not make, as a program that the kernel runs before each of them.

Two filters. `inner_filter` goes into boxes that namespaces have closed already: it takes away what only
attacks the kernel. `fence_filter` stands where there are no namespaces, so it also takes what they would
have closed: sockets, other processes, and changes to files that Landlock knows no right for.

The calls that are refused are listed and the others pass, except what is newer than the list.
"""

import errno
import os
from functools import cache

NEWEST = 471
"""The last call that the lists below were made for (Linux 7.0). What comes after it isn't there for a
boxed process, and neither are the x32 calls of x86-64, whose numbers lie far above."""

_LOW = 0xFFFFFFFF
"""Of an argument the kernel reads as a 32-bit number, the half that it reads."""

KERNEL_SURFACE = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp"),
    *("mount", "umount2", "pivot_root", "chroot", "fsopen", "fspick", "fsconfig", "fsmount", "move_mount"),
    *("open_tree", "open_tree_attr", "mount_setattr", "unshare", "setns", "open_by_handle_at"),
    *("name_to_handle_at", "add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot"),
    *("swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "syslog", "vhangup", "nfsservctl"),
    *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname"),
    *("iopl", "ioperm", "modify_ldt", "lookup_dcookie", "_sysctl", "sysfs", "ustat", "uselib"),
    *("fanotify_init", "fanotify_mark", "personality"),
)
"""Calls that look into other processes, mount, load, or reach seldom-walked parts of the kernel."""

ABSENT = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")
"""Calls whose arguments a filter can't see. Told that there are none, programs take the older way."""

NETWORK = (
    *("socket", "connect", "bind", "listen", "accept", "accept4"),
    *("mq_open", "mq_unlink", "mq_notify", "mq_timedsend", "mq_timedreceive"),
    *("shmget", "shmat", "shmctl", "msgget", "msgsnd", "msgrcv", "msgctl"),
    *("semget", "semop", "semctl", "semtimedop"),
)
"""Ways to talk with what is outside: sockets of every family, and memory and messages that have no path.

Landlock knows TCP ports. It knows neither UDP nor sockets that lie in a folder, as a Docker daemon's does.
"""

STEWARDED = (
    *("open", "creat", "openat", "truncate", "mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat"),
    *("link", "linkat", "unlink", "unlinkat", "rmdir", "rename", "renameat", "renameat2"),
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat"),
)
"""Calls that change a file, handed to `steward.py`, which knows where that may be. Of the opening ones
only those that write or make."""

ATTRIBUTES = (
    *("getxattr", "lgetxattr", "getxattrat", "listxattr", "llistxattr", "listxattrat"),
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
    *("removexattr", "lremovexattr", "fremovexattr", "removexattrat", "file_setattr"),
)
"""Reading and changing of extended attributes, for which Landlock has no right: they would reach any file."""

WATCHES = ("inotify_init", "inotify_init1", "inotify_add_watch")
"""A watch needs no right of Landlock's either, and tells what the user opens."""

OF_OTHERS = (
    *("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"),
    *("migrate_pages", "move_pages"),
)
"""Calls on a process by its number, which may be any of the same user's; on oneself they pass."""

_NAMESPACES = 0x7E020000
"""CLONE_NEWNS to CLONE_NEWNET: the flags of clone that make a namespace."""

_IOCTLS = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: typing on the user's terminal."""

_FILE_IOCTLS = (0x40086602, 0x40046602, 0x401C5820)
"""FS_IOC_SETFLAGS (of both sizes) and FS_IOC_FSSETXATTR, which want no right to write."""

_LEASES = (1024, 1040)
"""F_SETLEASE and F_SETDELEG: with a lease on a file, a command could make the steward wait for it."""

_NEW_LISTENER = 8
_AF_UNIX, _SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_TYPES = 1, 1, 5, 0xF
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1


_WRITING = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC


class NoFilter(Exception):
    """This machine's processor is one that the filter has no numbers for. The text says which."""


@cache
def inner_filter() -> bytes:
    """The filter for boxes that have namespaces. Raises NoFilter."""
    return _Compiled().finished()


@cache
def fence_filter() -> bytes:
    """The filter for the box that has none. Raises NoFilter."""
    compiled = _Compiled()
    for name in NETWORK:
        compiled.refuse(name, errno.EPERM)
    for name in ATTRIBUTES:
        compiled.refuse(name, errno.ENOTSUP)
    for name in (*WATCHES, "openat2"):
        compiled.refuse(name, errno.ENOSYS)
    for name, flags in (("open", 1), ("openat", 2)):
        compiled.allow(name, (flags, _WRITING, 0))
    for name in STEWARDED:
        compiled.hand_over(name)
    for kind in (_SOCK_STREAM, _SOCK_SEQPACKET):
        # Never a datagram one: it can be pointed at any socket by the address of a message.
        compiled.allow("socketpair", (0, _LOW, _AF_UNIX), (1, _SOCK_TYPES, kind))
    compiled.refuse("socketpair", errno.EPERM)
    for name in OF_OTHERS:
        compiled.allow(name, (0, _LOW, 0))
        compiled.refuse(name, errno.EPERM)
    compiled.allow("prlimit64", (0, _LOW, 0))
    compiled.allow("prlimit64", (2, 2**64 - 1, 0))
    compiled.refuse("prlimit64", errno.EPERM)
    for name, itself in (("setpriority", _PRIO_PROCESS), ("ioprio_set", _IOPRIO_WHO_PROCESS)):
        compiled.allow(name, (0, _LOW, itself), (1, _LOW, 0))
        compiled.refuse(name, errno.EPERM)
    # Whoever listens to a later filter would be asked before the steward, and could wave a call through.
    compiled.refuse("seccomp", errno.EPERM, (1, _NEW_LISTENER, _NEW_LISTENER))
    for command in _LEASES:
        compiled.refuse("fcntl", errno.EINVAL, (1, _LOW, command))
    for request in _FILE_IOCTLS:
        compiled.refuse("ioctl", errno.EPERM, (1, _LOW, request))
    return compiled.finished()


def call_numbers() -> dict[int, str]:
    """What the fence must know of the processor: numbers of the calls that it handles or makes."""
    from seccompy import syscall_nr

    return {syscall_nr(name): name for name in (*STEWARDED, "seccomp") if _known(name)}


def _known(name: str) -> bool:
    """Whether this processor has the call; newer kinds never had the older ones."""
    from seccompy import syscall_nr

    try:
        syscall_nr(name)
    except ValueError:
        return False
    return True


class _Compiled:
    """A filter being made, with what both kinds refuse in it. The first rule of a call that fits wins."""

    def __init__(self) -> None:
        from seccompy import Filter, UnsupportedError
        from seccompy.syscalls import arch

        try:
            arch()
        except UnsupportedError as reason:
            raise NoFilter(str(reason)) from None
        self._filter = Filter()
        for name in KERNEL_SURFACE:
            self.refuse(name, errno.EPERM)
        for name in ABSENT:
            self.refuse(name, errno.ENOSYS)
        self.allow("clone", (0, _NAMESPACES, 0))
        self.refuse("clone", errno.EPERM)
        for request in _IOCTLS:
            self.refuse("ioctl", errno.EPERM, (1, _LOW, request))

    def refuse(self, name: str, number: int, *where: tuple[int, int, int]) -> None:
        """Answer a call with an error where its arguments fit: (index, mask, value) each."""
        if _known(name):
            self._filter.errno(name, number, args=_conditions(where))

    def allow(self, name: str, *where: tuple[int, int, int]) -> None:
        """Let a call through where its arguments fit."""
        if _known(name):
            self._filter.allow(name, args=_conditions(where))

    def hand_over(self, name: str) -> None:
        """Let whoever holds the listener answer a call."""
        if _known(name):
            self._filter.notify(name)

    def finished(self) -> bytes:
        """The program, as the array of `struct sock_filter` that the kernel takes."""
        from seccompy import bpf

        unknown = 0x00050000 | errno.ENOSYS
        first = [bpf.Load(0), bpf.Jump(bpf.BPF_JGT, NEWEST, None, "known"), bpf.Ret(unknown)]
        return bpf.assemble(first, {"known": 3}) + self._filter.program


def _conditions(where: tuple[tuple[int, int, int], ...]) -> list[tuple[int, int, int, int]]:
    from seccompy import CmpOp

    return [(index, int(CmpOp.MASKED_EQ), value, mask) for index, mask, value in where]
