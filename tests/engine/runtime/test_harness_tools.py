"""The calls of a turn: all at once or one by one, folded in call order, each answered once."""

import asyncio
from typing import Any

import pytest

from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.middleware import Cancelled, Interrupted, Middleware, MiddlewareError
from stepfold.engine.runtime.run_policy import RunPolicy
from stepfold.engine.runtime.tools import ToolDeclarationError, ToolResult, tool
from stepfold.events.vocabulary import BLANK, ToolReturned
from tests.harness_house import Counted, Scripted, VirtualClock, calls, play, text

TO_MODEL = RunPolicy(tool_errors="return_to_model")
TWO = calls(("c1", "alpha"), ("c2", "beta"))


class Flight:
    """Two slow tools that count how many of them fly at once."""

    def __init__(self, clock: VirtualClock) -> None:
        self.now = self.most = 0
        self._clock = clock
        self.tools = [Counted(name, self._flying(f"{name}-out")).tool for name in ("alpha", "beta")]

    def _flying(self, out: str) -> Any:
        async def fly() -> str:
            self.now += 1
            self.most = max(self.most, self.now)
            await self._clock.sleep(0.08)
            self.now -= 1
            return out

        return fly


class Wrapping(Middleware):
    async def wrap_tool(self, call: Any, call_next: Any) -> str:
        return f"[wrapped] {await call_next(call)}"


def test_tl_025_two_tools_of_a_turn_fly_together() -> None:
    clock = VirtualClock()
    flight = Flight(clock)
    played = play(AgentHarness(Scripted(TWO, text("done")), flight.tools, clock=clock))
    assert (flight.most, played.run.tool_calls, clock.milliseconds) == (2, 2, 80)
    kinds = [k for k in played.kinds if k.startswith("Tool")]
    assert kinds == ["ToolStarted", "ToolStarted", "ToolCompleted", "ToolCompleted"]


def test_tl_026_under_a_tool_wrap_they_go_one_by_one() -> None:
    clock = VirtualClock()
    flight = Flight(clock)
    played = play(AgentHarness(Scripted(TWO, text("done")), flight.tools, [Wrapping()], clock=clock))
    assert (flight.most, clock.milliseconds) == (1, 160)
    about = [(type(e).__name__, e.call_id) for e in played.of("ToolStarted", "ToolCompleted")]
    assert about == [
        ("ToolStarted", "c1"),
        ("ToolCompleted", "c1"),
        ("ToolStarted", "c2"),
        ("ToolCompleted", "c2"),
    ]
    assert played.answers == [("c1", "[wrapped] alpha-out"), ("c2", "[wrapped] beta-out")]


def test_tl_027_a_sibling_in_flight_runs_to_its_end_and_is_closed() -> None:
    """The case wants no row for c2; ours has one, so that every call id has an answer."""
    clock, done = VirtualClock(), []

    async def slow() -> str:
        await clock.sleep(0.05)
        done.append("c2")
        return "beta-out"

    tools = [Counted("alpha", ValueError("boom")).tool, Counted("beta", slow).tool]
    played = play(AgentHarness(Scripted(TWO), tools, clock=clock))
    assert (played.kind, str(played.error), done) == ("Tool", "Tool: boom", ["c2"])
    assert [f.call_id for f in played.of("ToolFailed")] == ["c1"]
    assert [c.call_id for c in played.of("ToolCompleted")] == ["c2"]
    assert played.kinds[-1] == "RunFailed"
    assert played.answers == [("c1", "Error: boom"), ("c2", "beta-out")]


def test_what_lands_in_another_order_is_folded_in_call_order() -> None:
    clock = VirtualClock()
    tools = [Counted("alpha", lambda: clock.sleep(0.2)).tool, Counted("beta", "quick").tool]
    played = play(AgentHarness(Scripted(TWO, text("done")), tools, clock=clock))
    assert [e.content for e in played.of("ToolReturned")] == ["quick", ""]
    assert [c.call_id for c in played.of("ToolCompleted")] == ["c1", "c2"]
    assert [c.duration for c in played.of("ToolCompleted")] == [0.2, 0.0]


def test_tl_028_the_row_answers_the_models_own_id() -> None:
    stamped = Counted("look", ToolReturned(*BLANK, content="seen"))
    played = play(AgentHarness(Scripted(calls(("call_abc", "look")), text("done")), [stamped.tool]))
    assert played.answers == [("call_abc", "seen")]


