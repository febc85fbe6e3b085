"""Changes files of the project for a fenced command, so that one rule says where it may.

Behind the fence (`fence.py`, of whose process this is a part) the project can only be read: a Landlock
rule for a folder covers all beneath it, and `.git` couldn't be taken out again. So the kernel hands each
call that changes a file over to this process, which answers in one of three ways:

- it makes the change itself where the rule allows it, on descriptors that it has opened and looked at,
  so nothing that the command does to the path meanwhile changes what is meant;
- it passes the call on to the kernel, where Landlock decides; never one that Landlock knows no right for;
- it refuses.
"""

# ruff: noqa: PTH101, PTH102, PTH103, PTH104, PTH105, PTH106, PTH107, PTH108, PTH114, PTH115, PTH116, PTH123, PTH211
import ctypes
import errno
import fcntl
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

RECEIVE, ANSWER, STILL_VALID, HAND_IN = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
NOTICE = struct.Struct("=QIIiIQ6Q")
PASS_ON, HAND_IN_AND_ANSWER = 1, 2
OPENAT2, NO_MAGIC_LINKS = 437, 2
HERE = -100
NOT_FOLLOWED, FOLLOWED, OF_THE_DESCRIPTOR = 0x100, 0x400, 0x1000
LONGEST_PATH = 4096
NOW, OMITTED = (1 << 30) - 1, (1 << 30) - 2
TEMPORARY = os.O_TMPFILE & ~os.O_DIRECTORY
SPECIAL_MODES = stat.S_ISUID | stat.S_ISGID


class PassedOn(Exception):
    """The kernel shall decide by what Landlock allows."""


class Steward:
    """Answers the calls that arrive on `listener`, by the rule of `may_change`.

    `read_only` are paths in the project that stay as they are, whether they are there or not.
    """

    def __init__(
        self, listener: int, names: dict[str, str], project: str, private: str, read_only: list[str]
    ) -> None:
        self.listener = listener
        self.names = {int(number): name for number, name in names.items()}
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
        return self.may_change(path) or path == self.project and not self.stays(path)

    def stays(self, path: str) -> bool:
        """Whether it is one of the read-only paths, or lies beneath one."""
        folded = path.casefold()
        return any(folded == one or folded.startswith(f"{one}/") for one in self.read_only)

    def attend(self) -> None:
        """Take one call from the kernel and answer it, whatever it is."""
        notice = bytearray(NOTICE.size)
        try:
            fcntl.ioctl(self.listener, RECEIVE, notice, True)
        except OSError:
            return  # Its process was killed before it got here.
        identity, task, _, number, _, _, *arguments = NOTICE.unpack(notice)
        error = flags = 0
        try:
            opened = Call(self, identity, task, arguments).carried_out(self.names[number])
        except PassedOn:
            flags = PASS_ON
        except OSError as reason:
            error = -(reason.errno or errno.EPERM)
        except Exception:
            # A call that we can't even read is not one that we let happen.
            error = -errno.EPERM
        else:
            if opened is not None:
                error = self.handed_in(identity, *opened)
                if not error:
                    return
        self.tell(ANSWER, struct.pack("=QqiI", identity, 0, error, flags))

    def handed_in(self, identity: int, opened: int, flags: int) -> int:
        """Give an open file to the caller, as the answer to its call; an error if it can hold no more."""
        try:
            parts = (identity, HAND_IN_AND_ANSWER, opened, 0, flags & os.O_CLOEXEC)
            given = self.tell(HAND_IN, struct.pack("=QIIII", *parts))
            return 0 if given else -errno.EMFILE
        finally:
            os.close(opened)

    def tell(self, request: int, message: bytes) -> bool:
        """Tell the kernel something; whether the caller is still there to hear of it."""
        try:
            fcntl.ioctl(self.listener, request, message)
        except OSError:
            return False
        return True


