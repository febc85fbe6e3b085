"""How the events of the tool-calling loop change the run."""

from typing import Any

import msgspec
from msgspec import Struct

from stepfold.events.configuration import HarnessConfig
from stepfold.events.vocabulary import (
    BLANK,
    NULL,
    CacheHit,
    CacheMissed,
    ControlApplied,
    FallbackSelected,
    FallbackSkipped,
    HookReturned,
    LimitReached,
    Message,
    MiddlewareCompleted,
    MiddlewareStarted,
    ModelCompleted,
    ModelDelta,
    ModelErred,
    ModelFailed,
    ModelReplied,
    ModelStarted,
    NoProgress,
    RetryScheduled,
    RunCompleted,
    RunFailed,
    RunPaused,
    RunReopened,
    RunStarted,
    Steered,
    SteeringReceived,
    SubAgentCompleted,
    SubAgentFailed,
    SubAgentStarted,
    ToolArgumentsRejected,
    ToolCall,
    ToolCompleted,
    ToolErred,
    ToolFailed,
    ToolReturned,
    ToolSkipped,
    ToolStarted,
    UnknownToolCalled,
    UsageRecorded,
)
from stepfold.projections import fold_shared as shared
from stepfold.projections.effects import CallHook, Listen, Wait
from stepfold.projections.state import Run, Slot, in_microseconds, microseconds

DEADLINE = "clock"
"""The key of the timer that rings at the deadline."""
STEERING = "steering"
"""The key of the effect that waits for a paused run to be resumed."""
NOT_STARTED = HarnessConfig()


class RequestChange(Struct, frozen=True):
    """What a `before_model` hook made of a request: so many messages kept, others appended, options set."""

    keep: int = -1
    append: tuple[Message, ...] = ()
    model: str = ""
    max_tokens: int | None = None


class MessagesChange(Struct, frozen=True):
    """Messages that a `before_agent` hook put behind the input."""

    append: tuple[Message, ...] = ()


class ReplyChange(Struct, frozen=True):
    """What an `after_model` hook made of a reply."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()


class CallChange(Struct, frozen=True):
    """What a `before_tool` hook made of a call."""

    name: str
    arguments: str


class ResultChange(Struct, frozen=True):
    """What an `after_tool` hook made of a result."""

    content: str
    error: str = ""


class FinalChange(Struct, frozen=True):
    """What an `after_agent` hook made of the answer."""

    text: str


def config_of(run: Run) -> HarnessConfig:
    """The configuration of a tool-calling run."""
    return run.config if isinstance(run.config, HarnessConfig) else NOT_STARTED


def run_started(run: Run, event: RunStarted) -> None:
    """Take the input, and start the clock if there is one."""
    for message in event.input:
        run.history.append(message)
    wall_clock = config_of(run).wall_clock
    if wall_clock is None:
        return
    run.harness.deadline = microseconds(event.ts) + in_microseconds(wall_clock)
    run.due[DEADLINE] = Wait(DEADLINE, run.harness.deadline)


def run_reopened(run: Run, event: RunReopened) -> None:
    """The time between two lives does not count against the deadline."""
    _shift_deadline(run, microseconds(event.ts) - run.now)


def _shift_deadline(run: Run, gap: int) -> None:
    if run.harness.deadline is None or gap <= 0:
        return
    run.harness.deadline += gap
    if DEADLINE in run.due:
        run.due[DEADLINE] = Wait(DEADLINE, run.harness.deadline)


# --- the model --------------------------------------------------------------------------------------


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
    _take_structured(run)
    if reply.text or reply.tool_calls:
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
    run.fault_detail = landed.detail if isinstance(landed, ModelErred) else ""
    match event.error:
        case "Cancelled" | "Timeout":
            run.fault = ""
        case "timeout":
            run.fault = "Timeout"
        case _:
            run.fault = "Model"


# --- the tools --------------------------------------------------------------------------------------


def tool_started(run: Run, event: ToolStarted) -> None:
    """A call is in flight."""
    shared.tool_started(run, event)
    slot = shared.slot_of(run, event.key)
    if slot is not None:
        slot.phase = "started"


def answer(run: Run, slot: Slot, content: str) -> None:
    """Every call has one answer, in call order: one that is early waits for those before it."""
    slot.phase = "done"
    slot.row = content
    for earlier in run.slots:
        if earlier.phase != "done":
            return
        if earlier.row is not None:
            run.history.append(Message("tool", earlier.row, tool_call_id=earlier.call_id))
            earlier.row = None


def next_slot(run: Run, phases: tuple[str, ...]) -> Slot | None:
    """The first call of the turn, in call order, that is in one of these phases."""
    for slot in run.slots:
        if slot.phase in phases:
            return slot
    return None


def row_text(run: Run, slot: Slot) -> str:
    """What the model reads of a result, after the hooks."""
    landed = slot.patch or slot.landed
    if isinstance(landed, ToolReturned):
        return landed.content or landed.error
    if isinstance(landed, ToolErred):
        policy = config_of(run).tool_errors
        return policy.removeprefix("message:") if policy.startswith("message:") else f"Error: {landed.detail}"
    return "Error: the outcome is unknown"


def tool_completed(run: Run, event: ToolCompleted) -> None:
    """The result is folded, in call order."""
    slot = next_slot(run, ("started",))
    if slot is None:
        return
    run.harness.tool_calls += 1
    _note_progress(run, slot, event.error)
    _roll_up(run, slot)
    answer(run, slot, row_text(run, slot))
    if next_slot(run, ("asked", "started")) is None:
        _batch_ended(run)


def tool_failed(run: Run, event: ToolFailed) -> None:
    """The call fails the turn. What flies beside it runs to its end."""
    slot = next_slot(run, ("started",))
    if slot is None:
        return
    run.harness.tool_calls += 1
    run.due.pop(slot.key, None)
    _roll_up(run, slot)
    landed = slot.landed
    if not run.fault and event.error not in {"Cancelled", "Timeout"}:
        run.fault = event.error
        run.fault_detail = landed.detail if isinstance(landed, ToolErred) else ""
    answer(run, slot, row_text(run, slot) if landed is not None else f"Error: {event.error}")


def _roll_up(run: Run, slot: Slot) -> None:
    if isinstance(slot.landed, ToolReturned | ToolErred):
        run.usage = run.usage.plus_child(slot.landed.child)


def tool_skipped(run: Run, event: ToolSkipped) -> None:
    """A call that never ran has an answer too."""
    slot = next_slot(run, ("asked",))
    if slot is not None:
        answer(run, slot, f"not run: {event.why}")


def unknown_tool(run: Run, event: UnknownToolCalled) -> None:
    """A call of a tool that isn't there: fatal, rewritten, or answered with what there is."""
    slot = _slot_named(run, event.call_id, event.name)
    if slot is None:
        return
    if event.recovery == "fail":
        run.fault, run.fault_detail = "ToolNotFound", event.name
    elif event.recovery.startswith("rewrite:"):
        slot.name = event.recovery.removeprefix("rewrite:")
    else:
        run.harness.tool_calls += 1
        there = ", ".join(run.manifests) or "none"
        answer(run, slot, f"Error: there is no tool {event.name!r}; the tools are: {there}")


