"""The middleware that comes with the engine, each in a real run that is recorded and replays."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import stepfold
from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.middleware import Middleware
from stepfold.engine.runtime.middlewares import (
    AllowList,
    HumanApproval,
    RateLimit,
    Redaction,
    UsageBudget,
)
from stepfold.engine.runtime.middlewares_tracing import Tracing
from stepfold.engine.runtime.replay import replay
from stepfold.engine.runtime.run_policy import RunConfig, RunPolicy
from stepfold.engine.runtime.steering import SteeringHandle
from tests.harness_house import Counted, Played, Scripted, VirtualClock, calls, erred, play, text

LOOK = calls(("c1", "look"))
BOTH = calls(("c1", "look"), ("c2", "write"))


def recorded(folder: Path, middleware: Middleware, *script: Any, **traits: Any) -> tuple[Played, Scripted]:
    """A run with two tools on disk, replayed without model, tools and middleware."""
    model = Scripted(*script)
    tools = [Counted(name, traits.pop(name, f"{name}-out")).tool for name in ("look", "write")]
    config = traits.pop("config", RunConfig(run_id="r1"))
    one = play(
        AgentHarness(model, tools, [middleware], store=folder, **traits), "hi 4111-1111", config=config
    )
    assert replay(folder / "runs/r1.jsonl").verdict == "identical"
    return one, model


@pytest.mark.parametrize("budget", [UsageBudget(max_tokens=12), UsageBudget(max_cost=0.2)])
def test_a_budget_ends_the_run_before_the_call_that_it_no_longer_covers(
    tmp_path: Path, budget: UsageBudget
) -> None:
    from msgspec.structs import replace

    one, model = recorded(tmp_path, budget, replace(LOOK, cost=0.1))
    assert (one.kind, model.asked, "budget" in str(one.error)) == ("Middleware", 2, True)


def test_a_rate_limit_waits_until_there_is_room(tmp_path: Path) -> None:
    clock, moments = VirtualClock(), []

    def notes(_: Any) -> Any:
        moments.append(clock.milliseconds)
        return LOOK if len(moments) < 5 else text("done")

    limit = RateLimit(2, 1.0, clock=clock)
    one, _ = recorded(tmp_path, limit, notes, clock=clock)
    assert (one.run.text, moments) == ("done", [0, 0, 1000, 1000, 2000])


def test_a_rate_limit_may_refuse_and_one_that_lets_nothing_pass_is_refused(tmp_path: Path) -> None:
    one, model = recorded(tmp_path, RateLimit(2, 60, when_full="refuse", clock=VirtualClock()), LOOK)
    assert (one.kind, model.asked) == ("Middleware", 2)
    with pytest.raises(ValueError, match="nothing pass"):
        RateLimit(0, 1.0)


def test_an_allow_list_answers_what_is_not_on_it_or_ends_the_run(tmp_path: Path) -> None:
    one, _ = recorded(tmp_path / "a", AllowList(["look"]), BOTH, text("done"))
    assert one.answers == [("c1", "look-out"), ("c2", "Error: write is not allowed; allowed are: look")]
    assert (one.run.text, one.run.tool_calls) == ("done", 1)
    one, _ = recorded(tmp_path / "b", AllowList(["look"], denied="end"), BOTH)
    assert (one.kind, one.of("ToolStarted")) == ("Middleware", [])


async def _no(call: Any) -> bool:
    await asyncio.sleep(0)
    return False


@pytest.mark.parametrize("ask", [_no, lambda call: False, lambda call: _no(call)])
def test_a_person_may_refuse_a_call(tmp_path: Path, ask: Any) -> None:
    one, _ = recorded(tmp_path / "a", HumanApproval(ask, ["write"]), BOTH, text("done"))
    assert one.answers == [("c1", "look-out"), ("c2", "Error: a person refused to let write run")]
    one, _ = recorded(tmp_path / "b", HumanApproval(ask, ["write"], denied="end"), BOTH)
    assert (one.kind, one.run.tool_calls) == ("Middleware", 0)


def test_a_person_is_asked_about_all_tools_unless_some_are_named(tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    def ask(call: Any) -> bool:
        asked.append((call.name, call.arguments))
        return True

    one, _ = recorded(tmp_path, HumanApproval(ask), BOTH, text("done"))
    assert (one.run.text, asked) == ("done", [("look", "{}"), ("write", "{}")])


def test_redaction_keeps_what_matches_from_the_model(tmp_path: Path) -> None:
    handle = SteeringHandle(["inject"])

    def steer(_: Any) -> Any:
        handle.inject("the other is 4222-2222")
        return LOOK

    cards = Redaction({"card": r"\d{4}-\d{4}", "key": r"sk-\w+"})
    config = RunConfig(run_id="r1", steering=handle)
    one, model = recorded(tmp_path, cards, steer, text("done"), look="sk-abc and 4333-3333", config=config)
    read = [[m.content for m in request.messages] for request in model.requests]
    assert read[0] == ["hi [card]"]
    assert read[1] == ["hi [card]", "", "[key] and [card]", "the other is [card]"]
    assert one.answers == [("c1", "[key] and [card]")]


def test_redaction_covers_errors_that_are_returned_to_the_model(tmp_path: Path) -> None:
    policy = RunPolicy(tool_errors="return_to_model")
    one, _ = recorded(
        tmp_path,
        Redaction({"key": r"sk-\w+"}),
        LOOK,
        text("ok"),
        look=RuntimeError("bad sk-abc"),
        policy=policy,
    )
    assert one.answers == [("c1", "Error: bad [key]")]


def test_tracing_tells_spans_in_the_terms_of_opentelemetry(tmp_path: Path) -> None:
    clock, spans = VirtualClock(), []
    one, _ = recorded(tmp_path, Tracing(spans.append, clock=clock), erred(), LOOK, text("done"), clock=clock)
    assert one.run.text == "done"
    names = ["chat scripted", "chat scripted", "execute_tool look", "chat scripted", "invoke_agent"]
    assert [span["name"] for span in spans] == names
    assert [span["status"] for span in spans] == ["error", "ok", "ok", "ok", "ok"]
    failed, asked, ran, _, whole = (span["attributes"] for span in spans)
    assert failed["error.type"] == "server"
    assert (asked["gen_ai.usage.input_tokens"], asked["gen_ai.request.model"]) == (4, "scripted")
    assert (ran["gen_ai.tool.name"], ran["gen_ai.tool.call.id"]) == ("look", "c1")
    assert (whole["gen_ai.operation.name"], whole["gen_ai.usage.output_tokens"]) == ("invoke_agent", 4)
    assert all(span["start"] <= span["end"] for span in spans)
    assert "done" not in repr(spans)


def test_tracing_tells_of_a_run_that_failed(tmp_path: Path) -> None:
    spans: list[Any] = []
    recorded(tmp_path, Tracing(spans.append), LOOK, look=RuntimeError("boom"))
    assert (spans[-1]["name"], spans[-1]["attributes"]["error.type"]) == ("invoke_agent", "Tool")


@pytest.mark.parametrize(
    "name",
    [
        "AllowList",
        "HumanApproval",
        "RateLimit",
        "Redaction",
        "Tracing",
        "UsageBudget",
        "MiddlewareError",
        "ToolResult",
    ],
)
def test_they_are_part_of_the_public_library(name: str) -> None:
    assert name in dir(stepfold)
    assert getattr(stepfold, name).__name__ == name
