"""The loop itself: a batch is folded and recorded before what follows, and an endless table is stopped."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from stepfold.engine.core import decide as deciding
from stepfold.engine.core.decide import Loop, decide
from stepfold.engine.core.machine import TableError, build, emits, rests, silent
from stepfold.engine.runtime.drive import DECISIONS_AT_MOST, NeverRests, drive, settle
from stepfold.engine.runtime.run_log import MemoryLog
from stepfold.events.vocabulary import BLANK, AnyEvent, Decided, RunResumed, RunStarted
from stepfold.projections.run import fold
from stepfold.projections.state import Run
from tests.house import Story, config, kinds

STARTED = replace(
    RunStarted(*BLANK, config=config(), engine="test"), run_id="r", ts="2026-01-01T00:00:00.000000Z"
)


class Batches:
    """Effects that hand out what they were given."""

    def __init__(self, *batches: list[AnyEvent]) -> None:
        self._batches = list(batches)

    async def next(self, run: Run) -> Any:
        return self._batches.pop(0) if self._batches else ()


class Noted(MemoryLog):
    """A log that remembers after how many events it was flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.flushed: list[int] = []

    def flush(self) -> None:
        self.flushed.append(len(self.events))


def test_a_batch_and_all_that_follows_from_it_are_flushed_together() -> None:
    log = Noted()

    run = asyncio.run(drive(Run(), Batches([STARTED]), log))

    assert kinds(log.events) == ["RunStarted", "ProfileInferred", "ContextBuilt", "ModelStarted"]  # type: ignore[arg-type]
    assert log.flushed == [4]
    assert run.seq == 4


def test_no_batch_at_all_leaves_the_run_as_it_was() -> None:
    log = Noted()

    run = asyncio.run(drive(Run(), Batches(), log))

    assert (run.seq, log.events, log.flushed) == (0, [], [])


def test_settling_a_settled_run_decides_nothing() -> None:
    story = Story()

    assert settle(story.run, MemoryLog()) == 0


def ever(run: Run, given: Any, head: Any) -> Decided:
    return RunResumed(*head)


def looped(monkeypatch: pytest.MonkeyPatch, *rows: Any) -> Run:
    table = build("goal", ("opening", "other"), rows)
    sees = {state: (lambda run: ("auto", None)) for state in ("opening", "other")}
    monkeypatch.setitem(deciding.LOOPS, "goal", Loop(table, sees))
    return fold([STARTED])


def test_a_row_that_never_falsifies_itself_is_stopped_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    run = looped(
        monkeypatch, emits("again", "auto", "opening", RunResumed, ever), rests("ends", "auto", "other")
    )
    log = MemoryLog()

    with pytest.raises(NeverRests, match="the goal table never rests in 'opening'"):
        settle(run, log)

    assert len(log.events) == DECISIONS_AT_MOST


def test_silent_rows_in_a_circle_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = looped(
        monkeypatch, silent("there", "auto", "opening", "other"), silent("back", "auto", "other", "opening")
    )

    with pytest.raises(TableError, match="silent rows lead round in a circle"):
        decide(run)
