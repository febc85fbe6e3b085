"""What PostgreSQL alone can get wrong: a hold that was lost, a batch that fails, a password that shows."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from stepfold.engine.runtime.run_log import RunLog
from stepfold.engine.testing.store_laws import lines_of
from stepfold.events.integrity import check
from stepfold.events.journal import LogError, read_log
from stepfold.events.postgres import PostgresStore
from stepfold.events.store import StoreError, open_store
from stepfold.events.vocabulary import ModelReplied
from tests.postgres import new_database

SECRET = "open%20sesame"


@pytest.fixture
def url(socket: Path) -> str:
    return new_database(socket, "store")


@pytest.fixture
def store(url: str, tmp_path: Path) -> Iterator[PostgresStore]:
    with PostgresStore(url, tmp_path / "copies") as opened:
        yield opened


def behind_its_back(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


def test_a_writer_whose_run_has_gone_on_without_it_adds_nothing(store: PostgresStore, url: str) -> None:
    lines = lines_of("r", 4)
    writer = store.writer("r")
    writer.append(lines[:2])
    behind_its_back(url, "UPDATE stepfold_runs SET tail = 'another'")

    with pytest.raises(LogError, match="another process has gone on with this run"):
        writer.append(lines[2:])

    assert list(store.kept("r")) == lines[:2]


def test_a_batch_that_fails_half_way_leaves_nothing(store: PostgresStore, url: str) -> None:
    lines = lines_of("r", 5)
    writer = store.writer("r")
    writer.append(lines[:1])
    behind_its_back(url, "INSERT INTO stepfold_lines SELECT id, 3, '\\x00' FROM stepfold_runs")

    with pytest.raises(LogError, match="what was recorded before is safe"):
        writer.append(lines[1:])

    behind_its_back(url, "DELETE FROM stepfold_lines WHERE seq = 3")
    assert list(store.kept("r")) == lines[:1]
    writer.append(lines[1:])
    assert list(store.kept("r")) == lines


def test_a_lost_connection_ends_the_writer_and_frees_its_run(
    store: PostgresStore, url: str, tmp_path: Path
) -> None:
    lines = lines_of("r", 2)
    writer = store.writer("r")
    writer.append(lines[:1])
    behind_its_back(
        url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    )

    with pytest.raises(LogError, match="`stepfold resume` goes on"):
        writer.append(lines[1:])
    writer.close()

    with PostgresStore(url, tmp_path / "elsewhere") as other:
        again = other.writer("r")
        log, _ = again.recorded()
        again.append(lines[len(log.records) :])
        assert list(other.kept("r")) == lines


KILLED = """
import sys
from pathlib import Path
from stepfold.engine.testing.store_laws import lines_of
from stepfold.events.postgres import PostgresStore
store = PostgresStore(sys.argv[1], Path(sys.argv[2]))
writer = store.writer("r")
lines = lines_of("r", 50_000)
for first in range(0, len(lines), 5):
    writer.append(lines[first : first + 5])
    print(first, flush=True)
