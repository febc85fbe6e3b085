"""A JSON Schema as a grammar for llama.cpp (GBNF), for servers that constrain by a grammar alone.

Text is JSON on one line, an object's keys in the order of its schema, and a blank after `:` and `,` if the
model likes. What a grammar can't say (patterns, most bounds of numbers, references) is left to the contract,
which judges every reply: the grammar is wider there, never narrower. Narrower it is in one thing: an
object whose schema names properties has those and no others.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

LONGEST_STRING = 200
"""A bound up to which `maxLength` is written out; llama.cpp's parser copies the rule that often."""

_BASE = r"""
string ::= "\"" char* "\""
char ::= [^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" unit)
unit ::= [0-9a-cA-CefEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2}
integer ::= "-"? natural
natural ::= "0" | positive
positive ::= [1-9] [0-9]{0,15}
number ::= integer ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?
boolean ::= "true" | "false"
null ::= "null"
value ::= string | number | boolean | null | object | array
object ::= "{" (pair (comma pair)*)? "}"
pair ::= string colon value
array ::= "[" (value (comma value)*)? "]"
colon ::= ":" " "?
comma ::= "," " "?
"""

_PLAIN = frozenset({"string", "integer", "number", "boolean", "null"})


def grammar_of(schema: Mapping[str, Any]) -> str:
    """The grammar of the texts that keep to a schema. Its first rule is `root`."""
    rules = _Rules()
    root = rules.of(schema)
    return f"root ::= {root}\n{rules.text}{_BASE.strip()}\n"


class _Rules:
    """The rules that a schema needs beside the base ones, each with a name of its own."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    @property
    def text(self) -> str:
        return "".join(f"{name} ::= {rule}\n" for rule, name in self._names.items())

    def of(self, schema: Any) -> str:
        if not isinstance(schema, Mapping):
            return "value"
        if "const" in schema:
            return _literal(schema["const"])
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return self._named(_any_of([_literal(value) for value in schema["enum"]]))
        shapes = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(shapes, list):
            return self._named(_any_of([self.of(shape) for shape in shapes]))
        kind = schema.get("type")
        if isinstance(kind, list) and kind:
            return self._named(_any_of([self._typed(one, schema) for one in kind]))
        return self._typed(kind, schema)

    def _named(self, rule: str) -> str:
        return self._names.setdefault(rule, f"r{len(self._names)}")

    def _typed(self, kind: Any, schema: Mapping[str, Any]) -> str:
        match kind:
            case "object":
                return self._object(schema)
            case "array":
                return self._array(schema)
            case "string":
                return _string(schema)
            case "integer" if _count(schema.get("minimum")) is not None:
                return "positive" if schema["minimum"] else "natural"
            case str() if kind in _PLAIN:
                return kind
            case _:
                return "value"

    def _array(self, schema: Mapping[str, Any]) -> str:
        item, least = self.of(schema.get("items")), _count(schema.get("minItems")) or 0
        some = f"{item} (comma {item})*"
        return self._named(f'"[" {some} "]"' if least else f'"[" ({some})? "]"')

    def _object(self, schema: Mapping[str, Any]) -> str:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            return '"{" "}"' if schema.get("additionalProperties") is False else "object"
        required = schema.get("required")
        wanted = frozenset(required if isinstance(required, list) else ())
        members = [
            (self._named(f"{_literal(name)} colon {self.of(shape)}"), name in wanted)
            for name, shape in properties.items()
        ]
        return self._named(f'"{{" {_members(members)} "}}"')


def _string(schema: Mapping[str, Any]) -> str:
    least, most = _count(schema.get("minLength")) or 0, _count(schema.get("maxLength"))
    if most is not None and least <= most <= LONGEST_STRING:
        return rf'"\"" char{{{least},{most}}} "\""'
    return "string" if not least else r'"\"" char char* "\""'


def _members(members: Sequence[tuple[str, bool]]) -> str:
    """All members in their order, those that are optional or not there, a comma between two.

    The first that is there decides where commas stand: so each beginning is spelled out, and what follows
    an object's first required member is a plain row.
    """
    beginnings = []
    for place, (member, required) in enumerate(members):
        rest = [f"comma {later}" if needed else f"(comma {later})?" for later, needed in members[place + 1 :]]
        beginnings.append(" ".join([member, *rest]))
        if required:
            return _any_of(beginnings)
    return f"{_any_of(beginnings)}?"


def _any_of(rules: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(rules))
    return f"({' | '.join(distinct)})"


def _literal(value: Any) -> str:
    written = json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    # JSON has escaped the controls already.
    return '"' + written.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
