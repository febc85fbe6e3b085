"""The eight tools that a reply may name: their schemas, one example each, and the envelope's schema."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from stepfold.engine.contract.validators import SchemaError, Validator, compile_schema

__all__ = ["TOOLS", "TOP_LEVEL", "SchemaError", "Tool", "Validator", "compile_schema", "envelope_schema"]


class Tool(Struct, frozen=True):
    """A top-level tool as prompts show it: `schema` is the JSON Schema of its arguments.

    `example` is a whole reply that keeps the contract.
    """

    name: str
    description: str
    schema: bytes
    example: str


def _tool(
    name: str, description: str, properties: dict[str, Any], required: list[str], example: dict[str, Any]
) -> Tool:
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return Tool(
        name,
        description,
        json.dumps(schema, separators=(",", ":")).encode(),
        json.dumps({"name": name, "arguments": example}),
    )


_TEXT = {"type": "string", "minLength": 1}
_NAMES = {"type": "array", "items": {"type": "string"}}

_EIGHT = (
    _tool(
        "capability_search",
        "Find capabilities that fit a need.",
        {"query": _TEXT},
        ["query"],
        {"query": "read a file"},
    ),
    _tool(
        "capability_load",
        "Load capabilities by name, so that they may be called.",
        {"names": {**_NAMES, "minItems": 1}},
        ["names"],
        {"names": ["fs.read"]},
    ),
    _tool(
        "capability_call",
        "Call a loaded capability with its own arguments.",
        {"capability": _TEXT, "arguments": {"type": "object"}},
        ["capability", "arguments"],
        {"capability": "fs.read", "arguments": {"path": "README.md"}},
    ),
    _tool(
        "worker_dispatch",
        "Give a part of the work to a worker, and get its summary.",
        {"task": _TEXT, "profile": {"type": "string"}},
        ["task"],
        {"task": "list the failing tests"},
    ),
    _tool(
        "verify",
        "Run the acceptance checks, all of them or those named.",
        {"checks": _NAMES},
        [],
        {},
    ),
    _tool(
        "memory_write",
        "Keep a note that later runs will recall.",
        {"text": _TEXT},
        ["text"],
        {"text": "the tests need Python 3.11"},
    ),
    _tool(
        "ask_user",
        "Stop, and ask the user a question.",
        {"question": _TEXT},
        ["question"],
        {"question": "Which branch should I use?"},
    ),
    _tool(
        "finish",
        "Declare the goal met; accepted only if every acceptance check passes.",
        {"summary": _TEXT},
        ["summary"],
        {"summary": "fixed the parser, all checks pass"},
    ),
)

TOOLS: Mapping[str, Tool] = MappingProxyType({tool.name: tool for tool in _EIGHT})
"""The eight tools by name, in the order in which they are listed."""

TOP_LEVEL: Mapping[str, Validator] = MappingProxyType(
    {tool.name: compile_schema(tool.schema) for tool in _EIGHT}
)
"""The validators of the eight tools' arguments."""


def envelope_schema() -> bytes:
    """Return the JSON Schema of the whole reply, for servers that constrain decoding.

    One plain object without a top-level `anyOf`, which several servers refuse: the arguments of the
    tool that was named are checked afterwards, by `parse_action`.
    """
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "enum": list(TOOLS)},
            "arguments": {"type": "object"},
        },
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
    return json.dumps(schema, separators=(",", ":")).encode()
