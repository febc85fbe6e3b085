"""Calling one middleware hook: what it is handed, and what of it becomes an observed event."""

from collections.abc import Mapping, Sequence
from inspect import isawaitable
from typing import Any

import msgspec
from msgspec import Raw

from stepfold.engine.runtime.middleware import (
    Answer,
    CallRequest,
    CallResult,
    Middleware,
    ModelReply,
    ModelRequest,
    RunContext,
)
from stepfold.events.vocabulary import BLANK, NULL, HookReturned, Message, ToolErred, ToolReturned
from stepfold.projections.effects import CallHook
from stepfold.projections.fold_calls import row_text
from stepfold.projections.fold_hooks import (
    CallChange,
    FinalChange,
    MessagesChange,
    ReplyChange,
    RequestChange,
    ResultChange,
    request_change,
)
from stepfold.projections.fold_tools import answer_of
from stepfold.projections.state import Run, Slot, decided_config


async def call_hook(middleware: Middleware, effect: CallHook, run: Run, context: RunContext) -> HookReturned:
    """Call a hook, and tell what it changed, raised or failed with."""
    subject = _subject(effect.hook, run)
    before = _change(effect.hook, subject, run)
    try:
        result = getattr(middleware, effect.hook)(context, *_arguments(effect.hook, subject, run))
        if isawaitable(result):
            await result
    except Exception as error:
        return HookReturned(*BLANK, error="Middleware", detail=f"{effect.name}: {error}")
    after = _change(effect.hook, subject, run)
    control, reason = context.control
    change = NULL if after == before or after is None else Raw(msgspec.json.encode(after))
    return HookReturned(*BLANK, change=change, control=control, reason=reason)


def request_messages(run: Run, change: RequestChange) -> list[Message]:
    """The messages of the request that the run would send now."""
    turns = run.history.turns
    kept = turns if change.keep < 0 else turns[: change.keep]
    return [*kept, *change.append]


def _subject(hook: str, run: Run) -> Any:
    match hook:
        case "before_agent":
            return list(run.history.turns)
        case "before_model":
            change = request_change(run)
            model = change.model or _first_model(run)
            return ModelRequest(model, request_messages(run, change), change.max_tokens or _max_tokens(run))
        case "after_model":
            reply = run.harness.reply
            assert reply is not None
            return ModelReply(reply.text, list(reply.tool_calls), reply)
        case "before_tool":
            slot = _slot(run)
            return CallRequest(slot.call_id, slot.name, slot.arguments.decode("utf-8", "replace"))
        case "after_tool":
            slot = _slot(run)
            landed = slot.patch or slot.landed
            error = landed.error if isinstance(landed, ToolReturned | ToolErred) else ""
            return CallResult(row_text(run, slot), error)
        case "after_agent":
            return Answer(answer_of(run))
        case _:
            return None


def _arguments(hook: str, subject: Any, run: Run) -> Sequence[Any]:
    match hook:
        case "after_tool":
            slot = _slot(run)
            return (CallRequest(slot.call_id, slot.name, slot.arguments.decode("utf-8", "replace")), subject)
        case "on_error":
            return (run.fault, run.fault_detail)
        case _:
            return (subject,)


def _change(hook: str, subject: Any, run: Run) -> Any:
    """What the subject would mean as a change; compared before and after the hook."""
    match hook:
        case "before_agent":
            keep = _common(run.history.turns, subject)
            return MessagesChange(-1 if keep == len(run.history.turns) else keep, tuple(subject[keep:]))
        case "before_model":
            return _request_difference(subject, run)
        case "after_model":
            return ReplyChange(subject.text, tuple(subject.tool_calls))
        case "before_tool":
            return CallChange(subject.name, subject.arguments, subject.refusal)
        case "after_tool":
            return ResultChange(subject.content, subject.error)
        case "after_agent":
            return FinalChange(subject.text)
        case _:
            return None


def _request_difference(request: ModelRequest, run: Run) -> RequestChange:
    turns = run.history.turns
    keep = _common(turns, request.messages)
    whole = keep == len(turns)
    return RequestChange(
        keep=-1 if whole else keep,
        append=tuple(request.messages[keep:]),
        model="" if request.model == _first_model(run) else request.model,
        max_tokens=None if request.max_tokens == _max_tokens(run) else request.max_tokens,
    )


def _common(turns: Sequence[Message], messages: Sequence[Message]) -> int:
    count = 0
    for turn, message in zip(turns, messages, strict=False):
        if turn is not message and turn != message:
            break
        count += 1
    return count


def _first_model(run: Run) -> str:
    models = getattr(run.config, "models", ())
    return models[0].name if models else ""


def _max_tokens(run: Run) -> int | None:
    return run.harness.wide or decided_config(run).generation.max_tokens


def _slot(run: Run) -> Slot:
    return run.slots[run.harness.hook[2]]


def injected_into(
    arguments: dict[str, Any], hidden: Sequence[str], values: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments with the host's values: the tool gets them, the log does not."""
    return {**arguments, **{name: values[name] for name in hidden if name in values}}
