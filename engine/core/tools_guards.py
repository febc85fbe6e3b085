"""Guards of the tools table: conditions on the run, read after "if". Each returns a real bool."""

from typing import Any

from stepfold.engine.core.tools_sees import Turn, fallback_candidates, hooks_left, reserved_slots
from stepfold.events.vocabulary import EffectLost, ModelErred, ToolErred
from stepfold.projections.fold_calls import next_slot
from stepfold.projections.fold_hooks import request_change
from stepfold.projections.fold_tools import FAULTS
from stepfold.projections.harness_settings import config_of
from stepfold.projections.state import Run

NUDGE_AT_SAME, STOP_AT_SAME = 2, 3
NUDGE_AT_ANY, STOP_AT_ANY = 4, 6
STOP_AT_BATCHES = 3


def before_agent_left(run: Run, given: Any) -> bool:
    """A middleware still has its `before_agent`."""
    return hooks_left(run, "before_agent")


def before_model_left(run: Run, given: Any) -> bool:
    """A middleware still has its `before_model` for this call."""
    return hooks_left(run, "before_model")


def after_model_left(run: Run, given: Any) -> bool:
    """A middleware still has its `after_model` for this reply."""
    return hooks_left(run, "after_model")


def after_agent_left(run: Run, given: Any) -> bool:
    """A middleware still has its `after_agent`."""
    return hooks_left(run, "after_agent")


def on_error_left(run: Run, given: Any) -> bool:
    """A middleware has not been told of the error yet."""
    return hooks_left(run, "on_error")


def after_tool_left(run: Run, given: Any) -> bool:
    """A middleware still has its `after_tool` for the call that is folded next."""
    slot = given.slot
    if slot is None or not hooks_left(run, "after_tool", slot.after_hooks):
        return False
    return not isinstance(slot.landed, ToolErred) or error_is_result(run, given)


def faulted(run: Run, given: Any) -> bool:
    """The run can't go on."""
    return bool(run.fault)


def cancel_requested(run: Run, given: Any) -> bool:
    """Somebody wants the run to end."""
    return run.cancel


def deadline_passed(run: Run, given: Any) -> bool:
    """The wall clock of the run is up. Earned by backoffs that slept past it."""
    deadline = run.harness.deadline
    return deadline is not None and run.now >= deadline


def command_waiting(run: Run, given: Any) -> bool:
    """A steering command has not reached the checkpoint."""
    return bool(run.harness.inbox)


def command_forbidden(run: Run, given: Any) -> bool:
    """The batch holds a command that this run doesn't allow: then none of it applies.

    What its owner says to a paused run, on taking it up again, is no handle's and always allowed.
    """
    batch, allowed = run.harness.inbox[0], config_of(run).steering
    return not batch.asked and any(command.name not in allowed for command in batch.commands)


def pause_asked(run: Run, given: Any) -> bool:
    """The run was told to rest."""
    return bool(run.harness.pause)


def control_pending(run: Run, given: Any) -> bool:
    """A hook raised a control that has not been applied."""
    return bool(run.harness.control[0])


def stopped(run: Run, given: Any) -> bool:
    """A control has given the final answer."""
    return run.harness.stop_reason == "stop_with_final"


def model_calls_spent(run: Run, given: Any) -> bool:
    """The cap of model calls is used up; cap N allows N."""
    return run.harness.model_calls >= config_of(run).max_model_calls


def tool_calls_spent(run: Run, given: Any) -> bool:
    """The turn asks for more calls than the cap leaves. Asked before anything is announced."""
    return run.harness.tool_calls + reserved_slots(run) > config_of(run).max_tool_calls


def no_model(run: Run, given: Any) -> bool:
    """There is no model to ask, or none of the name that a hook put into the request."""
    models = config_of(run).models
    wanted = request_change(run).model
    return not models or (bool(wanted) and all(model.name != wanted for model in models))


def retryable(run: Run, given: Any) -> bool:
    """The failed attempt may be repeated: the error says so, and both caps leave an attempt."""
    error = run.model_landed
    if not isinstance(error, ModelErred) or not error.retryable:
        return False
    config = config_of(run)
    return run.attempt + 1 < min(config.retry.attempts, config.retries_per_call + 1)


def fallback_barred(run: Run, given: Any) -> bool:
    """The attempt ran into a timeout, or a middleware ended it: no other model is asked after that."""
    return isinstance(run.model_landed, ModelErred) and run.model_landed.error in FAULTS


def fallback_unfit(run: Run, given: Any) -> bool:
    """The next model of the list lacks what the call needs."""
    candidates = fallback_candidates(run)
    return bool(candidates) and bool(candidates[0][1])


def fallback_left(run: Run, given: Any) -> bool:
    """Another model of the list has not been tried in this call."""
    return bool(fallback_candidates(run))


def from_cache(run: Run, given: Any) -> bool:
    """The reply came from the response cache, and that is not recorded yet."""
    harness = run.harness
    return harness.reply is not None and harness.reply.cache == "hit" and not harness.usage_recorded


def cache_missed(run: Run, given: Any) -> bool:
    """The cache was asked in vain, and that is not recorded yet."""
    harness = run.harness
    return harness.reply is not None and harness.reply.cache == "miss" and not harness.miss_recorded


def usage_unrecorded(run: Run, given: Any) -> bool:
    """The reply is not billed yet."""
    return not run.harness.usage_recorded


