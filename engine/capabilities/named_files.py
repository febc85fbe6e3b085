"""The files of a project that git's settings name: what they are before a command, and put aside if changed.

A path counts with each link and each folder on the way to it, as the kernel goes. A command can't write to
what is mounted read-only, but can move a folder above it, replace a link, or use a file's second name. So
when it has ended, all of that is compared, and the first entry that isn't what it was goes aside.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from stepfold.engine.capabilities.git_settings import (
    Repository,
    Setting,
    absorbed_in,
    files_of,
    files_of_the_user,
    included,
    includes,
    repositories_above,
    repository_at,
    settings_of,
)
from stepfold.engine.capabilities.left import Left, joined
from stepfold.engine.capabilities.paths import REPOSITORY
from stepfold.engine.capabilities.repositories import Identity, identity_of, known_in
from stepfold.engine.capabilities.setting_words import FOLDERS, words_of

LINKS_AT_MOST = 40
"""As many as the kernel follows."""

TRIES = 8
"""How many entries on the way to one file are put aside before that is given up as stuck."""

HUSKY = "/.husky/_"
"""A hooks folder whose hooks do nothing but run the file of their name in the folder above."""

Kind = Literal["file", "folder"]
"""What is named: a file, so that a folder there is nothing, or a folder of programs."""


class Name(Struct, frozen=True):
    """A path that is named, absolute and not normalised, and the setting that names it, for a person."""

    path: str
    kind: Kind
    setting: str


class Step(Struct, frozen=True):
    """One entry of the project on the way to a file: its path in the project, and what is there.

    A file counts with its time of change, and is `shared` where it has a second name.
    """

    path: str
    identity: Identity
    shared: bool


class Way(Struct, frozen=True):
    """Where a path leads: the steps in the project, those that are links, and the end.

    `end` is the real path where it ends, or would. `kind` is what is there; empty for nothing.
    """

    steps: tuple[Step, ...]
    links: tuple[str, ...]
    end: str
    kind: Literal["file", "folder", ""]

    def leads_to(self, wanted: Kind) -> bool:
        """Whether there is something of the kind; in the place of a folder anything counts."""
        return bool(self.kind) and not (wanted == "file" and self.kind == "folder")


class Named(Struct, frozen=True):
    """What settings name in a project, and where that led. `bare` are its repositories without a `.git`."""

    ways: dict[Name, Way]
    bare: tuple[str, ...]

    def since(self, earlier: "Named") -> "Named":
        """All that either names, as it was at the earlier time where both do."""
        return Named(self.ways | earlier.ways, self.bare + earlier.bare)

    def in_repository(self, path: str) -> bool:
        """Whether a path in the project is a `.git`, or lies in a repository: that is kept as a whole."""
        return REPOSITORY in path.split("/") or any(path.startswith(f"{one}/") for one in self.bare)

    def add(self, name: Name, root: str) -> None:
        """Add what is named, and what leads out of it, where it has to do with the project."""
        if name in self.ways:
            return
        way = way_to(root, name.path)
        if not way.steps and not _below(way.end, root):
            return
        self.ways[name] = way
        if name.kind == "folder" and way.kind == "folder":
            for path in _with_other_names(way.end):
                self.add(Name(path, "file", name.setting), root)
            if way.end.endswith(HUSKY):
                self.add(Name(way.end.removesuffix("/_"), "folder", name.setting), root)


_walked: dict[str, tuple[str, ...]] = {}
"""Where the repositories of a project lay when it was last walked through."""


def named_in(root: str, repositories: Iterable[str]) -> Named:
    """What settings name in a project, whose repositories lie at these paths in it. Raises SettingsUnread."""
    _walked[root] = tuple(repositories)
    return _named_by(root, _walked[root])


def setting_that_names(root: str, real: str) -> str:
    """The setting by which git would run or read a file at a real path; empty for none.

    It is asked for each file that is to be written, so the project is walked through only once; repositories
    on the way to the file are seen all the same. Raises SettingsUnread, and OSError where the root is shut.
    """
    if root not in _walked:
        _walked[root] = tuple(known_in(root).repositories.values())
    places = dict.fromkeys((*_walked[root], *_on_the_way(root, real)))
    # On some file systems other spellings name the same file.
    folded = real.casefold()
    for name, way in _named_by(root, tuple(places)).ways.items():
        if way.kind and not way.leads_to(name.kind):
            continue
        reached = [path.casefold() for path in (way.end, *way.links) if _below(path, root)]
        if folded in reached or (
            name.kind == "folder" and any(folded.startswith(f"{path}/") for path in reached)
        ):
            return name.setting
    return ""


def kept_of(root: str, named: Named) -> tuple[str, ...]:
    """The paths that a command must not change for these to stay what they are; each exists.

    The project itself and what lies above it never count: nothing could be changed.
    """
    return tuple(
        dict.fromkeys(
            path
            for name, way in named.ways.items()
            for path in (*way.links, *((way.end,) if way.leads_to(name.kind) else ()))
            if _below(path, root) and not named.in_repository(path[len(root) + 1 :])
        )
    )


def settle_named(root: str, named: Named, left: Left) -> None:
    """Put aside what of these a command has made or replaced. Never raises: what can't be done is told.

    Where a repository was moved, git starts from its new place.
    """
    # Repositories may lie elsewhere by now.
    _walked.pop(root, None)
    moved = [(_worktree(root, old), _worktree(root, new)) for old, new in left.moved.items() if old != new]
    for name, before in named.ways.items():
        for old, new in ((root, root), *(pair for pair in moved if _below(name.path, pair[0]))):
            for _ in range(TRIES):
                after = way_to(root, new + name.path.removeprefix(old) if old != new else name.path)
                step = (
                    _first_new(before, after, named, f"{new[len(root) + 1 :]}/")
                    if after.leads_to(name.kind)
                    else ""
                )
                if not step or not left.put_aside_named(root, step, name.setting):
                    break


def _worktree(root: str, kept: str) -> str:
    """The folder that a repository makes one of, by the path by which it is kept."""
    return f"{root}/{kept}".removesuffix(f"/{REPOSITORY}")


def _first_new(before: Way, after: Way, named: Named, above: str) -> str:
    """The path of the first step that isn't any of those before; empty for none.

    The folders in `above`, a path in the project, may be others. In a repository, which only the user
    changes, it must be a file that had another name outside of it.
    """
    known = {step.identity for step in before.steps}
    shared = {step.path for step in before.steps if step.shared}
    return next(
        (
            step.path
            for step in after.steps
            if step.identity not in known
            and not above.startswith(f"{step.path}/")
            and (step.path in shared or not named.in_repository(step.path))
        ),
        "",
    )


def way_to(root: str, path: str) -> Way:
    """Follow an absolute path as the kernel does, and note what of the project lies on the way."""
    steps: list[Step] = []
    links: list[str] = []
    here, ahead = "/", path.split("/")[::-1]
    kind: Literal["file", "folder", ""] = "folder"
    followed = 0
    while ahead:
        part = ahead.pop()
        if kind == "file":
            return Way(tuple(steps), tuple(links), here, "")
        if part in ("", "."):
            continue
        if part == "..":
            here = os.path.dirname(here)  # noqa: PTH120
            continue
        there = f"{here.rstrip('/')}/{part}"
        inside = _below(there, root)
        try:
            found = os.lstat(there)
            target = os.readlink(there) if stat.S_ISLNK(found.st_mode) else ""  # noqa: PTH115
        except (OSError, ValueError):
            end = os.path.normpath("/".join([there, *ahead[::-1]]))
            return Way(tuple(steps), tuple(links), end, "")
        if inside:
            shared = stat.S_ISREG(found.st_mode) and found.st_nlink > 1
            steps.append(Step(there[len(root) + 1 :], identity_of(found), shared))
        if target:
            links += [there] if inside else []
            followed += 1
            if followed > LINKS_AT_MOST:
                return Way(tuple(steps), tuple(links), there, "")
            here = "/" if target.startswith("/") else here
            ahead += target.split("/")[::-1]
            continue
        here, kind = there, "folder" if stat.S_ISDIR(found.st_mode) else "file"
    return Way(tuple(steps), tuple(links), here, kind)


def _named_by(root: str, places: Sequence[str]) -> Named:
    named = Named({}, tuple(place for place in places if place.rpartition("/")[2] != REPOSITORY))
    inside = (f"{root}/{place}" if place else root for place in places)
    found = [repository_at(path) for path in (*inside, *repositories_above(root))]
    repositories = [*found, *(one for repository in found for one in absorbed_in(repository))]
    for repository in repositories:
        for name in _own_of(repository, root):
            named.add(name, root)
    for path in files_of_the_user():
        named.add(Name(path, "file", f"the user's settings {path}"), root)
    for setting in settings_of(repositories, root):
        for name in _names_in(setting, root):
            named.add(name, root)
    return named


def _own_of(repository: Repository, root: str) -> Iterator[Name]:
    """What git reads and runs of a repository unasked; it matters where a link leads out of it."""
    for file in files_of(repository):
        yield Name(file, "file", f"the settings of {_shown(repository.folder, root)}")
    yield Name(f"{repository.common}/hooks", "folder", f"the hooks of {_shown(repository.folder, root)}")


def _names_in(setting: Setting, root: str) -> Iterator[Name]:
    label = f"{setting.key} in {_shown(setting.file, root)}" if setting.file else setting.key
    if includes(setting.key):
        yield Name(included(setting), "file", label)
        return
    words = words_of(setting.key, setting.value)
    kind: Kind = "folder" if setting.key in FOLDERS else "file"
    for place in setting.places:
        for word in words.paths:
            yield Name(os.path.join(place, os.path.expanduser(word)), kind, label)  # noqa: PTH111, PTH118
        for word in words.names:
            path = os.path.join(place, word)  # noqa: PTH118
            if os.path.isfile(path):  # noqa: PTH113
                yield Name(path, kind, label)


def _shown(path: str, root: str) -> str:
    return path[len(root) + 1 :] if _below(path, root) else path


def _with_other_names(folder: str) -> list[str]:
    """The entries of a folder that could be changed elsewhere: links, and files with a second name."""
    try:
        with os.scandir(folder) as entries:
            return [
                entry.path
                for entry in entries
                if entry.is_symlink() or (entry.is_file() and os.lstat(entry.path).st_nlink > 1)
            ]
    except OSError:
        return []


def _on_the_way(root: str, real: str) -> Iterator[str]:
    """The `.git`s from a project's root down to a path in it."""
    below = ""
    for part in ("", *real[len(root) + 1 :].split("/")[:-1]):
        below = joined(below, part) if part else ""
        if os.path.lexists(f"{root}/{joined(below, REPOSITORY)}"):
            yield joined(below, REPOSITORY)


def _below(path: str, root: str) -> bool:
    return path.startswith(f"{root}/")
