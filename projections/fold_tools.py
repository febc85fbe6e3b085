"""How the model calls, the edges and the ends of a tool-calling run change it."""

import msgspec

from stepfold.events.vocabulary import (
    CacheHit,
    CacheMissed,
    Command,
    ControlApplied,
    FallbackSelected,
    FallbackSkipped,
    LimitReached,
    Message,
    ModelCompleted,
    ModelDelta,
    ModelErred,
    ModelFailed,
    ModelReplied,
    ModelStarted,
    RetryScheduled,
    RunCompleted,
    RunFailed,
    RunPaused,
    RunReopened,
    RunStarted,
    Steered,
    SteeringReceived,
    UsageRecorded,
)
from stepfold.projections import fold_progress as progress
from stepfold.projections import fold_shared as shared
from stepfold.projections.effects import Listen, Wait
from stepfold.projections.fold_calls import answer
from stepfold.projections.harness_settings import config_of
from stepfold.projections.state import Batch, Run, Slot, in_microseconds, microseconds

DEADLINE = "clock"
"""The key of the timer that rings at the deadline."""
STEERING = "steering"
"""The key of the effect that waits for a paused run to be resumed."""
FAULTS = {
    "timeout": "Timeout",
    "Middleware": "Middleware",
    "Interrupted": "Interrupted",
    "Cancelled": "Cancelled",
}
"""Kinds of model errors that give a failed run its own kind; any other is a `Model` error."""


def run_started(run: Run, event: RunStarted) -> None:
    """Take the input, and start the clock if there is one."""
    for message in event.input:
        run.history.append(message)
    wall_clock = config_of(run).wall_clock
    if wall_clock is not None:
        run.harness.deadline = microseconds(event.ts) + in_microseconds(wall_clock)
        run.due[DEADLINE] = Wait(DEADLINE, run.harness.deadline)


def run_reopened(run: Run, event: RunReopened) -> None:
    """The time between two lives does not count against the deadline, and a stream begins anew.

    A paused run has its clock stopped already, from the pause to the resume.
    """
    run.harness.partial = []
    if not run.harness.pause:
        _shift_deadline(run, microseconds(event.ts) - run.now)


def forked(run: Run, was: float | None) -> None:
    """A fork under another wall clock than it `was`, in seconds: it is counted from the same start."""
    harness, wall_clock = run.harness, config_of(run).wall_clock
    if wall_clock == was:
        return
    if wall_clock is None:
        harness.deadline = None
        run.due.pop(DEADLINE, None)
        return
    # A deadline was put off by every time that the run has rested, and so tells when it would have begun.
    begun = microseconds(run.started_ts)
    if harness.deadline is not None:
        begun = harness.deadline - in_microseconds(was or 0.0)
    harness.deadline = begun + in_microseconds(wall_clock)
    if not run.status:
        run.due[DEADLINE] = Wait(DEADLINE, harness.deadline)


def _shift_deadline(run: Run, gap: int) -> None:
    if run.harness.deadline is None:
        return
    run.harness.deadline += max(0, gap)
    if DEADLINE in run.due:
        run.due[DEADLINE] = Wait(DEADLINE, run.harness.deadline)


def model_started(run: Run, event: ModelStarted) -> None:
    """One logical call; it counts once, whatever its retries and fallbacks."""
    run.harness.model_calls += 1
    run.harness.tried = (event.model,)
    run.harness.partial = []
    run.harness.reply = None
    shared.model_started(run, event)


def model_delta(run: Run, event: ModelDelta) -> None:
    """A recorded piece of the reply in flight."""
    run.harness.partial.append(event.text)


def model_replied(run: Run, event: ModelReplied) -> None:
    """A streamed reply whose pieces are in the log holds no text of its own."""
    if event.streamed and run.harness.partial:
        event = msgspec.structs.replace(event, text="".join(run.harness.partial))
    run.harness.partial = []
    run.harness.reply = event
    run.harness.usage_recorded = False
    run.harness.miss_recorded = False
    shared.model_replied(run, event)


def model_erred(run: Run, event: ModelErred) -> None:
    """What was streamed of a failed attempt is void."""
    run.harness.partial = []
    shared.model_erred(run, event)


def fallback_selected(run: Run, event: FallbackSelected) -> None:
    """The next model's first attempt is due."""
    run.harness.tried = (*run.harness.tried, event.model)
    run.attempt = 0
    run.model_landed = None
    shared.ask(run, event.model, run.asking[1])


def fallback_skipped(run: Run, event: FallbackSkipped) -> None:
    """No name twice in a call, the skipped ones included."""
    run.harness.tried = (*run.harness.tried, event.model)


def retry_scheduled(run: Run, event: RetryScheduled) -> None:
    """Another attempt; after an empty reply another call, with more room where there was a limit."""
    if event.why != "empty":
        shared.retry_scheduled(run, event)
        return
    harness = run.harness
    harness.empty_retries += 1
    if run.history.turns:
        run.history.pop()
    limit = config_of(run).generation.max_tokens
    if limit is not None:
        harness.wide = min(4 * limit, 2 * (harness.wide or limit))


