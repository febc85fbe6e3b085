"""What each row of the tools table records: one event, built from the run and what its state saw."""

from typing import Any

from msgspec import Raw

from stepfold.engine.core.arguments import Arguments
from stepfold.engine.core.backoff import delay_of, hint_in
from stepfold.engine.core.machine import Emit, Head
from stepfold.engine.core.tools_sees import (
    Admission,
    Folding,
    Turn,
    arguments_of,
    fallback_candidates,
    hooks_done,
    hooks_of,
)
from stepfold.events import vocabulary as v
from stepfold.projections.fold_calls import child_id, next_slot, row_text
from stepfold.projections.fold_hooks import request_change
from stepfold.projections.harness_settings import config_of
from stepfold.projections.prompt import harness_request_digest
from stepfold.projections.state import Run, Slot, decided_config, microseconds


def hook(name: str) -> Emit:
    """The next middleware of a run's or a call's hook."""

    def emit(run: Run, given: Any, head: Head) -> v.Decided:
        return v.MiddlewareStarted(*head, hook=name, name=hooks_of(run, name)[hooks_done(run, name)].name)

    return emit


def before_tool(run: Run, given: Admission, head: Head) -> v.Decided:
    """The next middleware's look at a call before it is admitted."""
    slot: Slot = given.slot
    name = hooks_of(run, "before_tool")[slot.before_hooks].name
    return v.MiddlewareStarted(*head, hook="before_tool", name=name, call_id=slot.call_id)


def after_tool(run: Run, given: Folding, head: Head) -> v.Decided:
    """The next middleware's look at a result before it is folded."""
    slot: Slot = given.slot
    name = hooks_of(run, "after_tool")[slot.after_hooks].name
    return v.MiddlewareStarted(*head, hook="after_tool", name=name, call_id=slot.call_id)


def hooked(run: Run, given: Any, head: Head) -> v.Decided:
    """The hook in flight is over."""
    name, middleware, position = run.harness.hook
    landed = run.harness.hook_landed
    call_id = run.slots[position].call_id if 0 <= position < len(run.slots) else ""
    error = "cut_off" if landed is None else landed.error
    return v.MiddlewareCompleted(*head, hook=name, name=middleware, call_id=call_id, error=error)


def steered(run: Run, given: Any, head: Head) -> v.Decided:
    """The first command of the batch at the head takes effect."""
    return v.Steered(*head, command=run.harness.inbox[0].commands[0].name, accepted=True)


def steering_refused(run: Run, given: Any, head: Head) -> v.Decided:
    """A batch with a forbidden command applies none."""
    allowed = config_of(run).steering
    forbidden = next(command.name for command in run.harness.inbox[0].commands if command.name not in allowed)
    return v.Steered(*head, command=forbidden, accepted=False)


def control(run: Run, given: Any, head: Head) -> v.Decided:
    """The pending control takes effect."""
    return v.ControlApplied(*head, control=run.harness.control[0])


def paused(run: Run, given: Any, head: Head) -> v.Decided:
    """The run rests."""
    return v.RunPaused(*head, checkpoint=run.harness.model_calls)


def ask(run: Run, given: Any, head: Head) -> v.Decided:
    """Opens a step: the intent to ask the model, with the digest of exactly what it is asked."""
    version, run_id, seq, step, ts, row, to = head
    config = config_of(run)
    change = request_change(run)
    max_tokens = run.harness.wide or change.max_tokens or config.generation.max_tokens
    return v.ModelStarted(
        version,
        run_id,
        seq,
        step + 1,
        ts,
        row,
        to,
        call_id=f"model-{run.call + 1}",
        model=change.model or config.models[0].name,
        digest=harness_request_digest(run, max_tokens),
        max_tokens=max_tokens,
    )


def retry(run: Run, given: v.ModelErred, head: Head) -> v.Decided:
    """The next attempt, and how long until then."""
    hint = given.retry_after or hint_in(given.detail)
    delay = delay_of(decided_config(run).retry, run.attempt, hint, run.call_id)
    return v.RetryScheduled(*head, call_id=run.call_id, attempt=run.attempt + 1, delay=delay, why=given.error)


def retry_empty(run: Run, given: Any, head: Head) -> v.Decided:
    """The blank reply is dropped, and the turn asked again."""
    attempt = run.harness.empty_retries + 1
    return v.RetryScheduled(*head, call_id=run.call_id, attempt=attempt, delay=0.0, why="empty")


