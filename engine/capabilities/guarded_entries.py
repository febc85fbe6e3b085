"""What of a project no command may take or leave: repositories, the store, the settings."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from stepfold.engine.capabilities.git_settings import SettingsUnread
from stepfold.engine.capabilities.left import Left
from stepfold.engine.capabilities.named_files import Named, kept_of, named_in, settle_named
from stepfold.engine.capabilities.paths import REPOSITORY
from stepfold.engine.capabilities.repositories import Known, identity_of, known_in, settle
from stepfold.engine.capabilities.workspace import Workspace

GUARDED_FOLDERS = (REPOSITORY, ".stepfold")
SETTINGS_FILE = "stepfold.toml"
TOLD_AT_MOST = 5
TOLD_CHARACTERS = 200

_guards: dict[Path, int] = {}
"""How many running commands rely on an empty entry that we put in a protected place."""

_known: dict[Path, tuple[Known, Named, int]] = {}
"""What was in a project before the first of the commands that run in it, and how many these are.

What one of them makes, none of the others may take for something that had always been there.
"""

_T = TypeVar("_T")


class Unguarded(Exception):
    """The project can't be looked through before a command runs, so none may. The text says why."""


class Guard:
    """One command's stay in a project.

    `kept` are paths in it, of repositories and of what git's settings name, which the command may read and
    not change. `said` is, when it has ended, what became of what it left: empty, or sentences for whoever
    reads its output.
    """

    def __init__(self, kept: tuple[str, ...]) -> None:
        self.kept = kept
        self.said = ""


@contextlib.asynccontextmanager
async def guarded_entries(workspace: Workspace) -> AsyncIterator[Guard]:
    """Keep a command from changing what git, or a later run, goes by. Raises Unguarded.

    A read-only mount needs something to be mounted on: a `.git` that does not exist could be made,
    with a hook in it for the user's next git command. So the two folders are there, empty, while a
    command runs. An empty file would show in git's status, so `stepfold.toml` is put aside after.
    """
    root = workspace.root
    for name in (".stepfold", SETTINGS_FILE):
        if (root / name).is_symlink():
            # Nothing can be mounted on a link, so a command could put something else in its place.
            raise Unguarded(
                f"{root / name} is a link, which can't be kept from commands: put there what it leads to"
            )
    known, kept = await _entered(root)
    free = () if os.path.lexists(root / SETTINGS_FILE) else (SETTINGS_FILE,)
    made: list[Path] = []
    guard = Guard(kept)
    try:
        made += (root / name for name in GUARDED_FOLDERS if _guarded(root / name, known))
        yield guard
    finally:
        for path in made:
            _release(path, known)
        left = await _to_its_end(lambda: _settled(root, known, free))
        _leave(root)
        guard.said = told(left)


async def _entered(root: Path) -> tuple[Known, tuple[str, ...]]:
    """Count a command in; what was there before any that runs now, and what it may not change of it."""
    try:
        found, named = await asyncio.to_thread(_looked_through, str(root))
    except SettingsUnread as reason:
        raise Unguarded(str(reason)) from reason
    except OSError as reason:
        raise Unguarded(
            f"{root} can't be looked through ({reason.strerror}): give its owner the rights to it "
            f"(chmod u+rwx {root})"
        ) from reason
    known, before, running = _known.get(root, (found, named, 0))
    _known[root] = (known, named.since(before), running + 1)
    paths = (path for identity, path in found.repositories.items() if identity in known.repositories)
    return known, (*(str(root / path) for path in paths), *kept_of(str(root), named))


def _looked_through(root: str) -> tuple[Known, Named]:
    found = known_in(root)
    return found, named_in(root, found.repositories.values())


def _settled(root: Path, known: Known, free: Sequence[str]) -> Left:
    left = settle(str(root), known, free)
    # What was shut is open by now, and no new repository stands on the way.
    settle_named(str(root), _known[root][1], left)
    return left


def _leave(root: Path) -> None:
    known, named, running = _known.pop(root)
    if running > 1:
        _known[root] = (known, named, running - 1)


async def _to_its_end(work: Callable[[], _T]) -> _T:
    """Do something in a thread, and wait for it to end even when cancelled meanwhile."""
    doing = asyncio.get_running_loop().run_in_executor(None, work)
    cancelled = False
    while not doing.done():
        try:
            await asyncio.wait({doing})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    return doing.result()


def _guarded(path: Path, known: Known) -> bool:
    """Take a protected name, if it is free or taken by us. A user may fill the folder: no command can."""
    if path not in _guards:
        try:
            path.mkdir()
        except OSError:
            return False
        known.repositories[identity_of(path.lstat())] = path.name
    _guards[path] = _guards.get(path, 0) + 1
    return True


def _release(path: Path, known: Known) -> None:
    _guards[path] -= 1
    if _guards[path]:
        return
    del _guards[path]
    with contextlib.suppress(OSError):
        identity = identity_of(path.lstat())
        path.rmdir()
        # The next folder that is made may get its number.
        known.repositories.pop(identity, None)


def told(left: Left) -> str:
    """What a command left, in sentences for a model and for whoever it works for; mostly there is nothing."""
    settings = [pair for pair in left.aside if pair[0] == SETTINGS_FILE]
    folders = tuple(f"{new}/" for _, new in left.aside)
    repositories = [
        (old, new) for old, new in left.aside if old != SETTINGS_FILE and not old.startswith(folders)
    ]
    naming = ", ".join(map(_shown, [*left.naming][:TOLD_AT_MOST]))
    parts = (
        _sentence(
            settings,
            "Settings rule later runs, so they wait for the user to look at them and to rename them back.",
        ),
        _sentence(
            repositories,
            "Git runs programs that the settings of a repository name, so one that a command makes waits for "
            "the user to look through it and to rename it back (first HEAD.proposed in it to HEAD). "
            "Make, use and remove one within one command instead.",
        ),
        _sentence(
            left.named,
            f"A setting of git names it ({naming}), and git runs or follows what is named, so it waits for "
            "the user to look through it and to rename it back.",
        ),
        _sentence(left.stuck, "It could not be put aside: nobody may call git there before it is removed."),
        _sentence(left.opened, "It was shut, even for its owner, who has the rights to it again."),
        _sentence(
            left.unseen, "It can't be looked into: look for a repository in it before calling git there."
        ),
    )
    more = f"[{left.unlisted} more of these are not listed.]" if left.unlisted else ""
    return " ".join(filter(None, (*parts, more)))


def _sentence(entries: Sequence[str | tuple[str, str]], rule: str) -> str:
    """Entries by name, cut short, and what holds for all of them."""
    if not entries:
        return ""
    names = [" -> ".join(map(_shown, (entry,) if isinstance(entry, str) else entry)) for entry in entries]
    more = f" and {len(names) - TOLD_AT_MOST} more" if len(names) > TOLD_AT_MOST else ""
    return f"[{', '.join(names[:TOLD_AT_MOST])}{more}: {rule}]"


def _shown(path: str) -> str:
    """A path as text, whatever a command has put into it."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    plain = text if text.isprintable() else ascii(text)
    return plain if len(plain) <= TOLD_CHARACTERS else f"…{plain[-TOLD_CHARACTERS:]}"
