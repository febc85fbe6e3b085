"""A store folder: the journal is the truth, SQLite follows it and is made anew from it."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from stepfold.engine.runtime.run_log import RunLog
from stepfold.events.chain import chained, sealed, unsealed
from stepfold.events.codec import encode
from stepfold.events.index import IndexBehind
from stepfold.events.index_fault import fault_of
from stepfold.events.journal import Journal, LogError, read_log
from stepfold.events.reconcile import Repair
from stepfold.events.store import Store, StoreError, open_store
from stepfold.events.vocabulary import ModelCompleted
from tests.house import FINISH, LOAD, SEARCH, VERIFY, Hands, call, config, play


def event(seq: int, step: int = 1, run_id: str = "r") -> ModelCompleted:
    return ModelCompleted(1, run_id, seq, step, "t", "complete", call_id=f"model-{seq}")


def journal_lines(store: Store, run_id: str) -> list[bytes]:
    return [record.written for record in read_log(store.path_of(run_id)).records]


def indexed_lines(store: Store, run_id: str) -> list[bytes]:
    """The lines of a run in SQLite once it was taken up again."""
    with RunLog(store, run_id) as log:
        log.recorded()
    return list(store.index(run_id).lines())


def bare(lines: Iterable[bytes]) -> list[bytes]:
    return [unsealed(line)[0] for line in lines]


def written(folder: Path, count: int = 5, run_id: str = "r") -> None:
    with Store(folder) as store, RunLog(store, run_id) as log:
        log.begin()
        for seq in range(count):
            log.record(event(seq, run_id=run_id))
            log.flush()


def test_both_sides_are_equal_at_the_end_of_a_run(tmp_path: Path) -> None:
    _, events = play(config(), Hands([SEARCH, LOAD, call("change", x=1), VERIFY, FINISH]))

    with Store(tmp_path) as store:
        with RunLog(store, "r") as log:
            for item in events:
                log.record(item)
                log.flush()

        assert list(store.index("r").lines()) == journal_lines(store, "r")
        assert bare(journal_lines(store, "r")) == [encode(item) for item in events]


def test_sqlite_is_never_ahead_of_the_journal(tmp_path: Path) -> None:
    # Read beside the store, which would catch up first.
    with Store(tmp_path) as store, RunLog(store, "r") as log:
        beside = sqlite3.connect(store.database)
        for seq in range(20):
            log.record(event(seq, step=seq // 3))
            if seq % 4 == 0:
                log.flush()

            (indexed,) = beside.execute("SELECT count(*) FROM lines").fetchone()
            assert indexed <= store.path_of("r").read_bytes().count(b"\n")
        assert indexed > 9


def test_every_line_is_readable_as_a_row(tmp_path: Path) -> None:
    written(tmp_path)

    rows = sqlite3.connect(tmp_path / "store.sqlite").execute(
        "SELECT run_id, seq, step, ts, kind FROM events"
    )

    assert list(rows) == [("r", seq, 1, "t", "ModelCompleted") for seq in range(5)]


def test_a_deleted_sqlite_is_made_anew(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "store.sqlite").unlink()

    with Store(tmp_path) as store:
        assert indexed_lines(store, "r") == journal_lines(store, "r")


@pytest.mark.parametrize("kept", range(6))
def test_an_sqlite_that_lacks_lines_is_caught_up(tmp_path: Path, kept: int) -> None:
    written(tmp_path)
    database = sqlite3.connect(tmp_path / "store.sqlite")
    database.execute("DELETE FROM lines WHERE id & 0xffffffff >= ?", (kept,))
    database.commit()
    database.close()

    with Store(tmp_path) as store, RunLog(store, "r") as log:
        log.recorded()
        log.record(event(5))

    with Store(tmp_path) as store:
        assert list(store.index("r").lines()) == journal_lines(store, "r")
        assert bare(journal_lines(store, "r")) == [encode(event(n)) for n in range(6)]
    assert log.repair == Repair(indexed=5 - kept)


def test_lines_that_only_sqlite_holds_are_put_back_where_they_continue_the_journal(tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / "runs" / "r.jsonl"
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]) + whole.splitlines()[2][:9])

    with Store(tmp_path) as store, RunLog(store, "r") as log:
        log.recorded()

    assert path.read_bytes() == whole
    assert log.repair == Repair(torn_bytes=9, restored=3)


def test_an_sqlite_that_is_ahead_of_another_journal_gives_way_to_it(tmp_path: Path) -> None:
    written(tmp_path)
    written(tmp_path / "other", count=3)
    lines = (tmp_path / "other" / "runs" / "r.jsonl").read_bytes().splitlines(keepends=True)
    path = tmp_path / "runs" / "r.jsonl"
    path.write_bytes(lines[0] + sealed_anew(event(1, step=7), lines[0]))

    with Store(tmp_path) as store, RunLog(store, "r") as log:
        log.recorded()
        log.record(event(2, step=7))

    with Store(tmp_path) as store:
        assert list(store.index("r").lines()) == journal_lines(store, "r")
        assert store.index("r").count() == 3
    assert log.repair == Repair(dropped=5, indexed=2)


def sealed_anew(item: ModelCompleted, before: bytes) -> bytes:
    line = encode(item)
    _, previous = unsealed(before.rstrip())
    return sealed(line, chained(previous, line)) + b"\n"


def test_a_run_begun_anew_under_an_old_id_leaves_nothing_of_the_old_one(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "runs" / "r.jsonl").unlink()

    written(tmp_path, count=2)

    with Store(tmp_path) as store:
        assert list(store.index("r").lines()) == journal_lines(store, "r")
        assert bare(journal_lines(store, "r")) == [encode(event(n)) for n in range(2)]


@pytest.mark.parametrize("kept", [0, 1, 15, 100, 1000, 4096, 5000, 8192])
def test_an_sqlite_cut_short_does_not_stop_a_run_and_is_made_anew_when_it_is_moved(
    tmp_path: Path, kept: int, recwarn: pytest.WarningsRecorder
) -> None:
    # Such a run ended before its first step with "database disk image is malformed".
    written(tmp_path, count=200)
    database = tmp_path / "store.sqlite"
    database.write_bytes(database.read_bytes()[:kept])

    with Store(tmp_path) as store, RunLog(store, "r") as log:
        log.recorded()
        log.record(event(200))
    if recwarn:
        assert "(move it away); its log is whole" in str(recwarn[0].message)
        database.unlink()
    with Store(tmp_path) as store:
        assert len(journal_lines(store, "r")) == 201
        assert indexed_lines(store, "r") == journal_lines(store, "r")


def test_a_torn_last_line_never_enters_sqlite(tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / "runs" / "r.jsonl"
    path.write_bytes(path.read_bytes() + encode(event(5))[:30])
    (tmp_path / "store.sqlite").unlink()

    with Store(tmp_path) as store:
        assert len(indexed_lines(store, "r")) == 5


def test_runs_do_not_mix(tmp_path: Path) -> None:
    written(tmp_path, 3, "one")
    written(tmp_path, 4, "two")

    with Store(tmp_path) as store:
        assert (store.index("one").count(), store.index("two").count()) == (3, 4)
        assert store.run_ids() == ["one", "two"]


def test_a_store_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"hello")

    with pytest.raises(StoreError, match=r"can't be used as a store: .*; name another with --store"):
        open_store(file)


@pytest.mark.parametrize("what", ["text", "folder"])
def test_an_sqlite_that_is_none_stops_no_run_and_says_what_to_do(what: str, tmp_path: Path) -> None:
    # Of a folder it was promised that the next run would catch it up.
    database = tmp_path / "store.sqlite"
    if what == "text":
        database.write_bytes(b"hello, I am a text file\n" * 100)
    else:
        database.mkdir()

    with pytest.warns(IndexBehind, match=r"\(move it away\); its log is whole"):
        written(tmp_path)

    assert "move it away" in fault_of(database)
    with Store(tmp_path) as store:
        assert len(journal_lines(store, "r")) == 5
        with pytest.raises(StoreError, match="move it away"):
            list(store.kept("r"))
        database.rename(tmp_path / "away")
    written(tmp_path, run_id="next")
    with Store(tmp_path) as store:
        assert list(store.kept("r")) == journal_lines(store, "r")


@pytest.mark.parametrize("run_id", ["", ".", "..", "a/b", "../r", "/etc/passwd", "a\\b", "a\0b"])
def test_an_id_that_leads_out_of_the_folder_is_refused(tmp_path: Path, run_id: str) -> None:
    with Store(tmp_path) as store, pytest.raises(StoreError, match="is no run id"):
        store.path_of(run_id)


def test_a_run_is_found_by_a_start_of_its_id(tmp_path: Path) -> None:
    for run_id in ("20260101-a", "20260101-b", "20260202-c"):
        written(tmp_path, 1, run_id)

    with Store(tmp_path) as store:
        assert store.find("20260202") == "20260202-c"
        assert store.find("20260101-a") == "20260101-a"
        assert store.find("last") == "20260202-c"
        with pytest.raises(StoreError, match="names 2 runs: 20260101-a, 20260101-b; write more of the id"):
            store.find("20260101")
        with pytest.raises(StoreError, match="no run 'x' in"):
            store.find("x")


def test_a_summary_holds_only_as_long_as_the_log_does_not_grow(tmp_path: Path) -> None:
    written(tmp_path)
    with Store(tmp_path) as store:
        store.keep_summary("r", "five events")
        assert store.summary("r") == "five events"

        with RunLog(store, "r") as log:
            log.recorded()
            log.record(event(5))

        assert store.summary("r") is None


FIRST_LINE = """
import resource, sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from stepfold.events.journal import LogError
from stepfold.events.store import Store
with Store(Path(sys.argv[1])) as store:
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
    writer = store.writer("r")
    try:
        writer.append([b"x" * int(sys.argv[2])])
    except LogError as error:
        print(error)
    writer.close()
