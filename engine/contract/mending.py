"""The smallest change that would make an action of a rejected reply: advice for its model, never carried out.

Whatever is offered was held to the contract itself. Values are kept as the model wrote them, and nothing
is made up: what can't be mended by leaving out, closing or putting in its place is not mended here.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from stepfold.engine.contract.envelope import Action, ActionParseError, parse_action
from stepfold.engine.contract.schemas import TOOLS
from stepfold.engine.contract.validators import Validator

LONGEST_REPLY = 4_000
"""Characters; of a longer reply a small model would copy the wrong part."""

BRACES_AT_MOST = 3
_FENCED = re.compile(r"```[A-Za-z]*\s*(.*?)\s*```", re.DOTALL)
_CAPABILITY = re.compile(r"[a-z]+(?:\.[a-z0-9_]+)+")
_NAMED = re.compile(r'"name"\s*:\s*"([a-z_]+)"')
_WORDS = re.compile(r"[A-Za-z0-9]+")
SEARCHED_AT_MOST = 60
_decoder = json.JSONDecoder()


def mended(reply: str, error: ActionParseError, schemas: Mapping[str, Validator]) -> str:
    """The reply with its smallest mend, on one line, or empty where there is none.

    The first candidate that parses wins.
    """
    if len(reply) > LONGEST_REPLY:
        return ""
    for candidate in _candidates(reply.strip(), error):
        action = parse_action(candidate, schemas)
        if isinstance(action, Action):
            return json.dumps({"name": action.name, "arguments": action.arguments}, ensure_ascii=False)
    return ""


def example_for(reply: str, error: ActionParseError) -> str:
    """Where nothing can be mended: an action like the one that was meant, of the tool that was named.

    A tool that is not there may be a capability by another name, which a search finds.
    """
    if error.error == "UnknownTool":
        words = " ".join(_WORDS.findall(error.tool.replace("_", " ")))[:SEARCHED_AT_MOST]
        return json.dumps({"name": "capability_search", "arguments": {"query": words or "files"}})
    named = _NAMED.search(reply)
    return TOOLS[named[1] if named and named[1] in TOOLS else "capability_load"].example


def _candidates(reply: str, error: ActionParseError) -> Iterator[str]:
    if error.error == "NotJson":
        yield from _documents(reply, error.cause)
        return
    value = _object_in(reply)
    if value is not None:
        yield from (json.dumps(shape, ensure_ascii=False) for shape in _shapes(value, error))


def _documents(reply: str, cause: str) -> Iterator[str]:
    fenced = _FENCED.search(reply)
    inner = fenced[1] if fenced else reply.strip("`").removeprefix("json").strip()
    for text in dict.fromkeys((inner, inner[max(0, inner.find("{")) :])):
        yield text
        if cause in {"extra_brace", "extra_bracket", "fence"}:
            yield from (text[:-count] for count in range(1, BRACES_AT_MOST + 1))
        if cause in {"missing_brace", "truncated", "fence"} and text.endswith(("}", "]", '"')):
            yield from (text + "}" * count for count in range(1, BRACES_AT_MOST + 1))
        first = _object_in(text)
        if first is not None:
            yield json.dumps(first, ensure_ascii=False)


def _object_in(text: str) -> dict[str, Any] | None:
    """The first JSON object of a text that begins with one, fenced or not."""
    try:
        value, _ = _decoder.raw_decode(text, max(0, text.find("{")))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _shapes(value: dict[str, Any], error: ActionParseError) -> Iterator[dict[str, Any]]:
    name, arguments = value.get("name"), value.get("arguments")
    match error.error:
        case "ExtraTopLevelKeys":
            yield {"name": name, "arguments": arguments}
            yield {"name": name, "arguments": {key: item for key, item in value.items() if key != "name"}}
        case "MissingArguments":
            yield {"name": name, "arguments": {}}
        case "ArgumentsNotObject":
            yield from ({"name": name, "arguments": shape} for shape in _arguments(str(name), arguments))
        case "UnknownTool":
            yield from _renamed(str(name), arguments)
        case "SchemaInvalid" if isinstance(arguments, dict) and name in TOOLS:
            known = json.loads(TOOLS[str(name)].schema)["properties"]
            yield {"name": name, "arguments": {key: arguments[key] for key in arguments if key in known}}


def _arguments(name: str, given: Any) -> Iterator[Any]:
    """What a list, a text or nothing at all was meant to be: the tool's one list, its one text, or none."""
    properties = json.loads(TOOLS[name].schema)["properties"] if name in TOOLS else {}
    if isinstance(given, str):
        with suppress(ValueError, RecursionError):
            yield json.loads(given)
    if not given:
        yield {}
    for key, shape in properties.items():
        if (shape["type"], type(given)) in {("array", list), ("string", str)}:
            yield {key: given}


def _renamed(name: str, arguments: Any) -> Iterator[dict[str, Any]]:
    plain = name.strip().lower().removeprefix("functions.")
    yield {"name": plain, "arguments": arguments}
    if _CAPABILITY.fullmatch(plain):
        yield {"name": "capability_call", "arguments": {"capability": plain, "arguments": arguments}}