def cache_missed(run: Run, event: CacheMissed) -> None:
    """The miss is told."""
    run.harness.miss_recorded = True


def usage_recorded(run: Run, event: UsageRecorded | CacheHit) -> None:
    """The reply's usage is settled."""
    run.harness.usage_recorded = True


def model_completed(run: Run, event: ModelCompleted) -> None:
    """The assistant turn is appended; its calls become the slots of the turn."""
    harness = run.harness
    reply = harness.reply
    shared.model_completed(run, event)
    if reply is None:
        return
    harness.request = b""
    harness.hooks_done.pop("before_model", None)
    harness.hooks_done.pop("after_model", None)
    run.history.append(Message("assistant", reply.text, reply.tool_calls))
    run.slots = [
        Slot(
            call.id, call.name, call.arguments.encode("utf-8", "surrogatepass"), f"tool:{run.step}.{position}"
        )
        for position, call in enumerate(reply.tool_calls)
    ]
    harness.structured = b""
    harness.mixed = False
    progress.turn_begins(run)
    _take_structured(run)
    if reply.text.strip() or reply.tool_calls:
        harness.empty_retries = 0
        harness.wide = None


def _take_structured(run: Run) -> None:
    config = config_of(run)
    if config.response_strategy != "tool":
        return
    for slot in run.slots:
        if slot.name == config.response_name:
            slot.phase = "structured"
            run.harness.structured = slot.arguments


def model_failed(run: Run, event: ModelFailed) -> None:
    """No reply: the run fails, unless a cancel or the clock cut it off, which say so themselves."""
    landed = run.model_landed
    shared.model_failed(run, event)
    own = isinstance(landed, ModelErred) and event.error == landed.error
    run.fault = FAULTS.get(event.error, "Model") if own else ""


def steering_received(run: Run, event: SteeringReceived) -> None:
    """A batch waits for the checkpoint."""
    asked = event.key == STEERING
    if event.commands:
        run.harness.inbox.append(Batch(event.commands, asked))
    elif asked:
        run.due[STEERING] = Listen(STEERING)


def steered(run: Run, event: Steered) -> None:
    """One command takes effect, or its whole batch is dropped."""
    harness = run.harness
    if not harness.inbox:
        return
    batch = harness.inbox.pop(0)
    if event.accepted:
        command, rest = batch.commands[0], batch.commands[1:]
        if rest:
            harness.inbox.insert(0, Batch(rest, batch.asked))
        _obey(run, command)
    # A batch that was asked for has answered the listening; a run that still rests listens on.
    if run.status == "paused" and not harness.inbox:
        run.due[STEERING] = Listen(STEERING)


def _obey(run: Run, command: Command) -> None:
    harness = run.harness
    match command.name:
        case "pause" if not harness.pause:
            harness.pause = command.text or "paused"
        case "resume":
            _resume(run)
        case "cancel":
            run.cancel = True
        case "inject":
            run.history.append(Message("user", command.text))
        case "redirect":
            run.history.append(Message("system", f"[steering:redirect] {command.text}"))


def _resume(run: Run) -> None:
    harness = run.harness
    harness.pause = ""
    run.status = ""
    run.due.pop(STEERING, None)
    if harness.paused_at and harness.deadline is not None:
        _shift_deadline(run, run.now - harness.paused_at)
        run.due[DEADLINE] = Wait(DEADLINE, harness.deadline)
    harness.paused_at = 0


def run_paused(run: Run, event: RunPaused) -> None:
    """The run rests; only steering and a cancel are heard."""
    run.status = "paused"
    run.harness.paused_at = microseconds(event.ts)
    run.due = {STEERING: Listen(STEERING)}


def control_applied(run: Run, event: ControlApplied) -> None:
    """A control ends the run, one way or the other."""
    harness = run.harness
    _, reason = harness.control
    match event.control:
        case "interrupt":
            run.fault, run.fault_detail = "Interrupted", reason
        case "stop_with_final":
            harness.final = reason
            harness.stop_reason = "stop_with_final"
        case "structured_with_tool_calls":
            harness.mixed = True
            _answer_structured(run)
    if event.control in {"interrupt", "stop_with_final"}:
        harness.control = ("", "")


def _answer_structured(run: Run) -> None:
    for slot in run.slots:
        if slot.phase == "structured":
            answer(run, slot, "recorded")


def limit_reached(run: Run, event: LimitReached) -> None:
    """A cap is used up."""
    run.harness.limit = event.limit


def answer_of(run: Run) -> str:
    """The answer so far: what a control or a hook made of it, else the last reply's text."""
    harness = run.harness
    if harness.final is not None:
        return harness.final
    return harness.reply.text if harness.reply is not None else ""


def run_completed(run: Run, event: RunCompleted) -> None:
    """The run ended well."""
    run.status = "completed"
    run.harness.stop_reason = event.stop_reason
    _answer_structured(run)
    run.due.clear()


def run_failed(run: Run, event: RunFailed) -> None:
    """The run ended in an error. Whatever flies is given up."""
    run.status = "cancelled" if event.error == "Cancelled" else "failed"
    run.fault = event.error
    _answer_structured(run)
    run.due.clear()
