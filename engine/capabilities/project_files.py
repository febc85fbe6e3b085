"""The files of a project that a constrained model may name, told as what is new since they were last told.

Told that a path leads nowhere, a small model guesses the next one; that it can name what there is, and
nothing else, spares it the guess. So the log has the files, and each later event only what has changed.
"""

from stepfold.engine.capabilities.nearby import files_near
from stepfold.engine.capabilities.paths import path_fault
from stepfold.engine.capabilities.workspace import Workspace
from stepfold.events.vocabulary import BLANK, ProjectListed

FILES_AT_MOST = 200
"""More are not told: a server compiles the names into each request, and whoever has more has to search."""

LONGEST_PATH = 200


def news_of(workspace: Workspace, known: tuple[str, ...] | None) -> ProjectListed | None:
    """What is not told by `known`, which is None before anything was; None where there is no news.

    Left out are the names that no model could write (with control characters, or no text at all), and
    those that every call refuses, such as one with a backslash.
    """
    found, whole = files_near(workspace)
    if not whole or len(found) > FILES_AT_MOST:
        return None if known is None else ProjectListed(*BLANK, whole=False)
    files = {path for path in found if _can_be_named(path)}
    if known is None:
        return ProjectListed(*BLANK, files=tuple(sorted(files)))
    came, gone = tuple(sorted(files.difference(known))), tuple(sorted(set(known) - files))
    return ProjectListed(*BLANK, files=came, gone=gone) if came or gone else None


def _can_be_named(path: str) -> bool:
    return path.isprintable() and len(path) <= LONGEST_PATH and not path_fault(path)
