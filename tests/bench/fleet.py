"""What a thousand million events cost, from what smaller numbers of them do: a table of docs/scaling.md.

One run is recorded, and copied under other ids; its export is copied as the days of a fleet. The last row is
reckoned from the largest that was measured, as the rows before it show that cost grows with the events.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.growth import COMMAND, DOCS, EVENTS_A_STEP
from tests.bench.rows import put
from tests.bench.workload import persisted

A_RUN = 100_000
RUNS = (3, 10)
DAYS = 10
A_FLEET = 1_000_000_000
COUNTED = "SELECT kind, count(*) FROM events GROUP BY kind"
SEARCHED = "SELECT count(*) FROM events WHERE contains(data, 'module_4711')"
A_DAY_COUNTED = "SELECT kind, count(*) FROM events WHERE date = '{day}' GROUP BY kind"


class Fleet(NamedTuple):
    """So many events: the bytes of each form that was made of them, and the seconds to make and ask it.

    `a_day` is a question to as many events as the last store had, however many there are in all.
    """

    events: int
    jsonl: float | None = None
    sqlite: float | None = None
    parquet: float | None = None
    exported: float | None = None
    counted: float | None = None
    searched: float | None = None
    a_day: float | None = None
    memory: float | None = None

    def reckoned(self, stores: "Fleet") -> "Fleet":
        """A fleet as these days make it; what was not made of them, as it was of the last store."""
        days, store = A_FLEET / self.events, A_FLEET / stores.events

        def grown(mine: float | None, its: float | None) -> float | None:
            return mine * days if mine is not None else None if its is None else its * store

        return Fleet(
            A_FLEET,
            grown(self.jsonl, stores.jsonl),
            grown(self.sqlite, stores.sqlite),
            grown(self.parquet, stores.parquet),
            grown(self.exported, stores.exported),
            grown(self.counted, stores.counted),
            grown(self.searched, stores.searched),
            self.a_day,
        )


def measured() -> Iterator[Fleet]:
    """The stores, then the days."""
    with tempfile.TemporaryDirectory() as name:
        base = Path(name) / "base"
        persisted(base, -(-A_RUN // EVENTS_A_STEP))
        log = (base / "runs" / "bench.jsonl").read_bytes()
        events, in_sqlite = log.count(b"\n"), (base / "store.sqlite").stat().st_size
        for runs in RUNS:
            store, exported = Path(name) / f"{runs}", Path(name) / f"{runs}.parquet"
            (store / "runs").mkdir(parents=True)
            for run in range(runs):
                content = log.replace(b'"run_id":"bench"', b'"run_id":"%05d"' % run)
                (store / "runs" / f"{run:05d}.jsonl").write_bytes(content)
            seconds, memory = exporting(store, exported)
            (day,) = (exported / "events").iterdir()
            yield Fleet(
                runs * events,
                jsonl=float(len(log) * runs),
                sqlite=float(in_sqlite * runs),
                parquet=size_of(exported),
                exported=seconds,
                counted=asked(exported, COUNTED),
                searched=asked(exported, SEARCHED),
                a_day=asked(exported, A_DAY_COUNTED.format(day=day.name.partition("=")[2])),
                memory=memory,
            )
            shutil.rmtree(store)
        for number in range(1, DAYS):
            for view in exported.iterdir():
                for one in view.glob(day.name):
                    shutil.copytree(one, view / f"date=2020-01-{number:02d}")
        yield Fleet(
            DAYS * runs * events,
            parquet=size_of(exported),
            counted=asked(exported, COUNTED),
            searched=asked(exported, SEARCHED),
            a_day=asked(exported, A_DAY_COUNTED.format(day="2020-01-05")),
        )


def exporting(store: Path, exported: Path) -> tuple[float, float]:
    """The seconds of the command, and the most bytes of memory that it had."""
    began = time.perf_counter()
    words = [COMMAND, "export", "--parquet", exported, "--store", store]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, "the export failed"
    return time.perf_counter() - began, used.ru_maxrss * 1024.0


def size_of(folder: Path) -> float:
    """The bytes of all files below."""
    return float(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))


def asked(exported: Path, query: str) -> float:
    """The least seconds of three in which DuckDB answers from the partitions, opened each time."""

    def once() -> float:
        began = time.perf_counter()
        with duckdb.connect() as connection:
            files = f"{exported}/events/*/*/*.parquet"
            connection.execute(
                f"CREATE VIEW events AS SELECT * FROM read_parquet('{files}', hive_partitioning = true)"
            )
            connection.execute(query).fetchall()
        return time.perf_counter() - began

    return min(once() for _ in range(3))


HEADS = (
    "events", "JSONL", "SQLite", "Parquet", "exported in", "with memory of",
    "counted by kind", "searched", "one day counted",
)  # fmt: skip


def table(rows: list[Fleet]) -> str:
    """For the page; what was not made stays empty."""
    lines = [f"| {' | '.join(HEADS)} |", f"| {' | '.join('---:' for _ in HEADS)} |"]
    for row in (*rows, rows[-1].reckoned(rows[-2])):
        what = f"{row.events:,}" + (" (reckoned)" if row.events == A_FLEET else "")
        sizes = map(told_size, (row.jsonl, row.sqlite, row.parquet))
        times = map(told_time, (row.counted, row.searched, row.a_day))
        cells = (what, *sizes, told_time(row.exported), told_size(row.memory), *times)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def told_size(size: float | None) -> str:
    """In megabytes or gigabytes."""
    if size is None:
        return ""
    return f"{size / 1e9:,.0f} GB" if size >= 1e10 else f"{size / 1e6:,.0f} MB"


def told_time(seconds: float | None) -> str:
    """In seconds, or in hours."""
    if seconds is None:
        return ""
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"


def main() -> None:
    """Print the table; with --write put it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table into docs/scaling.md")
    options = parser.parse_args()
    told = table(list(measured()))
    print(told)
    if options.write:
        put(DOCS / "scaling.md", "fleet", told)


if __name__ == "__main__":
    main()
