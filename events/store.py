"""A store folder: `runs/<run_id>.jsonl`, the truth, and `store.sqlite`, the same lines behind an index.

SQLite follows the journal by one transaction a step and is caught up when a run is taken up again
(`reconcile`), so that losing it loses nothing.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from stepfold.events.journal import Journal, LogError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs(id INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS lines(id INTEGER PRIMARY KEY, line BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS summaries(run_id TEXT PRIMARY KEY, bytes INTEGER NOT NULL, summary TEXT NOT NULL);
CREATE VIEW IF NOT EXISTS events AS
    SELECT r.run_id AS run_id, l.id & 0xffffffff AS seq,
           json_extract(CAST(l.line AS TEXT), '$.step') AS step,
           json_extract(CAST(l.line AS TEXT), '$.ts') AS ts,
           json_extract(CAST(l.line AS TEXT), '$.kind') AS kind,
           CAST(l.line AS TEXT) AS line
    FROM lines AS l JOIN runs AS r ON r.id = l.id >> 32;
"""
# The key of a line is run << 32 | seq: appending goes to the right edge of the tree, and no second
# index is kept.
_INSERT = "INSERT OR REPLACE INTO lines(id, line) VALUES (?, ?)"


class StoreError(Exception):
    """A store that can't be used: where, why, what to do."""


class Store:
    """A folder of runs. Close it, or use it as a context manager."""

    def __init__(self, folder: Path, *, synchronous: str = "NORMAL") -> None:
        """Open or create a store. `synchronous` is SQLite's own: NORMAL survives a killed process,
        FULL a lost machine too. Raises StoreError.
        """
        self.folder = folder
        self.runs_folder = folder / "runs"
        try:
            self.runs_folder.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(folder / "store.sqlite", timeout=30, isolation_level=None)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute(f"PRAGMA synchronous={synchronous}")
            self._database.executescript(_SCHEMA)
        except OSError as error:
            raise StoreError(
                f"{folder}: can't be used as a store: {error.strerror}; name another with --store"
            ) from error
        except sqlite3.Error as error:
            raise StoreError(
                f"{folder / 'store.sqlite'}: {error}; move it away, and it is made anew from runs/*.jsonl"
            ) from error

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the index; the runs' files are closed by their writers."""
        self._database.close()

    @property
    def database(self) -> Path:
        """The SQLite file, which also holds the memory of earlier runs."""
        return self.folder / "store.sqlite"

    def path_of(self, run_id: str) -> Path:
        """Where a run's log lies. Raises StoreError for an id that would lead out of the folder."""
        if not run_id or run_id in {".", ".."} or any(mark in run_id for mark in "/\\\0"):
            raise StoreError(f"{run_id!r} is no run id: it may not be empty or hold a slash")
        return self.runs_folder / f"{run_id}.jsonl"

    def holds(self, run_id: str) -> bool:
        """Whether anything of this run is recorded. A file that a crash left empty holds nothing."""
        path = self.path_of(run_id)
        return path.exists() and path.stat().st_size > 0

    def run_ids(self) -> list[str]:
        """All runs, oldest first by the name of their file."""
        return sorted(path.stem for path in self.runs_folder.glob("*.jsonl"))

    def find(self, text: str) -> str:
        """The run that `text` names: its id, an unambiguous start of it, or `last`. Raises StoreError."""
        ids = self.run_ids()
        if text in ids:
            return text
        # A run that another one started has the other's id, a dot and its place: it is asked for whole.
        roots = set(ids)
        ids = [run_id for run_id in ids if "." not in run_id or run_id.partition(".")[0] not in roots]
        if text == "last" and ids:
            return max(ids, key=lambda run_id: (self.path_of(run_id).stat().st_mtime_ns, run_id))
        found = [run_id for run_id in ids if text and run_id.startswith(text)]
        if len(found) == 1:
            return found[0]
        if found:
            raise StoreError(
                f"{text!r} names {len(found)} runs: {', '.join(found[:5])}; write more of the id"
            )
        raise StoreError(f"no run {text!r} in {self.folder}; `stepfold runs` lists what is there")

    def index(self, run_id: str) -> "RunIndex":
        """The SQLite side of one run, as it is: a crash may have left it behind the journal."""
        return RunIndex(self._database, run_id)

    def summary(self, run_id: str) -> str | None:
        """The cached summary of a run, if its log has not grown since."""
        row = self._database.execute(
            "SELECT bytes, summary FROM summaries WHERE run_id = ?", (run_id,)
        ).fetchone()
        if row is None or row[0] != self.path_of(run_id).stat().st_size:
            return None
        return str(row[1])

    def keep_summary(self, run_id: str, summary: str) -> None:
        """Cache a summary beside the size of the log that it was folded from."""
        size = self.path_of(run_id).stat().st_size
        self._database.execute("INSERT OR REPLACE INTO summaries VALUES (?, ?, ?)", (run_id, size, summary))

    def open_journal(self, run_id: str) -> Journal:
        """The append side of a run's file. Raises LogError when another process holds it."""
        return Journal(self.path_of(run_id))


class RunIndex:
    """One run's lines in SQLite. `add` is one transaction."""

    def __init__(self, database: sqlite3.Connection, run_id: str) -> None:
        self._database = database
        database.execute("INSERT OR IGNORE INTO runs(run_id) VALUES (?)", (run_id,))
        (number,) = database.execute("SELECT id FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        self._base = int(number) << 32

    def add(self, first_seq: int, lines: Sequence[bytes]) -> None:
        """Insert neighbouring lines, the first of which has `first_seq`."""
        base = self._base + first_seq
        execute = self._database.execute
        execute("BEGIN IMMEDIATE")
        try:
            self._database.executemany(_INSERT, enumerate(lines, start=base))
        except BaseException:
            execute("ROLLBACK")
            raise
        execute("COMMIT")

    def count(self) -> int:
        """How many lines of this run are here: one more than the highest seq."""
        (highest,) = self._database.execute(
            "SELECT max(id) FROM lines WHERE id >= ? AND id < ?", (self._base, self._base + (1 << 32))
        ).fetchone()
        return 0 if highest is None else int(highest) - self._base + 1

    def lines(self, first_seq: int = 0) -> Iterator[bytes]:
        """The lines of the run as they were written, from `first_seq` on, in order."""
        rows: Iterable[tuple[bytes]] = self._database.execute(
            "SELECT line FROM lines WHERE id >= ? AND id < ? ORDER BY id",
            (self._base + first_seq, self._base + (1 << 32)),
        )
        for (line,) in rows:
            yield line

    def line_at(self, seq: int) -> bytes | None:
        """One line as it was written; None when it is not here."""
        row = self._database.execute("SELECT line FROM lines WHERE id = ?", (self._base + seq,)).fetchone()
        return None if row is None else bytes(row[0])

    def drop_from(self, seq: int) -> int:
        """Forget the lines from `seq` on; how many those were."""
        return self._database.execute(
            "DELETE FROM lines WHERE id >= ? AND id < ?", (self._base + seq, self._base + (1 << 32))
        ).rowcount


def open_store(folder: str | Path = ".stepfold") -> Store:
    """Open the store in `folder`, making it if need be. Raises StoreError."""
    return Store(Path(folder))


__all__ = ["LogError", "RunIndex", "Store", "StoreError", "open_store"]