def arguments_rejected(run: Run, event: ToolArgumentsRejected) -> None:
    """Arguments that break the schema: fatal, or answered with what would be right."""
    slot = _slot_named(run, event.call_id, event.name)
    if slot is None:
        return
    if event.fatal:
        run.fault, run.fault_detail = "Validation", event.reason
        return
    if slot.phase == "structured":
        run.harness.structured = b""
    else:
        run.harness.tool_calls += 1
    answer(run, slot, f"Error: {event.reason}")


def _slot_named(run: Run, call_id: str, name: str) -> Slot | None:
    for slot in run.slots:
        if slot.phase in {"asked", "structured"} and slot.call_id == call_id and slot.name == name:
            return slot
    return None


def child_started(run: Run, event: SubAgentStarted) -> None:
    """The sub-agent of the last started call is announced."""
    for slot in run.slots:
        if slot.phase == "started" and not slot.announced and child_id(run, slot) == event.child:
            slot.announced = True
            return


def child_ended(run: Run, event: SubAgentCompleted | SubAgentFailed) -> None:
    """The sub-agent has its terminal event; its tool follows."""
    for slot in run.slots:
        if slot.announced and not slot.child_closed and child_id(run, slot) == event.child:
            slot.child_closed = True
            return


def child_id(run: Run, slot: Slot) -> str:
    """The id of the run that a call starts: the parent's, the step, and the call. Nothing random."""
    safe = "".join(mark if mark.isalnum() or mark in "-_" else "_" for mark in slot.call_id)[:40]
    return f"{run.run_id}.{slot.key.removeprefix('tool:')}-{safe}"


def is_child(run: Run, slot: Slot) -> bool:
    """Whether a call's tool is a sub-agent."""
    manifest = run.manifests.get(slot.name)
    return manifest is not None and manifest.child


# --- no progress ------------------------------------------------------------------------------------


def _note_progress(run: Run, slot: Slot, error: str) -> None:
    harness = run.harness
    text = row_text(run, slot)
    if not error:
        harness.failures = harness.same_failures = 0
        harness.last_failure = ""
        harness.batch = f"{harness.batch}\x1f{slot.name}\x1f{slot.arguments!r}\x1f{text}"
        return
    failure = f"{slot.name}\x1f{slot.arguments!r}\x1f{text.partition(chr(10))[0]}"
    harness.failures += 1
    harness.same_failures = harness.same_failures + 1 if failure == harness.last_failure else 1
    harness.last_failure = failure
    harness.batch = ""


