"""Taking back what a call did to a file: the former content, kept beside the log, and put back by name.

The log holds no file contents. What a file held before a call lies in the store, under the run and the
call, so that a chat that is taken up later can undo too.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from stepfold.engine.capabilities.files import FILE_LIMIT
from stepfold.engine.capabilities.workspace import PathOutside, Workspace
from stepfold.events.vocabulary import BLANK, CallUndone
from stepfold.projections.effects import CallTool

KEEPS = frozenset({"fs.write", "fs.patch"})
"""The calls that change one file, named by their `path`: what others change, nobody knows beforehand."""


class CannotUndo(Exception):
    """What can't be taken back, why, and what to do instead."""


class Kept(Struct, frozen=True):
    """A file around one call: its path, and its digests before and after. Empty where there is no file."""

    path: str
    before: str
    after: str


UNKNOWN = "unknown"
"""The digest of a file that is too large to keep, or can't be read: it fits no content."""


class Content(Struct, frozen=True):
    """What a file holds; no digest where there is no file."""

    digest: str
    content: bytes = b""


class Undo:
    """The former contents of the files that one run changed."""

    def __init__(self, folder: Path, workspace: Workspace) -> None:
        self._folder = folder
        self._workspace = workspace

    def before(self, effect: CallTool) -> Content:
        """What the file of this call holds now."""
        return self._content(_path_of(effect))

    def keep(self, effect: CallTool, before: Content) -> None:
        """The call has run: note what became of its file, and keep what it held before. Raises OSError."""
        path = _path_of(effect)
        kept = Kept(path, before.digest, self._content(path).digest)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if kept.before != kept.after:
            self._content_file(effect.key).write_bytes(before.content)
        self._file(effect.key).write_bytes(msgspec.json.encode(kept))

    def take_back(self, changes: list[tuple[str, str]]) -> CallUndone:
        """Undo the last of these calls (key, name) that changed anything.

        Raises CannotUndo, and changes nothing then: the call was none that changes one file, or the file
        was changed since.
        """
        for key, name in reversed(changes):
            if name not in KEEPS:
                raise CannotUndo(
                    f"the last change was made by {name}, and nobody knows which files it touched: "
                    "look with git, and put them back yourself"
                )
            kept = self._kept(key)
            if kept is None:
                raise CannotUndo(f"nobody saw the end of the last {name}: look at its file yourself")
            if UNKNOWN in (kept.before, kept.after):
                raise CannotUndo(f"{kept.path} is too large to be kept for undoing: put it back yourself")
            if kept.before != kept.after:
                return self._restored(key, name, kept)
        raise CannotUndo("there is nothing to undo: no call of this run has changed a file")

    def _restored(self, key: str, name: str, kept: Kept) -> CallUndone:
        if self._content(kept.path).digest != kept.after:
            raise CannotUndo(f"{kept.path} was changed since {name} wrote it: undoing would lose that change")
        try:
            content = self._content_file(key).read_bytes()
            if kept.before and _digest(content) != kept.before:
                raise CannotUndo(f"what {kept.path} held before {name} was not kept: put it back yourself")
            real = self._workspace.writable(kept.path)
            if kept.before:
                self._workspace.write_bytes(real, content)
                what = "restored"
            else:
                with self._workspace.parent(real) as (folder, entry):
                    os.unlink(entry, dir_fd=folder)
                what = "removed"
        except (OSError, PathOutside) as error:
            raise CannotUndo(f"{kept.path} can't be put back: {error}") from error
        return CallUndone(*BLANK, call=key, name=name, path=kept.path, what=what)

    def _content(self, path: str) -> Content:
        try:
            content = self._workspace.read_bytes(self._workspace.resolve(path), FILE_LIMIT)
        except FileNotFoundError:
            return Content("")
        except (OSError, PathOutside):
            return Content(UNKNOWN)
        return Content(_digest(content), content) if len(content) <= FILE_LIMIT else Content(UNKNOWN)

    def _kept(self, key: str) -> Kept | None:
        try:
            return msgspec.json.decode(self._file(key).read_bytes(), type=Kept)
        except (OSError, msgspec.MsgspecError):
            return None

    def _file(self, key: str) -> Path:
        return self._folder / f"{key.removeprefix('tool:')}.json"

    def _content_file(self, key: str) -> Path:
        return self._folder / f"{key.removeprefix('tool:')}.before"


def _path_of(effect: CallTool) -> str:
    arguments: dict[str, Any] = msgspec.json.decode(effect.arguments)
    return str(arguments["path"])


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
