"""From the arguments that a model wrote to those that a tool gets: stripped, normalised, validated."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from stepfold.engine.contract.schemas import compile_schema
from stepfold.events.configuration import Manifest

WRAPPERS = ("param", "params", "args", "parameters", "input", "arguments", "properties")
"""Keys under which models put the whole arguments once more."""

_FENCE = re.compile(r"\A\s*```[a-zA-Z]*\s*(.*?)\s*```\s*\Z", re.DOTALL)
_encode = msgspec.json.Encoder().encode


class Arguments(Struct, frozen=True):
    """What the tool would get, as JSON, and whether that differs from what the model wrote."""

    value: bytes
    changed: bool = False
    problem: str = ""


def read_arguments(text: bytes, manifest: Manifest, *, normalize: bool) -> Arguments:
    """Judge the arguments of one call.

    Host-injected keys are stripped: a model can neither see nor forge them. With `normalize`, a
    fenced text and a known wrapper are opened, but only if what is inside is valid; content is never
    guessed at.
    """
    value = _object(text)
    unfenced = value is None
    if unfenced and normalize:
        value = _unfenced(text)
    if value is None:
        return Arguments(text, problem=f"the arguments are no JSON object; {_expected(manifest)}")
    visible = visible_schema(manifest)
    hidden = manifest.hidden
    stripped = {name: item for name, item in value.items() if name not in hidden} if hidden else value
    problems = compile_schema(visible).validate(stripped)
    if not problems and stripped is value and not unfenced:
        return Arguments(text)
    if problems and normalize:
        inner = _unwrapped(stripped, visible)
        if inner is not None:
            stripped, problems = inner, ()
    if problems:
        return Arguments(text, problem=f"{'; '.join(problems)}; {_expected(manifest)}")
    if _object(text) == stripped:
        return Arguments(text)
    return Arguments(_encode(stripped), changed=True)


def visible_schema(manifest: Manifest) -> bytes:
    """A tool's schema as the model sees it: without the properties that the host injects."""
    if not manifest.hidden:
        return bytes(manifest.schema)
    schema: dict[str, Any] = msgspec.json.decode(manifest.schema)
    hidden = set(manifest.hidden)
    if isinstance(schema.get("properties"), dict):
        schema["properties"] = {n: s for n, s in schema["properties"].items() if n not in hidden}
    if isinstance(schema.get("required"), list):
        schema["required"] = [name for name in schema["required"] if name not in hidden]
    return _encode(schema)


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(text or b"{}")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return value if isinstance(value, dict) else None


def _unfenced(text: bytes) -> dict[str, Any] | None:
    """A fence around the object, or the object in a JSON string, or both."""
    plain = text.decode("utf-8", "replace")
    try:
        inner = msgspec.json.decode(plain)
    except (msgspec.DecodeError, RecursionError):
        inner = plain
    if not isinstance(inner, str):
        return None
    fenced = _FENCE.match(inner)
    return _object((fenced[1] if fenced else inner).encode())


def _unwrapped(value: Mapping[str, Any], schema: bytes) -> dict[str, Any] | None:
    if len(value) != 1:
        return None
    (wrapper,) = value
    declared = msgspec.json.decode(schema).get("properties", {})
    inner = value[wrapper]
    if wrapper not in WRAPPERS or wrapper in declared or not isinstance(inner, dict):
        return None
    return None if compile_schema(schema).validate(inner) else inner


def _expected(manifest: Manifest) -> str:
    return f"expected by {manifest.name}: {visible_schema(manifest).decode('utf-8', 'replace')}"
