"""Guards that somebody brings from outside: what they are, and where `decide` finds them by name.

The log names the guards that were on, for a guard decides and replay decides anew. So their code must be
there again under the same name; a log whose guard is missing says so.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from stepfold.projections.fold_goal import config_of
from stepfold.projections.state import Run

OwnGuard = Callable[[Run, str, dict[str, Any]], str]
"""Looks at an action, by its name and arguments, before it is carried out. "" lets it pass; anything else
ends the run, and is the reason that the outcome tells. It must be pure: the same run and action, the same
text; no clock, no file.
"""

_KNOWN: dict[str, OwnGuard] = {}
LONGEST_REASON = 300


class MissingGuard(Exception):
    """A run names a guard that is not here: which, and how it gets here."""


class GuardClash(ValueError):
    """Two guards of one name: replay could not tell which of them decided."""


def provide(name: str, guard: OwnGuard) -> None:
    """Make a guard known under a name, for the whole process. Raises GuardClash for a name that is taken."""
    if not name.isidentifier():
        raise GuardClash(f"{name!r} is no name for a guard: use letters, digits and _")
    if _KNOWN.setdefault(name, guard) is not guard:
        raise GuardClash(f"there is another guard {name!r}: give one of them another name")


def is_known(name: str) -> bool:
    """Whether a guard of this name was provided."""
    return name in _KNOWN


def require(name: str) -> OwnGuard:
    """The guard of this name. Raises MissingGuard."""
    guard = _KNOWN.get(name)
    if guard is None:
        raise MissingGuard(
            f"the guard {name!r} is not here: install the package that has it under the entry point "
            "stepfold.guards, or give it as AgentLoop(own_guards=[…])"
        )
    return guard


def objection(run: Run) -> tuple[str, str]:
    """The first of the run's own guards that objects to the action at hand, and its reason.

    Two empty texts when none does.

    A guard that raises objects: what it should have kept out must not pass because of a mistake in it.
    Raises MissingGuard.
    """
    for name in config_of(run).guards.own:
        reason = _asked(require(name), run)
        if reason:
            return name, reason[:LONGEST_REASON]
    return "", ""


def _asked(guard: OwnGuard, run: Run) -> str:
    action = run.goal.action
    if action is None:
        return ""
    try:
        return guard(run, action.name, msgspec.json.decode(action.arguments))
    except Exception as error:
        return f"the guard itself failed: {type(error).__name__}: {' '.join(str(error).split())}"