def skip_fallback(run: Run, given: Any, head: Head) -> v.Decided:
    """The next model of the list can't take the call."""
    model, lacks = fallback_candidates(run)[0]
    return v.FallbackSkipped(*head, call_id=run.call_id, model=model, lacks=lacks)


def fall_back(run: Run, given: Any, head: Head) -> v.Decided:
    """The next model of the list takes the call over."""
    return v.FallbackSelected(*head, call_id=run.call_id, model=fallback_candidates(run)[0][0])


def model_failed(run: Run, given: v.ModelErred, head: Head) -> v.Decided:
    """No reply came of this call."""
    return v.ModelFailed(*head, call_id=run.call_id, error=given.error)


def model_given_up(error: str) -> Emit:
    """The call is given up because the run is."""

    def emit(run: Run, given: Any, head: Head) -> v.Decided:
        return v.ModelFailed(*head, call_id=run.call_id, error=error)

    return emit


def cache_hit(run: Run, given: Any, head: Head) -> v.Decided:
    """The reply was there already."""
    return v.CacheHit(*head, call_id=run.call_id)


def cache_missed(run: Run, given: Any, head: Head) -> v.Decided:
    """The cache had nothing."""
    return v.CacheMissed(*head, call_id=run.call_id)


def bill(run: Run, given: Any, head: Head) -> v.Decided:
    """The reply's usage counts."""
    return v.UsageRecorded(*head, call_id=run.call_id)


def completed(run: Run, given: Any, head: Head) -> v.Decided:
    """The reply is taken."""
    return v.ModelCompleted(*head, call_id=run.call_id)


def structured_rejected(run: Run, given: Turn, head: Head) -> v.Decided:
    """The structured answer breaks its schema."""
    slot: Slot = given.structured_slot
    fatal = config_of(run).invalid_arguments == "fail"
    return v.ToolArgumentsRejected(
        *head,
        call_id=slot.call_id,
        name=slot.name,
        reason=given.structured_problem,
        fatal=fatal,
        key=slot.key,
    )


def unknown(run: Run, given: Admission, head: Head) -> v.Decided:
    """What becomes of a call of a tool that isn't there."""
    slot: Slot = given.slot
    policy = config_of(run).unknown_tool
    recovery = "fail" if policy == "fail" else "tool_error"
    return v.UnknownToolCalled(*head, call_id=slot.call_id, name=slot.name, recovery=recovery)


def rewritten(run: Run, given: Admission, head: Head) -> v.Decided:
    """The tool that takes the call over."""
    slot: Slot = given.slot
    recovery = config_of(run).unknown_tool
    return v.UnknownToolCalled(*head, call_id=slot.call_id, name=slot.name, recovery=recovery)


def invalid(run: Run, given: Admission, head: Head) -> v.Decided:
    """What is wrong with the arguments."""
    slot: Slot = given.slot
    reason = "" if given.arguments is None else given.arguments.problem
    fatal = config_of(run).invalid_arguments == "fail"
    return v.ToolArgumentsRejected(
        *head, call_id=slot.call_id, name=slot.name, reason=reason, fatal=fatal, key=slot.key
    )


def refused(run: Run, given: Admission, head: Head) -> v.Decided:
    """A hook answers in the place of the tool; its text lies in what the hook returned."""
    return v.ToolSkipped(*head, call_id=given.slot.call_id, why="refused")


def start(run: Run, given: Any, head: Head) -> v.Decided:
    """The intent to run the next admitted call."""
    slot = next_slot(run, ("asked",))
    assert slot is not None
    # What admission has judged is not judged again.
    judged = given.arguments if isinstance(given, Admission) else None
    arguments: Arguments = judged or arguments_of(run, slot)
    return v.ToolStarted(
        *head,
        call_id=slot.call_id,
        name=slot.name,
        key=slot.key,
        arguments=Raw(arguments.value) if arguments.changed else v.NULL,
    )


def announce(run: Run, given: Folding, head: Head) -> v.Decided:
    """A sub-agent's run begins."""
    return v.SubAgentStarted(*head, **_child(run, given.unannounced))


