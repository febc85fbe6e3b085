"""Grammars for llama.cpp: whatever one derives is an action, and every action is derived.

GBNF writes literals, classes and repetitions as regular expressions do, so a grammar without recursion is
one. Free values are unfolded to a few levels.
"""

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepfold.engine.capabilities.manifests import NATIVE
from stepfold.engine.contract.choices import alternatives, arguments_of, nested, union
from stepfold.engine.contract.envelope import Action, parse_action
from stepfold.engine.contract.gbnf import grammar_of
from stepfold.engine.contract.schemas import TOOLS
from stepfold.engine.contract.validators import compile_schema
from stepfold.testing import actions

LEVELS = 4
LOADED = {manifest.name: bytes(manifest.schema) for manifest in NATIVE}
SCHEMAS = {name: arguments_of(schema) for name, schema in LOADED.items()}
SHAPES = alternatives(TOOLS, SCHEMAS, loadable=tuple(LOADED), checks=("unit", "lint"))
_TOKEN = re.compile(
    r'"((?:\\.|[^"\\])*)"|(\[(?:\\.|[^\]\\])*\])|([a-z][a-z0-9]*)|(\{[0-9,]+\})|([()|*+?])|\s+'
)


def as_regex(grammar: str) -> str:
    """The grammar as a regular expression."""
    rules = dict(line.split(" ::= ", 1) for line in grammar.strip().split("\n"))

    def rule(name: str, levels: int) -> str:
        deeper = levels - 1 if name in {"object", "array"} else levels
        if not levels:
            return r"null"
        return f"(?:{''.join(piece(found, deeper) for found in _TOKEN.finditer(rules[name]))})"

    def piece(found: re.Match[str], levels: int) -> str:
        literal, among, name, times, mark = found.groups()
        if literal is not None:
            return re.escape(re.sub(r"\\(.)", r"\1", literal))
        if name is not None:
            return rule(name, levels)
        return among or times or {"(": "(?:"}.get(mark or "", mark or "")

    return rule("root", LEVELS)


ANY_ACTION = as_regex(grammar_of(union(SHAPES)))


@settings(max_examples=200, deadline=None)
@given(st.from_regex(ANY_ACTION, fullmatch=True))
def test_everything_that_the_grammar_derives_is_an_action(text: str) -> None:
    parsed = parse_action(text)

    assert isinstance(parsed, Action), parsed
    arguments = json.loads(text)["arguments"]
    if parsed.name == "capability_call":
        schema = compile_schema(LOADED[arguments["capability"]])
        broken = schema.validate(arguments["arguments"])
        # The bounds of a number are the one thing of these schemas that a grammar leaves to the contract.
        assert all("imum" in problem for problem in broken), broken


