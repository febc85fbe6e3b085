"""The same run in pieces: deltas between a call's start and its end, and one last item."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stepfold.engine.runtime.harness import AgentHarness, RunEnded
from stepfold.engine.runtime.middleware import Middleware
from stepfold.engine.runtime.replay import replay
from stepfold.engine.runtime.run_policy import RunConfig, RunPolicy
from tests.harness_house import Counted, Streaming, calls, cut, erred, play, text

PIECES = ["Hel", "lo, ", "world"]
CONFIG = RunConfig(run_id="r1")


def collected(harness: AgentHarness, config: RunConfig = CONFIG) -> list[Any]:
    async def run() -> list[Any]:
        return [item async for item in harness.stream(config=config, messages=["hi"])]

    return asyncio.run(run())


def names(items: Sequence[Any]) -> list[str]:
    return [type(item).__name__ for item in items]


class Hearing(Middleware):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_delta(self, context: Any, text: str) -> None:
        self.heard.append(text)


@pytest.mark.parametrize("record", [True, False])
def test_tl_052_deltas_come_between_the_calls_start_and_its_end(record: bool, tmp_path: Path) -> None:
    hearing = Hearing()
    policy = RunPolicy(record_deltas=record)
    harness = AgentHarness(
        Streaming(text("Hello, world"), pieces=PIECES), middleware=[hearing], policy=policy, store=tmp_path
    )
    items = collected(harness)
    deltas = [item for item in items if type(item).__name__ == "ModelDelta"]
    assert [(d.text, d.run_id) for d in deltas] == [(piece, "r1") for piece in PIECES]
    assert hearing.heard == PIECES
    shown = names(items)
    first, last = shown.index("ModelDelta"), len(shown) - 1 - shown[::-1].index("ModelDelta")
    assert shown.index("ModelStarted") < first <= last < shown.index("ModelCompleted")
    run = items[-1].run
    assert (run.text, run.model_calls) == ("Hello, world", 1)
    unary = play(AgentHarness(Streaming(text("Hello, world"), pieces=PIECES)))
    assert [name for name in shown[:-1] if name != "ModelDelta"] == names(unary.events)
    assert replay(tmp_path / "runs/r1.jsonl").verdict == "identical"
    assert ("ModelDelta" in (tmp_path / "runs/r1.jsonl").read_text()) is record


def test_tl_053_a_stream_ends_in_exactly_one_terminal_item() -> None:
    items = collected(AgentHarness(Streaming(text("ok"))))
    assert [i for i, item in enumerate(items) if isinstance(item, RunEnded)] == [len(items) - 1]
    assert (items[-1].error, items[-1].run.status) == ("", "completed")
    assert [event.seq for event in items[:-1] if type(event).__name__ != "ModelDelta"] == list(range(5 + 1))
    spinning = AgentHarness(
        Streaming(calls(("c1", "spin"))), [Counted("spin").tool], policy=RunPolicy(max_model_calls=1)
    )
    items = collected(spinning)
    assert [i for i, item in enumerate(items) if isinstance(item, RunEnded)] == [len(items) - 1]
    assert "max model calls" in items[-1].error


def test_what_was_streamed_of_a_failed_attempt_is_void() -> None:
    class Breaking(Streaming):
        async def stream(self, request: Any) -> Any:
            async for item in super().stream(request):
                if len(self.requests) == 1 and type(item).__name__ == "ModelReplied":
                    yield erred()
                    return
                yield item

    model = Breaking(text("wrong"), text("right"))
    items = collected(AgentHarness(model, policy=RunPolicy(record_deltas=True)))
    assert [i.text for i in items if type(i).__name__ == "ModelDelta"] == ["wrong", "right"]
    assert items[-1].run.text == "right"


def test_a_blank_stream_is_recovered_as_a_blank_reply_is() -> None:
    model = Streaming(cut(), text("recovered"))
    items = collected(AgentHarness(model))
    assert (items[-1].run.text, items[-1].run.model_calls) == ("recovered", 2)


def test_a_stream_that_stops_without_a_reply_is_tried_again() -> None:
    class Stopping(Streaming):
        async def stream(self, request: Any) -> Any:
            async for item in super().stream(request):
                if len(self.requests) > 1 or type(item).__name__ == "ModelDelta":
                    yield item

    assert collected(AgentHarness(Stopping(text("ok"))))[-1].run.text == "ok"


def test_a_delta_hook_that_fails_is_a_middleware_error() -> None:
    class Failing(Middleware):
        def on_delta(self, context: Any, text: str) -> None:
            raise ValueError("no room")

    items = collected(AgentHarness(Streaming(text("ok")), middleware=[Failing()]))
    assert items[-1].run.error == "Middleware"
    assert "no room" in items[-1].error


def test_a_wrap_that_changes_a_streamed_reply_is_heard() -> None:
    class Shouting(Middleware):
        async def wrap_model(self, request: Any, call_next: Any) -> Any:
            from msgspec.structs import replace

            landed = await call_next(request)
            return replace(landed, text=landed.text.upper())

    for record in (True, False):
        harness = AgentHarness(
            Streaming(text("ok")), middleware=[Shouting()], policy=RunPolicy(record_deltas=record)
        )
        assert collected(harness)[-1].run.text == "OK"
