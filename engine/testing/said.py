"""What a model may say, as Hypothesis strategies: actions, malformed replies, and anything at all.

A malformed reply is made from a valid action by one named deed, so it is known what the contract must
answer, and shrinking ends at the smallest action that still shows the fault.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st
from msgspec import Struct

from stepfold.engine.contract.schemas import TOOLS
from stepfold.engine.testing.malformations import DEEDS, Deed, written
from stepfold.engine.testing.values import ANY_VALUE, arguments_for

Draw = Callable[[st.SearchStrategy[Any]], Any]

EIGHT: Mapping[str, bytes] = {name: tool.schema for name, tool in TOOLS.items()}
"""The schemas of the eight top-level tools, by name."""

BROKEN_ARGUMENTS = "broken_arguments"
KINDS = (*DEEDS, BROKEN_ARGUMENTS)
"""Every kind of malformed reply."""

_BLANKS = st.text(" \t\r\n", max_size=2)
_FENCES = ("{}", "{}", "{}", "```json\n{}\n```", "```json{}```", "```json {} \n```")
_FRAGMENTS = (
    *'{}[]:,"\\ \n-019.eE',
    *("```json", "```", '"name"', '"arguments"', '"finish"', '"verify"', '"summary"', "{}", "tru"),
    *("null", "true", "NaN", "\\ud83c", "\\udf78", "\\u0061", "\ud800", "\ufeff", "\xa0", "1e999", "'"),
    *("<think>", "</think>", "<tool_call>", "<|im_end|>", "[[[[", "\x00", "\x1b[2J"),
)


class Spoken(Struct, frozen=True):
    """A valid action as a model writes it. `written` is the text of its arguments inside `reply`."""

    name: str
    arguments: dict[str, Any]
    reply: str
    written: str


class Malformed(Struct, frozen=True):
    """A reply that is no action. `expected` holds the names of the errors that may answer it."""

    kind: str
    reply: str | bytes
    expected: tuple[str, ...]


@st.composite
def actions(draw: Draw, schemas: Mapping[str, bytes] = EIGHT) -> Spoken:
    """Replies that keep the contract: any key order, white space, escapes, with or without the one fence.

    `schemas` holds the JSON Schema of the arguments of each tool, as bytes; without it the eight.
    """
    name = draw(st.sampled_from(sorted(schemas)))
    arguments = draw(arguments_for(schemas[name]))
    written = json.dumps(arguments, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 2])))
    between = draw(_BLANKS)
    members = [
        f'"name"{between}:{draw(_BLANKS)}{json.dumps(name)}',
        f'"arguments"{draw(_BLANKS)}:{between}{written}',
    ]
    if draw(st.booleans()):
        members.reverse()
    whole = f"{{{between}{f',{between}'.join(members)}{between}}}"
    fenced = draw(st.sampled_from(_FENCES)).replace("{}", whole)
    return Spoken(name, arguments, f"{between}{fenced}{draw(_BLANKS)}", written)


@st.composite
def malformed_replies(
    draw: Draw, schemas: Mapping[str, bytes] = EIGHT, kinds: tuple[str, ...] = KINDS
) -> Malformed:
    """Valid actions with one deed done to them; `kinds` are names of `KINDS`."""
    kind = draw(st.sampled_from(kinds))
    spoken = draw(actions(schemas))
    if kind == BROKEN_ARGUMENTS:
        broken = draw(_broken(schemas[spoken.name], spoken.arguments))
        return Malformed(kind, written(spoken.name, broken), ("SchemaInvalid",))
    deed: Deed = DEEDS[kind]
    reply, expected = deed(draw, spoken.name, spoken.arguments)
    return Malformed(kind, reply, expected)


@st.composite
def _broken(draw: Draw, schema: bytes, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with one of them missing, of another type, or too many; judged by a second validator."""
    names = sorted(arguments)
    what = draw(st.sampled_from(("missing", "other", "more") if names else ("more",)))
    broken = dict(arguments)
    match what:
        case "missing":
            del broken[draw(st.sampled_from(names))]
        case "other":
            broken[draw(st.sampled_from(names))] = draw(st.sampled_from((None, 0, "", [], {}, True, "[]")))
        case _:
            broken["no such argument"] = 1
    assume(not _second_opinion(schema).is_valid(broken))
    return broken


@cache
def _second_opinion(schema: bytes) -> Any:
    import jsonschema_rs

    return jsonschema_rs.validator_for(json.loads(schema))


def noise() -> st.SearchStrategy[str | bytes]:
    """Texts that look like replies, and bytes that look like nothing."""
    pieces = st.lists(st.sampled_from(_FRAGMENTS) | st.characters(), max_size=30).map("".join)
    return pieces | pieces.map("```json{}```".format) | ANY_VALUE.map(json.dumps) | st.binary(max_size=60)


def replies(schemas: Mapping[str, bytes] = EIGHT) -> st.SearchStrategy[str | bytes]:
    """Whatever a model may say: actions, malformed replies, noise."""
    return st.one_of(
        actions(schemas).map(lambda spoken: spoken.reply),
        malformed_replies(schemas).map(lambda malformed: malformed.reply),
        noise(),
    )
