"""Caps and the wall clock: checked before each call, inclusive, and closed when in doubt."""

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.runtime.harness import AgentHarness, RunEnded
from stepfold.engine.runtime.run_policy import RunConfig, RunPolicy, stricter
from stepfold.events.configuration import Retry
from tests.harness_house import Counted, Scripted, Streaming, VirtualClock, calls, erred, play, text

SPIN = calls(("c1", "spin"))


def spinning(policy: RunPolicy | None = None) -> tuple[AgentHarness, Scripted, Counted]:
    model, spin = Scripted(SPIN), Counted("spin")
    return AgentHarness(model, [spin.tool], policy=policy), model, spin


def test_tl_004_the_cap_of_model_calls_allows_exactly_as_many() -> None:
    harness, model, spin = spinning(RunPolicy(max_model_calls=1))
    played = play(harness)
    assert played.kind == "LimitExceeded"
    assert str(played.error) == "LimitExceeded: max model calls (1) reached"
    assert (model.asked, spin.runs) == (1, 1)
    assert played.kinds[-2:] == ["LimitReached", "RunFailed"]
    assert played.of("LimitReached")[0].limit == "model_calls"


def test_tl_005_of_two_caps_the_stricter_holds() -> None:
    harness, model, _ = spinning()
    assert play(harness, config=RunConfig(run_id="r1", max_model_calls=2)).kind == "LimitExceeded"
    assert model.asked == 2
    harness, model, spin = spinning()
    played = play(harness, config=RunConfig(run_id="r1", max_tool_calls=1))
    assert (played.kind, model.asked, spin.runs) == ("LimitExceeded", 2, 1)
    assert "max tool calls (1)" in str(played.error)


@given(st.none() | st.integers(0, 9), st.none() | st.integers(0, 9))
def test_the_stricter_of_two_caps_is_the_smaller_one_that_is_set(one: int | None, other: int | None) -> None:
    found = stricter(one, other)
    assert found in (one, other)
    assert found is None or all(cap is None or found <= cap for cap in (one, other))


def test_tl_006_a_turn_that_asks_for_more_than_the_cap_leaves_starts_nothing() -> None:
    tools = [Counted(name) for name in "abc"]
    model = Scripted(calls(("c1", "a"), ("c2", "b"), ("c3", "c")))
    played = play(AgentHarness(model, [t.tool for t in tools], policy=RunPolicy(max_tool_calls=2)))
    assert played.kind == "LimitExceeded"
    assert not played.of("ToolStarted")
    assert [t.runs for t in tools] == [0, 0, 0]
    assert played.answers == [(id, "not run: limit (tool_calls)") for id in ("c1", "c2", "c3")]


def test_tl_007_the_error_carries_the_partial_run() -> None:
    harness, _, _ = spinning()
    played = play(harness, config=RunConfig(run_id="r1", max_model_calls=2))
    assert played.kind == "LimitExceeded"
    assert played.run.model_calls == 2
    assert played.roles == ["user", "assistant", "tool", "assistant", "tool"]
    assert (played.status.status, bool(played.status.error)) == ("failed", True)


def timed(model: Any, clock: VirtualClock, *, stream: bool, **policy: Any) -> list[Any]:
    async def run() -> list[Any]:
        harness = AgentHarness(model, policy=RunPolicy(**policy), clock=clock)
        config = RunConfig(run_id="r1", timeout=0.02)
        if stream:
            return [item async for item in harness.stream(config=config, messages=["hi"])]
        return [
            (await asyncio.gather(harness.invoke(config=config, messages=["hi"]), return_exceptions=True))[0]
        ]

    return asyncio.run(run())


def test_tl_008_the_wall_clock_cuts_a_model_call_off() -> None:
    clock = VirtualClock()

    async def slow(_: Any) -> Any:
        await clock.sleep(0.2)
        return text("too late")

    (error,) = timed(Scripted(slow), clock, stream=False)
    assert (error.kind, clock.milliseconds) == ("Timeout", 20)
    assert [type(e).__name__ for e in error.run.events][-3:] == ["ModelFailed", "LimitReached", "RunFailed"]
    clock = VirtualClock()
    *events, last = timed(Streaming(slow), clock, stream=True)
    assert isinstance(last, RunEnded)
    assert (last.run.error, clock.milliseconds) == ("Timeout", 20)
    assert type(events[-1]).__name__ == "RunFailed"


def test_tl_009_no_fallback_follows_the_wall_clock() -> None:
    clock = VirtualClock()

    async def slow(_: Any) -> Any:
        await clock.sleep(0.2)
        return erred()

    backup = Scripted(text("at once"), name="backup")
    (error,) = timed([Scripted(slow), backup], clock, stream=False)
    assert (error.kind, backup.asked) == ("Timeout", 0)
    assert not [e for e in error.run.events if type(e).__name__ in {"RetryScheduled", "FallbackSelected"}]


def test_the_wall_clock_bounds_a_backoff_too() -> None:
    clock = VirtualClock()
    model = Scripted(erred())
    (error,) = timed(model, clock, stream=False, retry=Retry(initial=10.0, sleep=True))
    assert (error.kind, model.asked, clock.milliseconds) == ("Timeout", 1, 20)


def test_the_wall_clock_bounds_a_tool_and_its_sibling_is_answered() -> None:
    clock = VirtualClock()
    quick, slow = Counted("quick"), Counted("slow", lambda: clock.sleep(0.2))
    harness = AgentHarness(
        Scripted(calls(("c1", "slow"), ("c2", "quick"))), [quick.tool, slow.tool], clock=clock
    )
    played = play(harness, config=RunConfig(run_id="r1", timeout=0.02))
    assert (played.kind, clock.milliseconds) == ("Timeout", 20)
    assert played.answers == [("c1", "Error: Timeout"), ("c2", "ok")]


def test_a_partial_end_completes_with_what_there_is() -> None:
    tools = [Counted(name) for name in "ab"]
    model = Scripted(calls(("c1", "a")), calls(("c2", "a"), ("c3", "b"), content="so far"))
    policy = RunPolicy(max_tool_calls=2, on_limit="stop_with_partial")
    played = play(AgentHarness(model, [t.tool for t in tools], policy=policy))
    assert (played.kind, played.status.status, played.run.stop_reason) == ("", "completed", "tool_calls")
    assert played.run.text == "so far"
    assert played.answers[1:] == [
        ("c2", "not run: limit (tool_calls)"),
        ("c3", "not run: limit (tool_calls)"),
    ]


def test_a_partial_end_covers_the_cap_of_model_calls_and_the_wall_clock() -> None:
    harness, model, _ = spinning(RunPolicy(max_model_calls=2, on_limit="stop_with_partial"))
    played = play(harness)
    assert (played.status.status, played.run.stop_reason, model.asked) == ("completed", "model_calls", 2)
    clock = VirtualClock()

    async def slow(_: Any) -> Any:
        await clock.sleep(0.2)
        return text("too late")

    (run,) = timed(Scripted(slow), clock, stream=False, on_limit="stop_with_partial")
    assert (run.status, run.stop_reason, run.text) == ("completed", "wall_clock", None)
