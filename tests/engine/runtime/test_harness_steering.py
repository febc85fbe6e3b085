"""What reaches into a run from outside: cancels, steering at the checkpoint, pauses and their end."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.replay import replay
from stepfold.engine.runtime.run_policy import RunConfig
from stepfold.engine.runtime.steering import CancellationToken, SteeringHandle
from stepfold.events.vocabulary import Command
from tests.harness_house import (
    Counted,
    Played,
    Scripted,
    Streaming,
    VirtualClock,
    calls,
    check,
    play,
    settled,
    text,
)

CALL = calls(("c1", "look"))
ALL = ("pause", "resume", "cancel", "inject", "redirect")


def test_tl_044_a_run_that_is_cancelled_before_it_begins_asks_nothing() -> None:
    token = CancellationToken()
    token.cancel()
    model = Streaming(text("no"))
    config = RunConfig(run_id="r1", cancellation=token)
    for _ in range(2):
        one = play(AgentHarness(model), config=config)
        assert (one.kind, one.status.status) == ("Cancelled", "cancelled")
        assert one.kinds == ["RunStarted", "CancelRequested", "RunFailed"]

    async def streamed() -> list[Any]:
        return [item async for item in AgentHarness(model).stream(config=config, messages=["hi"])]

    *events, last = asyncio.run(streamed())
    assert last.run.error == "Cancelled"
    assert [type(e).__name__ for e in events] == ["RunStarted", "CancelRequested", "RunFailed"]
    assert model.asked == 0


def cancelled_in_flight(cancel: Any, model_or_tool: str) -> Played:
    async def run() -> Played:
        begun, left = asyncio.Event(), []

        async def hang(*_: Any) -> Any:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                left.append(True)

        models = [Scripted(hang if model_or_tool == "model" else CALL), Scripted(text("no"), name="backup")]
        token = CancellationToken()
        harness = AgentHarness(models, [Counted("look", hang).tool])
        config = RunConfig(run_id="r1", cancellation=token, steering=SteeringHandle(ALL))
        running = asyncio.create_task(settled(harness.invoke_with_status(config=config, messages=["hi"])))
        await begun.wait()
        await cancel(token, config.steering)
        one = await running
        assert left == [True]
        assert models[1].asked == 0
        check(one.events)
        return one

    return asyncio.run(asyncio.wait_for(run(), 10))


async def by_token(token: CancellationToken, _: SteeringHandle) -> None:
    token.cancel("enough")


async def by_thread(token: CancellationToken, _: SteeringHandle) -> None:
    thread = threading.Thread(target=token.cancel)
    thread.start()
    await asyncio.to_thread(thread.join)


@pytest.mark.parametrize("cancel", [by_token, by_thread])
@pytest.mark.parametrize("place", ["model", "tool"])
def test_tl_045_a_cancel_drops_what_flies(cancel: Any, place: str) -> None:
    one = cancelled_in_flight(cancel, place)
    assert one.kind == "Cancelled"
    assert not one.of("RetryScheduled", "FallbackSelected")
    failed = one.of("ModelFailed" if place == "model" else "ToolFailed")
    assert [f.error for f in failed] == ["Cancelled"]


def test_a_steering_allow_list_does_not_keep_a_token_from_cancelling() -> None:
    token = CancellationToken()
    token.cancel()
    config = RunConfig(run_id="r1", cancellation=token, steering=SteeringHandle())
    assert play(AgentHarness(Scripted(text("no"))), config=config).kind == "Cancelled"


def test_cancelling_the_task_that_waits_ends_the_run_and_keeps_its_log_whole(tmp_path: Path) -> None:
    async def run() -> None:
        begun = asyncio.Event()

        async def hang() -> None:
            begun.set()
            await asyncio.Event().wait()

        harness = AgentHarness(Scripted(CALL), [Counted("look", hang).tool], store=tmp_path)
        running = asyncio.create_task(harness.invoke(config=RunConfig(run_id="r1"), messages=["hi"]))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(run())
    log = (tmp_path / "runs/r1.jsonl").read_text()
    assert '"kind":"RunFailed"' in log.splitlines()[-1]
    assert replay(tmp_path / "runs/r1.jsonl").verdict == "identical"


def test_leaving_a_stream_early_cancels_its_run(tmp_path: Path) -> None:
    async def run() -> None:
        harness = AgentHarness(Scripted(CALL), [Counted("look").tool], store=tmp_path)
        stream = harness.stream(config=RunConfig(run_id="r1"), messages=["hi"])
        async for item in stream:
            if type(item).__name__ == "ToolStarted":
                break
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())
    lines = (tmp_path / "runs/r1.jsonl").read_text().splitlines()
    assert '"kind":"RunFailed"' in lines[-1]
    assert '"error":"Cancelled"' in lines[-1]
    assert replay(tmp_path / "runs/r1.jsonl").verdict == "identical"


# --- steering ----------------------------------------------------------------------------------------


def steered_by(handle: SteeringHandle, act: Any) -> tuple[Scripted, AgentHarness]:
    def during(_: Any) -> Any:
        act(handle)
        return CALL

    model = Scripted(during, text("done"))
    return model, AgentHarness(model, [Counted("look").tool])


@pytest.mark.parametrize(
    ("name", "said", "role", "shown"),
    [("inject", "STEER", "user", "STEER"), ("redirect", "x", "system", "[steering:redirect] x")],
)
def test_tl_046_what_is_injected_is_in_the_next_request(name: str, said: str, role: str, shown: str) -> None:
    handle = SteeringHandle([name])
    model, harness = steered_by(handle, lambda h: getattr(h, name)(said))
    one = play(harness, config=RunConfig(run_id="r1", steering=handle))
    last = model.requests[1].messages[-1]
    assert (last.role, last.content) == (role, shown)
    kinds = one.kinds
    assert kinds.index("ToolCompleted") < kinds.index("Steered") < kinds.index("ModelStarted", 5)
    assert one.of("Steered")[0].accepted is True


def test_a_batch_with_one_forbidden_command_applies_none() -> None:
    handle = SteeringHandle(["inject"])
    model, harness = steered_by(handle, lambda h: h.send(Command("inject", "a"), Command("cancel")))
    one = play(harness, config=RunConfig(run_id="r1", steering=handle))
    assert [(s.command, s.accepted) for s in one.of("Steered")] == [("cancel", False)]
    assert one.run.text == "done"
    assert "a" not in [m.content for m in model.requests[1].messages]


def test_a_handle_allows_nothing_of_itself_and_knows_its_commands() -> None:
    handle = SteeringHandle()
    _, harness = steered_by(handle, lambda h: h.cancel())
    assert play(harness, config=RunConfig(run_id="r1", steering=handle)).run.text == "done"
    with pytest.raises(ValueError, match="stop"):
        SteeringHandle(["stop"])


def test_an_empty_batch_is_nothing() -> None:
    handle = SteeringHandle(ALL)
    handle.send()
    assert (
        play(AgentHarness(Scripted(text("ok"))), config=RunConfig(run_id="r1", steering=handle)).run.text
        == "ok"
    )


def test_a_steered_cancel_ends_the_run_at_the_checkpoint() -> None:
    handle = SteeringHandle(["cancel"])
    model, harness = steered_by(handle, lambda h: h.cancel())
    one = play(harness, config=RunConfig(run_id="r1", steering=handle))
    assert (one.kind, model.asked, one.run.tool_calls) == ("Cancelled", 1, 1)


def paused(store: Path | None = None, **traits: Any) -> tuple[Played, AgentHarness, Scripted]:
    handle = SteeringHandle(["pause"])
    handle.pause("waiting for a human")
    model = Scripted(text("done"))
    harness = AgentHarness(model, store=store, **traits)
    one = play(harness, config=RunConfig(run_id="r1", steering=handle, timeout=traits.pop("timeout", None)))
    return one, harness, model


def test_tl_047_a_pause_is_no_error_and_leaves_the_run_open() -> None:
    """The status that the case calls interrupted is `paused` with us."""
    one, _, model = paused()
    assert (one.kind, one.status.status, one.run.text, model.asked) == ("", "paused", None, 0)
    assert one.of("RunPaused")[0].checkpoint == 0
    assert one.run.stop_reason == "waiting for a human"
    assert one.of("SteeringReceived")[0].commands == (Command("pause", "waiting for a human"),)
    assert (one.kinds[-1], one.events[-1].control) == ("ControlApplied", "paused")
    assert "RunCompleted" not in one.kinds


def test_tl_048_the_first_pause_holds_until_a_resume(tmp_path: Path) -> None:
    _, harness, model = paused(tmp_path)
    still = harness.resume_sync("r1", commands=[Command("pause", "another reason")])
    assert (still.status.status, still.run.stop_reason, model.asked) == ("paused", "waiting for a human", 0)
    over = harness.resume_sync("r1")
    assert (over.status.status, over.run.text) == ("completed", "done")
    assert replay(tmp_path / "runs/r1.jsonl").verdict == "identical"
    handle = SteeringHandle(["pause", "resume"])
    handle.send(Command("pause", "short"), Command("resume"))
    one = play(AgentHarness(Scripted(text("ok"))), config=RunConfig(run_id="r2", steering=handle))
    assert (one.run.text, one.of("RunPaused")) == ("ok", [])


def test_a_paused_run_may_be_cancelled_by_its_owner(tmp_path: Path) -> None:
    _, harness, _ = paused(tmp_path)
    one = asyncio.run(settled(harness.resume("r1", commands=[Command("cancel")])))
    assert one.kind == "Cancelled"
    assert replay(tmp_path / "runs/r1.jsonl").verdict == "identical"


def test_a_pause_does_not_count_against_the_deadline_and_the_clock_runs_on_after_it(tmp_path: Path) -> None:
    clock = VirtualClock()
    handle = SteeringHandle(["pause"])
    handle.pause()

    async def slow(_: Any) -> Any:
        await clock.sleep(0.9)
        return CALL

    model = Scripted(slow)
    harness = AgentHarness(model, [Counted("look").tool], store=tmp_path, clock=clock)

    async def run() -> Played:
        first = await settled(
            harness.invoke_with_status(
                config=RunConfig(run_id="r1", timeout=1.0, steering=handle), messages=["hi"]
            )
        )
        assert first.status.status == "paused"
        clock.moment += 3_600_000_000
        return await settled(harness.resume("r1"))

    one = asyncio.run(run())
    assert one.kind == "Timeout"
    assert model.asked == 2
    assert clock.milliseconds == 3_600_000 + 1000
    assert replay(tmp_path / "runs/r1.jsonl").verdict == "identical"
