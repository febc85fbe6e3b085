"""A harness as a tool of another one: nesting, limits, errors, usage, cancellation, resume."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.middleware import Middleware, MiddlewareError
from stepfold.engine.runtime.replay import replay
from stepfold.engine.runtime.run_policy import RunConfig, RunPolicy
from stepfold.engine.runtime.steering import CancellationToken
from stepfold.engine.runtime.sub_agents import sub_agent
from stepfold.events.journal import read_log
from stepfold.events.store import Store
from tests.harness_house import Counted, Played, Scripted, VirtualClock, calls, play, settled, text

ASK = calls(("c1", "researcher", {"input": "what is rust?"}))
SPIN = calls(("x", "spin"))


def family(child: AgentHarness, *parent: Any, **traits: Any) -> AgentHarness:
    researcher = sub_agent(child, name="researcher", description="finds things out")
    return AgentHarness(Scripted(*(parent or (ASK, text("composed final answer")))), [researcher], **traits)


def kinds_of(path: Path) -> list[tuple[str, str]]:
    return [(record.event.ts, type(record.event).__name__) for record in read_log(path).records]


def test_tl_049_a_sub_agents_run_lies_inside_its_tools_pair(tmp_path: Path) -> None:
    clock = VirtualClock()

    async def answers(request: Any) -> Any:
        assert request.messages[0].content == "what is rust?"
        await clock.sleep(0.1)
        return text("the child answer")

    child = AgentHarness(Scripted(answers), clock=clock)
    one = play(family(child, store=tmp_path, clock=clock))
    assert (one.run.tool_calls, one.run.model_calls, one.run.text) == (1, 2, "composed final answer")
    assert one.answers == [("c1", "the child answer")]
    inside = [k for k in one.kinds if k.startswith(("Tool", "SubAgent"))]
    assert inside == ["ToolStarted", "SubAgentStarted", "SubAgentCompleted", "ToolCompleted"]
    (started,), (completed,) = one.of("SubAgentStarted"), one.of("SubAgentCompleted")
    assert (started.depth, completed.depth, started.child) == (1, 1, "r1.1.0-c1")
    log = kinds_of(tmp_path / "runs" / f"{started.child}.jsonl")
    assert [name for _, name in log][:: len(log) - 1] == ["RunStarted", "RunCompleted"]
    assert started.ts <= log[0][0] < log[-1][0] <= completed.ts
    assert (one.run.usage.model_calls, one.run.usage.total_tokens) == (3, 18)


def test_tl_050_the_limit_of_a_child_is_an_error_result() -> None:
    child = AgentHarness(Scripted(SPIN), [Counted("spin").tool], policy=RunPolicy(max_model_calls=1))
    one = play(family(child))
    assert (one.kind, one.run.model_calls, one.run.tool_calls) == ("", 2, 1)
    assert "hit its configured run limit" in one.answers[0][1]
    assert one.of("SubAgentFailed")[0].error == "LimitExceeded"
    assert one.of("ToolCompleted")[0].error == "LimitExceeded"


def test_tl_051_a_fatal_error_of_a_child_is_its_parents(tmp_path: Path) -> None:
    child = AgentHarness(Scripted(SPIN), [Counted("spin", RuntimeError("boom")).tool])
    one = play(family(child, store=tmp_path))
    assert (one.kind, str(one.error)) == ("Tool", "Tool: boom")
    assert kinds_of(tmp_path / "runs/r1.1.0-c1.jsonl")[-1][1] == "RunFailed"
    assert one.kinds[-3:] == ["SubAgentFailed", "ToolFailed", "RunFailed"]


class Refusing(Middleware):
    def before_model(self, context: Any, request: Any) -> None:
        raise MiddlewareError("no")


def test_a_refusal_in_a_child_is_never_swallowed_by_its_parent() -> None:
    child = AgentHarness(Scripted(text("x")), middleware=[Refusing()])
    one = play(family(child, policy=RunPolicy(tool_errors="return_to_model")))
    assert one.kind == "Middleware"


def test_depth_grows_by_one_and_the_stricter_cap_holds() -> None:
    depths: list[int] = []

    class Seeing(Middleware):
        def before_agent(self, context: Any, messages: Any) -> None:
            depths.append(context.depth)

    def nested(levels: int) -> AgentHarness:
        if not levels:
            return AgentHarness(Scripted(text("bottom")), middleware=[Seeing()])
        tool = sub_agent(nested(levels - 1), name="researcher", description="goes down")
        return AgentHarness(Scripted(ASK, text("up")), [tool], [Seeing()])

    assert play(nested(3)).run.text == "up"
    assert depths == [0, 1, 2, 3]
    depths.clear()
    one = play(nested(3), config=RunConfig(run_id="r1", max_depth=1))
    assert (one.run.text, depths) == ("up", [0, 1])
    assert (
        play(nested(1), config=RunConfig(run_id="r1", max_depth=0)).answers[0][1].startswith("Error: the sub")
    )


def test_the_name_of_a_deep_childs_file_stays_short(tmp_path: Path) -> None:
    harness = AgentHarness(Scripted(text("bottom")))
    ask = calls(("call_" + "x" * 60, "researcher", {"input": "down"}))
    for _ in range(7):
        tool = sub_agent(harness, name="researcher", description="goes down")
        harness = AgentHarness(Scripted(ask, text("up")), [tool], store=tmp_path)
    one = play(harness)
    assert one.run.text == "up"
    names = [path.name for path in (tmp_path / "runs").iterdir()]
    assert max(map(len, names)) < 200


@pytest.mark.parametrize("how", ["token", "task", "deadline"])
def test_what_ends_a_parent_ends_its_child_and_both_logs_are_whole(tmp_path: Path, how: str) -> None:
    async def run() -> None:
        begun, token, clock = asyncio.Event(), CancellationToken(), VirtualClock()

        async def hang(_: Any) -> Any:
            begun.set()
            await asyncio.Event().wait()

        harness = family(AgentHarness(Scripted(hang), clock=clock), store=tmp_path, clock=clock)
        config = RunConfig(run_id="r1", cancellation=token, timeout=5.0 if how == "deadline" else None)
        running = asyncio.create_task(settled(harness.invoke_with_status(config=config, messages=["hi"])))
        await begun.wait()
        if how == "token":
            token.cancel()
        elif how == "task":
            running.cancel()
        (one,) = await asyncio.gather(running, return_exceptions=True)
        if isinstance(one, Played):
            assert one.kind == ("Cancelled" if how == "token" else "Timeout")

    asyncio.run(asyncio.wait_for(run(), 20))
    for name in ("r1", "r1.1.0-c1"):
        path = tmp_path / "runs" / f"{name}.jsonl"
        assert kinds_of(path)[-1][1] == "RunFailed"
        assert replay(path).verdict == "identical"


def test_a_resumed_parent_goes_on_with_the_childs_own_log(tmp_path: Path) -> None:
    count = Counted("spin", "spun")
    child = Scripted(SPIN, text("the child answer"))

    def harness(store: Path) -> AgentHarness:
        return family(AgentHarness(child, [count.tool]), store=store)

    whole = play(harness(tmp_path / "a"))
    for name, kept in (("r1.1.0-c1", 6), ("r1", 7)):
        source = (tmp_path / "a/runs" / f"{name}.jsonl").read_bytes().splitlines(keepends=True)
        target = tmp_path / "b/runs" / f"{name}.jsonl"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"".join(source[:kept]))
    assert count.runs == 1
    asked = child.asked
    with Store(tmp_path / "b") as store:
        one = asyncio.run(settled(harness(tmp_path / "b").resume("r1")))
        assert store.run_ids() == ["r1", "r1.1.0-c1"]
    # The child's `once` call was in flight when the logs end, so it is lost, and never run again.
    assert (count.runs, child.asked - asked) == (1, 0)
    assert one.kind == "Tool"
    assert whole.run.text == "composed final answer"
    for name in ("r1", "r1.1.0-c1"):
        assert replay(tmp_path / "b/runs" / f"{name}.jsonl").verdict == "identical"
