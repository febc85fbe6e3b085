"""What git would take for a repository, anywhere in a project: found, and put aside after a command.

Git runs programs that the settings of a repository name (`core.fsmonitor` in any `git status`, hooks in most
other calls), with the rights of whoever calls it. So what makes a folder a repository is a command's way
out of its sandbox: those that are there are read-only to it, and those that it leaves are renamed.

The walk asks by name, as git does, so it is right on a file system that folds case. It follows no link, goes
to any depth with few open files, and raises for nothing that a command can have left there.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from os.path import lexists
from pathlib import Path, PurePath

from msgspec import Struct

from stepfold.engine.capabilities.left import HANDLE, Left, joined, lent, there_in
from stepfold.engine.capabilities.paths import REPOSITORY

HEAD = "HEAD"

HELD_OPEN = 8
"""Folders on the way down that stay open; those above are found again by `..`. So few that several walks at a
time stay far below the limit of open files: what lies deeper would not be looked into."""

LONGEST_PATH = 4096

ROUNDS = 3
"""How often a walk is begun in a project whose folders are moved meanwhile."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Identity = tuple[int, int, int]
"""Device and inode: what stays when a folder is moved. Of anything else also the time of its change: a link
can be replaced by one that gets its number, and a file be written by its second name."""


def is_git_folder(there: Callable[[str], bool]) -> bool:
    """Whether git takes a folder for a repository without a `.git`, by the names that are there.

    As git's `is_git_directory` has it: objects and refs may lie elsewhere, where `commondir` points.
    """
    return there(HEAD) and (there("commondir") or (there("objects") and there("refs")))


def made_by_writing(root: Path, relative: PurePath) -> str:
    """The repository without a `.git` that a file lies in, or would make of a folder; empty for none.

    `.` is the root. Names count in every spelling, for on some file systems that makes no difference.
    """
    folder = root
    for part in relative.parts:
        if is_git_folder(partial(_there_or_taken, folder, part.casefold())):
            return folder.relative_to(root).as_posix()
        folder = folder / part
    return ""


def _there_or_taken(folder: Path, taken: str, name: str) -> bool:
    return name.casefold() == taken or lexists(folder / name)


class Place(Struct, frozen=True):
    """Something that makes a repository: the entry `name` of the open folder at `path`.

    `path` is relative to the project, empty for its root. The identity is that of a `.git` itself, and
    for a `HEAD` that of its folder.
    """

    folder: int
    path: str
    name: str
    identity: Identity

    @property
    def kept(self) -> str:
        """What must not change for the repository to stay what it is, relative to the project."""
        return joined(self.path, self.name) if self.name == REPOSITORY else self.path


class Known(Struct, frozen=True):
    """What was there before a command: repositories and where they lie, and folders that were shut.

    Shut is what its owner may not enter, whether it may be listed or not: git can't reach a name in it. A
    shut one counts with its time of change, which nobody who has opened it can put back.
    """

    repositories: dict[Identity, str]
    shut: frozenset[tuple[int, int, int]]
    unseen: frozenset[str]
    mode: int


def known_in(root: str) -> Known:
    """Look through a project before a command runs in it. Raises OSError where the root itself is shut.

    What lies too deep for a path to name it can't be kept as it is, so it doesn't count as known. Neither
    does an empty `.git`: it may be one that we put there for another command, and is no repository yet.
    """
    walk = _Walk(root, lambda found: False)
    repositories = {
        place.identity: place.kept
        for place in walk.places()
        if len(os.fsencode(f"{root}/{place.kept}")) < LONGEST_PATH and not _is_empty(place)
    }
    mode = stat.S_IMODE(os.lstat(root).st_mode)
    return Known(repositories, frozenset(walk.shut), frozenset(walk.unseen), mode)


def settle(root: str, known: Known, free: Sequence[str]) -> Left:
    """Put aside each repository that was not there before, and open what a command has shut.

    `free` are names in the root that nobody had taken, and that go aside as well. Never raises: what can't
    be done is told.
    """
    left = Left()
    walk = _Walk(root, lambda found: _moment(found) not in known.shut)
    with contextlib.suppress(OSError):
        for path in _reopened(root, known.mode):
            left.note(left.opened, path)
    try:
        folder = os.open(root, _FOLDER)
        try:
            for name in free:
                left.put_aside(folder, "", name)
        finally:
            os.close(folder)
        for place in walk.places():
            before = known.repositories.get(place.identity)
            if before is not None and _can_be_followed(root, before, place.kept):
                left.moved[before] = place.kept
            elif not _is_empty(place):
                left.put_aside(place.folder, place.path, place.name)
    except OSError:
        left.note(left.unseen, ".")
    for path in walk.opened:
        left.note(left.opened, path)
    for path in walk.unseen:
        if path not in known.unseen:
            left.note(left.unseen, path)
    return left


def _can_be_followed(root: str, before: str, now: str) -> bool:
    """Whether a repository lies where it was, or where what its settings name has a path as well."""
    return now == before or len(os.fsencode(f"{root}/{now}")) < LONGEST_PATH // 2


