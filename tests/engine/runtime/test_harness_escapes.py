"""A tool that raises what no event loop can carry still has its ending, and the run has one too."""

import asyncio
import json
from typing import Any

import pytest

from stepfold import AgentHarness, RunPolicy, tool
from stepfold.engine.models.scripted import Script
from stepfold.engine.runtime.replay import verify
from stepfold.events.codec import encode
from stepfold.events.journal import Recorded


def asks_once() -> Script:
    function = {"name": "escapes", "arguments": "{}"}
    replies = [
        {"message": {"tool_calls": [{"id": "a", "type": "function", "function": function}]}},
        {"text": "end"},
    ]
    return Script.parse("\n".join(json.dumps(reply) for reply in replies).encode())


def ends(body: Any) -> list[Any]:
    """The events of a run whose tool does this, within a bound that only a hang would meet."""
    policy = RunPolicy(tool_errors="return_to_model")
    harness = AgentHarness(asks_once(), [tool(body, name="escapes")], policy=policy)
    result = asyncio.run(asyncio.wait_for(harness.invoke(messages=["go"]), 30))
    assert result.text == "end"
    return list(result.events)


@pytest.mark.parametrize("error", [StopIteration, GeneratorExit, SystemExit])
def test_what_a_plain_tool_raises_is_an_error_of_the_tool(error: type[BaseException]) -> None:
    def body() -> str:
        raise error

    events = ends(body)

    completed = [event for event in events if type(event).__name__ == "ToolCompleted"]
    assert [event.error for event in completed] == [error.__name__]
    assert verify(Recorded(encode(event), event) for event in events)[1] == len(events)


def test_an_async_tool_that_ends_the_process_ends_only_its_call() -> None:
    async def body() -> str:
        raise SystemExit(2)

    completed = [event for event in ends(body) if type(event).__name__ == "ToolCompleted"]

    assert [event.error for event in completed] == ["SystemExit"]
