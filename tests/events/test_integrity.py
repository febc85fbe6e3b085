"""A look at a log against its seals and against SQLite, and sealing an edited one anew."""

from pathlib import Path

import pytest

from stepfold.engine.runtime.replay import replay
from stepfold.engine.runtime.run_log import RunLog
from stepfold.events.codec import encode
from stepfold.events.integrity import Integrity, check, reseal
from stepfold.events.journal import LogError, read_log
from stepfold.events.store import Store
from stepfold.events.vocabulary import Reseal, RunStarted
from tests.house import FINISH, LOAD, VERIFY, Hands, call, config, play

_, EVENTS = play(config(), Hands([LOAD, call("change", x=1), VERIFY, FINISH]))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = Store(tmp_path)
    with RunLog(opened, "r") as log:
        for event in EVENTS:
            log.record(event)
    return opened


def looked_at(store: Store) -> Integrity:
    return check(store.path_of("r"), store.kept("r"))


def edit(store: Store, seq: int, old: bytes, new: bytes) -> None:
    lines = store.path_of("r").read_bytes().splitlines(keepends=True)
    assert old in lines[seq]
    lines[seq] = lines[seq].replace(old, new, 1)
    store.path_of("r").write_bytes(b"".join(lines))


def test_a_run_as_it_was_written_is_whole_on_both_sides(store: Store) -> None:
    found = looked_at(store)

    assert (found.verdict, found.events, found.sealed) == ("whole", len(EVENTS), len(EVENTS))
    assert (found.findings, found.store) == ((), "agrees")


def test_an_edited_line_is_named_and_sqlite_tells_that_it_holds_another(store: Store) -> None:
    edit(store, 5, b'"step":', b'"step":1')

    found = looked_at(store)

    assert found.verdict == "damaged"
    assert [(finding.seq, finding.line) for finding in found.findings] == [(5, 6)]
    assert found.store.startswith("differs at seq 5")


def test_a_change_in_sqlite_alone_is_found(store: Store, tmp_path: Path) -> None:
    index = store.index("r")
    line = index.line_at(7)
    assert line is not None
    index.add(7, [line.replace(b'"v":1', b'"v":3')])

    found = looked_at(store)

    assert (found.verdict, found.findings) == ("damaged", ())
    assert found.store.startswith("differs at seq 7")


def test_a_journal_that_lost_its_end_is_told_by_sqlite(store: Store) -> None:
    path = store.path_of("r")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:9]))

    assert looked_at(store).store == "differs: it also holds lines from seq 9 on; resume puts them back"


def test_a_line_that_is_none_ends_the_look_where_it_stands(store: Store) -> None:
    edit(store, 4, b'{"kind"', b'"kind"')

    found = looked_at(store)

    assert (found.verdict, found.events) == ("damaged", 4)
    assert [finding.seq for finding in found.findings] == [4]


def test_a_newer_log_is_told_apart(store: Store) -> None:
    edit(store, 0, b'"v":1', b'"v":99')

    assert looked_at(store).verdict == "newer"


def test_a_log_from_before_there_were_seals_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    path.write_bytes(b"".join(encode(event) + b"\n" for event in EVENTS))

    found = check(path, None)

    assert (found.verdict, found.events, found.sealed, found.store) == ("unsealed", len(EVENTS), 0, "")


def test_an_empty_file_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"")

    assert check(tmp_path / "empty.jsonl", None).verdict == "damaged"


def test_a_log_sealed_anew_is_whole_and_says_what_was_changed_and_why(store: Store) -> None:
    edit(store, 0, b'"engine":"', b'"engine":"edited ')
    edit(store, 6, b'"step":', b'"step":1')

    said = reseal(store.path_of("r"), "an example for the docs")
    again = reseal(store.path_of("r"), "nothing to do")

    first = read_log(store.path_of("r")).records[0].event
    assert isinstance(first, RunStarted)
    assert first.resealed == (Reseal(0, "an example for the docs"),) == (said,)
    assert again is None
    assert looked_at(store).findings == ()


def test_a_sealed_anew_log_still_replays_or_tells_the_difference(store: Store) -> None:
    path = store.path_of("r")
    assert replay(path).verdict == "identical"
    edit(store, 2, b'"ts":"', b'"ts":"1')
    damaged = replay(path)

    reseal(path, "a test")

    assert damaged.damaged is not None
    assert damaged.damaged["seq"] == 2
    assert replay(path).damaged is None


def test_an_old_log_is_sealed_from_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    path.write_bytes(b"".join(encode(event) + b"\n" for event in EVENTS))

    assert reseal(path, "moved to seals") == Reseal(0, "moved to seals")
    assert check(path, None).verdict == "whole"
    assert replay(path).verdict == "identical"


def test_a_run_being_written_is_not_sealed_anew(store: Store) -> None:
    with RunLog(store, "r"), pytest.raises(LogError, match="another process is writing"):
        reseal(store.path_of("r"), "no")
