"""The log of a live run: a batch is one write, a step one transaction; leaving it makes both sides whole."""

import sqlite3
from pathlib import Path

import pytest

from stepfold.engine.models.scripted import Script
from stepfold.engine.runtime.agent_loop import AgentLoop
from stepfold.engine.runtime.run_log import MemoryLog, RunLog
from stepfold.events import index
from stepfold.events.chain import sealed_anew
from stepfold.events.codec import encode
from stepfold.events.index import IndexBehind
from stepfold.events.journal import LogError, read_log
from stepfold.events.store import Store
from stepfold.events.vocabulary import AnyEvent, Unknown
from tests.house import FINISH, LOAD, VERIFY, Hands, call, config, play

_, EVENTS = play(config(), Hands([LOAD, call("change", x=1), VERIFY, FINISH]))
LINES = list(sealed_anew(encode(event) for event in EVENTS))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def both_sides(store: Store) -> tuple[list[bytes], list[bytes]]:
    written = [record.written for record in read_log(store.path_of("r")).records]
    return written, list(store.index("r").lines())


@pytest.mark.parametrize("durability", ["normal", "step", "full"])
def test_leaving_the_log_makes_both_sides_whole(store: Store, durability: str) -> None:
    with RunLog(store, "r", durability=durability) as log:
        for event in EVENTS:
            log.record(event)

    assert both_sides(store) == (LINES, LINES)


def test_what_is_flushed_is_in_the_file_before_anything_else_happens(store: Store) -> None:
    with RunLog(store, "r") as log:
        for count, event in enumerate(EVENTS, start=1):
            log.record(event)
            log.flush()
            assert store.path_of("r").read_bytes().count(b"\n") == count


def test_an_exception_on_the_way_loses_nothing_that_was_recorded(store: Store) -> None:
    with pytest.raises(RuntimeError), RunLog(store, "r") as log:
        for event in EVENTS[:9]:
            log.record(event)
        raise RuntimeError

    assert both_sides(store) == (LINES[:9], LINES[:9])


@pytest.mark.parametrize("cut", [1, 5, 17, len(LINES) - 1])
def test_a_later_life_appends_to_both_sides(store: Store, cut: int) -> None:
    with RunLog(store, "r") as log:
        for event in EVENTS[:cut]:
            log.record(event)
    with RunLog(store, "r") as log:
        log.recorded()
        for event in EVENTS[cut:]:
            log.record(event)

    assert both_sides(store) == (LINES, LINES)


def test_whoever_watches_is_told_of_every_event_in_order(store: Store) -> None:
    told: list[AnyEvent] = []
    with RunLog(store, "r", watch=told.append) as log:
        for event in EVENTS:
            log.record(event)

    assert told == EVENTS


def test_two_lives_at_once_are_refused(store: Store) -> None:
    with RunLog(store, "r"), pytest.raises(LogError, match="another process is writing this run"):
        RunLog(store, "r")


def test_a_run_that_was_left_can_be_opened_again(store: Store) -> None:
    with RunLog(store, "r"):
        pass
    with RunLog(store, "r") as log:
        log.record(EVENTS[0])

    assert both_sides(store) == (LINES[:1], LINES[:1])


def test_a_log_in_memory_keeps_its_events() -> None:
    log = MemoryLog()
    unknown = Unknown(1, "r", 1, 0, "t", "FutureKind")
    for event in (EVENTS[0], unknown):
        log.record(event)
    log.flush()

    assert log.events == [EVENTS[0], unknown]


def test_a_step_is_indexed_with_the_batch_that_ends_it(store: Store) -> None:
    # Read beside the store, which would catch up first.
    beside = sqlite3.connect(store.database)
    with RunLog(store, "r") as log:
        for event in EVENTS:
            log.record(event)
            log.flush()

            (count,) = beside.execute("SELECT count(*) FROM lines").fetchone()
            assert count == next(number for number, e in enumerate(EVENTS, 1) if e.step == event.step)


def test_a_second_run_under_a_recorded_id_is_refused(tmp_path):
    loop = AgentLoop(
        model=Script.parse(
            b'{"text": "{\\"name\\": \\"finish\\", \\"arguments\\": {\\"summary\\": \\"done\\"}}"}'
        ),
        project=tmp_path,
        checks=(),
        sandbox="none",
    )
    loop.run("say done", run_id="first")
    recorded = loop.store.path_of("first").read_bytes()

    with pytest.raises(LogError, match="recorded already"):
        loop.run("say done", run_id="first")

    assert loop.store.path_of("first").read_bytes() == recorded


def test_whoever_runs_from_python_is_warned_of_an_index_that_could_not_follow(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "BUSY_SECONDS", 0.05)
    other = sqlite3.connect(store.database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with (
        pytest.warns(IndexBehind, match="could not follow run r: database is locked"),
        RunLog(store, "r") as log,
    ):
        for event in EVENTS:
            log.record(event)
    other.execute("ROLLBACK")
    assert store.behind() == ["r"]

    with RunLog(store, "r") as log:
        log.recorded()

    assert store.behind() == []
    assert both_sides(store) == (LINES, LINES)
