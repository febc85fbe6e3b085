"""`evolve`, the one reducer: live runs, replay, SQL, show and resume all fold the log through it.

To add an event: its struct in `events/vocabulary.py`, a function in the `fold_*` module of its loop,
and a line in the map below. It takes one event in O(new) work, holds no guard, and never fails.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from stepfold.events import vocabulary as v
from stepfold.projections import fold_calls as calls
from stepfold.projections import fold_files as files
from stepfold.projections import fold_goal as goal
from stepfold.projections import fold_hooks as hooks
from stepfold.projections import fold_imported as imported
from stepfold.projections import fold_progress as progress
from stepfold.projections import fold_shared as shared
from stepfold.projections import fold_tools as tools
from stepfold.projections.state import Run


def _nothing(run: Run, event: Any) -> None:
    """Events that are read by people and by SQL, and change no state but their `to`."""


def _effect_lost(run: Run, event: v.EffectLost) -> None:
    if event.key.startswith("check:"):
        run.goal.check_landed = event
        return
    shared.tool_landed(run, event)


Reducers = dict[type, Callable[[Run, Any], None]]

SHARED: Reducers = {
    v.RunStarted: shared.run_started,
    v.RunReopened: shared.run_reopened,
    v.LogRepaired: _nothing,
    v.SandboxProbed: shared.sandbox_probed,
    v.ToolsListed: shared.tools_listed,
    v.CancelRequested: shared.cancel_requested,
    v.ModelStarted: shared.model_started,
    v.ModelReplied: shared.model_replied,
    v.ModelErred: shared.model_erred,
    v.ModelDelta: _nothing,
    v.RetryScheduled: shared.retry_scheduled,
    v.WaitEnded: shared.wait_ended,
    v.ModelCompleted: shared.model_completed,
    v.ModelFailed: shared.model_failed,
    v.ToolStarted: shared.tool_started,
    v.ToolReturned: shared.tool_landed,
    v.ToolErred: shared.tool_landed,
    v.EffectLost: _effect_lost,
}

GOAL: Reducers = {
    v.RunReopened: goal.run_reopened,
    v.ConstraintProbed: goal.constraint_probed,
    v.ProjectListed: files.project_listed,
    v.ToolStarted: goal.tool_started,
    v.ToolCompleted: goal.tool_ended,
    v.ToolFailed: goal.tool_ended,
    v.ProfileInferred: goal.profile_inferred,
    v.MemoryRecalled: goal.memory_recalled,
    v.ObservationRecorded: goal.observation_recorded,
    v.ContextBuilt: goal.context_built,
    v.ContextCompacted: goal.context_compacted,
    v.ActionParsed: goal.action_parsed,
    v.ActionRejected: goal.action_rejected,
    v.CapabilitiesFound: goal.capabilities_found,
    v.CapabilitiesLoaded: goal.capabilities_loaded,
    v.ToolRejected: goal.tool_rejected,
    v.CheckStarted: goal.check_started,
    v.WorkerSpent: goal.worker_spent,
    v.CheckReturned: goal.check_returned,
    v.WorkspaceChanged: goal.workspace_changed,
    v.EvidenceRecorded: goal.evidence_recorded,
    v.ChecksJudged: goal.checks_judged,
    v.GuardTripped: goal.guard_tripped,
    v.LimitReached: goal.limit_reached,
    v.FinishAccepted: goal.finish_accepted,
    v.FinishRejected: goal.finish_rejected,
    v.UserAsked: goal.user_asked,
    v.UserAnswered: goal.user_answered,
    v.UserLoaded: goal.user_loaded,
    v.ApprovalAsked: goal.approval_asked,
    v.ApprovalAnswered: goal.approval_answered,
    v.CallUndone: goal.call_undone,
    v.TurnEnded: goal.turn_ended,
    v.RunResumed: goal.run_resumed,
    v.RunFinished: goal.run_finished,
}

TOOLS: Reducers = {
    v.RunReopened: tools.run_reopened,
    v.ModelStarted: tools.model_started,
    v.ModelDelta: tools.model_delta,
    v.ModelReplied: tools.model_replied,
    v.ModelErred: tools.model_erred,
    v.FallbackSelected: tools.fallback_selected,
    v.FallbackSkipped: tools.fallback_skipped,
    v.RetryScheduled: tools.retry_scheduled,
    v.CacheHit: tools.usage_recorded,
    v.CacheMissed: tools.cache_missed,
    v.UsageRecorded: tools.usage_recorded,
    v.ModelCompleted: tools.model_completed,
    v.ModelFailed: tools.model_failed,
    v.UnknownToolCalled: calls.unknown_tool,
    v.ToolArgumentsRejected: calls.arguments_rejected,
    v.ToolSkipped: calls.tool_skipped,
    v.ToolStarted: calls.tool_started,
    v.ToolCompleted: calls.tool_completed,
    v.ToolFailed: calls.tool_failed,
    v.SubAgentStarted: calls.child_started,
    v.SubAgentCompleted: calls.child_ended,
    v.SubAgentFailed: calls.child_ended,
    v.NoProgress: progress.no_progress,
    v.MiddlewareStarted: hooks.middleware_started,
    v.HookReturned: hooks.hook_returned,
    v.MiddlewareCompleted: hooks.middleware_completed,
    v.SteeringReceived: tools.steering_received,
    v.Steered: tools.steered,
    v.ControlApplied: tools.control_applied,
    v.LimitReached: tools.limit_reached,
    v.RunPaused: tools.run_paused,
    v.RunCompleted: tools.run_completed,
    v.RunFailed: tools.run_failed,
}


IMPORTED: Reducers = {
    v.ModelReplied: imported.model_replied,
    v.ModelErred: imported.model_erred,
    v.MessageRecorded: imported.message_recorded,
    v.ToolCalled: imported.tool_called,
    v.ToolReturned: imported.tool_returned,
    v.RejectionRecorded: imported.rejection_recorded,
    v.TraceEnded: imported.trace_ended,
}


def _run_started(run: Run, event: v.RunStarted) -> None:
    shared.run_started(run, event)
    if run.loop == "tools":
        tools.run_started(run, event)
    elif run.loop == "imported":
        imported.run_started(run, event)


SHARED[v.RunStarted] = _run_started


def _forked(run: Run) -> None:
    was = getattr(run.config, "wall_clock", None)
    shared.forked(run)
    if run.loop == "tools":
        tools.forked(run, was)


class _Sorted(NamedTuple):
    decided: Reducers
    observed: Reducers


def _sorted(reducers: Reducers) -> _Sorted:
    observed = {kind: reducer for kind, reducer in reducers.items() if issubclass(kind, v.Observed)}
    decided = {kind: reducer for kind, reducer in reducers.items() if kind not in observed}
    return _Sorted(decided, observed)


REDUCERS: dict[str, _Sorted] = {
    "": _sorted(SHARED),
    "goal": _sorted(SHARED | GOAL),
    "tools": _sorted(SHARED | TOOLS),
    "imported": _sorted(SHARED | IMPORTED),
}
"""By loop; a run has none until its `RunStarted` is folded."""


def evolve(run: Run, event: v.Event | v.Unknown) -> Run:
    """Fold one event into the run, in place, and return the run.

    Total: an event of an unknown kind is counted and changes nothing else. Decided events move the
    state by their own `to`, so a fold needs no machine and a changed guard can't rewrite the past.
    """
    run.seq = event.seq + 1
    run.step = event.step
    kind: Any = event.__class__
    decided, observed = REDUCERS[run.loop]
    reducer = decided.get(kind)
    if reducer is not None:
        reducer(run, event)
        if event.to:  # type: ignore[union-attr]
            run.state = event.to  # type: ignore[union-attr]
    elif (reducer := observed.get(kind)) is None:
        run.unknown_kinds += 1
    # What lands after its effect was given up never happened: nobody waits for it any more.
    elif not event.key or run.due.pop(event.key, None) is not None:  # type: ignore[union-attr]
        reducer(run, event)
        run.ts = event.ts
    # The last event that a fork shares is its source's still, and folded as its source folds it.
    if run.seq == run.fork_seq:
        _forked(run)
    return run


def fold(events: Iterable[v.Event | v.Unknown]) -> Run:
    """The run that these events make."""
    run = Run()
    for event in events:
        evolve(run, event)
    return run
