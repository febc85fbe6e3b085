"""Which files hold git's settings for a project's repositories, and what stands in them, as git reads it.

A repository's own, the user's and the machine's, and whatever these include, whether the condition for that
holds now or later. `git config --file` runs no program, and looks for no repository.
"""

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from stepfold.engine.capabilities.paths import REPOSITORY

SECONDS = 10.0
FILES_AT_MOST = 10_000
POINTER_BYTES = 8192

OTHERWISE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_CONFIG", "GIT_TRACE", "GIT_TRACE2")
"""Variables by which git would look elsewhere than where it is told to."""

PROGRAMS = (
    *("GIT_ASKPASS", "GIT_EDITOR", "GIT_EXEC_PATH", "GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_PROXY_COMMAND"),
    *("GIT_SEQUENCE_EDITOR", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_TEMPLATE_DIR"),
    *("EDITOR", "PAGER", "SSH_ASKPASS", "VISUAL"),
)
"""Variables that name what git runs, as settings do."""

MISSING = (FileNotFoundError, NotADirectoryError)

Pairs = tuple[tuple[str, str], ...]
Signature = tuple[tuple[int, ...], ...]

_read: dict[str, tuple[Signature, Pairs]] = {}
"""What was in a file, until it changes. The empty name stands for the user's and the machine's."""


class SettingsUnread(Exception):
    """There are settings that can't be read, so nobody knows what they name. The text says which and why."""


class Repository(Struct, frozen=True):
    """Where a repository lies: its folder, the one that holds what its worktrees share, and its files.

    All paths are absolute, and as git puts them together: with `..` and links in them.
    """

    folder: str
    common: str
    worktree: str


class Setting(Struct, frozen=True):
    """A setting, the file where it stands (empty for the environment), and where what it names may start."""

    key: str
    value: str
    file: str
    places: tuple[str, ...]


def repository_at(path: str) -> Repository:
    """The repository that a `.git`, or a folder that is one without, stands for. Raises SettingsUnread."""
    worktree, name = os.path.split(path)
    folder = path
    if name != REPOSITORY:
        worktree = path
    elif Path(path).is_file():
        kind, _, target = _first_line(path).partition(": ")
        folder = os.path.join(worktree, target) if kind == "gitdir" else path  # noqa: PTH118
    shared = _first_line(f"{folder}/commondir")
    return Repository(folder, os.path.join(folder, shared) if shared else folder, worktree)  # noqa: PTH118


def repositories_above(root: str) -> Iterator[str]:
    """Each `.git` of the folders that a project lies in: their settings may name its files."""
    for folder in Path(root).parents:
        if os.path.lexists(folder / REPOSITORY):
            yield str(folder / REPOSITORY)


def absorbed_in(repository: Repository) -> Iterator[Repository]:
    """The repositories of its submodules that it holds itself, whether their folders are there or not."""
    for holder in dict.fromkeys((repository.common, repository.folder)):
        top = f"{holder}/modules"
        for folder, inner, files in os.walk(top):
            if "HEAD" not in files:
                continue
            inner.clear()
            name = folder[len(top) + 1 :]
            one = Repository(folder, folder, os.path.join(repository.worktree, name))  # noqa: PTH118
            yield one
            yield from absorbed_in(one)


def files_of(repository: Repository) -> tuple[str, ...]:
    """The files that hold a repository's own settings, whether they are there or not."""
    return (f"{repository.common}/config", f"{repository.folder}/config.worktree")


def files_of_the_user() -> tuple[str, ...]:
    """The files that hold settings for all of a user's repositories, whether they are there or not."""
    asked = os.environ
    home = asked.get("HOME", "/")
    own = asked.get("GIT_CONFIG_GLOBAL")
    chosen = asked.get("XDG_CONFIG_HOME") or f"{home}/.config"
    return (
        *((own,) if own else (f"{home}/.gitconfig", f"{chosen}/git/config")),
        asked.get("GIT_CONFIG_SYSTEM", "/etc/gitconfig"),
    )


def settings_of(repositories: Sequence[Repository], root: str) -> list[Setting]:
    """All settings that git goes by in these repositories, or may go by. Raises SettingsUnread.

    Where there is no git, there are none. What stands below a mistake in a file isn't read: git itself stops
    at it, and nobody but the user can mend it.
    """
    places: dict[str, tuple[str, ...]] = {}
    for repository in repositories:
        for file in files_of(repository):
            # A worktree that was copied shares its files with the copy.
            places[file] = (*places.get(file, ()), *_places_of(repository, root))
    every = tuple(dict.fromkeys(place for several in places.values() for place in several))
    settings = [
        *(Setting(key, value, file, every) for file, key, value in _of_the_user(root)),
        *(Setting(name, os.environ[name], "", every) for name in PROGRAMS if name in os.environ),
    ]
    waiting = [
        *(Setting("include.path", file, "/", places[file]) for file in places),
        *(setting for setting in settings if includes(setting.key)),
    ]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while waiting:
        setting = waiting.pop()
        file = included(setting)
        if (file, setting.places) in seen:
            continue
        seen.add((file, setting.places))
        if len(seen) > FILES_AT_MOST:
            raise SettingsUnread(f"git's settings lie in more than {FILES_AT_MOST} files: include fewer")
        found = [Setting(key, value, file, setting.places) for key, value in _in_file(file, root)]
        settings += found
        waiting += (one for one in found if includes(one.key))
    return settings


def _places_of(repository: Repository, root: str) -> tuple[str, ...]:
    """The folders in which git stands when it runs something for a repository."""
    elsewhere = (
        os.path.join(repository.folder, value)  # noqa: PTH118
        for file in files_of(repository)
        for key, value in _in_file(file, root)
        if key == "core.worktree"
    )
    return (repository.worktree, repository.folder, repository.common, *elsewhere)


def includes(key: str) -> bool:
    """Whether a setting names a file with more of them."""
    return key == "include.path" or (key.startswith("includeif.") and key.endswith(".path"))


def included(setting: Setting) -> str:
    """The file that such a setting names."""
    start = os.path.dirname(setting.file) or "/"  # noqa: PTH120
    return os.path.join(start, os.path.expanduser(setting.value))  # noqa: PTH111, PTH118


def _first_line(path: str) -> str:
    """What a file of one line says; empty where there is none."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (*MISSING, IsADirectoryError):
        return ""
    except OSError as reason:
        raise _unread(path, reason) from reason
    with contextlib.suppress(OSError), os.fdopen(opened, "rb") as file:
        return os.fsdecode(file.read(POINTER_BYTES).rstrip(b"\r\n"))
    return ""


def _in_file(file: str, root: str) -> Pairs:
    try:
        found = os.stat(file)  # noqa: PTH116
        if not stat.S_ISREG(found.st_mode):
            return ()
        signature = (_signature(found),)
        if file in _read and _read[file][0] == signature:
            return _read[file][1]
        if not os.access(file, os.R_OK):
            raise PermissionError(13, os.strerror(13))
    except MISSING:
        return ()
    except OSError as reason:
        raise _unread(file, reason) from reason
    said = _said(("--file", file), root)
    if said is None:
        return ()
    pairs = tuple(_pair(entry) for entry in said.split("\0")[:-1])
    _read[file] = (signature, pairs)
    return pairs


def _of_the_user(root: str) -> Iterator[tuple[str, str, str]]:
    """File, key and value of each setting of the user, the machine and the environment."""
    signature = (*map(_signature_of, files_of_the_user()), (hash(tuple(_given(os.environ).items())),))
    if "" not in _read or _read[""][0] != signature:
        said = _said(("--show-origin",), root)
        if said is None:
            return
        parts = said.split("\0")[:-1]
        _read[""] = (signature, tuple(zip(parts[::2], parts[1::2], strict=False)))
    for origin, entry in _read[""][1]:
        kind, _, file = origin.partition(":")
        yield (file if kind == "file" else "", *_pair(entry))


def _given(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(("GIT_CONFIG", "HOME"))}


def _pair(entry: str) -> tuple[str, str]:
    key, _, value = entry.partition("\n")
    return key, value


def _signature(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _signature_of(file: str) -> tuple[int, ...]:
    try:
        return _signature(os.stat(file))  # noqa: PTH116
    except OSError:
        return ()


def _said(words: Sequence[str], root: str) -> str | None:
    """What git lists of settings; None where there is no git."""
    program = git_program(root)
    if not program:
        return None
    environment = {name: value for name, value in os.environ.items() if name not in OTHERWISE}
    try:
        ended = subprocess.run(
            [program, "--no-pager", "config", "--no-includes", "--null", "--list", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            cwd="/",
            env=environment | {"GIT_DIR": "/dev/null"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as reason:
        raise SettingsUnread(f"git can't be asked for its settings: {reason}") from reason
    return os.fsdecode(ended.stdout)


def git_program(root: str) -> str:
    """The git that the user would call, but none that lies in the project, where a command could put it."""
    folders = [
        folder
        for folder in os.environ.get("PATH", os.defpath).split(":")
        if folder.startswith("/") and not Path(folder).resolve().is_relative_to(root)
    ]
    return shutil.which("git", path=":".join(folders)) or ""


def _unread(file: str, reason: OSError) -> SettingsUnread:
    return SettingsUnread(
        f"git's settings {file} can't be read ({reason.strerror}), so nobody knows which files of the "
        "project they name: give the user that runs stepfold the right to read them"
    )
