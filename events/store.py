"""A store folder: `runs/<run_id>.jsonl`, the truth, and `store.sqlite`, the same lines behind an index.

SQLite follows the journal by one transaction a step and is caught up (`reconcile`) when a run is taken up
again, or by the next one that is recorded, so that losing it loses nothing. `behind/<run_id>` is an empty
file that tells of a run that it could not follow.
"""

import sqlite3
from contextlib import suppress
from pathlib import Path

from stepfold.events.index import Database, RunIndex, is_broken
from stepfold.events.journal import Journal, LogError

_BEHIND = "behind"


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
        self._database = Database(folder / "store.sqlite", synchronous)
        self._keeps_summaries = True
        try:
            self.runs_folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{folder}: can't be used as a store: {error.strerror}; name another with --store"
            ) from error
        try:
            self._database.connection()
        except sqlite3.Error as error:
            # A database that is locked, or in a folder that may only be read, keeps nobody from the runs.
            if is_broken(error):
                raise StoreError(
                    f"{self.database}: {error}; move it away, and it is made anew from runs/*.jsonl"
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
        return self._database.path

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

    def open_journal(self, run_id: str) -> Journal:
        """The append side of a run's file. Raises LogError when another process holds it."""
        return Journal(self.path_of(run_id))


def open_store(folder: str | Path = ".stepfold") -> Store:
    """Open the store in `folder`, making it if need be. Raises StoreError."""
    return Store(Path(folder))


__all__ = ["LogError", "RunIndex", "Store", "StoreError", "open_store"]
