"""Workers: what a dispatched task is run under, and what its outcome is to the run that dispatched it."""

from collections.abc import Callable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stepfold.engine.runtime.run_log import Watch
from stepfold.events.configuration import Budget, GoalConfig
from stepfold.events.vocabulary import (
    BLANK,
    AnyEvent,
    ChildUsage,
    ModelReplied,
    ToolErred,
    ToolReturned,
    WorkerSpent,
)
from stepfold.projections.effects import CallTool
from stepfold.projections.fold_calls import child_id
from stepfold.projections.fold_goal import config_of, worked
from stepfold.projections.fold_shared import slot_of
from stepfold.projections.outcome import LoopOutcome
from stepfold.projections.state import Run
from stepfold.projections.usage import Usage


class _Dispatch(Struct):
    task: str
    profile: str = ""


def worker_id(run: Run, effect: CallTool) -> str:
    """The id of a worker's run, made of its parent's and the call, so that a resume finds it."""
    slot = slot_of(run, effect.key)
    assert slot is not None
    return child_id(run, slot)


def worker_config(run: Run, effect: CallTool) -> GoalConfig:
    """The parent's configuration with the worker's own goal, one deeper, and without acceptance checks.

    The checks say when the whole goal is met, which a part of the work can't: the parent answers for
    them, and its evidence is stale as soon as a worker has ended.
    """
    wanted = msgspec.json.decode(effect.arguments, type=_Dispatch)
    config = config_of(run)
    return replace(
        config,
        goal=wanted.task,
        profile=wanted.profile,
        depth=config.depth + 1,
        checks=(),
        chat=False,
        budget=_left(config.budget, run),
    )


def _left(budget: Budget, run: Run) -> Budget:
    """What the parent has not used up yet, as of now."""
    return Budget(
        tokens=None if budget.tokens is None else max(0, budget.tokens - run.usage.total_tokens),
        cost=None if budget.cost is None else max(0.0, budget.cost - run.usage.cost),
        seconds=None if budget.seconds is None else max(0.0, budget.seconds - worked(run)),
    )


def landing_of(outcome: LoopOutcome, effect: CallTool) -> ToolReturned | ToolErred:
    """What the parent observes of a worker: how it ended, its summary or question, and what it cost."""
    child = child_usage(outcome.usage)
    if outcome.finish == "failed":
        detail = f"the worker of {effect.call_id} ({outcome.run_id}): {outcome.reason}"
        return ToolErred(*BLANK, error="WorkerFailed", detail=detail, child=child)
    steps = "1 step" if outcome.steps == 1 else f"{outcome.steps} steps"
    spent = f"the worker of {effect.call_id} ({outcome.run_id}, {steps})"
    match outcome.finish:
        case "completed":
            return ToolReturned(*BLANK, content=f"{spent} has finished: {outcome.summary}", child=child)
        case "awaiting_user":
            text = f"{spent} asks: {outcome.summary}\nAnswer it in the task of another worker_dispatch."
            return ToolReturned(*BLANK, content=text, error="WorkerAsks", child=child)
        case _:
            text = f"{spent} ended as {outcome.status}, without a summary: look at what it did"
            return ToolReturned(*BLANK, content=text, error="WorkerUnfinished", child=child)


def telling(worker: str, tell: Callable[[WorkerSpent], None], watch: Watch | None) -> Watch:
    """Who watches a worker's run, and beside them its parent, which is told what each reply has cost."""

    def told(event: AnyEvent) -> None:
        match event:
            case ModelReplied():
                tell(WorkerSpent(*BLANK, worker=worker, child=child_usage(Usage().plus(event))))
            case WorkerSpent():
                tell(replace(event, worker=worker))
        if watch is not None:
            watch(event)

    return told


def child_usage(usage: Usage) -> ChildUsage:
    """What a child's run has cost, for its parent to add to its own."""
    return ChildUsage(usage.model_calls, usage.input_tokens, usage.output_tokens, usage.cost)