class _Folder:
    """A folder on the way down: its name, its descriptor (-1: closed for now), what is left to go into."""

    __slots__ = ("descriptor", "identity", "inner", "name")

    def __init__(self, name: str, descriptor: int, identity: Identity) -> None:
        self.name, self.descriptor, self.identity = name, descriptor, identity
        self.inner: list[str] | None = None

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class _Walk:
    """One walk through a project. `may_open` is asked of each folder that its owner has no rights for."""

    def __init__(self, root: str, may_open: Callable[[os.stat_result], bool]) -> None:
        self.shut: list[tuple[int, int, int]] = []
        self.opened: list[str] = []
        self.unseen: list[str] = []
        self._lost = False
        self._may_open = may_open
        self._way: list[_Folder] = []
        self._root = root

    def places(self) -> Iterator[Place]:
        """Each place with its folder open. What is renamed meanwhile is looked into by its new name.

        Where others move folders at this very moment the way is lost, and all is walked through again.
        """
        for _ in range(ROUNDS):
            self._lost = False
            yield from self._places()
            if not self._lost:
                return
        self.unseen.append(".")

    def _places(self) -> Iterator[Place]:
        opened = os.open(self._root, _FOLDER)
        self._way.append(_Folder("", opened, identity_of(os.fstat(opened))))
        try:
            while self._way:
                here = self._way[-1]
                if here.inner is None:
                    yield from self._found(here)
                    here.inner = self._folders_in(here)
                if here.inner:
                    self._go_into(here.inner.pop())
                else:
                    self._go_up()
        finally:
            for folder in self._way:
                folder.close()

    def _path(self, *more: str) -> str:
        """Where we are. Below what a path can name it is the end of one that is as long."""
        below = self._way[max(1, len(self._way) - LONGEST_PATH) :]
        return "/".join((*(folder.name for folder in below), *more))[-2 * LONGEST_PATH :]

    def _found(self, here: _Folder) -> Iterator[Place]:
        def there(name: str) -> bool:
            return there_in(here.descriptor, name)

        if there(REPOSITORY):
            with contextlib.suppress(OSError):
                found = os.stat(REPOSITORY, dir_fd=here.descriptor, follow_symlinks=False)
                yield Place(here.descriptor, self._path(), REPOSITORY, identity_of(found))
        if is_git_folder(there):
            yield Place(here.descriptor, self._path(), HEAD, here.identity)

    def _folders_in(self, here: _Folder) -> list[str]:
        try:
            with os.scandir(here.descriptor) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            self.unseen.append(self._path())
            return []
        # One that is still called so is known, or could not be renamed; the root's store no command changes.
        apart = (REPOSITORY, ".stepfold") if len(self._way) == 1 else (REPOSITORY,)
        return [name for name in names if name not in apart]

    def _go_into(self, name: str) -> None:
        above = self._way[-1].descriptor
        try:
            opened = self._opened(name, above)
        except (FileNotFoundError, NotADirectoryError):
            return  # It was moved away meanwhile, or a link took its place.
        except OSError:
            self.unseen.append(self._path(name))
            return
        if opened is None:
            return
        self._way.append(_Folder(name, opened, identity_of(os.fstat(opened))))
        if len(self._way) > HELD_OPEN:
            self._way[-HELD_OPEN].close()

    def _opened(self, name: str, above: int) -> int | None:
        """An open folder; None for one that was shut before, and so holds nothing new."""
        found = os.stat(name, dir_fd=above, follow_symlinks=False)
        if not found.st_mode & stat.S_IXUSR and stat.S_ISDIR(found.st_mode):
            self.shut.append(_moment(found))
            if not self._may_open(found):
                return None
            _make_usable(name, above, found)
            self.opened.append(self._path(name))
        try:
            return os.open(name, _FOLDER, dir_fd=above)
        except PermissionError:
            return _listed_for_once(name, above)

    def _go_up(self) -> None:
        below = self._way.pop()
        if not self._way or self._way[-1].descriptor >= 0:
            below.close()
            return
        above = self._way[-1]
        try:
            # It has been listed, and may be one that can only be entered.
            above.descriptor = os.open("..", HANDLE, dir_fd=below.descriptor)
            moved = identity_of(os.fstat(above.descriptor)) != above.identity
        except OSError:
            moved = True
        below.close()
        if moved:
            self._lost = True
            for folder in self._way:
                folder.close()
            self._way.clear()


def identity_of(found: os.stat_result) -> Identity:
    """The identity of what was found somewhere."""
    return found.st_dev, found.st_ino, 0 if stat.S_ISDIR(found.st_mode) else found.st_ctime_ns


def _moment(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _is_empty(place: Place) -> bool:
    """Whether a `.git` is a folder without anything in it, which git goes past."""
    if place.name != REPOSITORY:
        return False
    try:
        opened = os.open(REPOSITORY, _FOLDER, dir_fd=place.folder)
    except OSError:
        return False
    try:
        with os.scandir(opened) as entries:
            return next(entries, None) is None
    except OSError:
        return False
    finally:
        os.close(opened)


def _make_usable(name: str, above: int | None, found: os.stat_result) -> None:
    """Give a folder's owner all rights again, whatever stands at its path by now. Raises OSError."""
    handle = os.open(name, HANDLE, dir_fd=above)
    try:
        os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(found.st_mode) | stat.S_IRWXU)  # noqa: PTH101
    finally:
        os.close(handle)


def _listed_for_once(name: str, above: int | None) -> int:
    """Open a folder that its owner may enter and not list, whose mode is then what it was. Raises OSError.

    Of somebody else's it is a handle, by which names can be asked for.
    """
    handle = os.open(name, HANDLE, dir_fd=above)
    try:
        with lent(handle, stat.S_IRUSR):
            listed = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return handle
    os.close(handle)
    return listed


def _reopened(root: str, mode: int) -> tuple[str, ...]:
    """Give the project's own folder back the rights it had, where its owner has too few of them."""
    found = os.lstat(root)
    if found.st_mode & stat.S_IRWXU & mode == stat.S_IRWXU & mode:
        return ()
    os.chmod(root, mode)  # noqa: PTH101
    return (".",)
