"""One call that changes a file, made by a fenced command and carried out by the steward (`steward.py`).

Each path is opened first and judged by where that lies, and the change is made on what was opened:
a link that is bent to elsewhere in between changes nothing of it.
"""

# Part of a program that may not spend time on pathlib.
# ruff: noqa: PTH101, PTH115, PTH116, PTH123
import ctypes
import errno
import os
import stat
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING or __package__:
    from stepfold.engine.capabilities import launcher
else:
    import launcher

OPENAT2, NO_MAGIC_LINKS = 437, 2
HERE = -100
NOT_FOLLOWED, OF_A_FOLDER, FOLLOWED, OF_THE_DESCRIPTOR = 0x100, 0x200, 0x400, 0x1000
LONGEST_PATH = 4096
NOW, OMITTED = (1 << 30) - 1, (1 << 30) - 2
TEMPORARY = os.O_TMPFILE & ~os.O_DIRECTORY
SPECIAL_MODES = stat.S_ISUID | stat.S_ISGID


class PassedOn(Exception):
    """The kernel shall decide by what Landlock allows."""


class Rule:
    """What a fenced command may change: its project and its private folder, but for what stays as it is.

    `read_only` are paths in the project, whether they are there or not. All paths are real ones.
    """

    def __init__(self, project: str, private: str, read_only: list[str]) -> None:
        self.project, self.private = project, private
        # A file system may not tell `.GIT` from `.git`.
        self.read_only = tuple(path.casefold() for path in read_only)

    def may_change(self, path: str) -> bool:
        """Whether what lies at a real path may be written, made or removed."""
        inside = path.startswith((f"{self.project}/", f"{self.private}/"))
        return inside and not self.stays(path)

    def may_move(self, path: str) -> bool:
        """Whether it may be, with all that lies beneath it."""
        beneath = f"{path.casefold()}/"
        return self.may_change(path) and not any(one.startswith(beneath) for one in self.read_only)

    def may_dress(self, path: str) -> bool:
        """Whether its mode, owner and times may be changed: those of the top folder may, too."""
        return self.may_change(path) or (path == self.project and not self.stays(path))

    def stays(self, path: str) -> bool:
        """Whether it is one of the read-only paths, or lies beneath one."""
        folded = path.casefold()
        return any(folded == one or folded.startswith(f"{one}/") for one in self.read_only)


