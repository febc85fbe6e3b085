"""How a goal run notices that it goes nowhere: what the optional guards count, a bounded state a step."""

import re

from stepfold.events.configuration import NO_GUARDS, GoalConfig, Guards, ImportedConfig
from stepfold.events.vocabulary import ToolCompleted, ToolFailed, ToolReturned
from stepfold.projections.digest import digest_of
from stepfold.projections.state import Action, GoalState, Run, Slot

LONGEST_CYCLE = 6
CALLS_AT_MOST = 8
"""How many different failing calls are counted at a time."""

TOLD_AT_MOST = 12
"""Steps back in which a step is looked for that said and got the same."""

GUARDS = {
    "cycle_repeats": "the run went in a circle: the same steps with the same results, over and over",
    "rejection_repeats": "the same reply was rejected for the same reason, over and over",
    "failure_repeats": "the same call failed in the same way, over and over",
}
"""The guards that fail a run, and what a person reads then."""

_DURATION = re.compile(r"\d+(?:\.\d+)?\s?(?:ms|s|sec|secs|seconds?)\b")
"""Test runners print how long they took: two runs with one result would differ by that alone."""


def guards_of(run: Run) -> Guards:
    """The thresholds of a run that has any."""
    config = run.config
    return config.guards if isinstance(config, GoalConfig | ImportedConfig) else NO_GUARDS


def rejected(run: Run, *what: str) -> None:
    """The step ends in a rejection, which is like another one when all of `what` is."""
    if guards_of(run).rejection:
        run.goal.rejection = digest_of("\x1f".join(what))


def call_ended(run: Run, slot: Slot, event: ToolCompleted | ToolFailed) -> None:
    """Count a failing call by what it was and how it failed; a success that may have helped clears all."""
    if not guards_of(run).failure:
        return
    text = slot.landed.content if isinstance(slot.landed, ToolReturned) else ""
    manifest = run.manifests.get(slot.name)
    _count_failure(run.goal, slot, event.error, text, may_help=manifest is None or manifest.mutates)


def _count_failure(goal: GoalState, slot: Slot, error: str, text: str, *, may_help: bool) -> None:
    call = digest_of(f"{slot.name}\x1f{slot.arguments!r}")
    if not error:
        if may_help:
            goal.failures = {}
        goal.failures.pop(call, None)
        return
    result = _digest(f"{error}\x1f{text}")
    before, count = goal.failures.pop(call, (result, 0))
    goal.failures[call] = (result, count + 1 if before == result else 1)
    while len(goal.failures) > CALLS_AT_MOST:
        del goal.failures[next(iter(goal.failures))]


def imported_call_ended(run: Run, slot: Slot, error: str, text: str) -> None:
    """The same for a call that another program ran: nobody knows which of its tools change anything."""
    if guards_of(run).failure:
        _count_failure(run.goal, slot, error, text, may_help=False)


def count_anew(goal: GoalState) -> None:
    """What came before counts no more: a guard has stopped the run for it, and a person says to go on."""
    goal.rejection, goal.last_rejection, goal.rejections = "", "", 0
    goal.last_steps, goal.cycle_runs = (), ()
    goal.failures = {}


def step_ended(run: Run, observation: str) -> None:
    """A step's observation is whole: compare it with those before."""
    guards, goal = guards_of(run), run.goal
    if guards.rejection:
        same = goal.rejection and goal.rejection == goal.last_rejection
        goal.rejections = goal.rejections + 1 if same else int(bool(goal.rejection))
        goal.last_rejection, goal.rejection = goal.rejection, ""
    if not (guards.cycle or is_offered(run)):
        return
    step = _step_digest(goal.action, observation)
    if guards.cycle:
        _compare(goal, step)
    if is_offered(run):
        _tell(run, step)


def is_offered(run: Run) -> bool:
    """Whether the model is offered what to say: then it is not to be told the same twice."""
    config = run.config
    return isinstance(config, GoalConfig) and config.generation.response_format == "actions"


def _tell(run: Run, step: str) -> None:
    """Whether the step was like one of the last, with the same action and the same result."""
    goal = run.goal
    tool = run.slots[0].name if run.slots else ""
    goal.again = (*goal.again, tool)[-TOLD_AT_MOST:] if step in goal.told else ()
    goal.told = (*goal.told, step)[-TOLD_AT_MOST:]


def _compare(goal: GoalState, step: str) -> None:
    """For each period, how many steps in a row have been like the one a period before."""
    steps, runs = goal.last_steps, goal.cycle_runs
    goal.cycle_runs = tuple(
        runs[period - 1] + 1 if len(steps) >= period and steps[-period] == step else 0
        for period in range(1, LONGEST_CYCLE + 1)
    )
    goal.last_steps = (*steps, step)[-LONGEST_CYCLE:]


def rounds_of(goal: GoalState) -> int:
    """How often the last steps have gone round the cycle that they went round most often.

    A cycle has two to six steps; one step over and over is a cycle of two equal ones.
    """
    runs = goal.cycle_runs
    return max((runs[period - 1] // period + 1 for period in range(2, len(runs) + 1)), default=1)


def _step_digest(action: Action | None, observation: str) -> str:
    said = f"{action.name}\x1f{action.arguments}" if action is not None else ""
    return _digest(f"{said}\x1f{observation}")


def _digest(text: str) -> str:
    return digest_of(_DURATION.sub("", text))
