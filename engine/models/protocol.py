"""What a model is asked and what it may answer: the request, the two protocols, the body on the wire."""

import re
from collections.abc import AsyncIterator, Awaitable
from functools import lru_cache
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct

from stepfold.events.configuration import Generation, Manifest
from stepfold.events.vocabulary import NULL, Message, ModelDelta, ModelErred, ModelReplied

ENVELOPE_SCHEMA = Raw(
    b'{"type":"object","properties":{"name":{"type":"string"},"arguments":{"type":"object"}},'
    b'"required":["name","arguments"],"additionalProperties":false}'
)
"""The strict action's outer shape: what `json_schema` asks for when the request brings no schema."""

LONGEST_TOOL_NAME = 64
"""OpenAI's limit for a function name; its alphabet is letters, digits, `_` and `-`."""


class Request(Struct, frozen=True):
    """One attempt at one logical model call.

    `call` is the run's n-th logical call, from 1; `attempt` counts its tries, from 0. `max_tokens`
    goes before that of `generation`. `response_schema` is a JSON Schema as bytes, `response_name`
    its name; `grammar` a GBNF grammar, for llama.cpp. `characters` is the length
    of the whole request where it is known without building it.
    `tool_choice` is empty, `auto`, `none`, `required`, or the name of one tool.
    """

    model: str
    messages: tuple[Message, ...]
    generation: Generation
    max_tokens: int | None
    characters: int | None = None
    tools: tuple[Manifest, ...] = ()
    response_schema: Raw = NULL
    response_name: str = ""
    grammar: str = ""
    call: int = 1
    attempt: int = 0
    tool_choice: str = ""


class Model(Protocol):
    """Something that answers. Whatever goes wrong is a `ModelErred`: a reply never raises.

    A model with `reads_messages = False` (a script, a recording) is asked without any: building the
    request is the one part of a step whose cost grows with the run. An answer that is there at once
    comes without an awaitable, so that a scripted run needs no task.
    """

    @property
    def name(self) -> str:
        """What `ModelStarted.model` records."""
        ...

    def reply(self, request: Request) -> ModelReplied | ModelErred | Awaitable[ModelReplied | ModelErred]:
        """Answer one attempt, whole."""
        ...


class StreamingModel(Protocol):
    """A model that also answers in pieces."""

    @property
    def name(self) -> str:
        """What `ModelStarted.model` records."""
        ...

    def stream(self, request: Request) -> AsyncIterator[ModelDelta | ModelReplied | ModelErred]:
        """The pieces as they land, then one last event: the reply, equal to that of `reply`, or the error.

        The texts of the deltas, joined, are the text of the reply. Who wants the time to the first
        token takes the time of the first delta.
        """
        ...


def body(request: Request) -> dict[str, Any]:
    """The OpenAI chat-completions body of a request: what is sent, and what `stepfold prompt` shows.

    Tool names outside the API's alphabet (`fs.read`) are written in it (`fs_read`); `tool_names` has
    the way back. Arguments that the host injects are left out of the schemas.
    """
    generation = request.generation
    names = tool_names(request.tools)
    limit = request.max_tokens if request.max_tokens is not None else generation.max_tokens
    optional: dict[str, Any] = {
        "temperature": generation.temperature,
        "max_tokens": limit,
        "seed": generation.seed,
        "stop": list(generation.stop) or None,
        "logit_bias": dict(generation.logit_bias) or None,
        "response_format": _response_format(request),
        "grammar": request.grammar or None,
        "tools": [_tool(tool, names) for tool in request.tools] or None,
        "tool_choice": _tool_choice(request.tool_choice, names),
    }
    return {
        "model": request.model,
        "messages": [_message(message, names) for message in request.messages],
        **{key: value for key, value in optional.items() if value is not None},
    }


def tool_names(tools: tuple[Manifest, ...]) -> dict[str, str]:
    """Each tool's name and the one it has on the wire, no two alike."""
    names: dict[str, str] = {}
    for tool in tools:
        wire, number = _wire_name(tool.name), 1
        while wire in names.values():
            number += 1
            wire = f"{_wire_name(tool.name)[: LONGEST_TOOL_NAME - 4]}_{number}"
        names[tool.name] = wire
    return names


def _wire_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:LONGEST_TOOL_NAME] or "_"


def _message(message: Message, names: dict[str, str]) -> dict[str, Any]:
    if message.tool_calls:
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": names.get(call.name) or _wire_name(call.name),
                    "arguments": call.arguments,
                },
            }
            for call in message.tool_calls
        ]
        return {"role": message.role, "content": message.content or None, "tool_calls": calls}
    if message.tool_call_id:
        return {"role": message.role, "tool_call_id": message.tool_call_id, "content": message.content}
    return {"role": message.role, "content": message.content}


def _tool(tool: Manifest, names: dict[str, str]) -> dict[str, Any]:
    function = {
        "name": names[tool.name],
        "description": tool.description,
        "parameters": _parameters(bytes(tool.schema), tool.hidden),
    }
    return {"type": "function", "function": function}


@lru_cache(maxsize=512)
def _parameters(schema: bytes, hidden: tuple[str, ...]) -> Any:
    decoded = msgspec.json.decode(schema)
    if not isinstance(decoded, dict):
        return {"type": "object", "properties": {}}
    if not hidden:
        return decoded
    shown = dict(decoded)
    if isinstance(decoded.get("properties"), dict):
        shown["properties"] = {k: v for k, v in decoded["properties"].items() if k not in hidden}
    if isinstance(decoded.get("required"), list):
        shown["required"] = [name for name in decoded["required"] if name not in hidden]
    return shown


def _response_format(request: Request) -> dict[str, Any] | None:
    schema = bytes(request.response_schema)
    wanted = request.generation.response_format
    if schema == b"null" and wanted in {"none", "actions"}:
        return None
    if schema == b"null" and wanted == "json_object":
        return {"type": "json_object"}
    given = ENVELOPE_SCHEMA if schema == b"null" else request.response_schema
    named = {"name": request.response_name or "action", "schema": msgspec.json.decode(given)}
    return {"type": "json_schema", "json_schema": named}


def _tool_choice(choice: str, names: dict[str, str]) -> Any:
    match choice:
        case "":
            return None
        case "auto" | "none" | "required":
            return choice
        case _:
            return {"type": "function", "function": {"name": names.get(choice) or _wire_name(choice)}}
