"""Schemas become validators: the right engine, the right answer, no surprise."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepfold.engine.contract.schemas import TOOLS, TOP_LEVEL, envelope_schema
from stepfold.engine.contract.validators import (
    GeneratedValidator,
    RustValidator,
    SchemaError,
    compile_schema,
)

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


def messages(schema: dict[str, Any], arguments: dict[str, Any]) -> tuple[str, ...]:
    return compile_schema(json.dumps(schema).encode()).validate(arguments)


def of_v(schema: dict[str, Any], dialect: str) -> dict[str, Any]:
    return {"$schema": dialect, "type": "object", "properties": {"v": schema}}


@pytest.mark.parametrize("dialect", [DRAFT_7, DRAFT_2020])
@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({"type": "integer"}, [1, 1.0, 10**30, -0.0], [True, 1.5, "1", None]),
        ({"type": "number"}, [1, 1.5], [True, "1"]),
        ({"type": "boolean"}, [True, False], [1, 0, "true"]),
        ({"enum": [1, "a"]}, [1, 1.0, "a"], [True, 2]),
        ({"const": 0}, [0, 0.0], [False, None, ""]),
        ({"const": [1]}, [[1]], [[True]]),
        ({"uniqueItems": True}, [[1, True], [0, False]], [[1, 1.0], [{}, {}]]),
        ({"minLength": 1}, ["\U0001f600", 3], [""]),
        ({"format": "date-time"}, ["whenever"], []),
        ({"pattern": "^a+$"}, ["aa"], ["b", "a\n"]),
        ({"type": ["string", "null"]}, ["", None], [0]),
    ],
)
def test_both_engines_answer_alike(
    schema: dict[str, Any], valid: list[Any], invalid: list[Any], dialect: str
) -> None:
    assert [value for value in valid if messages(of_v(schema, dialect), {"v": value})] == []
    assert [value for value in invalid if not messages(of_v(schema, dialect), {"v": value})] == []


@pytest.mark.parametrize("dialect", [DRAFT_7, DRAFT_2020])
def test_both_engines_word_the_common_faults_alike(dialect: str) -> None:
    schema = {
        "$schema": dialect,
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"enum": ["x", "y"]}, "c": {"minLength": 1}, "d": {}},
        "required": ["d"],
        "additionalProperties": False,
    }

    found = messages(schema, {"zeta": 1, "a": [1], "b": "z", "c": "", "alpha": 2})

    assert sorted(found) == [
        'arguments may not have "zeta", "alpha"',
        'arguments must have "d"',
        "arguments.a must be string, not array",
        'arguments.b must be one of ["x", "y"]',
        "arguments.c must not be empty",
    ]


@pytest.mark.parametrize(
    ("schema", "engine"),
    [
        ({"type": "object"}, GeneratedValidator),
        ({"$schema": DRAFT_7}, GeneratedValidator),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, GeneratedValidator),
        ({"$schema": DRAFT_2020}, RustValidator),
        ({"$schema": "https://json-schema.org/draft/2019-09/schema"}, RustValidator),
        ({"properties": {"v": {"prefixItems": [{}]}}}, RustValidator),
        ({"dependentRequired": {"a": ["b"]}}, RustValidator),
        ({"properties": {"v": {"pattern": "a"}}}, RustValidator),
        ({"properties": {"pattern": {"type": "string"}, "prefixItems": {}}}, GeneratedValidator),
        ({"properties": {"id": {"type": "string"}, "$ref": {"type": "string"}}}, GeneratedValidator),
        ({"default": {"prefixItems": 1, "$ref": "http://example.com"}}, GeneratedValidator),
        ({"definitions": {"n": {}}, "properties": {"v": {"$ref": "#/definitions/n"}}}, GeneratedValidator),
    ],
)
def test_the_engine_follows_the_dialect_and_the_keywords(schema: dict[str, Any], engine: type) -> None:
    assert isinstance(compile_schema(json.dumps(schema).encode()), engine)


def test_unmarked_old_schemas_keep_the_meaning_of_draft_7() -> None:
    schema = {"properties": {"v": {"items": [{"type": "string"}]}, "w": {"pattern": "a"}}}

    assert messages(schema, {"v": [1]}) == ("arguments.v[0] must be string, not number",)


@pytest.mark.parametrize(
    "schema",
    [
        b"",
        b"[]",
        b"true",
        b"\xff",
        b"[" * 100_000,
        b'{"type": "strin"}',
        b'{"properties": 5}',
        b'{"required": "a"}',
        b'{"items": 5}',
        b'{"pattern": "("}',
        b'{"$schema": 5}',
        b'{"$schema": "http://example.com/mine"}',
        b'{"$schema": "http://json-schema.org/draft-03/schema#"}',
        b'{"$ref": "#/definitions/missing"}',
        b'{"$ref": "http://127.0.0.1:9/schema"}',
        b'{"$ref": "file:///etc/hostname"}',
        b'{"$ref": "other.json"}',
        b'{"$id": "http://127.0.0.1:9/", "properties": {"v": {"$ref": "other.json#/a"}}}',
        b'{"id": "http://127.0.0.1:9/", "properties": {"v": {"$ref": "data:,{}"}}}',
    ],
)
def test_a_schema_that_does_not_compile_is_one_line_for_its_author(schema: bytes) -> None:
    with pytest.raises(SchemaError) as caught:
        compile_schema(schema)

    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("the schema ")


def test_the_same_bytes_are_compiled_once() -> None:
    again = b'{"type": "obj' + b'ect"}'

    assert compile_schema(b'{"type": "object"}') is compile_schema(again)


def test_defaults_are_not_written_into_the_arguments() -> None:
    schema = {
        "properties": {"v": {"default": 1}, "w": {"type": "object", "properties": {"x": {"default": 2}}}}
    }
    arguments: dict[str, Any] = {"w": {}}
    before = copy.deepcopy(arguments)

    assert messages(schema, arguments) == ()
    assert arguments == before


def test_a_catastrophic_pattern_does_not_hang() -> None:
    schema = {"properties": {"v": {"pattern": "^(a+)+$"}}}

    assert messages(schema, {"v": "a" * 5000 + "b"}) != ()


def test_recursive_schemas_are_followed_inside_themselves() -> None:
    node = {"properties": {"n": {"$ref": "#/definitions/node"}}, "additionalProperties": False}
    schema = {"definitions": {"node": node}, "properties": {"v": {"$ref": "#/definitions/node"}}}

    assert messages(schema, {"v": {"n": {"n": {"q": 1}}}}) == ('arguments.v.n.n may not have "q"',)


@pytest.mark.parametrize("dialect", [DRAFT_7, DRAFT_2020])
def test_messages_are_short_and_printable_whatever_the_keys(dialect: str) -> None:
    schema = {"$schema": dialect, "additionalProperties": {"type": "string"}}

    found = messages(schema, {"\u200b\n" * 500: 1, "x" * 10_000: 2})

    assert len(found) == 2
    assert all(len(message) <= 160 and message.isascii() and message.isprintable() for message in found)


@given(st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.text()), max_size=4))
@settings(max_examples=100, deadline=None)
def test_the_eight_schemas_mean_the_same_in_both_engines(arguments: dict[str, Any]) -> None:
    for name, tool in TOOLS.items():
        newest = json.dumps({"$schema": DRAFT_2020, **json.loads(tool.schema)}).encode()
        assert bool(TOP_LEVEL[name].validate(arguments)) == bool(compile_schema(newest).validate(arguments))


def test_every_example_keeps_the_envelope_and_its_own_schema() -> None:
    envelope = compile_schema(envelope_schema())
    for name, tool in TOOLS.items():
        example = json.loads(tool.example)
        assert envelope.validate(example) == ()
        assert example["name"] == name
        assert TOP_LEVEL[name].validate(example["arguments"]) == ()
        assert tool.description.endswith(".") and "\n" not in tool.description


def test_the_envelope_schema_is_one_plain_object_with_the_eight_names() -> None:
    schema = json.loads(envelope_schema())

    assert set(schema) == {"type", "properties", "required", "additionalProperties"}
    assert schema["properties"]["name"]["enum"] == list(TOOLS) == list(TOP_LEVEL)
    assert compile_schema(envelope_schema()).validate({"name": "fs.read", "arguments": {}}) != ()
    assert compile_schema(envelope_schema()).validate({"name": "verify", "arguments": {}, "thought": 1}) != ()
