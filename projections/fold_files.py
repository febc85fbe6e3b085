"""What a model knows of the project's files: which there are, and what stands in those that it has read."""

import posixpath
from contextlib import suppress

import msgspec
from msgspec import Struct

from stepfold.events.configuration import GoalConfig
from stepfold.events.vocabulary import ProjectListed, ToolCompleted, ToolFailed, ToolReturned
from stepfold.projections.fold_repeats import is_offered
from stepfold.projections.state import GoalState, Run, Slot

SHOWS_A_FILE = frozenset({"fs.read", "fs.write"})
"""After these a model knows what stands in the file."""


class _Named(Struct):
    path: str
    start_line: float | None = None
    end_line: float | None = None


_decode = msgspec.json.Decoder(_Named).decode


def project_listed(run: Run, event: ProjectListed) -> None:
    """What the model may name as a file from here on; the framing shows the first listing only.

    A listing that changed would change what stands before every turn, and no server's cache would hold.
    """
    goal = run.goal
    known = set(goal.files or ()).difference(event.gone)
    goal.files = tuple(sorted(known.union(event.files))) if event.whole else None
    if goal.context_step == 0:
        goal.files_at_start = goal.files or ()


def forget(goal: GoalState) -> None:
    """Files may have changed, or what was told of them has left the prompt: reading is no repetition."""
    goal.told_files = {}


def call_ended(run: Run, slot: Slot, event: ToolCompleted | ToolFailed) -> None:
    """The model has read a file, or written all of it. Kept only where something is made of it."""
    goal = run.goal
    was_capped = isinstance(slot.landed, ToolReturned) and slot.landed.size > 0
    goal.was_capped = goal.was_capped or was_capped
    config = run.config
    if event.error or slot.name not in SHOWS_A_FILE or not isinstance(config, GoalConfig):
        return
    with suppress(msgspec.DecodeError):
        named = _decode(slot.arguments)
        path = posixpath.normpath(named.path)
        if config.read_first:
            goal.seen[path] = None
        is_whole = not was_capped and named.start_line is None and named.end_line is None
        if is_whole and slot.name == "fs.read" and is_offered(run):
            goal.told_files[path] = None