def truncated_empty(run: Run, given: Any) -> bool:
    """The model spent its whole budget on hidden reasoning and said nothing.

    Earned by local reasoning models that end with `length`, without text or a call.
    """
    reply = run.harness.reply
    if reply is None:
        return False
    return reply.finish_reason == "length" and not reply.text.strip() and not reply.tool_calls


def empty_retries_left(run: Run, given: Any) -> bool:
    """The turn may still be asked again."""
    return run.harness.empty_retries < config_of(run).truncated_empty_retries


def empty_is_error(run: Run, given: Any) -> bool:
    """The reply is blank, and the policy forbids that."""
    reply = run.harness.reply
    if reply is None or not config_of(run).error_on_empty_response:
        return False
    return not reply.text.strip() and not reply.tool_calls


def calls_asked(run: Run, given: Any) -> bool:
    """The reply asks for tools."""
    return next_slot(run, ("asked",)) is not None


def structured_mixed(run: Run, given: Turn) -> bool:
    """The reply gives the structured answer beside real calls, and that is not recorded yet."""
    if run.harness.mixed or config_of(run).response_strategy != "tool":
        return False
    return _phases(run) >= {"structured", "asked"}


def _phases(run: Run) -> set[str]:
    return {slot.phase for slot in run.slots}


def structured_call_invalid(run: Run, given: Turn) -> bool:
    """The structured answer came as a call, and is not what the response schema asks."""
    return given.structured_slot is not None and bool(given.structured_problem)


def structured_text_invalid(run: Run, given: Turn) -> bool:
    """The structured answer came as text, and is not what the response schema asks, however it was asked."""
    return given.structured_slot is None and bool(given.structured_problem)


def calls_answered(run: Run, given: Any) -> bool:
    """The reply had calls, and each has its answer already: the model must react to them."""
    return _phases(run) == {"done"}


def unknown_rewrites(run: Run, given: Any) -> bool:
    """The policy names a tool that takes over calls of unknown ones, and it exists."""
    policy = config_of(run).unknown_tool
    return policy.startswith("rewrite:") and policy.removeprefix("rewrite:") in run.manifests


def may_start(run: Run, given: Any) -> bool:
    """A call of the turn may start now: all at once, or one by one under a tool wrap.

    A wrap holds the run's context across its call, so two of them may not overlap.
    """
    if next_slot(run, ("asked",)) is None:
        return False
    if not config_of(run).middleware:
        return True
    if not any(middleware.wraps_tool for middleware in config_of(run).middleware):
        return True
    ending = bool(run.fault) or control_pending(run, given)
    return not ending and next_slot(run, ("started",)) is None


def child_unannounced(run: Run, given: Any) -> bool:
    """A sub-agent was started and not announced."""
    return given.unannounced is not None


def child_open(run: Run, given: Any) -> bool:
    """The call that is folded next is a sub-agent without its terminal event."""
    return bool(given.child_open)


def child_erred(run: Run, given: Any) -> bool:
    """The sub-agent came back with an error as its result."""
    landed = given.slot.landed
    return bool(getattr(landed, "error", ""))


def clock_is_limit(run: Run, given: Any) -> bool:
    """The limit that was reached is the wall clock."""
    return run.harness.limit == "wall_clock"


def error_is_result(run: Run, given: Any) -> bool:
    """The policy lets the model react to this error, or to not knowing what became of the call."""
    slot = next_slot(run, ("started",))
    landed = None if slot is None else slot.landed
    if isinstance(landed, ToolErred) and landed.fatal:
        return False
    return isinstance(landed, ToolErred | EffectLost) and config_of(run).tool_errors != "fail"


def call_open(run: Run, given: Any) -> bool:
    """A started call is not folded yet."""
    return next_slot(run, ("started",)) is not None


def call_unanswered(run: Run, given: Any) -> bool:
    """A call of the turn will never run, and has no answer yet."""
    return next_slot(run, ("asked",)) is not None


def limit_fails(run: Run, given: Any) -> bool:
    """A cap is used up, and the policy makes that an error."""
    return bool(run.harness.limit) and config_of(run).on_limit == "error"


def ended_early(run: Run, given: Any) -> bool:
    """The run ends with what it has: by a control, or by a cap under `stop_with_partial`."""
    return bool(run.harness.limit) or stopped(run, given)


def going_nowhere(run: Run, given: Any) -> bool:
    """The same failing call, failure upon failure, or the same turn over and over: time to stop."""
    harness = run.harness
    if not config_of(run).no_progress or harness.limit:
        return False
    return (
        harness.same_failures >= STOP_AT_SAME
        or harness.failures >= STOP_AT_ANY
        or harness.same_batches >= STOP_AT_BATCHES
    )


def needs_nudge(run: Run, given: Any) -> bool:
    """The run begins to repeat a failure: say so to the model, once for each count."""
    harness = run.harness
    if not config_of(run).no_progress or harness.nudged_at == (harness.same_failures, harness.failures):
        return False
    return harness.same_failures == NUDGE_AT_SAME or harness.failures == NUDGE_AT_ANY


def hook_is(hook: str) -> Any:
    """The hook in flight is this one."""

    def guard(run: Run, given: Any) -> bool:
        return run.harness.hook[0] == hook

    guard.__name__ = f"hook_is_{hook}"
    guard.__doc__ = f"The hook in flight is `{hook}`."
    return guard
