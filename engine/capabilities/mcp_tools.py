"""What an MCP server offers and answers, made into what the engine knows: manifests, and text.

Pure. All of it was written by the server, so nothing is believed: names that would not fit, schemas
that don't compile and descriptions that would break out of their line are left out or cut.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from stepfold.engine.contract.schemas import compile_schema
from stepfold.engine.contract.validators import SchemaError
from stepfold.events.configuration import Manifest
from stepfold.projections.fold_shared import SERVER_PREFIX as PREFIX

TOOLS_AT_MOST = 100
DESCRIPTION_CHARACTERS = 300
SCHEMA_BYTES = 8 * 1024

_TOOL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}")
_PROPERTY_NAME = re.compile(r"[\w.$@\-]{1,64}")


def manifests_of(
    server: str, offered: Iterable[tuple[str, str, Any]], *, mutates: bool
) -> tuple[tuple[Manifest, ...], tuple[str, ...]]:
    """The tools of a server as manifests, and those left out, each with why.

    `offered` is (name, description, schema of the arguments). `mutates` says whether the server can
    change the project at all: what it says about its tools itself is a hint that nobody checks.
    """
    taken: dict[str, Manifest] = {}
    left_out: list[str] = []
    for tool, description, schema in offered:
        name = f"{PREFIX}{server}.{tool}"
        fault, encoded = _fault_of(tool, schema, taken, name)
        if fault:
            left_out.append(f"{one_line(tool)[:64]!r}: {fault}")
            continue
        taken[name] = Manifest(
            name=name,
            description=one_line(description)[:DESCRIPTION_CHARACTERS] or f"A tool of the server {server}.",
            schema=Raw(encoded),
            mutates=mutates,
            idempotency="once",
        )
    return tuple(taken.values()), tuple(left_out[:TOOLS_AT_MOST])


def _fault_of(tool: str, schema: Any, taken: dict[str, Manifest], name: str) -> tuple[str, bytes]:
    """Why a tool can't be used, empty when it can, and then its schema as bytes."""
    if not _TOOL_NAME.fullmatch(tool):
        return "a name of other characters than letters, digits, _ . -", b""
    if name in taken:
        return "offered twice", b""
    if len(taken) >= TOOLS_AT_MOST:
        return f"more than {TOOLS_AT_MOST} tools", b""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "its arguments are no object", b""
    try:
        encoded = msgspec.json.encode(schema)
        properties = schema.get("properties") or {}
        if len(encoded) > SCHEMA_BYTES:
            return f"a schema of more than {SCHEMA_BYTES} bytes", b""
        if not all(_PROPERTY_NAME.fullmatch(key) for key in properties):
            return "arguments with names that are none", b""
        compile_schema(encoded)
    except (SchemaError, TypeError, ValueError, RecursionError, AttributeError):
        return "a schema that doesn't compile", b""
    return "", encoded


def one_line(text: str) -> str:
    """A text as one line of visible characters: nothing in it can pass for a line of ours."""
    return "".join(character for character in " ".join(text.split()) if character.isprintable())


def tool_of(name: str) -> tuple[str, str]:
    """The server and its tool that a capability's name stands for; the server is empty for a native."""
    if not name.startswith(PREFIX):
        return "", name
    server, _, tool = name.removeprefix(PREFIX).partition(".")
    return server, tool


def text_of(blocks: Sequence[Any], structured: Any) -> str:
    """The answer of a tool as text; what is no text is named, with its size."""
    parts = [_part(block) for block in blocks]
    if not parts and structured is not None:
        parts = [msgspec.json.encode(structured).decode()]
    return "\n".join(parts) or "(no output)"


def _part(block: Any) -> str:
    text = getattr(block, "text", None)
    if isinstance(text, str):
        return text
    resource = getattr(block, "resource", None)
    inner = getattr(resource, "text", None)
    if isinstance(inner, str):
        return inner
    kind = one_line(str(getattr(block, "type", "something")))
    data = getattr(block, "data", None) or getattr(resource, "blob", None) or ""
    uri = getattr(block, "uri", None) or getattr(resource, "uri", None)
    return f"[{kind}{f' {one_line(str(uri))}' if uri else ''}, {len(data) * 3 // 4} bytes, left out]"
