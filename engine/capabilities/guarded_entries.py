"""Names of a project that no command may take: `.git`, `.stepfold`, `stepfold.toml`, kept while it runs."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from stepfold.engine.capabilities.workspace import Workspace

GUARDED_FOLDERS = (".git", ".stepfold")
SETTINGS_FILE = "stepfold.toml"

_guards: dict[Path, int] = {}
"""How many running commands rely on an empty entry that we put in a protected place."""


@contextlib.contextmanager
def guarded_entries(workspace: Workspace) -> Iterator[None]:
    """Keep a command from taking a protected name that is free.

    A read-only mount needs something to be mounted on: a `.git` that does not exist could be made,
    with a hook in it for the user's next git command. So the two folders are there, empty, while a
    command runs. An empty file would show in git's status, so `stepfold.toml` is put aside after.
    """
    settings = workspace.root / SETTINGS_FILE
    had_settings = os.path.lexists(settings)
    made: list[Path] = []
    try:
        for name in GUARDED_FOLDERS:
            path = workspace.root / name
            if path in _guards or _make_guard(path):
                _guards[path] = _guards.get(path, 0) + 1
                made.append(path)
        yield
    finally:
        for path in made:
            _guards[path] -= 1
            if not _guards[path]:
                del _guards[path]
                with contextlib.suppress(OSError):
                    path.rmdir()
        if not had_settings and os.path.lexists(settings):
            settings.replace(settings.with_name(f"{SETTINGS_FILE}.proposed"))


def _make_guard(path: Path) -> bool:
    try:
        path.mkdir()
    except OSError:
        return False
    return True
