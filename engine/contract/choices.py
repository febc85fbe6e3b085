"""What a model may say next, as JSON Schema: the envelope with the argument schemas of what it can call now.

For servers that constrain decoding. It is narrower than the contract, which judges every reply all the
same: a constrained model can name no capability that is not loaded, and no check that is not there.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stepfold.engine.contract.schemas import TOOLS

Schema = dict[str, Any]


def alternatives(
    loaded: Mapping[str, bytes], *, loadable: Sequence[str], checks: Sequence[str], workers: bool
) -> list[Schema]:
    """The shape of each action that makes sense now, the name first.

    `loaded` are the argument schemas of the capabilities that may be called, by name; `loadable` those that
    may be loaded. A schema that can't be read stands for any object.
    """
    known: dict[str, Schema] = {name: json.loads(tool.schema) for name, tool in TOOLS.items()}
    del known["capability_call"]
    if not workers:
        del known["worker_dispatch"]
    if loadable:
        known["capability_load"]["properties"]["names"]["items"] = _one_of(loadable)
    if checks:
        known["verify"]["properties"]["checks"]["items"] = _one_of(checks)
    calls = [
        _action("capability_call", _object({"capability": _one_of([name]), "arguments": _arguments(schema)}))
        for name, schema in loaded.items()
    ]
    return [*(_action(name, schema) for name, schema in known.items()), *calls]


def union(shapes: Sequence[Schema]) -> Schema:
    """Exactly these shapes. With `anyOf` at the top, which several servers refuse, ignore or misread."""
    return {"anyOf": list(shapes)}


def nested(shapes: Sequence[Schema]) -> Schema:
    """One object at the top, for servers that want that: the arguments need not be the name's."""
    names = dict.fromkeys(shape["properties"]["name"]["enum"][0] for shape in shapes)
    arguments = [shape["properties"]["arguments"] for shape in shapes]
    return _object({"name": _one_of(list(names)), "arguments": {"anyOf": arguments}})


def _action(name: str, arguments: Schema) -> Schema:
    return _object({"name": _one_of([name]), "arguments": arguments})


def _object(properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _one_of(values: Sequence[str]) -> Schema:
    return {"type": "string", "enum": list(values)}


def _arguments(schema: bytes) -> Schema:
    try:
        read = json.loads(schema)
    except ValueError:
        read = None
    return read if isinstance(read, dict) and read.get("type") == "object" else {"type": "object"}
