"""The append side of a run in a folder: its journal, which is the truth, and SQLite a step behind it.

No run waits for a SQLite that is locked or full: it stays behind, and is caught up when this run rests, or
by the next one that is recorded in the same store.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from warnings import warn

from stepfold.events.beside import texts_of
from stepfold.events.drafts import sweep
from stepfold.events.index import IndexBehind
from stepfold.events.journal import Journal, Log, LogError
from stepfold.events.reconcile import Repair, catch_up, reconcile
from stepfold.events.texts import TextFolder, must_change

if TYPE_CHECKING:
    from stepfold.events.store import Store


class FolderWriter:
    """See `run_store.RunWriter`. Closing it warns IndexBehind when SQLite could not follow."""

    def __init__(self, store: "Store", run_id: str, journal: Journal) -> None:
        self._store = store
        self._run_id = run_id
        self._journal = journal
        self._index = store.index(run_id)
        self._waiting: list[bytes] = []
        self._indexed = 0
        self._behind = ""
        self.path: Path = journal.path
        sweep(texts_of(self.path))

    @property
    def synced_with(self) -> object:
        """Its file is its own."""
        return self

    def begin(self) -> None:
        """Refuse a file that holds a run already, and forget what SQLite has of an earlier one."""
        self._journal.begin()
        try:
            self._index.drop_from(0)
        except sqlite3.Error as error:
            self._behind = self._index.why_behind(error)

    def recorded(self) -> tuple[Log, Repair]:
        """The log as it stands, both sides made equal if SQLite can be written."""
        log, repair, self._behind = reconcile(self._journal, self._index)
        self._indexed = len(log.records)
        return log, repair

    def append(self, lines: Sequence[bytes]) -> None:
        """One write: an intent is in the file before its effect starts, a landing as soon as it lands."""
        batch = b"\n".join(lines) + b"\n"
        if must_change(batch):
            lines = self._put_aside(lines)
            batch = b"\n".join(lines) + b"\n"
        self._journal.append(batch)
        self._waiting += lines

    def _put_aside(self, lines: Sequence[bytes]) -> list[bytes]:
        try:
            return TextFolder(self.path).put_aside(lines)
        except OSError as error:
            raise self._journal.failed("a large text can't be written", error) from error

    def step_ended(self) -> None:
        """SQLite follows by one transaction a step, and may never be ahead of the journal."""
        if not self._waiting:
            return
        # A run may not wait for a locked or full SQLite at each of its steps: what could not follow once
        # is caught up when the run rests.
        if not self._behind:
            try:
                self._index.add(self._indexed, self._waiting)
            except sqlite3.Error as error:
                self._behind = self._index.why_behind(error)
        self._indexed += len(self._waiting)
        self._waiting.clear()

    def sync(self) -> None:
        """Force the journal onto the disk."""
        self._journal.sync()

    def rest(self) -> None:
        """Bring SQLite up to the journal, if it can be written, and the journal onto the disk."""
        self.step_ended()
        self._journal.sync()
        if self._behind:
            try:
                catch_up(self.path, self._index)
                self._behind = ""
            except sqlite3.Error as error:
                self._behind = self._index.why_behind(error)

    def close(self) -> None:
        """Release the file, and let SQLite catch up with other runs that it could not follow."""
        try:
            self.step_ended()
        finally:
            self._journal.close_written()
        if not self._behind:
            _catch_up_all(self._store)
            return
        self._store.note_behind(self._run_id)
        warn(
            f"{self._store.database} could not follow run {self._run_id}: {self._behind}; its log is "
            "whole, and SQLite catches up with the next run that is recorded here",
            IndexBehind,
            stacklevel=4,
        )


def _catch_up_all(store: "Store") -> None:
    for run_id in store.behind():
        try:
            # Of a run that is gone or damaged nothing more can be caught up.
            with suppress(LogError):
                catch_up(store.path_of(run_id), store.index(run_id))
        except sqlite3.Error:
            return
        store.caught_up(run_id)