def in_the_order_of(schema: Any, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    return {name: in_the_order_of(properties[name], value[name]) for name in properties if name in value}


CLOSED = {name: tool.schema for name, tool in TOOLS.items() if name != "capability_call"}


@settings(deadline=None)
@pytest.mark.parametrize("schemas", [CLOSED, LOADED], ids=["tools", "capabilities"])
@given(data=st.data())
def test_every_action_is_derived(schemas: dict[str, bytes], data: Any) -> None:
    spoken = data.draw(actions(schemas))
    schema = json.loads(schemas[spoken.name])
    grammar = grammar_of(
        union(
            alternatives(
                TOOLS,
                {} if spoken.name in TOOLS else {spoken.name: arguments_of(schemas[spoken.name])},
                loadable=spoken.arguments.get("names", ()),
                checks=spoken.arguments.get("checks", ()),
            )
        )
    )
    arguments = in_the_order_of(schema, spoken.arguments)
    said = {"name": spoken.name, "arguments": arguments}
    if spoken.name not in TOOLS:
        said = {"name": "capability_call", "arguments": {"capability": spoken.name, "arguments": arguments}}

    for separators in ((", ", ": "), (",", ":")):
        text = json.dumps(said, ensure_ascii=False, separators=separators)
        assert re.fullmatch(as_regex(grammar), text), (text, grammar)


def test_a_capability_that_is_not_loaded_can_not_be_called() -> None:
    tools = [name for name in TOOLS if name != "worker_dispatch"]
    shapes = alternatives(tools, {}, loadable=tuple(LOADED), checks=())
    pattern = as_regex(grammar_of(union(shapes)))

    assert re.fullmatch(pattern, '{"name": "verify", "arguments": {}}')
    assert re.fullmatch(pattern, '{"name": "capability_load", "arguments": {"names": ["fs.read"]}}')
    assert not re.fullmatch(pattern, '{"name": "capability_load", "arguments": {"names": ["fs.mend"]}}')
    assert "capability_call" not in pattern
    assert "worker_dispatch" not in pattern


@pytest.mark.parametrize(
    ("schema", "kept", "refused"),
    [
        ({"type": "integer"}, ["0", "-12"], ["01", "1.5", "true"]),
        ({"type": "integer", "minimum": 1}, ["1", "20"], ["0", "-1"]),
        ({"type": "integer", "minimum": 0}, ["0", "20"], ["-1"]),
        ({"type": "number"}, ["0", "1.5", "-2e9"], [".5", "1e400", "NaN"]),
        ({"type": ["string", "null"]}, ['"a"', "null"], ["1"]),
        (
            {"type": "string", "minLength": 1},
            ['"a"', r'"\"\\\n"', '"é👍"'],
            ['""', '"\n"', r'"\ud800"', '"a'],
        ),
        ({"type": "string", "maxLength": 2}, ['""', '"ab"'], ['"abc"']),
        ({"const": {"a": [1, None]}}, ['{"a": [1, null]}'], ['{"a":[1]}']),
        ({"enum": ["it's", 'a "b"', 3]}, ['"it\'s"', r'"a \"b\""', "3"], ["4"]),
        ({"type": "array", "items": {"type": "boolean"}}, ["[]", "[true, false]"], ["[1]", "[true,]"]),
        ({"type": "array", "minItems": 1}, ["[1]", '["a", {}]'], ["[]"]),
        ({"type": "object", "additionalProperties": False}, ["{}"], ['{"a": 1}']),
        ({"type": "object"}, ["{}", '{"a": {"b": 1}}'], ["[]"]),
        ({}, ["1", '"a"', "[]", "{}"], ["x", ""]),
        ({"$ref": "#/x"}, ["1", "null"], ["y"]),
        (
            {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}},
            ["{}", '{"a": null}', '{"b":null}', '{"a": null, "b": null}'],
            ['{"b": null, "a": null}', '{, "b": null}', '{"a": null,}'],
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}},
                "required": ["b"],
            },
            ['{"b": null}', '{"a": null, "b": null}', '{"b": null, "c": null}'],
            ["{}", '{"a": null}', '{"c": null}'],
        ),
    ],
)
def test_a_schema_as_a_grammar(schema: Any, kept: list[str], refused: list[str]) -> None:
    pattern = as_regex(grammar_of(schema))

    assert [text for text in kept if not re.fullmatch(pattern, text)] == []
    assert [text for text in refused if re.fullmatch(pattern, text)] == []


def test_the_grammar_does_not_grow_with_the_depth_of_optional_members() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(4):
        schema = {"type": "object", "properties": dict.fromkeys("abcdef", schema)}

    assert len(grammar_of(schema)) < 4_000


def test_the_shapes_hold_no_union_at_the_top_in_the_nested_form() -> None:
    schema = nested(SHAPES)

    assert list(schema) == ["type", "properties", "required", "additionalProperties"]
    assert sorted(schema["properties"]["name"]["enum"]) == sorted(TOOLS)
    check = compile_schema(msgspec.json.encode(schema))
    assert not check.validate({"name": "verify", "arguments": {}})
