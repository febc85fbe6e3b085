"""What a model may have meant by a path that isn't there: files of the project by a like name.

Small models guess paths (`src/greet.py`, `tests/test_calc.py`) before they look, and told only that there
is no such file they guess again, or make one and work on that.
"""

import difflib
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import PurePosixPath

from stepfold.engine.capabilities.searching import SKIPPED
from stepfold.engine.capabilities.workspace import Workspace

LOOKED_AT = 2_000
"""Files, from the root downwards: a few milliseconds in a project of any size."""

LIKE_AT_MOST = 5
SHOWN_AT_MOST = 12
ALIKE = 0.6
"""How much of a name has to be the same, as `difflib` counts it."""


def hint(path: str, workspace: Workspace) -> str:
    """What to try instead of a path that leads nowhere: like names, else what there is; empty for no file."""
    files = list(islice(_files(workspace), LOOKED_AT))
    like = _like(PurePosixPath(path).name, files)
    if like:
        return f"did you mean {' or '.join(like)}?"
    if not files:
        return "there are no files yet"
    more = ", …" if len(files) > SHOWN_AT_MOST else ""
    return f"there are {', '.join(files[:SHOWN_AT_MOST])}{more}"


def same_name(path: str, workspace: Workspace) -> str:
    """The one file elsewhere in the project that is called as the file at `path`; empty for none or many."""
    name = PurePosixPath(path).name
    here = str(PurePosixPath(path))
    found = [one for one in islice(_files(workspace), LOOKED_AT) if one != here and _name(one) == name]
    return found[0] if len(found) == 1 else ""


def _like(name: str, files: list[str]) -> list[str]:
    same = [one for one in files if _name(one).casefold() == name.casefold()]
    if same:
        return same[:LIKE_AT_MOST]
    by_name = {_name(one): one for one in reversed(files)}
    close = difflib.get_close_matches(name, by_name, n=LIKE_AT_MOST, cutoff=ALIKE)
    return [by_name[one] for one in close]


def _files(workspace: Workspace) -> Iterator[str]:
    """The files of the project by their paths, links and what no search shows left out."""
    for folder, folders, names, _ in os.fwalk(workspace.root, follow_symlinks=False):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        below = os.path.relpath(folder, workspace.root)
        yield from (name if below == "." else f"{below}/{name}" for name in sorted(names))


def _name(path: str) -> str:
    return path.rpartition("/")[2]
