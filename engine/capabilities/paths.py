"""What a path may look like before any file is touched: the lexical half of the confinement.

Pure. `stepfold.engine.capabilities.workspace` is the other half: it asks the file system.
"""

import posixpath
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

REPOSITORY = ".git"
"""What git looks for in a folder and in each above it. `repositories.py` knows what else it takes for one."""

PROTECTED = (REPOSITORY, ".stepfold", "stepfold.toml")
"""Top-level entries that a call may read and never write: what stands in them runs or rules outside.

A hook or a setting in `.git` is run by the user's next git command; `.stepfold` is the log that a
run is judged by; `stepfold.toml` names the programs and the limits of later runs.
"""

STORE = ".stepfold"
"""The folder of runs. No listing and no search shows it: a model would find its own words in the project."""

_DRIVE = re.compile(r"[A-Za-z]:")


def path_fault(path: str, project: str = "") -> str:
    """Why `path` can't name a file of the project, or an empty string.

    The sentence says what would be right: a model reads it. `project` is what the project's folder is called.
    """
    if "\0" in path:
        return "a path can't hold a NUL character"
    if path.startswith(("/", "~/")) or path == "~":
        return f"{path!r} is not relative to the project: {_from_the_project(path, project)}"
    if _DRIVE.match(path):
        return f"{path!r} names a drive: give the path from the project's folder, such as src/main.py"
    if "\\" in path:
        return f"{path!r} holds a backslash: separate folders with /"
    if ".." in path.split("/"):
        return f"{path!r} holds '..': give the path from the project's folder downwards"
    return ""


def _from_the_project(path: str, project: str) -> str:
    """What to write instead of an absolute path, such as a traceback shows.

    An example of another file is no example: models took `src/main.py` for the file, and looked there. Nor is
    one that would be refused as well.
    """
    if not project:
        return "give the path from there, such as src/main.py"
    below = path.partition(f"/{project}/")[2]
    if below and not path_fault(below):
        return f"from there it is {below!r}"
    last = path.rstrip("/").rpartition("/")[2]
    such_as = "." if last == project or path_fault(last) else last or "."
    return f"give the path from there, such as {such_as!r}"


def kept_by(path: str, patterns: Sequence[str]) -> str:
    """The first pattern by which a relative path is to stay as it is, or an empty string.

    As in a `.gitignore`, a pattern without a slash is one of names at any depth, and one that fits a folder
    fits all that is in it. Earned by models that were to mend a function and changed its test.
    """
    whole = PurePosixPath(posixpath.normpath(path))
    entries = [str(entry) for entry in (whole, *whole.parents)]
    return next((one for one in patterns if any(_fits(entry, one.rstrip("/")) for entry in entries)), "")


def refuse_pattern(pattern: str) -> None:
    """Raises ValueError for a pattern of `loop.keep` that no path of a project can fit."""
    if any(part in ("", ".", "..") for part in pattern.removesuffix("/").split("/")):
        raise ValueError(
            f"loop.keep has {pattern!r}, which no path of the project fits; "
            "write patterns such as 'test_*.py' or 'docs/*'"
        )


def _fits(entry: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return _fits(entry, pattern.removeprefix("**/")) or fnmatchcase(entry, pattern)
    return fnmatchcase(entry if "/" in pattern else posixpath.basename(entry), pattern)


def kept_reason(path: str, pattern: str) -> str:
    """Why a path that a pattern keeps can't be written, for the model to read."""
    return f"{path} is to stay as it is (loop.keep has {pattern!r}): change another file"


def protected_entry(path: str) -> str:
    """The protected entry that a relative path leads into, or an empty string.

    `.git` counts at any depth, since a nested repository is run by git just the same. Case is
    ignored, for on some file systems it makes no difference.
    """
    parts = [part.casefold() for part in path.split("/") if part not in ("", ".")]
    if REPOSITORY in parts:
        return REPOSITORY
    return parts[0] if parts and parts[0] in PROTECTED else ""
