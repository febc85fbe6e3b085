"""A run as the messages of OpenAI's chat completions, and such messages as turns again."""

from collections.abc import Iterable
from typing import Any

from stepfold.engine.studies.exports.turns import Turn, turns_of
from stepfold.events.vocabulary import AnyEvent, ToolCall, Unknown
from stepfold.projections.state import Run


def messages(events: Iterable[AnyEvent | Unknown]) -> list[dict[str, Any]]:
    """Every turn of a run, in order. A result whose call is in no message before it is a user's message:
    the API takes none without.
    """
    asked: set[str] = set()
    found = []
    for turn in turns_of(events, Run()):
        found.append(_message(turn, asked))
        asked.update(call.id for call in turn.calls)
    return found


def _message(turn: Turn, asked: set[str]) -> dict[str, Any]:
    message = turn.message
    content = message.content
    match message.role:
        case "tool" if message.tool_call_id in asked:
            return {"role": "tool", "tool_call_id": message.tool_call_id, "content": content}
        case "assistant" if turn.calls:
            return {
                "role": "assistant",
                "content": content,
                "tool_calls": [_call(call) for call in turn.calls],
            }
        case "system" | "assistant":
            return {"role": message.role, "content": content}
        case _:
            return {"role": "user", "content": content}


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