"""


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_run_whose_first_line_could_not_be_written_leaves_nothing_to_be_resumed(
    size: int, tmp_path: Path
) -> None:
    # It was to be resumed, which it could not be, and `last` was an empty file.
    tmp_path.chmod(0o777)
    code = [sys.executable, "-c", FIRST_LINE, str(tmp_path), str(size)]
    said = subprocess.run(code, capture_output=True, text=True, check=True).stdout

    assert "nothing of it is recorded. To go on, raise the limit" in said
    assert "and then start it anew" in said
    with Store(tmp_path) as store:
        assert store.run_ids() == []


def test_a_log_that_is_removed_while_another_waits_for_it_is_not_written_into(tmp_path: Path) -> None:
    # What was written into a removed file was lost with it.
    with Store(tmp_path) as store:
        written(tmp_path)
        path = store.path_of("r")
        holder = Journal(path)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(Journal, path)
            while len(_opened(path)) < 2 and not waiting.done():
                pass
            path.unlink()
            holder.close()

            with pytest.raises(LogError, match="was removed by another process"):
                waiting.result()


def _opened(path: Path) -> list[str]:
    """The descriptors of this process that lead to a file."""
    with os.scandir("/proc/self/fd") as entries:
        return [entry.name for entry in entries if _target(entry.path) == str(path)]


def _target(descriptor: str) -> str:
    with suppress(OSError):
        return str(Path(descriptor).readlink())
    return ""
