"""What a command left that could not stay: put aside by another name, and told.

What is renamed is the entry of an open folder, so nothing that is moved meanwhile leads elsewhere.
"""

import contextlib
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from typing import TypeVar

PROPOSED = "proposed"
NUMBERS_AT_MOST = 100
LISTED_AT_MOST = 100
NAME_BYTES = 220
"""Of a name that is put aside so much stays that what is put behind it fits in the 255 of a file system."""

HANDLE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_lending = threading.Lock()
"""Held while a folder has a right that its owner gave it not: who looks then would leave it at that."""

_Entry = TypeVar("_Entry", str, tuple[str, str])


class Left:
    """What a command left that was not left at that, each by its path in the project.

    `aside` has old and new path, `named` those of what git's settings name, and `naming` these settings.
    `stuck` has a path and why it could not be renamed, `opened` are folders that had no rights for their
    owner, and `unseen` those that could not be looked into. Of each as many are listed as anybody reads;
    `unlisted` counts the others. `moved` says where each repository that was there lies now.
    """

    def __init__(self) -> None:
        self.aside: list[tuple[str, str]] = []
        self.stuck: list[tuple[str, str]] = []
        self.named: list[tuple[str, str]] = []
        self.naming: dict[str, None] = {}
        self.opened: list[str] = []
        self.unseen: list[str] = []
        self.moved: dict[str, str] = {}
        self.unlisted = 0

    def note(self, entries: list[_Entry], entry: _Entry) -> None:
        """Add an entry to a list of these: a command can leave more than the memory would hold."""
        if len(entries) < LISTED_AT_MOST:
            entries.append(entry)
        else:
            self.unlisted += 1

    def put_aside_named(self, root: str, path: str, setting: str) -> bool:
        """Rename what lies at a path, no link followed, that a setting of git names; whether it could be."""
        *above, name = path.split("/")
        try:
            folder = _reached(root, above)
            try:
                self.note(self.named, (path, joined("/".join(above), put_aside(folder, name))))
            finally:
                os.close(folder)
        except FileNotFoundError:
            return False
        except OSError as reason:
            self.note(self.stuck, (path, str(reason.strerror)))
            return False
        self.naming[setting] = None
        return True

    def put_aside(self, folder: int, path: str, name: str) -> None:
        """Rename an entry of an open folder, if it is still there."""
        old = joined(path, name)
        try:
            self.note(self.aside, (old, joined(path, put_aside(folder, name))))
        except FileNotFoundError:
            return
        except OSError as reason:
            self.note(self.stuck, (old, str(reason.strerror)))


def put_aside(folder: int, name: str) -> str:
    """Rename an entry of an open folder to NAME.proposed, with a number if that is taken. Raises OSError."""
    new = next(filter(lambda one: not there_in(folder, one), _names_aside(name)))
    try:
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=folder)
    except PermissionError:
        with lent(folder, stat.S_IRWXU):
            os.rename(name, new, src_dir_fd=folder, dst_dir_fd=folder)
    return new


@contextlib.contextmanager
def lent(folder: int, rights: int) -> Iterator[None]:
    """Give an open folder's owner more rights for a moment. Raises OSError where it isn't ours to give."""
    path = f"/proc/self/fd/{folder}"
    with _lending:
        mode = stat.S_IMODE(os.fstat(folder).st_mode)
        os.chmod(path, mode | rights)  # noqa: PTH101
        try:
            yield
        finally:
            os.chmod(path, mode)  # noqa: PTH101


def _reached(root: str, parts: Sequence[str]) -> int:
    """An open folder below the root, reached without following a link. Raises OSError."""
    folder = os.open(root, HANDLE)
    for part in parts:
        try:
            deeper = os.open(part, HANDLE, dir_fd=folder)
        finally:
            os.close(folder)
        folder = deeper
    return folder


def _names_aside(whole: str) -> Iterator[str]:
    name = os.fsdecode(os.fsencode(whole)[:NAME_BYTES])
    yield f"{name}.{PROPOSED}"
    yield from (f"{name}.{PROPOSED}.{number}" for number in range(2, NUMBERS_AT_MOST))
    while True:
        yield f"{name}.{PROPOSED}.{os.urandom(8).hex()}"


def there_in(folder: int, name: str) -> bool:
    """Whether an open folder has an entry of a name, a dangling link too."""
    return os.access(name, os.F_OK, dir_fd=folder, follow_symlinks=False)


def joined(path: str, name: str) -> str:
    """A relative path and a name in it."""
    return f"{path}/{name}" if path else name
