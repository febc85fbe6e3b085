"""What a model may have meant by a path that isn't there: files of the project by a like name.

Small models guess paths (`src/greet.py`, `tests/test_calc.py`) before they look, and told only that there
is no such file they guess again, or make one and work on that.
"""

import difflib
import os
from collections import deque
from contextlib import suppress
from itertools import islice
from pathlib import PurePosixPath

from stepfold.engine.capabilities.searching import SKIPPED
from stepfold.engine.capabilities.workspace import Workspace

LOOKED_AT = 2_000
"""Files and folders, those near the root first: some milliseconds in a project of any size and depth."""

DEEPEST = 16
"""Folders below each other. Each is found from the root anew, so that no link can take its place."""

LIKE_AT_MOST = 5
SHOWN_AT_MOST = 12
ALIKE = 0.6
"""How much of a name has to be the same, as `difflib` counts it."""


def hint(path: str, workspace: Workspace) -> str:
    """What to try instead of a path that leads nowhere: like names, else what there is."""
    files, whole = files_near(workspace)
    like = _like(PurePosixPath(path).name, files)
    if like:
        return f"did you mean {' or '.join(like)}?"
    if not files:
        return "there are no files yet" if whole else "there are no files near its root"
    more = ", …" if len(files) > SHOWN_AT_MOST else ""
    return f"there are {', '.join(files[:SHOWN_AT_MOST])}{more}"


def same_name(path: str, workspace: Workspace) -> str:
    """The one file elsewhere in the project that is called as the file at `path`; empty for none or many."""
    name = PurePosixPath(path).name
    here = str(PurePosixPath(path))
    found = [one for one in files_near(workspace)[0] if one != here and _name(one) == name]
    return found[0] if len(found) == 1 else ""


def _like(name: str, files: list[str]) -> list[str]:
    same = [one for one in files if _name(one).casefold() == name.casefold()]
    if same:
        return same[:LIKE_AT_MOST]
    by_name = {_name(one): one for one in reversed(files)}
    close = difflib.get_close_matches(name, by_name, n=LIKE_AT_MOST, cutoff=ALIKE)
    return [by_name[one] for one in close]


def files_near(workspace: Workspace) -> tuple[list[str], bool]:
    """The files of the project by their paths, and whether those are all.

    Links and what no search shows are left out, and what can't be looked into is passed over.
    """
    files: list[str] = []
    ahead = deque([""])
    left = LOOKED_AT
    while ahead and left > 0 and ahead[0].count("/") < DEEPEST:
        folder = ahead.popleft()
        found, looked_at = _entries(workspace, folder, left)
        left -= looked_at
        for name, is_folder in found:
            (ahead if is_folder else files).append(f"{folder}{name}{'/' if is_folder else ''}")
    return files, not ahead and left > 0


def _entries(workspace: Workspace, folder: str, count: int) -> tuple[list[tuple[str, bool]], int]:
    """The files and folders among so many entries of a folder, in order, and which of them are folders.

    With them, how many entries were looked at: what is left out counts, or a folder of links had no end.
    """
    found: list[tuple[str, bool]] = []
    looked_at: list[os.DirEntry[str]] = []
    with suppress(OSError), workspace.folder(workspace.root / folder) as opened:
        with os.scandir(opened) as entries:
            looked_at.extend(islice(entries, count))
        for entry in looked_at:
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name not in SKIPPED and (is_folder or entry.is_file(follow_symlinks=False)):
                found.append((entry.name, is_folder))
    return sorted(found), len(looked_at)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
