"""From what a server or a script gave to `ModelReplied`: the usage, and an estimate where there is none."""

from typing import Any

import msgspec

from stepfold.engine.models.protocol import Request
from stepfold.events.vocabulary import BLANK, ModelReplied

CHARACTERS_PER_TOKEN = 4


def replied(message: ModelReplied, usage: Any, request: Request) -> ModelReplied:
    """Add the token counts to a reply: the server's where it gives them, else estimates, and marked so."""
    given, taken = usage_of(usage)
    return msgspec.structs.replace(
        message,
        input_tokens=given if given is not None else estimate(_asked(request)),
        output_tokens=taken if taken is not None else estimate(_said(message)),
        estimated=given is None or taken is None,
    )


def bare_reply(text: str, **fields: Any) -> ModelReplied:
    """A reply before its usage is known and before `drive` stamps it."""
    return ModelReplied(*BLANK, text=text, **fields)


def usage_of(usage: Any) -> tuple[int | None, int | None]:
    """The prompt and completion tokens of an OpenAI usage object; None for what is no count."""
    if not isinstance(usage, dict):
        return None, None
    return _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))


def estimate(characters: int) -> int:
    """Tokens of so many characters, rounded up. Rough, and the same on every machine."""
    return -(-characters // CHARACTERS_PER_TOKEN)


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**63 else None


def _asked(request: Request) -> int:
    if request.characters is not None:
        return request.characters
    return sum(
        len(message.content) + sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
        for message in request.messages
    )


def _said(message: ModelReplied) -> int:
    calls = sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    return len(message.text) + len(message.reasoning) + calls
