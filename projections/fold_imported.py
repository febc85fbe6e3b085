"""How the events of an imported run change it: another program's loop made them, none of them is decided."""

import json

from stepfold.events.vocabulary import (
    Message,
    MessageRecorded,
    ModelErred,
    ModelReplied,
    RejectionRecorded,
    RunStarted,
    ToolCall,
    ToolCalled,
    ToolReturned,
    TraceEnded,
)
from stepfold.projections import fold_repeats as repeats
from stepfold.projections import fold_shared as shared
from stepfold.projections.effects import CallTool
from stepfold.projections.state import Action, Run, Slot


def run_started(run: Run, event: RunStarted) -> None:
    """What was said before the first reply."""
    for message in event.input:
        run.history.append(message)


def message_recorded(run: Run, event: MessageRecorded) -> None:
    """A turn of somebody else's."""
    run.history.append(Message(event.role, event.text))


def model_replied(run: Run, event: ModelReplied) -> None:
    """The assistant's turn, with the calls that it asks for."""
    shared.model_replied(run, event)
    run.harness.model_calls += 1
    run.harness.reply = event
    run.reply = event.text
    run.history.append(Message("assistant", event.text, event.tool_calls))


def model_erred(run: Run, event: ModelErred) -> None:
    """A model call without a reply; what became of the run, its end tells."""
    run.fault, run.fault_detail = event.error, event.detail


def tool_called(run: Run, event: ToolCalled) -> None:
    """A call waits for its result. One that no reply holds is a turn of its own."""
    arguments = event.arguments or _asked_for(run, event.call_id)
    slot = Slot(event.call_id, event.name, arguments.encode("utf-8", "surrogatepass"), event.answer_key)
    run.slots.append(slot)
    run.due[event.answer_key] = CallTool(event.answer_key, slot.call_id, slot.name, slot.arguments)
    run.harness.tool_calls += 1
    if event.arguments:
        call = ToolCall(event.call_id, event.name, event.arguments)
        run.history.append(Message("assistant", tool_calls=(call,)))


def _asked_for(run: Run, call_id: str) -> str:
    calls = run.harness.reply.tool_calls if run.harness.reply is not None else ()
    return next((call.arguments for call in calls if call.id == call_id), "")


def tool_returned(run: Run, event: ToolReturned) -> None:
    """A result is a turn, whether its call is in the log or not; the guards compare calls with results."""
    # From the end: calls that were never answered stay at the front.
    slot = next((slot for slot in reversed(run.slots) if slot.key == event.key), None)
    text = event.content or event.error
    call_id = event.call_id if slot is None else slot.call_id
    run.history.append(Message("tool", text, tool_call_id=call_id))
    if slot is None:
        return
    run.slots.remove(slot)
    run.goal.action = Action(slot.name, same_arguments(slot.arguments.decode("utf-8", "surrogatepass")))
    repeats.imported_call_ended(run, slot, event.error, text)
    repeats.step_ended(run, text or event.digest)


def same_arguments(text: str) -> str:
    """Arguments for comparing: of JSON objects neither the order of the names nor the white space counts."""
    if not text.startswith("{"):
        return text
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def rejection_recorded(run: Run, event: RejectionRecorded) -> None:
    """The other program said no."""
    run.goal.rejected += 1
    repeats.rejected(run, event.subject, event.error, event.name, event.detail)


def trace_ended(run: Run, event: TraceEnded) -> None:
    """The status as far as the file tells it. What is still due was in flight when the file ended."""
    run.status = event.status
    run.fault, run.fault_detail = event.error, event.end_as_recorded
    run.goal.summary = event.end_as_recorded
