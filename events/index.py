"""The SQLite side of a store: the lines of its runs behind an index, by one transaction a step.

SQLite is never needed to keep a run whole. So what is locked, full or may not be written is for the caller to
live with: these functions let `sqlite3.Error` through.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

BUSY_SECONDS = 1
"""How long SQLite waits for another writer, whose transactions take milliseconds. A run waits so long, in
silence, at one of its steps and when it rests.
"""

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
_MADE_OF_SOMETHING_ELSE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


class IndexBehind(UserWarning):
    """SQLite could not follow a run: nothing of the run is lost, and SQLite is caught up later."""


def is_spoiled(path: Path, error: sqlite3.Error) -> bool:
    """Whether what lies there is at fault, and not who else uses it: no waiting makes it a database."""
    # An error that Python raises on its own account, such as one of a closed database, has no code.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in _MADE_OF_SOMETHING_ELSE or path.is_dir()


class Database:
    """`store.sqlite`, opened when it is first asked; what keeps it from opening may be gone by then."""

    def __init__(self, path: Path, synchronous: str) -> None:
        self.path = path
        self._synchronous = synchronous
        self._opened: sqlite3.Connection | None = None

    def connection(self) -> sqlite3.Connection:
        """The connection; the tables are made with it. Raises sqlite3.Error."""
        if self._opened is None:
            opened = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
            try:
                opened.execute("PRAGMA journal_mode=WAL")
                opened.execute(f"PRAGMA synchronous={self._synchronous}")
                opened.executescript(_SCHEMA)
            except BaseException:
                opened.close()
                raise
            self._opened = opened
        return self._opened

    def close(self) -> None:
        """Close it, if it is open."""
        if self._opened is not None:
            self._opened.close()


class RunIndex:
    """One run's lines in SQLite. `add` is one transaction."""

    def __init__(self, database: Database, run_id: str) -> None:
        self.run_id = run_id
        self._database = database
        self._number: int | None = None

    def why_behind(self, error: sqlite3.Error) -> str:
        """Why SQLite can't follow this run, and what has to be done if it can't mend itself."""
        return f"{error} (move it away)" if is_spoiled(self._database.path, error) else str(error)

    def _base(self) -> int | None:
        """The key that the run's first line has; None for a run of which no line is here."""
        if self._number is None:
            asked = self._execute("SELECT id FROM runs WHERE run_id = ?", (self.run_id,)).fetchone()
            self._number = None if asked is None else int(asked[0]) << 32
        return self._number

    def _execute(self, statement: str, values: tuple[int | str, ...] = ()) -> sqlite3.Cursor:
        return self._database.connection().execute(statement, values)

    def add(self, first_seq: int, lines: Sequence[bytes]) -> None:
        """Insert neighbouring lines, the first of which has `first_seq`."""
        database = self._database.connection()
        database.execute("BEGIN IMMEDIATE")
        try:
            base = self._base()
            if base is None:
                database.execute("INSERT INTO runs(run_id) VALUES (?)", (self.run_id,))
                base = self._base()
            assert base is not None
            database.executemany(_INSERT, enumerate(lines, start=base + first_seq))
            database.execute("COMMIT")
        except BaseException:
            # A full disk has SQLite itself roll back; what is over can't be rolled back once more.
            if database.in_transaction:
                database.execute("ROLLBACK")
            self._number = None
            raise

    def count(self) -> int:
        """How many lines of this run are here: one more than the highest seq."""
        base = self._base()
        if base is None:
            return 0
        (highest,) = self._execute(
            "SELECT max(id) FROM lines WHERE id >= ? AND id < ?", (base, base + (1 << 32))
        ).fetchone()
        return 0 if highest is None else int(highest) - base + 1

    def lines(self, first_seq: int = 0) -> Iterator[bytes]:
        """The lines of the run as they were written, from `first_seq` on, in order."""
        base = self._base()
        if base is None:
            return
        rows: Iterable[tuple[bytes]] = self._execute(
            "SELECT line FROM lines WHERE id >= ? AND id < ? ORDER BY id",
            (base + first_seq, base + (1 << 32)),
        )
        for (line,) in rows:
            yield line

    def line_at(self, seq: int) -> bytes | None:
        """One line as it was written; None when it is not here."""
        base = self._base()
        if base is None:
            return None
        row = self._execute("SELECT line FROM lines WHERE id = ?", (base + seq,)).fetchone()
        return None if row is None else bytes(row[0])

    def drop_from(self, seq: int) -> int:
        """Forget the lines from `seq` on; how many those were."""
        base = self._base()
        # Deleting nothing would wait for another writer all the same.
        if base is None or self.count() <= seq:
            return 0
        return self._execute(
            "DELETE FROM lines WHERE id >= ? AND id < ?", (base + seq, base + (1 << 32))
        ).rowcount