def no_progress(run: Run, event: NoProgress) -> None:
    """A nudge is one more user turn; a stop ends the run like a limit."""
    harness = run.harness
    if event.verdict == "stop":
        harness.limit = "no_progress"
        run.fault_detail = event.message
        return
    harness.nudged_at = (harness.same_failures, harness.failures)
    run.history.append(Message("user", event.message))


def _batch_ended(run: Run) -> None:
    """Compare the turn's successful calls with those of the turn before."""
    harness = run.harness
    if harness.batch and harness.batch == harness.last_batch:
        harness.same_batches += 1
    else:
        harness.same_batches = 1 if harness.batch else 0
    harness.last_batch = harness.batch
    harness.batch = ""


# --- middleware -------------------------------------------------------------------------------------


def middleware_started(run: Run, event: MiddlewareStarted) -> None:
    """A hook is in flight."""
    harness = run.harness
    position = -1
    if event.hook in {"before_tool", "after_tool"}:
        phases = ("asked",) if event.hook == "before_tool" else ("started",)
        for index, slot in enumerate(run.slots):
            if slot.phase in phases and slot.call_id == event.call_id:
                position = index
                break
    harness.hook = (event.hook, event.name, position)
    harness.hook_landed = None
    run.due[f"hook:{event.seq}"] = CallHook(f"hook:{event.seq}", event.hook, event.name, event.call_id)


def hook_returned(run: Run, event: HookReturned) -> None:
    """What a hook did waits to be taken."""
    run.harness.hook_landed = event


def middleware_completed(run: Run, event: MiddlewareCompleted) -> None:
    """What the hook did takes effect."""
    harness = run.harness
    hook, _, position = harness.hook
    landed = harness.hook_landed
    run.due = {key: effect for key, effect in run.due.items() if not isinstance(effect, CallHook)}
    slot = run.slots[position] if 0 <= position < len(run.slots) else None
    if slot is not None and hook == "before_tool":
        slot.before_hooks += 1
    elif slot is not None and hook == "after_tool":
        slot.after_hooks += 1
    else:
        harness.hooks_done[hook] = harness.hooks_done.get(hook, 0) + 1
    harness.hook_landed = None
    if landed is None:
        return
    if landed.error and hook != "on_error":
        run.fault, run.fault_detail = landed.error, landed.detail
        return
    # Interrupt beats stop, in whichever order they were raised.
    if landed.control and harness.control[0] != "interrupt":
        harness.control = (landed.control, landed.reason)
    if landed.change is not NULL:
        _apply(run, hook, slot, bytes(landed.change))


def _apply(run: Run, hook: str, slot: Slot | None, change: bytes) -> None:
    harness = run.harness
    match hook:
        case "before_agent":
            for message in _decoded(change, MessagesChange).append:
                run.history.append(message)
        case "before_model":
            harness.request = change
        case "after_model" if harness.reply is not None:
            made = _decoded(change, ReplyChange)
            harness.reply = msgspec.structs.replace(harness.reply, text=made.text, tool_calls=made.tool_calls)
        case "before_tool" if slot is not None:
            call = _decoded(change, CallChange)
            slot.name, slot.arguments = call.name, call.arguments.encode("utf-8", "surrogatepass")
        case "after_tool" if slot is not None:
            result = _decoded(change, ResultChange)
            slot.patch = ToolReturned(*BLANK, content=result.content, error=result.error)
        case "after_agent":
            harness.final = _decoded(change, FinalChange).text


def _decoded(change: bytes, shape: Any) -> Any:
    try:
        return msgspec.json.decode(change, type=shape)
    except msgspec.MsgspecError:
        return (
            shape()
            if shape in (RequestChange, MessagesChange)
            else shape("", *([""] if shape is CallChange else []))
        )


def request_change(run: Run) -> RequestChange:
    """What the hooks made of the request that is about to be sent."""
    change: RequestChange = (
        _decoded(run.harness.request, RequestChange) if run.harness.request else RequestChange()
    )
    return change


# --- edges and ends ---------------------------------------------------------------------------------


def steering_received(run: Run, event: SteeringReceived) -> None:
    """A batch waits for the checkpoint."""
    run.harness.inbox.append(event.commands)


def steered(run: Run, event: Steered) -> None:
    """One command takes effect, or its whole batch is dropped."""
    harness = run.harness
    if not harness.inbox:
        return
    batch = harness.inbox.pop(0)
    if not event.accepted or not batch:
        return
    command, rest = batch[0], batch[1:]
    if rest:
        harness.inbox.insert(0, rest)
    match command.name:
        case "pause" if not harness.pause:
            harness.pause = command.text or "paused"
        case "resume":
            harness.pause = ""
            run.status = ""
            _shift_deadline(run, run.now - harness.paused_at if harness.paused_at else 0)
            harness.paused_at = 0
        case "cancel":
            run.cancel = True
        case "inject":
            run.history.append(Message("user", command.text))
        case "redirect":
            run.history.append(Message("system", f"[steering:redirect] {command.text}"))


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
