"""The project's folder, and the only way into it: no path that the file system leads elsewhere."""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stepfold.engine.capabilities.git_settings import SettingsUnread
from stepfold.engine.capabilities.named_files import setting_that_names
from stepfold.engine.capabilities.paths import PROTECTED, path_fault, protected_entry
from stepfold.engine.capabilities.repositories import made_by_writing


class PathOutside(Exception):
    """The path is not, or does not stay, inside the project. The text says what would be right."""


class Workspace:
    """A project root. Every native file access goes through it.

    A path is confined twice: `resolve` follows the links and compares, and `parent` then walks the
    result from the root without following any link, so that a link put there in between leads nowhere.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).resolve()
        if not self.root.is_dir():
            raise NotADirectoryError(f"{root}: not a folder: name the project's folder")
        if self.root == self.root.parent:
            raise PathOutside(f"{root}: the whole file system can't be a project: name a folder in it")

    def resolve(self, path: str) -> Path:
        """The real path behind a relative one, whether it exists yet or not.

        Raises PathOutside for what is absolute, climbs, or is led out by a link.
        """
        fault = path_fault(path)
        if fault:
            raise PathOutside(fault)
        try:
            real = (self.root / path).resolve()
        except (OSError, RuntimeError, ValueError) as reason:
            raise PathOutside(f"{path!r} can't be followed to its end: name a plain file") from reason
        if real != self.root and not real.is_relative_to(self.root):
            raise PathOutside(f"{path!r} leads out of the project through a link: name a file inside")
        return real

    def relative(self, real: Path) -> str:
        """A real path as the model writes it; `.` is the root."""
        return real.relative_to(self.root).as_posix()

    def writable(self, path: str) -> Path:
        """As `resolve`, for a file that is to be written. Raises PathOutside for protected entries too."""
        real = self.resolve(path)
        guarded = (
            protected_entry(self.relative(real)) or protected_entry(path) or self._protected_by_link(real)
        )
        if guarded:
            raise PathOutside(f"{guarded} can be read and not written: put the file elsewhere")
        repository = made_by_writing(self.root, real.relative_to(self.root))
        if repository:
            raise PathOutside(
                f"{path!r} is or makes a part of a git repository ({repository}): put the file elsewhere"
            )
        try:
            setting = setting_that_names(str(self.root), str(real))
        except (SettingsUnread, OSError) as reason:
            raise PathOutside(str(reason)) from reason
        if setting:
            raise PathOutside(
                f"git runs or follows {path!r}, for a setting names it ({setting}): put the file elsewhere"
            )
        if real.is_relative_to(Path(sys.prefix).resolve()) and sys.prefix != sys.base_prefix:
            raise PathOutside(
                f"{path!r} belongs to the environment that runs the engine: put the file elsewhere"
            )
        return real

    def _protected_by_link(self, real: Path) -> str:
        """The protected entry that leads, as a link, to a path or to a folder above it; empty for none."""
        links = (self.root / name for name in PROTECTED)
        return next((link.name for link in links if real.is_relative_to(link.resolve())), "")

    @contextmanager
    def parent(self, real: Path, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """The open folder of a resolved path, and the name in it, reached without following a link.

        Raises FileNotFoundError or NotADirectoryError (also where a link took a folder's place).
        """
        relative = real.relative_to(self.root)
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in relative.parts[:-1]:
                if create:
                    _make_folder(part, folder)
                deeper = os.open(
                    part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder
                )
                os.close(folder)
                folder = deeper
            yield folder, relative.name or "."
        finally:
            os.close(folder)

    @contextmanager
    def folder(self, real: Path) -> Iterator[int]:
        """An open folder by its resolved path. Raises as `parent` does."""
        with self.parent(real) as (above, name):
            opened = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
            try:
                yield opened
            finally:
                os.close(opened)

    def read_bytes(self, real: Path, limit: int) -> bytes:
        """The content of a regular file, at most `limit` bytes and one. Raises OSError."""
        with self.parent(real) as (folder, name):
            # Non-blocking, for a named pipe without a writer would hold the open for ever.
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            with os.fdopen(file, "rb") as opened:
                kind = os.fstat(file).st_mode
                if stat.S_ISDIR(kind):
                    raise IsADirectoryError(real)
                if not stat.S_ISREG(kind):
                    raise PermissionError(f"{self.relative(real)} is no regular file")
                return opened.read(limit + 1)

    def write_bytes(self, real: Path, content: bytes) -> None:
        """Put `content` in the place of a file at once: readers see the old or the new. Keeps the mode."""
        with self.parent(real, create=True) as (folder, name):
            mode = _mode(name, folder)
            draft = f".{name[:100]}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(draft, flags, 0o666, dir_fd=folder)
            try:
                with os.fdopen(file, "wb") as opened:
                    if mode is not None:
                        os.fchmod(file, mode)
                    opened.write(content)
                os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                os.unlink(draft, dir_fd=folder)
                raise


def _make_folder(name: str, folder: int) -> None:
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        return


def _mode(name: str, folder: int) -> int | None:
    """The permission bits of an existing regular file; None for a new one. Raises OSError for others."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(name)
    if not stat.S_ISREG(found.st_mode):
        raise PermissionError(f"{name} is no regular file")
    return stat.S_IMODE(found.st_mode) & 0o777