def child_done(run: Run, given: Folding, head: Head) -> v.Decided:
    """A sub-agent's run completed."""
    return v.SubAgentCompleted(*head, **_child(run, given.slot))


def child_failed(error: str) -> Emit:
    """A sub-agent's run failed, or was cut off."""

    def emit(run: Run, given: Folding, head: Head) -> v.Decided:
        landed = given.slot.landed
        kind = error or getattr(landed, "error", "")
        return v.SubAgentFailed(*head, **_child(run, given.slot), error=kind)

    return emit


def _child(run: Run, slot: Slot) -> dict[str, Any]:
    return {"call_id": slot.call_id, "child": child_id(run, slot), "depth": config_of(run).depth + 1}


def tool_completed(run: Run, given: Folding, head: Head) -> v.Decided:
    """The result is folded, whether it is a success or an error that the model may react to."""
    slot: Slot = given.slot
    landed = slot.patch or slot.landed
    error = landed.error if isinstance(landed, v.ToolReturned | v.ToolErred) else "Lost"
    size = len(row_text(run, slot).encode("utf-8", "surrogatepass"))
    return v.ToolCompleted(
        *head,
        call_id=slot.call_id,
        key=slot.key,
        error=error,
        output_bytes=size,
        duration=_duration(slot),
    )


def tool_failed(run: Run, given: Folding, head: Head) -> v.Decided:
    """The call fails the turn. The error of a policy's own name stays its own."""
    slot: Slot = given.slot
    landed = slot.landed
    kind = landed.error if isinstance(landed, v.ToolErred) and landed.fatal else "Tool"
    return v.ToolFailed(*head, call_id=slot.call_id, error=kind, key=slot.key, duration=_duration(slot))


def tool_given_up(error: str) -> Emit:
    """The call is given up because the run is, or nobody knows what became of it."""

    def emit(run: Run, given: Folding, head: Head) -> v.Decided:
        return v.ToolFailed(*head, call_id=given.slot.call_id, error=error, key=given.slot.key)

    return emit


def _duration(slot: Slot) -> float:
    if not slot.landed_at:
        return 0.0
    return (microseconds(slot.landed_at) - microseconds(slot.started_at)) / 1_000_000


def skipped(run: Run, given: Any, head: Head) -> v.Decided:
    """A call that will not run has an answer too."""
    slot = next_slot(run, ("asked",))
    assert slot is not None
    return v.ToolSkipped(*head, call_id=slot.call_id, why=_why_skipped(run))


def _why_skipped(run: Run) -> str:
    if run.harness.limit:
        return f"limit ({run.harness.limit})"
    if run.cancel:
        return "cancelled"
    return run.fault or run.harness.control[0] or run.harness.stop_reason or "the turn ended"


def nudge(run: Run, given: Any, head: Head) -> v.Decided:
    """Say to the model that it repeats itself."""
    harness = run.harness
    if harness.same_failures >= 2:
        message = (
            f"The same call has failed {harness.same_failures} times, unchanged since step {run.step}: "
            "do something else."
        )
    else:
        message = f"{harness.failures} calls in a row have failed: look at the errors before the next call."
    return v.NoProgress(*head, verdict="nudge", message=message)


def halt(run: Run, given: Any, head: Head) -> v.Decided:
    """Stop a run that goes nowhere."""
    harness = run.harness
    if harness.same_batches >= 3:
        message = f"the same calls gave the same results {harness.same_batches} times"
    elif harness.same_failures >= 3:
        message = f"the same failing call was retried {harness.same_failures} times"
    else:
        message = f"{harness.failures} calls in a row failed"
    return v.NoProgress(*head, verdict="stop", message=message)


def run_completed(run: Run, given: Any, head: Head) -> v.Decided:
    """The run ends with what it has."""
    return v.RunCompleted(*head, stop_reason=run.harness.stop_reason or run.harness.limit)


def run_failed(error: str = "") -> Emit:
    """The run ends in an error: a given one, or the one that it met."""

    def emit(run: Run, given: Any, head: Head) -> v.Decided:
        return v.RunFailed(*head, error=error or run.fault)

    return emit


def limit_failed(run: Run, given: Any, head: Head) -> v.Decided:
    """The run ends because a cap is used up."""
    kind = "NoProgress" if run.harness.limit == "no_progress" else "LimitExceeded"
    return v.RunFailed(*head, error=kind)
