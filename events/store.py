"""A store folder: `runs/<run_id>.jsonl`, the truth, and `store.sqlite`, the same lines behind an index.

SQLite follows the journal by one transaction a step and is caught up (`reconcile`) when a run is taken up
again, or by the next one that is recorded, so that losing it loses nothing. `behind/<run_id>` is an empty
file that tells of a run that it could not follow.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from stepfold.events.beside import forget_snapshot, make_room_for_snapshots
from stepfold.events.folder_writer import FolderWriter
from stepfold.events.index import Database, RunIndex
from stepfold.events.journal import Journal, LogError
from stepfold.events.liveness import is_locked
from stepfold.events.run_store import SUITES, RunStore, StoreError, found_among, require_run_id

_BEHIND = "behind"


class Store:
    """A folder of runs. Close it, or use it as a context manager."""

    def __init__(self, folder: Path, *, synchronous: str = "NORMAL") -> None:
        """Open or create a store. `synchronous` is SQLite's own: NORMAL survives a killed process,
        FULL a lost machine too. What is wrong with SQLite itself keeps nobody from the runs. Raises
        StoreError.
        """
        self.folder = folder
        self.runs_folder = folder / "runs"
        self._database = Database(folder / "store.sqlite", synchronous)
        self._keeps_summaries = True
        try:
            self.runs_folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{folder}: can't be used as a store: {error.strerror}; name another with --store"
            ) from error

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the index; the runs' files are closed by their writers."""
        self._database.close()

    keeper = "SQLite"

    @property
    def name(self) -> str:
        """The folder."""
        return str(self.folder)

    def logs(self) -> Path:
        """The folder itself: its runs are files."""
        return self.folder

    @property
    def database(self) -> Path:
        """The SQLite file, which also holds the memory of earlier runs."""
        return self._database.path

    def path_of(self, run_id: str) -> Path:
        """Where a run's log lies. Raises StoreError for an id that would lead out of the folder."""
        require_run_id(run_id)
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
        return found_among(self.run_ids(), text, self._newest, str(self.folder), self.folder / SUITES)

    def _newest(self, run_ids: Sequence[str]) -> str:
        return max(run_ids, key=lambda run_id: (self.path_of(run_id).stat().st_mtime_ns, run_id))

    def index(self, run_id: str) -> "RunIndex":
        """The SQLite side of one run, as it is: a crash may have left it behind the journal."""
        return RunIndex(self._database, run_id)

    def summary(self, run_id: str) -> str | None:
        """The cached summary of a run, if its log has not grown since."""
        asked = "SELECT bytes, summary FROM summaries WHERE run_id = ?"
        try:
            row = self._database.connection().execute(asked, (run_id,)).fetchone()
        except sqlite3.Error:
            return None
        if row is None or row[0] != self.path_of(run_id).stat().st_size:
            return None
        return str(row[1])

    def keep_summary(self, run_id: str, summary: str) -> None:
        """Cache a summary beside the size of the log that it was folded from, if SQLite can be written."""
        if not self._keeps_summaries:
            return
        row = (run_id, self.path_of(run_id).stat().st_size, summary)
        try:
            self._database.connection().execute("INSERT OR REPLACE INTO summaries VALUES (?, ?, ?)", row)
        except sqlite3.Error:
            # A list of many runs may not wait for a lock at each of them.
            self._keeps_summaries = False

    def note_behind(self, run_id: str) -> None:
        """Remember that SQLite lacks lines of this run, for whoever can write it next."""
        # Where not even an empty file can be made, a look at the run with `log --verify` tells.
        with suppress(OSError):
            (self.folder / _BEHIND).mkdir(exist_ok=True)
            (self.folder / _BEHIND / run_id).touch()

    def behind(self) -> list[str]:
        """The runs of which SQLite is known to lack lines."""
        return sorted(path.name for path in (self.folder / _BEHIND).glob("*"))

    def caught_up(self, run_id: str) -> None:
        """Forget that SQLite lacked lines of this run."""
        with suppress(OSError):
            (self.folder / _BEHIND / run_id).unlink(missing_ok=True)

    def writer(self, run_id: str) -> FolderWriter:
        """The append side of a run. Raises LogError when another writer holds it."""
        journal = Journal(self.path_of(run_id))
        make_room_for_snapshots(self.folder)
        return FolderWriter(self, run_id, journal)

    def remove(self, run_id: str) -> None:
        """Forget a run. Raises LogError when a writer holds it."""
        path = self.path_of(run_id)
        if path.exists():
            journal = Journal(path)
            path.unlink()
            journal.close()
        forget_snapshot(path)
        # A SQLite that can't be written now forgets it when the id is begun anew.
        with suppress(sqlite3.Error):
            self.index(run_id).drop_from(0)

    def is_being_written(self, run_id: str) -> bool:
        """Whether a writer holds the run now."""
        return is_locked(self.path_of(run_id))

    def kept(self, run_id: str) -> Iterator[bytes]:
        """The run's lines as SQLite holds them. Raises StoreError when it can't be read."""
        index = self.index(run_id)
        try:
            yield from index.lines()
        except sqlite3.Error as error:
            raise StoreError(f"{self.database}: {index.why_behind(error)}") from error


def is_postgresql(where: str) -> bool:
    """Whether a store is named by a URL, well written or not: none of it may become a folder."""
    return where.lower().startswith(("postgresql:", "postgres:"))


def open_store(where: str | Path = ".stepfold") -> RunStore:
    """Open the store in a folder, making it if need be, or the one at a `postgresql://` URL.

    Raises StoreError; it never holds the URL's password.
    """
    if isinstance(where, str) and is_postgresql(where):
        from stepfold.events.postgres import PostgresStore

        return PostgresStore(where)
    return Store(Path(where))


__all__ = ["LogError", "RunIndex", "Store", "StoreError", "open_store"]
