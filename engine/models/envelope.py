"""A model's message as text: the one owner of how a structured tool call reads to the strict parser."""

import json
from typing import Any

import msgspec

from stepfold.events.vocabulary import ModelReplied, ToolCall


def reply_text(message: Any) -> tuple[str, tuple[ToolCall, ...]]:
    """The text and the tool calls of an OpenAI message, whatever a server put in its place.

    Text parts are joined, anything else that is no text counts as none. Arguments stay the string
    that came; a server that sends them as an object gets them written as JSON.
    """
    if not isinstance(message, dict):
        return "", ()
    calls = message.get("tool_calls")
    listed = calls if isinstance(calls, list) else []
    return _content(message.get("content")), tuple(_call(call) for call in listed if isinstance(call, dict))


def call_text(calls: tuple[ToolCall, ...]) -> str:
    """Structured calls in the shape of the envelope: one as an object, several as an array.

    The arguments go in byte for byte. So what breaks them breaks the document, and the parser that
    judges a plain reply judges a structured one by the same rules.
    """
    written = [_envelope(call) for call in calls]
    return written[0] if len(written) == 1 else f"[{', '.join(written)}]"


def as_action(replied: ModelReplied) -> ModelReplied:
    """The reply as the goal loop records it: structured calls become the text that is judged.

    What the model said beside its calls is commentary, and is kept with the reasoning. A reply
    without calls stays as it is, so doing it twice changes nothing.
    """
    if not replied.tool_calls:
        return replied
    aside = replied.text if replied.text.strip() else ""
    return msgspec.structs.replace(
        replied,
        text=call_text(replied.tool_calls),
        tool_calls=(),
        reasoning="\n".join(filter(None, (replied.reasoning, aside))),
    )


def _envelope(call: ToolCall) -> str:
    return f'{{"name": {json.dumps(call.name, ensure_ascii=False)}, "arguments": {call.arguments}}}'


def _content(content: Any) -> str:
    match content:
        case str():
            return content
        case list():
            return "".join(_part(part) for part in content)
        case _:
            return ""


def _part(part: Any) -> str:
    match part:
        case {"text": str(text)}:
            return text
        case str():
            return part
        case _:
            return ""


def _call(call: dict[str, Any]) -> ToolCall:
    given = call.get("function")
    function: dict[str, Any] = given if isinstance(given, dict) else {}
    name, arguments, identity = function.get("name"), function.get("arguments"), call.get("id")
    return ToolCall(
        id=identity if isinstance(identity, str) else "",
        name=name if isinstance(name, str) else "",
        arguments=_arguments(arguments),
    )


def _arguments(arguments: Any) -> str:
    match arguments:
        case str():
            return arguments
        case None:
            return ""
        case _:
            return json.dumps(arguments, ensure_ascii=False)
