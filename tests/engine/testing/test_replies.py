"""What the strategies promise: actions are actions, and each kind of malformed reply gets its one error."""

import json

import pytest
from hypothesis import HealthCheck, given, settings

from stepfold.engine.contract.envelope import ERRORS, Action, ActionParseError, parse_action
from stepfold.engine.contract.schemas import compile_schema
from stepfold.testing import KINDS, Malformed, Spoken, actions, arguments_for, malformed_replies, replies

SOME = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@SOME
@given(actions())
def test_an_action_is_read_back_with_the_span_of_its_arguments(spoken: Spoken) -> None:
    parsed = parse_action(spoken.reply)

    assert isinstance(parsed, Action)
    assert (parsed.name, parsed.arguments) == (spoken.name, spoken.arguments)
    assert spoken.reply[parsed.start : parsed.end] == spoken.written


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_malformed_reply_is_answered_by_its_error(kind: str) -> None:
    @settings(SOME, max_examples=10)
    @given(malformed_replies(kinds=(kind,)))
    def answered(malformed: Malformed) -> None:
        parsed = parse_action(malformed.reply)
        assert isinstance(parsed, ActionParseError)
        assert parsed.error in malformed.expected

    answered()


@SOME
@given(replies())
def test_any_reply_is_an_action_or_one_of_the_nine(reply: str | bytes) -> None:
    parsed = parse_action(reply)

    assert isinstance(parsed, Action) or parsed.error in ERRORS


TREE = {
    "type": "object",
    "properties": {"next": {"$ref": "#/$defs/node"}},
    "required": ["next"],
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "integer", "minimum": 3}},
            "required": ["n"],
            "additionalProperties": False,
        }
    },
}
SCHEMAS = {
    "references itself": TREE,
    "overlapping branches": {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "patterns": {
        "patternProperties": {"^x-": {"type": "string", "pattern": "^[a-z]{2,5}$"}},
        "additionalProperties": False,
        "minProperties": 1,
    },
    "needs others": {
        "properties": {"a": {"type": ["string", "null"]}, "b": {"enum": [1, "2", None]}},
        "dependentRequired": {"a": ["b"]},
        "allOf": [{"required": ["a"]}, {"properties": {"a": {"minLength": 2}}}],
    },
    "if and else": {
        "if": {"properties": {"a": {"const": 1}}, "required": ["a"]},
        "then": {"required": ["b"]},
        "else": {"required": ["c"]},
    },
    "a tuple": {
        "properties": {"t": {"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False}},
        "required": ["t"],
    },
    "unique multiples": {
        "properties": {
            "t": {"type": "array", "items": {"multipleOf": 0.5}, "uniqueItems": True, "minItems": 2}
        },
        "required": ["t"],
    },
    "not and names": {"propertyNames": {"pattern": "^[a-c]+$"}, "not": {"required": ["a"]}},
    "anything": {},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_arguments_keep_the_schema_they_are_made_for(name: str) -> None:
    schema = json.dumps(SCHEMAS[name]).encode()

    @settings(SOME, max_examples=20)
    @given(arguments_for(schema))
    def valid(arguments: object) -> None:
        assert isinstance(arguments, dict)
        assert compile_schema(schema).validate(arguments) == ()

    valid()