class Call:
    """One call of a fenced process: its words, what they lead to, and the change itself.

    What can be said in one call of the system only is said by the newest: the others are spelled as it.
    A method that takes `folder` and `address` takes a path as `openat` does.
    """

    def __init__(self, rule: Rule, task: int, still_there: Callable[[], bool]) -> None:
        self.rule, self.task, self.still_there = rule, task, still_there
        self.held: list[int] = []

    def finish(self) -> None:
        """Let go of all that was held for it."""
        for descriptor in self.held:
            os.close(descriptor)

    def memory(self, address: int, size: int) -> bytes:
        """What stands in the caller's memory; less than `size` where that ends."""
        opened = self.hold(os.open(f"/proc/{self.task}/mem", os.O_RDONLY | os.O_CLOEXEC))
        return os.pread(opened, size, address)

    def text(self, address: int) -> str:
        """A path that the caller names."""
        path, ended, _ = self.memory(address, LONGEST_PATH).partition(b"\0")
        if not ended:
            raise OSError(errno.ENAMETOOLONG, "path")
        if not path:
            raise FileNotFoundError(errno.ENOENT, "path")
        return os.fsdecode(path)

    def hold(self, descriptor: int) -> int:
        """Close it when the call is done."""
        self.held.append(descriptor)
        return descriptor

    def base(self, folder: int, path: str) -> int:
        """Where a path starts: the root, the caller's folder, or a folder that it has open."""
        number = signed(folder)
        start = f"/proc/{self.task}/cwd" if number == HERE else f"/proc/{self.task}/fd/{number}"
        opened = self.hold(os.open("/" if path.startswith("/") else start, os.O_PATH | os.O_CLOEXEC))
        # Number and memory are those of the caller only if it has been there until now.
        if not self.still_there():
            raise OSError(errno.ESRCH, "gone")
        return opened

    def reached(self, folder: int, path: str, flags: int = 0) -> int:
        """A handle on what a path leads to. Links are followed, those of /proc are not."""
        how = ctypes.c_char_p(struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC | flags, 0, NO_MAGIC_LINKS))
        found = launcher.LIBC.syscall(OPENAT2, self.base(folder, path), os.fsencode(path), how, 24)
        try:
            return self.hold(launcher.checked(found, "open"))
        except OSError as reason:
            if reason.errno == errno.ELOOP:
                raise PassedOn from None
            raise

    def place(self, folder: int, path: str) -> tuple[int, str, str]:
        """A path's folder, its name in there, and the real path of both together, which may be changed."""
        head, _, name = path.rstrip("/").rpartition("/")
        if name in ("", ".", ".."):
            raise PassedOn
        if not head:
            head = "/" if path.startswith("/") else "."
        parent = self.reached(folder, head, os.O_DIRECTORY)
        real = f"{real_path(parent)}/{name}"
        if not self.rule.may_change(real):
            raise PassedOn
        return parent, name, real

    def target(self, folder: int, address: int, flags: int) -> str:
        """A path of our own to something whose attributes may be changed; refused if they may not."""
        empty = not address or (flags & OF_THE_DESCRIPTOR and self.memory(address, 1) == b"\0")
        if empty:
            if signed(folder) == HERE:
                raise OSError(errno.EFAULT, "no path")
            found = self.base(folder, "")
        else:
            unfollowed = os.O_NOFOLLOW if flags & NOT_FOLLOWED else 0
            try:
                found = self.reached(folder, self.text(address), unfollowed)
            except PassedOn:
                raise PermissionError(errno.EPERM, "through /proc") from None
        kind = os.fstat(found).st_mode
        if stat.S_ISLNK(kind):
            raise OSError(errno.EOPNOTSUPP, "a link")
        path = real_path(found)
        if not self.rule.may_dress(path) or not same(found, path):
            raise PermissionError(errno.EPERM, path)
        return f"/proc/self/fd/{found}"

    def require(self, opened: int) -> None:
        """Leave it to the kernel unless an open file is one that may be written."""
        real = real_path(opened)
        if not self.rule.may_change(real) or not same(opened, real):
            raise PassedOn

    def use_umask(self) -> None:
        """Take the caller's umask for what is made next."""
        with open(f"/proc/{self.task}/status") as opened:
            for line in opened:
                if line.startswith("Umask:"):
                    os.umask(int(line.split()[1], 8))
                    return

    def open_file(self, folder: int, address: int, flags: int, mode: int) -> tuple[int, int]:
        """Open a file to write it, made if need be: a descriptor of ours, and the flags asked for."""
        flags &= 0xFFFFFFFF
        if not flags & (os.O_ACCMODE | os.O_CREAT) or flags & TEMPORARY:
            # Of what only empties a file, or makes one without a name, nothing is known that needs it.
            raise PassedOn
        path = self.text(address)
        try:
            found = self.reached(folder, path, flags & os.O_NOFOLLOW)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            return self.made_file(folder, path, flags, mode), flags
        if not stat.S_ISREG(os.fstat(found).st_mode) or (flags & os.O_CREAT and flags & os.O_EXCL):
            raise PassedOn
        self.require(found)
        again = flags & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW) | os.O_CLOEXEC
        return os.open(f"/proc/self/fd/{found}", again), flags

    def made_file(self, folder: int, path: str, flags: int, mode: int) -> int:
        """A file that was not there, opened."""
        parent, name, _ = self.place(folder, path)
        self.use_umask()
        made = flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(name, made, mode & 0o777, dir_fd=parent)
        except FileExistsError:
            raise PassedOn from None

    def truncate(self, address: int, size: int) -> None:
        """Cut a file, or lengthen it, to so many bytes."""
        found = self.reached(HERE, self.text(address))
        self.require(found)
        os.truncate(f"/proc/self/fd/{found}", size)

    def make_folder(self, folder: int, address: int, mode: int) -> None:
        """Make a folder."""
        parent, name, _ = self.place(folder, self.text(address))
        self.use_umask()
        os.mkdir(name, mode & 0o1777, dir_fd=parent)

    def make_node(self, folder: int, address: int, mode: int) -> None:
        """Make a named pipe or an empty file, and nothing else."""
        mode &= 0xFFFFFFFF
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFIFO):
            raise PassedOn
        parent, name, _ = self.place(folder, self.text(address))
        self.use_umask()
        os.mknod(name, stat.S_IFMT(mode) | mode & 0o777, dir_fd=parent)

    def make_link(self, content: int, folder: int, address: int) -> None:
        """Make a symbolic link, to wherever: whoever follows it is judged by where it leads."""
        pointing = self.text(content)
        parent, name, _ = self.place(folder, self.text(address))
        os.symlink(pointing, name, dir_fd=parent)

    def give_name(self, folder: int, address: int, new_folder: int, new_address: int, flags: int) -> None:
        """Give a file a second name. Whoever has one can change it by that, so it must be changeable."""
        if flags & (FOLLOWED | OF_THE_DESCRIPTOR):
            raise PassedOn
        parent, name, _ = self.place(folder, self.text(address))
        other, new_name, _ = self.place(new_folder, self.text(new_address))
        os.link(name, new_name, src_dir_fd=parent, dst_dir_fd=other, follow_symlinks=False)

    def remove(self, folder: int, address: int, flags: int) -> None:
        """Remove a file, or an empty folder where the flags say so."""
        path = self.text(address)
        parent, name, _ = self.place(folder, path)
        if flags & OF_A_FOLDER:
            os.rmdir(name, dir_fd=parent)
        elif path.endswith("/"):
            raise PassedOn
        else:
            os.unlink(name, dir_fd=parent)

    def rename(self, folder: int, address: int, new_folder: int, new_address: int, flags: int = 0) -> None:
        """Rename or move a file or a folder."""
        if flags & 0xFFFFFFFF:
            # Whoever asks for more than a rename asks again without.
            raise OSError(errno.EINVAL, "flags")
        parent, name, path = self.place(folder, self.text(address))
        other, new_name, new_path = self.place(new_folder, self.text(new_address))
        if not (self.rule.may_move(path) and self.rule.may_move(new_path)):
            raise PassedOn
        os.rename(name, new_name, src_dir_fd=parent, dst_dir_fd=other)

    # Modes, owners and times: Landlock has no right for them, so none of these is ever passed on.

    def set_mode(self, folder: int, address: int, mode: int, flags: int = 0) -> None:
        """Set a mode; never that of a program which runs as its owner."""
        target = self.target(folder, address, flags)
        if mode & SPECIAL_MODES and not stat.S_ISDIR(os.stat(target).st_mode):
            raise PermissionError(errno.EPERM, "set-user-id")
        os.chmod(target, mode & 0o7777)

    def set_owner(self, folder: int, address: int, user: int, group: int, flags: int = 0) -> None:
        """Set an owner, to what the user may set it to."""
        os.chown(self.target(folder, address, flags), signed(user), signed(group))

    def set_times(self, folder: int, address: int, times: int, flags: int = 0, *, unit: int = 1) -> None:
        """Set the times of access and change; `unit` is how many nanoseconds their small halves count."""
        wanted = struct.unpack("=4q", self.memory(times, 32)) if times else (0, NOW, 0, NOW)
        target = self.target(folder, address, flags)
        found = os.stat(target)
        if times and unit > 1:
            wanted = (wanted[0], wanted[1] * unit, wanted[2], wanted[3] * unit)
        accessed = moment(wanted[0], wanted[1], found.st_atime_ns)
        os.utime(target, ns=(accessed, moment(wanted[2], wanted[3], found.st_mtime_ns)))

    def set_whole_times(self, address: int, times: int) -> None:
        """Set them to whole seconds."""
        target = self.target(HERE, address, 0)
        os.utime(target, struct.unpack("=2q", self.memory(times, 16)) if times else None)


def moment(seconds: int, nanoseconds: int, present: int) -> int:
    """A time in nanoseconds, out of the two halves of a `struct timespec`."""
    if nanoseconds == NOW:
        return time.time_ns()
    return present if nanoseconds == OMITTED else seconds * 1_000_000_000 + nanoseconds


def signed(argument: int) -> int:
    """An argument as the 32-bit number that the kernel takes it for."""
    number = argument & 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


def real_path(opened: int) -> str:
    """Where an open file lies."""
    return os.readlink(f"/proc/self/fd/{opened}")


def same(opened: int, path: str) -> bool:
    """Whether an open file still lies at a path: a removed one bears a name that means nothing."""
    return os.path.samestat(os.fstat(opened), os.stat(path, follow_symlinks=False))
