"""How the calls of a turn change the run: admitted, started, landed, answered in call order."""

import re

from stepfold.events.vocabulary import (
    Message,
    SubAgentCompleted,
    SubAgentFailed,
    SubAgentStarted,
    ToolArgumentsRejected,
    ToolCompleted,
    ToolErred,
    ToolFailed,
    ToolReturned,
    ToolSkipped,
    ToolStarted,
    UnknownToolCalled,
)
from stepfold.projections import fold_progress as progress
from stepfold.projections import fold_shared as shared
from stepfold.projections.digest import digest_of
from stepfold.projections.harness_settings import config_of
from stepfold.projections.state import Run, Slot

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
LONGEST_CHILD_ID = 120
"""Characters of a sub-agent's run id, which is the name of a file; a longer one is shortened by digest."""


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


def refused_slot(run: Run) -> Slot | None:
    """The first call that a hook has answered in the place of its tool."""
    for slot in run.slots:
        if slot.phase == "asked" and slot.refusal:
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
    return f"Error: the outcome of {slot.name} is unknown: its process died, and it may not run twice"


def tool_completed(run: Run, event: ToolCompleted) -> None:
    """The result is folded, in call order."""
    slot = next_slot(run, ("started",))
    if slot is None:
        return
    run.harness.tool_calls += 1
    text = row_text(run, slot)
    if event.error:
        progress.call_failed(run, slot, text)
    else:
        progress.call_succeeded(run, slot, text)
    _roll_up(run, slot)
    _answered(run, slot, text)


def _answered(run: Run, slot: Slot, text: str) -> None:
    answer(run, slot, text)
    if next_slot(run, ("asked", "started")) is None:
        progress.turn_ended(run)


def tool_failed(run: Run, event: ToolFailed) -> None:
    """The call fails the turn, unless the run gave it up. What flies beside it runs to its end."""
    slot = next_slot(run, ("started",))
    if slot is None:
        return
    run.harness.tool_calls += 1
    run.due.pop(slot.key, None)
    _roll_up(run, slot)
    landed = slot.landed
    if landed is None:
        answer(run, slot, f"Error: {event.error}")
        return
    if not run.fault:
        run.fault = event.error
        run.fault_detail = landed.detail if isinstance(landed, ToolErred) else row_text(run, slot)
    answer(run, slot, row_text(run, slot))


def _roll_up(run: Run, slot: Slot) -> None:
    if isinstance(slot.landed, ToolReturned | ToolErred):
        run.usage = run.usage.plus_child(slot.landed.child)


def tool_skipped(run: Run, event: ToolSkipped) -> None:
    """A call that never ran has an answer too: that of the hook that refused it, or why it did not run."""
    if event.why == "refused":
        slot = refused_slot(run)
        if slot is not None:
            progress.call_failed(run, slot, slot.refusal)
            _answered(run, slot, slot.refusal)
        return
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
        there = ", ".join(run.manifests) or "none"
        _refused(run, slot, f"Error: there is no tool {event.name!r}; the tools are: {there}")


def arguments_rejected(run: Run, event: ToolArgumentsRejected) -> None:
    """Arguments that break the schema: fatal, or answered with what would be right."""
    slot = shared.slot_of(run, event.key) if event.key else _slot_named(run, event.call_id, event.name)
    if slot is None:
        return
    if event.fatal:
        run.fault, run.fault_detail = "Validation", event.reason
    elif slot.phase == "structured":
        run.harness.structured = b""
        answer(run, slot, f"Error: {event.reason}")
    else:
        _refused(run, slot, f"Error: {event.reason}")


def _refused(run: Run, slot: Slot, text: str) -> None:
    """The loop answers in the place of the tool, and the call counts."""
    run.harness.tool_calls += 1
    progress.call_failed(run, slot, text)
    _answered(run, slot, text)


def _slot_named(run: Run, call_id: str, name: str) -> Slot | None:
    for slot in run.slots:
        if slot.phase in {"asked", "structured"} and slot.call_id == call_id and slot.name == name:
            return slot
    return None


def child_started(run: Run, event: SubAgentStarted) -> None:
    """The sub-agent of a started call is announced."""
    for slot in run.slots:
        if slot.phase == "started" and child_id(run, slot) == event.child:
            slot.announced = True


def child_ended(run: Run, event: SubAgentCompleted | SubAgentFailed) -> None:
    """The sub-agent has its terminal event; its tool follows."""
    for slot in run.slots:
        if slot.announced and child_id(run, slot) == event.child:
            slot.child_closed = True


def child_id(run: Run, slot: Slot) -> str:
    """The id of the run that a call starts: the parent's, the step, and the call. Nothing random."""
    place = slot.key.removeprefix("tool:")
    safe = _UNSAFE.sub("_", slot.call_id)
    whole = f"{run.run_id}.{place}-{safe}"
    if len(whole) <= LONGEST_CHILD_ID:
        return whole
    return f"{run.run_id[:60]}-{digest_of(f'{run.run_id}.{slot.call_id}')}.{place}"


def is_child(run: Run, slot: Slot) -> bool:
    """Whether a call's tool is a sub-agent."""
    manifest = run.manifests.get(slot.name)
    return manifest is not None and manifest.child
