"""How middleware hooks change the run: what they may change, and how the fold takes it."""

from typing import Any

import msgspec
from msgspec import Struct

from stepfold.events.vocabulary import (
    BLANK,
    NULL,
    HookReturned,
    Message,
    MiddlewareCompleted,
    MiddlewareStarted,
    ToolCall,
    ToolReturned,
)
from stepfold.projections.effects import CallHook
from stepfold.projections.harness_settings import config_of
from stepfold.projections.state import Run, Slot


class RequestChange(Struct, frozen=True, omit_defaults=True):
    """What a `before_model` hook made of a request: so many messages kept, others appended, options set."""

    keep: int = -1
    append: tuple[Message, ...] = ()
    model: str = ""
    max_tokens: int | None = None


class MessagesChange(Struct, frozen=True, omit_defaults=True):
    """What a `before_agent` hook made of the input: so many messages kept, others appended."""

    keep: int = -1
    append: tuple[Message, ...] = ()


class ReplyChange(Struct, frozen=True, omit_defaults=True):
    """What an `after_model` hook made of a reply."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


class CallChange(Struct, frozen=True, omit_defaults=True):
    """What a `before_tool` hook made of a call. `refusal` is an answer that takes the place of running it."""

    name: str = ""
    arguments: str = ""
    refusal: str = ""


class ResultChange(Struct, frozen=True, omit_defaults=True):
    """What an `after_tool` hook made of a result."""

    content: str = ""
    error: str = ""


class FinalChange(Struct, frozen=True, omit_defaults=True):
    """What an `after_agent` hook made of the answer."""

    text: str = ""


def hook_total(run: Run, hook: str) -> int:
    """How many middlewares have a hook."""
    return sum(hook in middleware.hooks for middleware in config_of(run).middleware)


def middleware_started(run: Run, event: MiddlewareStarted) -> None:
    """A hook is in flight."""
    harness = run.harness
    harness.hook = (event.hook, event.name, _position(run, event))
    key = f"hook:{event.seq}"
    run.due[key] = CallHook(key, event.hook, event.name, event.call_id)


def _position(run: Run, event: MiddlewareStarted) -> int:
    """Which call a tool hook is about: the first of that id that still lacks a hook of the kind.

    The id alone does not tell, for models give the same one to several calls of a turn.
    """
    match event.hook:
        case "before_tool":
            phase, done = "asked", [slot.before_hooks for slot in run.slots]
        case "after_tool":
            phase, done = "started", [slot.after_hooks for slot in run.slots]
        case _:
            return -1
    total = hook_total(run, event.hook)
    for index, slot in enumerate(run.slots):
        if slot.phase == phase and slot.call_id == event.call_id and not slot.refusal and done[index] < total:
            return index
    return -1


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
    elif slot is not None:
        slot.after_hooks += 1
    else:
        harness.hooks_done[hook] = harness.hooks_done.get(hook, 0) + 1
    harness.hook_landed = None
    if landed is None or hook == "on_error":
        return
    if landed.error:
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
            _replace_input(run, _decoded(change, MessagesChange))
        case "before_model":
            harness.request = change
        case "after_model" if harness.reply is not None:
            made = _decoded(change, ReplyChange)
            harness.reply = msgspec.structs.replace(harness.reply, text=made.text, tool_calls=made.tool_calls)
        case "before_tool" if slot is not None:
            call = _decoded(change, CallChange)
            slot.name, slot.arguments = call.name, call.arguments.encode("utf-8", "surrogatepass")
            slot.refusal = call.refusal
        case "after_tool" if slot is not None:
            result = _decoded(change, ResultChange)
            slot.patch = ToolReturned(*BLANK, content=result.content, error=result.error)
        case "after_agent":
            harness.final = _decoded(change, FinalChange).text


def _replace_input(run: Run, change: MessagesChange) -> None:
    while 0 <= change.keep < len(run.history.turns):
        run.history.pop()
    for message in change.append:
        run.history.append(message)


def _decoded(change: bytes, shape: type[Any]) -> Any:
    """A change of a newer engine that does not fit changes nothing: a fold never fails."""
    try:
        return msgspec.json.decode(change, type=shape)
    except msgspec.MsgspecError:
        return shape()


def request_change(run: Run) -> RequestChange:
    """What the hooks made of the request that is about to be sent."""
    if not run.harness.request:
        return UNCHANGED
    change: RequestChange = _decoded(run.harness.request, RequestChange)
    return change


UNCHANGED = RequestChange()