class Call:
    """One call of a fenced process. Its methods are named for the call, and take its arguments."""

    def __init__(self, steward: Steward, identity: int, task: int, arguments: list[int]) -> None:
        self.steward, self.identity, self.task = steward, identity, task
        self.arguments = arguments
        self.held: list[int] = []

    def carried_out(self, name: str) -> tuple[int, int] | None:
        """Do it. A file that was opened for the caller is returned, with the flags that it wanted."""
        try:
            handler: Callable[..., tuple[int, int] | None] = getattr(self, f"call_{name}")
            return handler(*self.arguments)
        finally:
            for descriptor in self.held:
                os.close(descriptor)

    # How a path is read out of the caller, and what it leads to.

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
        if not self.steward.tell(STILL_VALID, struct.pack("=Q", self.identity)):
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
        if not self.steward.may_change(real):
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
        if not self.steward.may_dress(path) or not same(found, path):
            raise PermissionError(errno.EPERM, path)
        return f"/proc/self/fd/{found}"

    def use_umask(self) -> None:
        """Take the caller's umask for what is made next."""
        with open(f"/proc/{self.task}/status") as opened:
            for line in opened:
                if line.startswith("Umask:"):
                    os.umask(int(line.split()[1], 8))
                    return

    # Files and folders.

    def call_openat(self, folder: int, address: int, flags: int, mode: int, *_: int) -> tuple[int, int]:
        flags &= 0xFFFFFFFF
        if not flags & os.O_ACCMODE and not flags & os.O_CREAT:
            raise PassedOn  # Of what only empties a file, nothing is known that needs it.
        if flags & TEMPORARY:
            raise PassedOn
        path = self.text(address)
        try:
            found = self.reached(folder, path, flags & os.O_NOFOLLOW)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            return self.created(folder, path, flags, mode), flags
        if not stat.S_ISREG(os.fstat(found).st_mode) or flags & os.O_CREAT and flags & os.O_EXCL:
            raise PassedOn
        real = real_path(found)
        if not self.steward.may_change(real) or not same(found, real):
            raise PassedOn
        again = flags & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW) | os.O_CLOEXEC | os.O_NOCTTY
        return os.open(f"/proc/self/fd/{found}", again), flags

    def created(self, folder: int, path: str, flags: int, mode: int) -> int:
        """A file that was not there, opened."""
        parent, name, _ = self.place(folder, path)
        self.use_umask()
        made = flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(name, made, mode & 0o777, dir_fd=parent)
        except FileExistsError:
            raise PassedOn from None

    def call_open(self, address: int, flags: int, mode: int, *_: int) -> tuple[int, int]:
        return self.call_openat(HERE, address, flags, mode)

    def call_creat(self, address: int, mode: int, *_: int) -> tuple[int, int]:
        return self.call_openat(HERE, address, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode)

    def call_truncate(self, address: int, size: int, *_: int) -> None:
        found = self.reached(HERE, self.text(address))
        real = real_path(found)
        if not self.steward.may_change(real) or not same(found, real):
            raise PassedOn
        os.truncate(f"/proc/self/fd/{found}", size)

    def call_mkdirat(self, folder: int, address: int, mode: int, *_: int) -> None:
        parent, name, _path = self.place(folder, self.text(address))
        self.use_umask()
        os.mkdir(name, mode & 0o1777, dir_fd=parent)

    def call_mkdir(self, address: int, mode: int, *_: int) -> None:
        self.call_mkdirat(HERE, address, mode)

    def call_mknodat(self, folder: int, address: int, mode: int, *_: int) -> None:
        mode &= 0xFFFFFFFF
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFIFO):
            raise PassedOn
        parent, name, _path = self.place(folder, self.text(address))
        self.use_umask()
        os.mknod(name, stat.S_IFMT(mode) | mode & 0o777, dir_fd=parent)

    def call_mknod(self, address: int, mode: int, *_: int) -> None:
        self.call_mknodat(HERE, address, mode)

    def call_symlinkat(self, content: int, folder: int, address: int, *_: int) -> None:
        pointing = self.text(content)
        parent, name, _path = self.place(folder, self.text(address))
        os.symlink(pointing, name, dir_fd=parent)

    def call_symlink(self, content: int, address: int, *_: int) -> None:
        self.call_symlinkat(content, HERE, address)

    def call_linkat(
        self, folder: int, address: int, new_folder: int, new_address: int, flags: int = 0, *_: int
    ) -> None:
        if flags & (FOLLOWED | OF_THE_DESCRIPTOR):
            raise PassedOn
        # Whoever has a second name for a file can change it by that one.
        parent, name, _path = self.place(folder, self.text(address))
        other, new_name, _path = self.place(new_folder, self.text(new_address))
        os.link(name, new_name, src_dir_fd=parent, dst_dir_fd=other, follow_symlinks=False)

    def call_link(self, address: int, new_address: int, *_: int) -> None:
        self.call_linkat(HERE, address, HERE, new_address)

    def call_unlinkat(self, folder: int, address: int, flags: int, *_: int) -> None:
        path = self.text(address)
        parent, name, _path = self.place(folder, path)
        if flags & 0x200:
            os.rmdir(name, dir_fd=parent)
        elif path.endswith("/"):
            raise PassedOn
        else:
            os.unlink(name, dir_fd=parent)

    def call_unlink(self, address: int, *_: int) -> None:
        self.call_unlinkat(HERE, address, 0)

    def call_rmdir(self, address: int, *_: int) -> None:
        self.call_unlinkat(HERE, address, 0x200)

    def call_renameat2(
        self, folder: int, address: int, new_folder: int, new_address: int, flags: int, *_: int
    ) -> None:
        if flags & 0xFFFFFFFF:
            # Whoever asks for more than a rename asks again without.
            raise OSError(errno.EINVAL, "flags")
        parent, name, path = self.place(folder, self.text(address))
        other, new_name, new_path = self.place(new_folder, self.text(new_address))
        if not (self.steward.may_move(path) and self.steward.may_move(new_path)):
            raise PassedOn
        os.rename(name, new_name, src_dir_fd=parent, dst_dir_fd=other)

    def call_renameat(self, folder: int, address: int, new_folder: int, new_address: int, *_: int) -> None:
        self.call_renameat2(folder, address, new_folder, new_address, 0)

    def call_rename(self, address: int, new_address: int, *_: int) -> None:
        self.call_renameat2(HERE, address, HERE, new_address, 0)

    # Modes, owners and times: Landlock has no right for them, so none of these is ever passed on.

    def call_fchmodat2(self, folder: int, address: int, mode: int, flags: int, *_: int) -> None:
        target = self.target(folder, address, flags)
        if mode & SPECIAL_MODES and not os.path.isdir(target):
            raise PermissionError(errno.EPERM, "set-user-id")
        os.chmod(target, mode & 0o7777)

    def call_fchmodat(self, folder: int, address: int, mode: int, *_: int) -> None:
        self.call_fchmodat2(folder, address, mode, 0)

    def call_chmod(self, address: int, mode: int, *_: int) -> None:
        self.call_fchmodat2(HERE, address, mode, 0)

    def call_fchmod(self, descriptor: int, mode: int, *_: int) -> None:
        self.call_fchmodat2(descriptor, 0, mode, 0)

    def call_fchownat(self, folder: int, address: int, user: int, group: int, flags: int, *_: int) -> None:
        os.chown(self.target(folder, address, flags), signed(user), signed(group))

    def call_chown(self, address: int, user: int, group: int, *_: int) -> None:
        self.call_fchownat(HERE, address, user, group, 0)

    def call_lchown(self, address: int, user: int, group: int, *_: int) -> None:
        self.call_fchownat(HERE, address, user, group, NOT_FOLLOWED)

    def call_fchown(self, descriptor: int, user: int, group: int, *_: int) -> None:
        self.call_fchownat(descriptor, 0, user, group, 0)

    def call_utimensat(self, folder: int, address: int, times: int, flags: int, *_: int) -> None:
        wanted = struct.unpack("=4q", self.memory(times, 32)) if times else (0, NOW, 0, NOW)
        self.set_times(folder, address, flags, wanted)

    def call_futimesat(self, folder: int, address: int, times: int, *_: int) -> None:
        wanted = (0, NOW, 0, NOW)
        if times:
            first, small, second, other = struct.unpack("=4q", self.memory(times, 32))
            wanted = (first, small * 1000, second, other * 1000)
        self.set_times(folder, address, 0, wanted)

    def call_utimes(self, address: int, times: int, *_: int) -> None:
        self.call_futimesat(HERE, address, times)

    def call_utime(self, address: int, times: int, *_: int) -> None:
        wanted = (0, NOW, 0, NOW)
        if times:
            first, second = struct.unpack("=2q", self.memory(times, 16))
            wanted = (first, 0, second, 0)
        self.set_times(HERE, address, 0, wanted)

    def set_times(self, folder: int, address: int, flags: int, wanted: tuple[int, int, int, int]) -> None:
        """Set the times of access and change, each in seconds and nanoseconds, or as it is or now."""
        target = self.target(folder, address, flags)
        found = os.stat(target)
        os.utime(
            target,
            ns=(
                moment(wanted[0], wanted[1], found.st_atime_ns),
                moment(wanted[2], wanted[3], found.st_mtime_ns),
            ),
        )


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
