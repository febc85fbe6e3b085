"""A snapshot is a cache: given a log and whatever lies beside it, the fold is the fold of the log."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.runtime import snapshots
from stepfold.engine.runtime.snapshots import folded, folded_from, folded_undamaged
from stepfold.events.beside import make_room_for_snapshots, snapshot_of
from stepfold.events.chain import sealed_anew
from stepfold.events.codec import encode
from stepfold.events.journal import DamagedLog, read_log
from stepfold.events.vocabulary import BLANK, RunStarted
from stepfold.projections.run import evolve, fold
from stepfold.projections.state import Run
from stepfold.testing import event_logs
from tests.engine.core.stories import STORIES
from tests.house import config, edited, slots_of

FIXTURES = sorted((Path(__file__).parents[3] / "replay_fixtures").glob("*/log.jsonl"))


@pytest.fixture(scope="module", autouse=True)
def _every_fold_is_long() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "LONG", 1)
        yield


def placed(folder: Path, content: bytes) -> Path:
    (folder / "runs").mkdir(exist_ok=True)
    make_room_for_snapshots(folder)
    trace = folder / "runs" / "r.jsonl"
    trace.write_bytes(content)
    return trace


def kept(trace: Path) -> Path:
    path = snapshot_of(trace)
    assert path is not None
    return path


def place_of(trace: Path) -> int:
    head, _, _ = kept(trace).read_bytes().partition(b"\n")
    seq: int = msgspec.json.decode(head)["place"][1]
    return seq


def written(events: Any) -> bytes:
    return b"".join(line + b"\n" for line in sealed_anew(encode(event) for event in events))


def state(run: Run) -> Any:
    return slots_of(run)


def fold_of(trace: Path) -> Any:
    return state(fold(record.event for record in read_log(trace).records))


@given(events=st.sampled_from(["goal", "tools"]).flatmap(event_logs), cut=st.integers(1, 200))
def test_a_fold_from_a_snapshot_at_any_point_is_the_fold_of_all(events: Any, cut: int) -> None:
    log = written(events)
    lines = log.splitlines(keepends=True)
    with tempfile.TemporaryDirectory() as folder:
        trace = placed(Path(folder), b"".join(lines[:cut]))
        folded(trace, [])
        trace.write_bytes(log)

        assert state(folded(trace, []).run) == fold_of(trace)
        assert state(folded(trace, []).run) == fold_of(trace)


@pytest.mark.parametrize("story", STORIES)
def test_a_run_is_read_back_as_it_was_at_each_of_its_events(story: str) -> None:
    events = STORIES[story]()
    for cut in range(1, len(events) + 1):
        run = fold(events[:cut])

        assert state(msgspec.json.decode(msgspec.json.encode(run), type=Run)) == state(run)


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.parent.name)
def test_the_run_of_a_fixture_goes_on_from_half_of_it(fixture: Path, tmp_path: Path) -> None:
    log = fixture.read_bytes()
    lines = log.splitlines(keepends=True)
    trace = placed(tmp_path, b"".join(lines[: len(lines) // 2]))
    folded(trace, [])
    assert place_of(trace) == len(lines) // 2
    trace.write_bytes(log)

    assert state(folded(trace, []).run) == fold_of(trace)
    assert place_of(trace) == len(lines)


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.parent.name)
def test_the_run_of_a_fixture_that_is_put_down_after_each_event_is_at_each_the_same(fixture: Path) -> None:
    # What two parts of a run share as one object is two after it was read back: that may make no difference.
    whole, again = Run(), Run()
    for record in read_log(fixture).records:
        evolve(whole, record.event)
        again = msgspec.json.decode(msgspec.json.encode(again), type=Run)
        evolve(again, record.event)

        assert state(again) == state(whole), record.event.seq


def story(tmp_path: Path) -> Path:
    trace = placed(tmp_path, written(STORIES["evidence goes stale"]()))
    folded(trace, [])
    return trace


@given(place=st.floats(0, 1), bit=st.integers(0, 7))
def test_a_snapshot_with_a_flipped_bit_is_passed_over(place: float, bit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trace = story(Path(folder))
        content = bytearray(kept(trace).read_bytes())
        content[int(place * (len(content) - 1))] ^= 1 << bit
        kept(trace).write_bytes(content)

        assert state(folded(trace, []).run) == fold_of(trace)


@pytest.mark.parametrize("content", [b"", b"\n", b"{}\n{}", b"[" * 100_000, b"\xff\n"])
def test_a_snapshot_that_is_none_is_passed_over_and_made_anew(content: bytes, tmp_path: Path) -> None:
    trace = story(tmp_path)
    kept(trace).write_bytes(content)

    assert state(folded(trace, []).run) == fold_of(trace)
    assert place_of(trace) == len(read_log(trace).records)


def test_a_pipe_in_place_of_a_snapshot_is_not_waited_for(tmp_path: Path) -> None:
    trace = story(tmp_path)
    kept(trace).unlink()
    os.mkfifo(kept(trace))

    assert state(folded(trace, []).run) == fold_of(trace)
    assert place_of(trace) == len(read_log(trace).records)


@pytest.mark.parametrize("head", [True, False])
def test_a_snapshot_that_no_memory_holds_is_not_read(head: bool, tmp_path: Path) -> None:
    # It ended in a MemoryError. The file takes no room: it is one hole.
    trace = story(tmp_path)
    with kept(trace).open("r+b" if head else "wb") as file:
        file.truncate(1 << 42)

    assert state(folded(trace, []).run) == fold_of(trace)
    assert kept(trace).stat().st_size < 1 << 20


def test_a_snapshot_is_for_the_eyes_its_log_is_for(tmp_path: Path) -> None:
    # It lay open to everybody beside a log that was closed.
    trace = placed(tmp_path, written(STORIES["evidence goes stale"]()))
    trace.chmod(0o600)
    folded(trace, [])

    assert kept(trace).stat().st_mode & 0o777 == 0o600


def test_where_the_code_that_folds_can_not_be_read_nothing_is_kept_or_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # From an archive any two engines had the same digest of no sources.
    monkeypatch.setattr(snapshots.projections, "__path__", [str(tmp_path)])
    snapshots._code.cache_clear()
    try:
        assert snapshots._code() == ""
        trace = placed(tmp_path, written(STORIES["evidence goes stale"]()))
        folded(trace, [])
        assert not kept(trace).exists()
    finally:
        snapshots._code.cache_clear()


def test_an_edited_log_under_an_old_snapshot_gives_what_the_edited_log_gives(tmp_path: Path) -> None:
    trace = story(tmp_path)
    before = folded(trace, []).run
    trace.write_bytes(
        edited(trace.read_bytes().replace(b'"goal":"mend the parser"', b'"goal":"mend the lexer!"'))
    )

    after = folded(trace, []).run

    assert state(after) == fold_of(trace)
    assert after.config != before.config


def test_a_shortened_log_under_an_old_snapshot_gives_what_is_left_of_it(tmp_path: Path) -> None:
    trace = story(tmp_path)
    trace.write_bytes(b"".join(trace.read_bytes().splitlines(keepends=True)[:7]))

    assert folded(trace, []).run.seq == 7


def test_another_engines_snapshot_is_passed_over_and_made_anew(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "_code", lambda: "another")
        trace = story(tmp_path)
    assert b'"code":"another"' in kept(trace).read_bytes()

    assert state(folded(trace, []).run) == fold_of(trace)
    assert b'"code":"another"' not in kept(trace).read_bytes()


def test_a_damaged_log_is_told_of_each_time_and_leaves_no_snapshot(tmp_path: Path) -> None:
    trace = placed(tmp_path, written(STORIES["evidence goes stale"]()).replace(b"mend", b"mind", 1))

    for _ in range(2):
        with pytest.raises(DamagedLog):
            folded_undamaged(trace)
        folded(trace, [])
        assert not kept(trace).exists()


def test_a_torn_end_is_told_and_what_comes_before_it_is_folded(tmp_path: Path) -> None:
    trace = story(tmp_path)
    with trace.open("ab") as file:
        file.write(b'{"kind":"Canc')

    torn: list[bytes] = []
    run = folded(trace, torn).run

    assert torn == [b'{"kind":"Canc']
    assert run.seq == len(read_log(trace).records)


def test_a_last_line_without_its_line_feed_is_folded_and_kept_by_nobody(tmp_path: Path) -> None:
    trace = placed(tmp_path, written(STORIES["evidence goes stale"]())[:-1])

    assert state(folded(trace, []).run) == fold_of(trace)
    assert not kept(trace).exists()


def test_a_log_that_lies_in_no_store_is_folded_and_nothing_is_put_beside_it(tmp_path: Path) -> None:
    trace = tmp_path / "copy.jsonl"
    trace.write_bytes(FIXTURES[0].read_bytes())

    assert state(folded(trace, []).run) == fold_of(trace)
    assert list(tmp_path.iterdir()) == [trace]


def test_a_log_in_a_folder_runs_that_is_no_store_is_folded_and_nothing_is_put_beside_it(
    tmp_path: Path,
) -> None:
    # Whoever only looked at a log in a folder of that name found another folder beside it.
    trace = placed(tmp_path, FIXTURES[0].read_bytes())
    (tmp_path / "folded").rmdir()

    assert state(folded(trace, []).run) == fold_of(trace)
    assert list(tmp_path.iterdir()) == [tmp_path / "runs"]


def test_a_run_in_which_half_a_surrogate_pair_was_said_is_folded_as_a_whole(tmp_path: Path) -> None:
    trace = placed(tmp_path, written([RunStarted(*BLANK, config=config(goal="half \ud83d"), engine="e")]))

    assert state(folded(trace, []).run) == fold_of(trace)
    assert not kept(trace).exists()


def test_a_store_in_which_no_folder_can_be_made_is_read_all_the_same(tmp_path: Path) -> None:
    trace = placed(tmp_path, written(STORIES["evidence goes stale"]()))
    # A file in its place keeps root out too.
    (tmp_path / "folded").rmdir()
    (tmp_path / "folded").write_bytes(b"")

    assert state(folded(trace, []).run) == fold_of(trace)


@pytest.mark.parametrize("cut", range(1, 20))
def test_what_was_in_flight_is_known_whether_it_was_folded_now_or_then(cut: int, tmp_path: Path) -> None:
    lines = written(STORIES["evidence goes stale"]()).splitlines(keepends=True)
    trace = placed(tmp_path, b"".join(lines[:cut]))
    log = read_log(trace)
    whole = folded_from(log, trace)
    folded(trace, [])

    again = folded_from(log, trace)

    assert (state(again.run), again.in_flight) == (state(whole.run), whole.in_flight)