def test_tl_029_a_result_that_says_error_is_a_result() -> None:
    look = Counted("look", ToolResult("nope", error="kaboom"))
    played = play(AgentHarness(Scripted(calls(("c1", "look")), text("done")), [look.tool]))
    (completed,) = played.of("ToolCompleted")
    assert (completed.error, completed.output_bytes, completed.duration >= 0) == ("kaboom", 4, True)
    assert not played.of("ToolFailed")
    assert not hasattr(completed, "content")


def test_calls_that_share_an_id_are_told_apart() -> None:
    numbered = Counted("look", lambda n: f"saw {n}", schema={"type": "object", "required": ["n"]})

    class Seeing(Middleware):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def before_tool(self, context: Any, call: Any) -> None:
            self.seen.append(call.arguments)

        def after_tool(self, context: Any, call: Any, result: Any) -> None:
            result.content += "!"

    seeing = Seeing()
    asked = calls(("same", "look", {"n": 1}), ("same", "look", {"m": 2}), ("same", "look", {"n": 3}))
    played = play(AgentHarness(Scripted(asked, text("done")), [numbered.tool], [seeing]))
    first, second, third = (content for _, content in played.answers)
    assert (first, third) == ("saw 1!", "saw 3!")
    assert second.startswith("Error: ")
    assert len(seeing.seen) == 3
    assert played.run.tool_calls == 3


# --- errors ------------------------------------------------------------------------------------------


def test_tl_037_an_error_may_be_returned_to_the_model() -> None:
    flaky = Counted("flaky", RuntimeError("transient 503"))
    played = play(
        AgentHarness(Scripted(calls(("c1", "flaky")), text("recovered")), [flaky.tool], policy=TO_MODEL)
    )
    assert (played.run.text, flaky.runs) == ("recovered", 1)
    assert "transient 503" in played.answers[0][1]
    assert played.of("ToolCompleted")[0].error == "RuntimeError"


def test_an_error_may_be_put_into_words_of_ones_own() -> None:
    flaky = Counted("flaky", RuntimeError("secret path"))
    policy = RunPolicy(tool_errors="message:try another way")
    played = play(AgentHarness(Scripted(calls(("c1", "flaky")), text("ok")), [flaky.tool], policy=policy))
    assert played.answers == [("c1", "try another way")]


class Refusing(Middleware):
    async def wrap_tool(self, call: Any, call_next: Any) -> Any:
        raise MiddlewareError("not today")


@pytest.mark.parametrize(
    ("error", "middleware", "kind"),
    [
        (Cancelled("enough"), [], "Cancelled"),
        (asyncio.CancelledError(), [], "Cancelled"),
        (Interrupted("look at this"), [], "Interrupted"),
        (RuntimeError("never reached"), [Refusing()], "Middleware"),
    ],
)
def test_tl_038_some_errors_are_never_turned_into_a_result(
    error: BaseException, middleware: list[Middleware], kind: str
) -> None:
    harness = AgentHarness(
        Scripted(calls(("c1", "look")), text("no")),
        [Counted("look", error).tool],
        middleware,
        policy=TO_MODEL,
    )
    played = play(harness)
    assert played.kind == kind
    assert played.of("ToolFailed")[0].error == kind
    assert played.status.status == ("cancelled" if kind == "Cancelled" else "failed")


def test_tl_039_a_tool_that_takes_too_long_is_an_error_result() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    tools = [Counted("alpha", forever).tool, Counted("beta", forever, timeout=0.01).tool]
    harness = AgentHarness(Scripted(TWO, text("recovered")), tools, policy=RunPolicy(tool_timeout=0.02))
    played = play(harness)
    assert played.run.text == "recovered"
    (one, first), (two, second) = played.answers
    assert (one, two) == ("c1", "c2")
    assert "timed out after 20 ms" in first
    assert "timed out after 10 ms" in second


def test_a_tool_of_an_ordinary_function_runs_beside_the_loop() -> None:
    @tool(idempotency="pure")
    def add(left: int, right: int = 1) -> int:
        """Adds."""
        return left + right

    played = play(AgentHarness(Scripted(calls(("c1", "add", {"left": 2})), text("3")), [add]))
    assert played.answers == [("c1", "3")]


def test_a_tool_that_cant_be_declared_is_the_developers_error() -> None:
    def bare(x):  # type: ignore[no-untyped-def]
        return x

    def starred(*words: str) -> str:
        return ""

    for wrong in (bare, starred):
        with pytest.raises(ToolDeclarationError, match="schema"):
            tool(wrong)
    with pytest.raises(ToolDeclarationError, match="two tools"):
        AgentHarness(Scripted(text("x")), [Counted("a").tool, Counted("a").tool])
