"""What a path may look like before any file is touched: the lexical half of the confinement.

Pure. `stepfold.engine.capabilities.workspace` is the other half: it asks the file system.
"""

import re

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


def path_fault(path: str) -> str:
    """Why `path` can't name a file of the project, or an empty string.

    The sentence says what would be right: a model reads it.
    """
    if "\0" in path:
        return "a path can't hold a NUL character"
    if path.startswith(("/", "~/")) or path == "~":
        return f"{path!r} is not relative to the project: give the path from there, such as src/main.py"
    if _DRIVE.match(path):
        return f"{path!r} names a drive: give the path from the project's folder, such as src/main.py"
    if "\\" in path:
        return f"{path!r} holds a backslash: separate folders with /"
    if ".." in path.split("/"):
        return f"{path!r} holds '..': give the path from the project's folder downwards"
    return ""


def protected_entry(path: str) -> str:
    """The protected entry that a relative path leads into, or an empty string.

    `.git` counts at any depth, since a nested repository is run by git just the same. Case is
    ignored, for on some file systems it makes no difference.
    """
    parts = [part.casefold() for part in path.split("/") if part not in ("", ".")]
    if REPOSITORY in parts:
        return REPOSITORY
    return parts[0] if parts and parts[0] in PROTECTED else ""
