"""The cost of a reply grows with its length alone: ratios to a plain decode, never seconds."""

import json
from collections.abc import Callable
from time import process_time

import pytest

from stepfold.engine.contract.envelope import Action, parse_action
from stepfold.engine.contract.nesting import DEEPEST, nesting

MEGABYTES = 10_000_000
A_FEW_DECODES = 25


def called(value: str) -> str:
    return f'{{"name":"capability_call","arguments":{{"capability":"x","arguments":{{"v":{value}}}}}}}'


def cost(work: Callable[[], object]) -> float:
    began = process_time()
    work()
    return process_time() - began


def listed(item: str, size: int) -> str:
    return "[" + ",".join([item] * (size // (len(item) + 1))) + "]"


@pytest.mark.parametrize(
    "reply",
    [
        '{"name":"memory_write","arguments":{"text":"' + "lorem ipsum " * (MEGABYTES // 12) + '"}}',
        '{"name":"memory_write","arguments":{"text":"' + "\\n" * (MEGABYTES // 2) + '"}}',
        called(listed('{"a":1}', MEGABYTES // 4)),
        called(listed("[]", MEGABYTES // 4)),
        called(listed("1", MEGABYTES // 4)),
        '{"name":"capability_load","arguments":{"names":' + listed("1", MEGABYTES // 4) + "}}",
    ],
    ids=["text", "escapes", "objects", "lists", "integers", "a million violations"],
)
def test_a_large_reply_costs_a_few_decodes(reply: str) -> None:
    assert cost(lambda: parse_action(reply)) < A_FEW_DECODES * cost(lambda: json.loads(reply))


@pytest.mark.parametrize(
    "reply",
    [
        "[" * 100_000,
        "[" * 50_000 + "]" * 50_000,
        called('{"a":' * 20_000 + "1" + "}" * 20_000),
        '{"a":' * 20_000,
        '{"name":"memory_write","arguments":{"text":"' + "\\" * 100_000,
        "lorem ipsum " * 8_000,
        "```json" + "`" * 100_000,
        '{"a":1' + "," * 100_000,
        " " * 100_000,
        '{"' * 50_000,
    ],
)
def test_a_malformed_reply_costs_a_few_decodes_of_sound_text(reply: str) -> None:
    sound = listed('{"a":[1,2]}', len(reply) * 10)

    assert not isinstance(parse_action(reply), Action)
    assert cost(lambda: parse_action(reply)) < A_FEW_DECODES * cost(lambda: json.loads(sound))


@pytest.mark.parametrize("levels", [1, 2, DEEPEST - 1, DEEPEST])
def test_levels_are_counted_outside_strings_only(levels: int) -> None:
    text = '{"[[\\"[\\\\":[' * (levels // 2) + "{" * (levels % 2)

    assert nesting(text) == levels


def test_a_level_too_many_is_seen_wherever_it_stands() -> None:
    assert nesting("[]" * 10_000 + "[" * (DEEPEST + 1) + "]" * (DEEPEST + 1)) > DEEPEST
    assert nesting("[]" * 10_000 + "[" * DEEPEST + "]" * DEEPEST) == 0
