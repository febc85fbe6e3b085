"""What a model may say next, as JSON Schema: the envelope with the argument schemas of what it can call now.

For servers that constrain decoding. It is narrower than the contract, which judges every reply all the
same: a constrained model can name no capability that is not loaded, and no check that is not there.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from stepfold.engine.contract.schemas import TOOLS

Schema = dict[str, Any]


def alternatives(
    tools: Collection[str], loaded: Mapping[str, Schema], *, loadable: Sequence[str], checks: Sequence[str]
) -> list[Schema]:
    """The shape of each action that makes sense now, the name first.

    `tools` are those of the eight that do, `capability_call` for what is `loaded`: the argument schemas of
    the capabilities that may be called, by name. `loadable` are those that may be loaded, `checks` the ids
    that may be verified.
    """
    known: dict[str, Schema] = {
        name: json.loads(tool.schema)
        for name, tool in TOOLS.items()
        if name in tools and name != "capability_call"
    }
    if loadable and "capability_load" in known:
        known["capability_load"]["properties"]["names"]["items"] = one_of(loadable)
    if checks and "verify" in known:
        known["verify"]["properties"]["checks"]["items"] = one_of(checks)
    calls = [
        action_shape("capability_call", object_shape({"capability": one_of([name]), "arguments": schema}))
        for name, schema in loaded.items()
    ]
    return [*(action_shape(name, schema) for name, schema in known.items()), *calls]


def arguments_of(schema: bytes) -> Schema:
    """The schema of a capability's arguments. One that can't be read stands for any object."""
    try:
        read = json.loads(schema)
    except ValueError:
        read = None
    return read if isinstance(read, dict) and read.get("type") == "object" else {"type": "object"}


def narrowed(schema: Schema, name: str, values: Sequence[str]) -> Schema:
    """The schema of an object whose property of this name, if it has one, is one of these texts."""
    properties = schema.get("properties", {})
    return {**schema, "properties": {**properties, name: one_of(values)}} if name in properties else schema


def without(schema: Schema, names: Collection[str]) -> Schema:
    """The schema of an object without these properties, none of which it requires."""
    properties = schema.get("properties", {})
    return {**schema, "properties": {name: properties[name] for name in properties if name not in names}}


def union(shapes: Sequence[Schema]) -> Schema:
    """Exactly these shapes. With `anyOf` at the top, which several servers refuse, ignore or misread."""
    return {"anyOf": list(shapes)}


def nested(shapes: Sequence[Schema]) -> Schema:
    """One object at the top, for servers that want that: the arguments need not be the name's."""
    names = dict.fromkeys(shape["properties"]["name"]["enum"][0] for shape in shapes)
    arguments = [shape["properties"]["arguments"] for shape in shapes]
    return object_shape({"name": one_of(list(names)), "arguments": {"anyOf": arguments}})


def action_shape(name: str, arguments: Schema) -> Schema:
    """An action of this name, whose arguments keep to a schema."""
    return object_shape({"name": one_of([name]), "arguments": arguments})


def object_shape(properties: Schema) -> Schema:
    """An object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def one_of(values: Sequence[str]) -> Schema:
    """One of these texts."""
    return {"type": "string", "enum": list(values)}
