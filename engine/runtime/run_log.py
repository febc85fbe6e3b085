"""The log of a live run: the journal a batch at a time, SQLite a step at a time, and whoever watches."""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from warnings import warn

from stepfold.events.chain import BEGINNING, chained, sealed
from stepfold.events.codec import encode
from stepfold.events.index import IndexBehind
from stepfold.events.journal import Log, LogError
from stepfold.events.reconcile import NOTHING, Repair, catch_up, reconcile
from stepfold.events.store import Store
from stepfold.events.vocabulary import AnyEvent, Unknown

Watch = Callable[[AnyEvent], None]
"""Told of each event as it is recorded: narration, progress, a stream. It can't change the run."""


class RunLog:
    """Writes one run into a store. Use as a context manager: leaving it makes the log whole.

    `durability` says when the journal is forced onto the disk: `normal` at the end of the run and
    before a call that may not run twice, `step` also after every step, `full` after every batch.
    """

    def __init__(
        self, store: Store, run_id: str, *, watch: Watch | None = None, durability: str = "normal"
    ) -> None:
        self._store = store
        self._journal = store.open_journal(run_id)
        self._index = store.index(run_id)
        self._behind = ""
        self._watch = watch
        self._durability = durability
        self._batch: list[bytes] = []
        self._step_lines: list[bytes] = []
        self._ended: list[bytes] = []
        self._seq = 0
        self._step = -1
        self._chain = BEGINNING
        self._seals = True
        self.repair: Repair = NOTHING
        self.path = self._journal.path

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self) -> None:
        """For a run that is new: raises LogError when its id is recorded already."""
        self._journal.begin()
        try:
            self._index.drop_from(0)
        except sqlite3.Error as error:
            self._behind = str(error)

    def recorded(self) -> Log:
        """What is recorded of a run that is taken up again. Its two sides are made equal; see `repair`."""
        log, self.repair, self._behind = reconcile(self._journal, self._index)
        self._seq = len(log.records)
        self._chain = log.chain
        self._seals = log.is_sealed
        return log

    def record(self, event: AnyEvent | Unknown) -> None:
        """Take one event, in order."""
        if isinstance(event, Unknown):
            return
        line = self._sealed(encode(event))
        if event.step != self._step:
            self._end_step()
            self._step = event.step
        self._batch.append(line)
        self._step_lines.append(line)
        if self._watch is not None:
            self._watch(event)

    def flush(self) -> None:
        """Write the batch: its intents are durable before their effects start."""
        if not self._batch:
            return
        self._journal.append(b"\n".join(self._batch) + b"\n")
        self._batch.clear()
        if self._durability == "full" or (self._durability == "step" and self._ended):
            self._journal.sync()
        self._index_what_ended()

    def sync(self) -> None:
        """Force what is written onto the disk."""
        self._journal.sync()

    def settle(self) -> None:
        """Complete both sides: the run rests."""
        self._end_step()
        self.flush()
        self._index_what_ended()
        self._journal.sync()
        if self._behind:
            self._catch_up()

    def close(self) -> None:
        """Complete both sides and release the run. Warns IndexBehind when SQLite could not follow."""
        try:
            self.settle()
        finally:
            self._journal.close()
        if self._behind:
            self._store.note_behind(self.path.stem)
            warn(
                f"{self._store.database} could not follow run {self.path.stem}: {self._behind}; its log is "
                "whole, and SQLite catches up with the next run that is recorded here",
                IndexBehind,
                stacklevel=3,
            )
        else:
            catch_up_all(self._store)

    def _catch_up(self) -> None:
        try:
            catch_up(self.path, self._index)
            self._behind = ""
        except sqlite3.Error as error:
            self._behind = str(error)

    def _sealed(self, line: bytes) -> bytes:
        if not self._seals:
            return line
        self._chain = chained(self._chain, line)
        return sealed(line, self._chain)

    def _end_step(self) -> None:
        self._ended += self._step_lines
        self._step_lines.clear()

    def _index_what_ended(self) -> None:
        """SQLite may never be ahead of the journal, so a step is indexed once its last batch is written."""
        if not self._ended:
            return
        # A run may not wait for a locked or full SQLite at each of its steps: what could not follow once
        # is caught up when the run rests.
        if not self._behind:
            try:
                self._index.add(self._seq, self._ended)
            except sqlite3.Error as error:
                self._behind = str(error)
        self._seq += len(self._ended)
        self._ended.clear()


def catch_up_all(store: Store) -> None:
    """Let SQLite catch up with the runs that it could not follow, now that it can be written again."""
    for run_id in store.behind():
        try:
            # Of a run that is gone or damaged nothing more can be caught up.
            with suppress(LogError):
                catch_up(store.path_of(run_id), store.index(run_id))
        except sqlite3.Error:
            return
        store.caught_up(run_id)


class MemoryLog:
    """A log that keeps its events: for tests, and for runs that nobody wants on disk."""

    def __init__(self) -> None:
        self.events: list[AnyEvent | Unknown] = []

    def record(self, event: AnyEvent | Unknown) -> None:
        """Keep one event."""
        self.events.append(event)

    def flush(self) -> None:
        """Nothing to make durable."""
