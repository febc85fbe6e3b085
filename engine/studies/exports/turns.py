"""A run as the turns of a conversation, with what each cost and when it was: what all formats begin with."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from stepfold.events.vocabulary import (
    NO_TIME,
    ActionParsed,
    AnyEvent,
    Message,
    ModelReplied,
    ToolCall,
    Unknown,
)
from stepfold.projections.run import evolve
from stepfold.projections.state import Run


class Turn(Struct):
    """One turn. `calls` are those of an assistant's; `reply` is what brought it; `at` is empty if unknown."""

    message: Message
    at: str = ""
    reply: ModelReplied | None = None
    calls: tuple[ToolCall, ...] = ()


def turns_of(events: Iterable[AnyEvent | Unknown], run: Run) -> Iterator[Turn]:
    """The turns as they were appended, whatever was compacted later. `run` is folded on the way."""
    seen = 0
    reply: ModelReplied | None = None
    waiting: Turn | None = None
    for event in events:
        evolve(run, event)
        if isinstance(event, ModelReplied):
            reply = event
        elif isinstance(event, ActionParsed) and waiting is not None:
            # The strict loop's call is in the text of the reply.
            arguments = run.reply[event.start : event.end]
            waiting.calls = (ToolCall(event.call_id, event.name, arguments),)
        for message in run.history.turns[seen:]:
            if waiting is not None:
                yield waiting
            waiting = Turn(message, "" if event.ts == NO_TIME else event.ts, None, message.tool_calls)
            if message.role == "assistant":
                waiting.reply, reply = reply, None
        seen = len(run.history.turns)
    if waiting is not None:
        yield waiting


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """A call's arguments as an object; what is none stands under `text`."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {"text": call.arguments}
    return arguments if isinstance(arguments, dict) else {"text": call.arguments}
