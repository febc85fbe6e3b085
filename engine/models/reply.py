"""From what a server or a script gave to `ModelReplied`: the usage, and an estimate where there is none."""

from typing import Any

import msgspec

from stepfold.engine.models.protocol import Request
from stepfold.events.vocabulary import BLANK, ModelReplied

CHARACTERS_PER_TOKEN = 4


def replied(message: ModelReplied, usage: Any, request: Request, timings: Any = None) -> ModelReplied:
    """Add the token counts to a reply: the server's where it gives them, else estimates, and marked so.

    `timings` is what llama-server tells beside the usage.
    """
    given, taken = usage_of(usage)
    return msgspec.structs.replace(
        message,
        input_tokens=given if given is not None else estimate(_asked(request)),
        output_tokens=taken if taken is not None else estimate(_said(message)),
        estimated=given is None or taken is None,
        cached_tokens=cached_of(usage, timings),
    )


def bare_reply(text: str, **fields: Any) -> ModelReplied:
    """A reply before its usage is known and before `drive` stamps it."""
    return ModelReplied(*BLANK, text=text, **fields)


def usage_of(usage: Any) -> tuple[int | None, int | None]:
    """The prompt and completion tokens of an OpenAI usage object; None for what is no count."""
    if not isinstance(usage, dict):
        return None, None
    return _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))


def cached_of(usage: Any, timings: Any) -> int | None:
    """How many tokens of the prompt the server had in its cache, as OpenAI, DeepSeek or llama-server say it.

    None for a server that doesn't say, which is not the same as none.
    """
    match usage:
        case {"prompt_tokens_details": {"cached_tokens": cached}} | {"prompt_cache_hit_tokens": cached}:
            return _count(cached)
    match timings:
        case {"cache_n": cached}:
            return _count(cached)
    return None


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
