"""Linear time, counted and not timed: twice the reply is at most twice the work, whatever is in it."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from stepfold.engine.contract.envelope import parse_action

SMALL = 1_000
FACTOR = 8

FINISH = '{"name":"finish","arguments":'

REPLIES: dict[str, Callable[[int], str]] = {
    "nested brackets": lambda n: "[" * n,
    "nested objects": lambda n: '{"a":' * n,
    "a valid nest": lambda n: '{"name":"finish","arguments":{"summary":' + "[" * n + "]" * n + "}}",
    "many keys": lambda n: FINISH + "{" + ",".join(f'"k{i}":{i}' for i in range(n)) + "}}",
    "the same key": lambda n: FINISH + "{" + ",".join('"k":1' for _ in range(n)) + "}}",
    "open strings": lambda n: '{"name":"' * n,
    "backslashes": lambda n: '{"name":"' + "\\" * n,
    "fences": lambda n: "```json\n" * n,
    "think blocks": lambda n: "<think>" * n,
    "prose with braces": lambda n: "use {this} and " * n,
    "two objects and more": lambda n: '{"name":"verify","arguments":{}}' * n,
    "a long number": lambda n: '{"name":"finish","arguments":{"summary":' + "9" * n + "}}",
    "escapes": lambda n: '{"name":"finish","arguments":{"summary":"' + "\\u00e9" * n + '"}}',
}


def work_of(reply: str) -> int:
    """How many Python functions were entered and lines run to judge a reply."""
    steps = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        parse_action(reply)
    finally:
        sys.settrace(before)
    return steps


@pytest.mark.parametrize("kind", REPLIES)
def test_the_work_grows_no_faster_than_the_reply(kind: str) -> None:
    make = REPLIES[kind]

    small, large = work_of(make(SMALL)), work_of(make(SMALL * FACTOR))

    assert large <= small * FACTOR * 1.1 + 50, (small, large)
