"""Live effects: what is due is started once, what is gone is cancelled, what lands is handed on in order."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stepfold.engine.runtime.drive import drive
from stepfold.engine.runtime.live import LiveEffects
from stepfold.engine.runtime.replay import verify
from stepfold.engine.runtime.run_log import MemoryLog
from stepfold.events.configuration import Retry
from stepfold.events.vocabulary import BLANK, CancelRequested, RunStarted, ToolReturned, UserAnswered
from stepfold.projections.effects import AskModel, CallTool, RunCheck
from stepfold.projections.run import fold
from stepfold.projections.state import Run
from tests.house import (
    ASK,
    FINISH,
    LOAD,
    PROSE,
    VERIFY,
    Hands,
    TestClock,
    call,
    config,
    erred,
    kinds,
    of_kind,
    recorded,
)

CANCEL = CancelRequested(*BLANK, reason="test")


def live(perform: Any, settings: Any = None, **options: Any) -> tuple[LiveEffects, MemoryLog]:
    effects = LiveEffects(perform, run_id="r", clock=options.pop("clock", None) or TestClock(), **options)
    effects.push(RunStarted(*BLANK, config=settings or config(), engine="test"))
    return effects, MemoryLog()


def driven(effects: LiveEffects, log: MemoryLog, *, seconds: float = 5) -> Run:
    return asyncio.run(asyncio.wait_for(drive(Run(), effects, log), seconds))


def test_handlers_may_answer_at_once_or_in_their_own_time() -> None:
    hands = Hands([LOAD, call("look", x=1), VERIFY, FINISH])

    async def later(effect: Any, run: Run) -> Any:
        await asyncio.sleep(0)
        return hands.perform(effect, run)

    logs = []
    for perform in (hands.perform, later):
        effects, log = live(perform)
        assert driven(effects, log).status == "completed"
        logs.append(kinds(log.events))  # type: ignore[arg-type]

    assert logs[0] == logs[1]


@pytest.mark.parametrize("kind", [AskModel, CallTool, RunCheck])
@pytest.mark.parametrize("how", ["raises", "raises later", "is cancelled from within"])
def test_what_a_handler_raises_lands_as_a_failure_of_its_effect(kind: type, how: str) -> None:
    hands = Hands([LOAD, call("look", x=1), VERIFY, FINISH])

    async def fails() -> Any:
        await asyncio.sleep(0)
        if how == "raises later":
            raise OSError("no such\nfile")
        raise asyncio.CancelledError

    def perform(effect: Any, run: Run) -> Any:
        if not isinstance(effect, kind):
            return hands.perform(effect, run)
        if how == "raises":
            raise OSError("no such\nfile")
        return fails()

    effects, log = live(perform, config(max_steps=4))
    run = driven(effects, log)

    landing = of_kind(log.events, "ModelErred", "ToolErred", "CheckReturned")[0]  # type: ignore[arg-type]
    assert run.status in {"failed", "completed", "step_cap"}
    assert "\n" not in (getattr(landing, "detail", "") or landing.output)
    assert ("OSError" in str(landing)) == (how != "is cancelled from within")
    assert verify(recorded(log.events))[1] == len(log.events)


def test_a_cancel_stops_what_flies_and_its_late_result_is_never_recorded() -> None:
    stopped = []

    async def endless() -> Any:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            stopped.append(True)
            raise

    hands = Hands([LOAD, call("change", x=1)])

    def perform(effect: Any, run: Run) -> Any:
        if isinstance(effect, CallTool):
            asyncio.get_running_loop().call_soon(effects.push, CANCEL)
            return endless()
        return hands.perform(effect, run)

    effects, log = live(perform)
    run = driven(effects, log)

    assert run.status == "cancelled"
    assert stopped == [True]
    assert not of_kind(log.events, "ToolReturned")  # type: ignore[arg-type]
    assert [event.error for event in of_kind(log.events, "ToolFailed")] == ["cancelled"]  # type: ignore[arg-type]


def test_a_result_in_the_mailbox_of_a_cancelled_effect_never_happened() -> None:
    hands = Hands([LOAD, call("change", x=1)])

    async def endless() -> Any:
        await asyncio.sleep(3600)

    def perform(effect: Any, run: Run) -> Any:
        if not isinstance(effect, CallTool):
            return hands.perform(effect, run)
        asyncio.get_running_loop().call_soon(effects.push, CANCEL)
        asyncio.get_running_loop().call_soon(
            asyncio.get_running_loop().call_soon,
            effects.push,
            ToolReturned(*BLANK, content="late"),
            effect.key,
        )
        return endless()

    effects, log = live(perform)
    run = driven(effects, log)

    assert run.status == "cancelled"
    assert verify(recorded(log.events))[1] == len(log.events)


def test_nothing_is_recorded_after_the_end_of_a_run() -> None:
    effects, log = live(Hands([PROSE], {}).perform, config(max_steps=1))
    run = driven(effects, log)
    end = len(log.events)
    effects.push(CANCEL)

    asyncio.run(drive(run, effects, log))

    assert run.status == "step_cap"
    assert len(log.events) == end


def test_each_due_effect_is_started_once() -> None:
    hands = Hands([LOAD, call("look", x=1), VERIFY, FINISH])
    started: list[str] = []

    def perform(effect: Any, run: Run) -> Any:
        started.append(effect.key)
        return hands.perform(effect, run)

    effects, log = live(perform)
    driven(effects, log)

    assert len(started) == len(set(started)) == 4 + 1 + 2


class Noted:
    """A log that notes when it is synced."""

    def __init__(self, order: list[str]) -> None:
        self.order = order
        self.sync_due = False

    def require_sync(self) -> None:
        self.sync_due = True

    async def synced(self) -> None:
        self.sync_due = False
        self.order.append("sync")


def test_the_log_is_made_durable_before_a_call_that_may_not_run_twice_and_before_no_other() -> None:
    order: list[str] = []
    hands = Hands([LOAD, call("look", x=1), call("change", x=1), VERIFY, FINISH])

    def perform(effect: Any, run: Run) -> Any:
        if isinstance(effect, CallTool):
            order.append(effect.name)
        return hands.perform(effect, run)

    effects, log = live(perform, log=Noted(order))
    driven(effects, log)

    assert order == ["look", "sync", "change"]


def test_an_intent_is_in_the_log_and_flushed_before_its_effect_starts() -> None:
    flushed = 0

    class Counting(MemoryLog):
        def flush(self) -> None:
            nonlocal flushed
            flushed = len(self.events)

    hands = Hands([LOAD, call("change", x=1), VERIFY, FINISH])

    def perform(effect: Any, run: Run) -> Any:
        last = [event for event in log.events[:flushed] if hasattr(event, "row")][-1]
        assert type(last).__name__ in {"ModelStarted", "ToolStarted", "CheckStarted"}
        assert flushed == len(log.events)
        return hands.perform(effect, run)

    effects, _ = live(perform)
    log = Counting()

    assert driven(effects, log).status == "completed"


def test_a_backoff_is_slept_on_the_clock_and_the_run_replays() -> None:
    clock = TestClock()
    before = clock.moment
    effects, log = live(
        Hands([erred(retryable=True)]).perform,
        config(checks=(), retry=Retry(attempts=3, initial=7.0, sleep=True)),
        clock=clock,
    )
    run = driven(effects, log)

    assert run.status == "failed"
    assert clock.moment - before >= (7 + 14) * 1_000_000
    assert verify(recorded(log.events))[1] == len(log.events)


def test_a_person_may_answer_in_place() -> None:
    async def answered() -> Run:
        run = Run()
        driving = asyncio.create_task(drive(run, effects, log))
        while run.state != "awaiting_user":
            await asyncio.sleep(0)
        effects.push(UserAnswered(*BLANK, text="the small one"), "user")
        return await driving

    effects, log = live(Hands([ASK, VERIFY, FINISH]).perform, listening=True)
    run = asyncio.run(asyncio.wait_for(answered(), 5))

    assert run.status == "completed"
    assert "user: the small one" in run.goal.transcript


def test_with_nobody_there_a_question_ends_the_driving() -> None:
    effects, log = live(Hands([ASK]).perform)

    assert driven(effects, log).status == "awaiting_user"


@pytest.mark.parametrize("jump", [-10_000_000, 0, 10_000_000])
def test_the_time_of_a_log_never_goes_back(jump: int) -> None:
    clock = TestClock()
    hands = Hands([LOAD, call("look", x=1), VERIFY, FINISH])

    def perform(effect: Any, run: Run) -> Any:
        clock.moment += jump
        return hands.perform(effect, run)

    effects, log = live(perform, clock=clock)
    driven(effects, log)

    stamps = [event.ts for event in log.events]
    assert stamps == sorted(stamps)


def test_a_later_life_on_a_slower_clock_does_not_go_back_either() -> None:
    hands = Hands([LOAD, call("look", x=1), VERIFY, FINISH])
    effects, log = live(hands.perform)
    driven(effects, log)
    cut = next(number for number, event in enumerate(log.events) if type(event).__name__ == "ToolStarted") + 1
    again = MemoryLog()
    again.events.extend(log.events[:cut])

    later = LiveEffects(hands.perform, run_id="r", clock=TestClock(1_000_000))
    later.push(CANCEL)
    asyncio.run(drive(fold(again.events), later, again))

    stamps = [event.ts for event in again.events]
    assert stamps == sorted(stamps)


def test_closing_stops_whatever_still_flies() -> None:
    gone: list[str] = []

    async def endless(name: str) -> Any:
        try:
            await asyncio.sleep(3600)
        finally:
            gone.append(name)

    async def closed() -> None:
        task = asyncio.create_task(drive(Run(), effects, log))
        while "asking" not in {getattr(event, "to", "") for event in log.events}:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        await effects.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    perform: Callable[[Any, Run], Any] = lambda effect, run: endless(effect.key)  # noqa: E731
    effects, log = live(perform)
    asyncio.run(asyncio.wait_for(closed(), 5))

    assert gone == ["model:model-1:0"]
