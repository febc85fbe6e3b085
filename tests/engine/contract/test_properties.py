"""What holds for every reply: one verdict, the right span, the same reading as an independent one."""

import json
import math
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stepfold.engine.contract.envelope import ERRORS, Action, ActionParseError, parse_action
from stepfold.engine.contract.repair import LONGEST, repair_for
from stepfold.engine.contract.schemas import TOOLS

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
ARGUMENTS = {
    "capability_search": st.fixed_dictionaries({"query": TEXTS}),
    "capability_load": st.fixed_dictionaries({"names": st.lists(TEXTS, min_size=1)}),
    "capability_call": st.fixed_dictionaries(
        {"capability": TEXTS, "arguments": st.dictionaries(TEXTS, VALUES, max_size=4)}
    ),
    "worker_dispatch": st.fixed_dictionaries({"task": TEXTS}, optional={"profile": TEXTS}),
    "verify": st.fixed_dictionaries({}, optional={"checks": st.lists(TEXTS)}),
    "memory_write": st.fixed_dictionaries({"text": TEXTS}),
    "ask_user": st.fixed_dictionaries({"question": TEXTS}),
    "finish": st.fixed_dictionaries({"summary": TEXTS}),
}
ACTIONS = st.one_of([st.tuples(st.just(name), arguments) for name, arguments in ARGUMENTS.items()])
BLANKS = st.text(" \t\r\n", max_size=3)


@st.composite
def envelopes(draw: st.DrawFn) -> tuple[str, str, dict[str, Any], str]:
    """A reply that keeps the contract: its text, tool, arguments, and the arguments as written."""
    name, arguments = draw(ACTIONS)
    written = json.dumps(arguments, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 2])))
    members = [
        f'"name"{draw(BLANKS)}:{draw(BLANKS)}"{name}"',
        f'"arguments"{draw(BLANKS)}:{draw(BLANKS)}{written}',
    ]
    inside = f"{draw(BLANKS)},{draw(BLANKS)}".join(draw(st.permutations(members)))
    whole = f"{{{draw(BLANKS)}{inside}{draw(BLANKS)}}}"
    template = draw(st.sampled_from(["%s", "```json\n%s\n```", "```json%s```"]))
    return f"{draw(BLANKS)}{template % whole}{draw(BLANKS)}", name, arguments, written


FRAGMENTS = st.lists(
    st.sampled_from(
        [
            *'{}[]:,"\\ \n-019.eE',
            "```json",
            "```",
            '"name"',
            '"arguments"',
            '"finish"',
            '"verify"',
            "null",
            "true",
            "NaN",
            "\\ud83c",
            "\\udf78",
            "\\u0061",
            "\ud800",
            "\ufeff",
            "\xa0",
            "1e999",
            "'",
            '"summary"',
            "{}",
            "tru",
        ]
    )
    | st.characters(),
    max_size=40,
).map("".join)


def independent_verdict(reply: str) -> str:
    """Read the contract a second time, slowly: fence by regular expression, depth by counting."""
    body = reply.strip(" \t\r\n")
    fence = re.fullmatch(r"```json(?=[\s{\[\"`])(.*)```", body, re.DOTALL)
    body = fence[1].strip(" \t\r\n") if fence and (fence[1] == "" or fence[1][0] in ' \t\r\n{["') else body
    if not body:
        return "Empty"

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) < len(pairs):
            raise ValueError
        return dict(pairs)

    def depth(value: Any) -> int:
        inner = list(value.values()) if isinstance(value, dict) else value
        return 1 + max(map(depth, inner), default=0) if isinstance(inner, list) else 0

    def leaves(value: Any) -> list[Any]:
        if isinstance(value, dict):
            return [*value, *(leaf for inner in value.values() for leaf in leaves(inner))]
        return [leaf for inner in value for leaf in leaves(inner)] if isinstance(value, list) else [value]

    try:
        value = json.loads(body, object_pairs_hook=members)
        flat = leaves(value)
        if any(isinstance(leaf, float) and not math.isfinite(leaf) for leaf in flat):
            return "NotJson"
        "".join(leaf for leaf in flat if isinstance(leaf, str)).encode()
        reply.encode()
    except (ValueError, RecursionError):
        return "NotJson"
    if depth(value) > 128:
        return "NotJson"
    if not isinstance(value, dict):
        return "NotObject"
    if set(value) - {"name", "arguments"}:
        return "ExtraTopLevelKeys"
    if not isinstance(value.get("name"), str):
        return "MissingName"
    if "arguments" not in value:
        return "MissingArguments"
    if not isinstance(value["arguments"], dict):
        return "ArgumentsNotObject"
    return "valid envelope" if value["name"] in TOOLS else "UnknownTool"