"""


def test_a_killed_writer_leaves_whole_batches_and_a_free_run(
    store: PostgresStore, url: str, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, url, str(tmp_path / "other")], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    for _ in range(20):
        said = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.communicate()

    writer = store.writer("r")
    count = len(writer.recorded()[0].records)
    writer.append(lines_of("r", count + 3)[count:])
    writer.close()

    assert count % 5 == 0
    assert count >= said + 5
    assert [record.written for record in read_log(store.path_of("r")).records] == lines_of("r", count + 3)


def test_a_database_that_may_only_be_read_is_read_and_says_what_to_do_when_it_is_written(
    store: PostgresStore, url: str, tmp_path: Path
) -> None:
    # `stepfold runs` was refused, because it could not keep the summaries that it had made.
    lines = lines_of("r", 3)
    store.writer("r").append(lines)
    with PostgresStore(f"{url}&options=-cdefault_transaction_read_only%3Don", tmp_path / "reader") as reader:
        reader.keep_summary("r", "{}")

        assert reader.summary("r") is None
        assert [record.written for record in read_log(reader.path_of("r")).records] == lines
        with pytest.raises(LogError, match="in a read-only transaction; see to that in the database"):
            reader.writer("new")


def test_a_question_over_a_lost_connection_says_what_to_do(store: PostgresStore, url: str) -> None:
    behind_its_back(
        url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    )

    with pytest.raises(StoreError, match="see that the server runs"):
        store.run_ids()


def test_writers_whose_connections_are_cut_over_and_over_keep_one_order(url: str, tmp_path: Path) -> None:
    lines = lines_of("r", 1200)

    def goes_on(number: int) -> int:
        """Go on with the run, whoever has brought it so far, until it is whole; how often it was cut off."""
        cut_off = 0
        while True:
            with suppress(LogError, StoreError), PostgresStore(url, tmp_path / str(number)) as own:
                have = sum(1 for _ in own.kept("r"))
                if have == len(lines):
                    return cut_off
                writer = own.writer("r")
                have = sum(1 for _ in own.kept("r"))
                for first in range(have, len(lines), 7):
                    writer.append(lines[first : first + 7])
            cut_off += 1

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(goes_on, number) for number in range(2)]
        for _ in range(20):
            behind_its_back(
                url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            )
            wait(writers, timeout=0.03)
        cut_off = sum(writer.result() for writer in writers)

    with PostgresStore(url, tmp_path / "end") as store:
        assert list(store.kept("r")) == lines
    assert cut_off


def test_a_disk_that_can_not_hold_the_copies_is_named(store: PostgresStore, tmp_path: Path) -> None:
    # It was told as if the output of the command could not be written.
    store.writer("r").append(lines_of("r", 1))
    (tmp_path / "copies" / "runs" / "r.jsonl").mkdir()

    with pytest.raises(StoreError, match="can't hold the copies of runs: Is a directory; free some space"):
        store.path_of("r")


def test_texts_that_PostgreSQL_or_UTF_8_can_not_hold_come_back(store: PostgresStore) -> None:
    said = ["a\0b", "half \ud83d", "\ufdd0=" + "0" * 64, "x" * 10_000_000, "\0" * 70_000, "\ud83d" * 70_000]
    with RunLog(store, "r") as log:
        log.begin()
        for seq, text in enumerate(said):
            log.record(ModelReplied(1, "r", seq, 1, "2026-01-01T00:00:00.000000Z", f"model:{seq}", text=text))

    records = read_log(store.path_of("r")).records
    assert [record.event.text for record in records if isinstance(record.event, ModelReplied)] == said
    assert check(store.path_of("r"), store.kept("r")).store == "agrees"


def test_a_copy_that_was_changed_is_made_anew_when_its_run_goes_on(store: PostgresStore) -> None:
    lines = lines_of("r", 6)
    writer = store.writer("r")
    writer.append(lines[:3])
    copy = store.path_of("r")
    copy.write_bytes(copy.read_bytes()[:-20])
    writer.append(lines[3:])

    assert [record.written for record in read_log(store.path_of("r")).records] == lines


def test_an_id_that_somebody_wrote_into_the_database_leads_out_of_no_folder(
    store: PostgresStore, url: str
) -> None:
    store.writer("r").append(lines_of("r", 1))
    behind_its_back(url, "INSERT INTO stepfold_runs(run_id, next_seq, bytes) VALUES ('../../out', 1, 9)")

    assert store.run_ids() == ["r"]
    assert [path.name for path in (store.logs() / "runs").iterdir()] == ["r.jsonl"]


def test_two_schemas_of_one_database_are_two_stores(url: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        behind_its_back(url, f"CREATE SCHEMA {name}")
    both = [
        PostgresStore(f"{url}&options=-csearch_path%3D{name}", tmp_path / name) for name in ("one", "two")
    ]
    for store in both:
        store.writer("r").append(lines_of("r", 1))

    assert both[0].name != both[1].name
    assert [store.run_ids() for store in both] == [["r"], ["r"]]
    for store in both:
        store.close()


@pytest.mark.parametrize(
    "wrong",
    [
        f"postgresql://u:{SECRET}@/none?host=FOLDER",
        f"postgresql://u@/none?password={SECRET}&host=FOLDER",
        f"postgresql://u:{SECRET}@[FOLDER",
        f"postgresql://u:{SECRET}@h/x?nonsense={SECRET}",
        f"postgres://u:{SECRET}@/d?host=FOLDER&sslmode={SECRET}",
        f"postgresql://u:{SECRET}%zz@h/d",
    ],
)
def test_no_error_tells_the_password(wrong: str, socket: Path) -> None:
    with pytest.raises(StoreError) as raised:
        open_store(wrong.replace("FOLDER", str(socket)))

    assert "sesame" not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_the_name_of_a_store_holds_no_password(socket: Path, url: str, tmp_path: Path) -> None:
    with PostgresStore(url.replace("stepfold@", f"stepfold:{SECRET}@"), tmp_path) as store:
        assert store.name == f"postgresql://stepfold@{socket}/store"


def test_without_psycopg_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(StoreError, match=r"pip install 'stepfold\[postgres\]'"):
        open_store(url)
