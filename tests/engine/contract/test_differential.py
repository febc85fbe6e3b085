"""The validators against a second opinion: jsonschema-rs, on schemas that both know."""

from typing import Any

import jsonschema_rs
import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepfold.engine.contract.schemas import compile_schema

SOME = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

_LEAVES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.builds(
        lambda low, width, kind: {"type": kind, "minimum": low, "maximum": low + width},
        st.integers(-5, 5),
        st.integers(0, 6),
        st.sampled_from(("integer", "number")),
    ),
    st.builds(
        lambda low, width: {"type": "string", "minLength": low, "maxLength": low + width},
        st.integers(0, 3),
        st.integers(0, 4),
    ),
    st.sampled_from(
        ({"type": "string", "pattern": "^[a-c]+$"}, {"enum": [1, "a", None, True]}, {"const": 0})
    ),
    st.just({"type": ["string", "null"]}),
)


def _deeper(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from("abc")
    return st.one_of(
        st.builds(
            lambda items, low, unique: {
                "type": "array",
                "items": items,
                "minItems": low,
                "maxItems": low + 2,
                "uniqueItems": unique,
            },
            inner,
            st.integers(0, 2),
            st.booleans(),
        ),
        _objects(st.dictionaries(names, inner, max_size=3)),
        st.builds(
            lambda word, parts: {word: parts},
            st.sampled_from(("anyOf", "allOf", "oneOf")),
            st.lists(inner, min_size=1, max_size=3),
        ),
        st.builds(lambda part: {"not": part}, inner),
    )


def _objects(
    properties: st.SearchStrategy[dict[str, dict[str, Any]]],
) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda known, needed, closed: {
            "type": "object",
            "properties": known,
            "required": [name for name in known if needed],
            "additionalProperties": not closed,
        },
        properties,
        st.booleans(),
        st.booleans(),
    )


_SCHEMAS = st.recursive(_LEAVES, _deeper, max_leaves=5)
_TOOLS = _objects(st.dictionaries(st.sampled_from("abc"), _SCHEMAS, max_size=3))
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-6, 12)
    | st.sampled_from((0.5, 1.0, -2.5))
    | st.text("abcd", max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=6,
)
_ARGUMENTS = st.dictionaries(st.sampled_from("abcd"), _VALUES, max_size=4)


@SOME
@given(_TOOLS, _ARGUMENTS)
def test_both_validators_say_the_same(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    ours = compile_schema(msgspec.json.encode(schema)).validate(arguments)

    other = jsonschema_rs.validator_for(schema).is_valid(arguments)

    assert (not ours) == other, ours