def verdict(reply: str | bytes) -> str:
    parsed = parse_action(reply)
    if isinstance(parsed, Action):
        return "valid envelope"
    return "valid envelope" if parsed.error == "SchemaInvalid" else parsed.error


def no_action(reply: str) -> str:
    parsed = parse_action(reply)
    assert isinstance(parsed, ActionParseError)
    return parsed.error


@given(
    st.text() | FRAGMENTS | st.binary() | FRAGMENTS.map(lambda text: text.encode("utf-8", "surrogatepass"))
)
@settings(max_examples=400, deadline=None)
def test_any_reply_is_an_action_or_one_of_nine_errors(reply: str | bytes) -> None:
    parsed = parse_action(reply)

    assert parsed == parse_action(reply)
    if isinstance(parsed, ActionParseError):
        assert parsed.error in ERRORS
        assert len(parsed.detail) <= 300 and parsed.detail.isascii() and parsed.detail.isprintable()
        assert len(repair_for(parsed)) < LONGEST


@given(st.text() | FRAGMENTS | FRAGMENTS.map("```json{}```".format) | VALUES.map(json.dumps))
@settings(max_examples=600, deadline=None)
def test_an_independent_reading_gives_the_same_verdict(reply: str) -> None:
    assert verdict(reply) == independent_verdict(reply)


@given(envelopes(), st.data())
@settings(max_examples=300, deadline=None)
def test_an_independent_reading_agrees_on_broken_envelopes(
    envelope: tuple[str, str, dict[str, Any], str], data: st.DataObject
) -> None:
    reply = envelope[0]
    at = data.draw(st.integers(0, len(reply)))
    cut = data.draw(st.integers(0, 3))
    broken = reply[:at] + data.draw(FRAGMENTS) + reply[at + cut :]

    assert verdict(broken) == independent_verdict(broken)


@given(envelopes())
@settings(max_examples=200, deadline=None)
def test_a_valid_envelope_is_read_back_with_its_span(
    envelope: tuple[str, str, dict[str, Any], str],
) -> None:
    reply, name, arguments, written = envelope

    parsed = parse_action(reply)

    assert isinstance(parsed, Action)
    assert (parsed.name, parsed.arguments) == (name, arguments)
    assert reply[parsed.start : parsed.end] == written
    assert parse_action(reply.encode()) == parsed


@given(envelopes(), st.sampled_from(["x", "Sure: ", "\ufeff", "\xa0", "```", "{}", "<think>", "null"]))
@settings(max_examples=100, deadline=None)
def test_anything_before_or_behind_is_not_json(
    envelope: tuple[str, str, dict[str, Any], str], around: str
) -> None:
    reply = envelope[0]

    assert no_action(around + reply) == "NotJson"
    assert no_action(reply + around) == "NotJson"


@given(
    ACTIONS,
    st.sampled_from(["NaN", "-Infinity", "1e999", "9" * 5000, "[" * 127 + "]" * 127, '"\\ud800"', "1,"]),
)
@settings(max_examples=100, deadline=None)
def test_a_value_that_json_or_the_contract_lacks_is_not_json(
    action: tuple[str, dict[str, Any]], value: str
) -> None:
    name, arguments = action
    opening = json.dumps(arguments)[:-1] + (", " if arguments else "")

    reply = f'{{"name": "{name}", "arguments": {opening}"a key of its own": {value}}}}}'

    assert no_action(reply) == "NotJson"


@given(ACTIONS)
@settings(max_examples=50, deadline=None)
def test_a_key_given_twice_is_named(action: tuple[str, dict[str, Any]]) -> None:
    name, arguments = action
    reply = f'{{"name": "{name}", "n\\u0061me": "{name}", "arguments": {json.dumps(arguments)}}}'

    parsed = parse_action(reply)

    assert isinstance(parsed, ActionParseError)
    assert (parsed.error, parsed.cause) == ("NotJson", "duplicate_key")
    assert '"name"' in parsed.detail
