"""The log of a live run: sealed lines, a batch at a time into a store, and whoever watches."""

from collections.abc import Callable

from stepfold.engine.runtime.group_commit import group_commit
from stepfold.events.chain import BEGINNING, chained, sealed
from stepfold.events.codec import encode
from stepfold.events.journal import Log
from stepfold.events.reconcile import NOTHING, Repair
from stepfold.events.run_store import RunStore
from stepfold.events.vocabulary import AnyEvent, Unknown

Watch = Callable[[AnyEvent], None]
"""Told of each event as it is recorded: narration, progress, a stream. It can't change the run."""


class RunLog:
    """Writes one run into a store. Use as a context manager: leaving it makes the log whole.

    `durability` says when the store is asked to be safe from a lost machine: `normal` at the end of the
    run and before a call that may not run twice, `step` also after every step, `full` after every batch.
    """

    def __init__(
        self, store: RunStore, run_id: str, *, watch: Watch | None = None, durability: str = "normal"
    ) -> None:
        self._writer = store.writer(run_id)
        self._watch = watch
        self._durability = durability
        self._batch: list[bytes] = []
        self._step = -1
        self._step_ended = False
        self._chain = BEGINNING
        self._seals = True
        self.sync_due = False
        self.repair: Repair = NOTHING
        self.path = self._writer.path

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self) -> None:
        """For a run that is new: raises LogError when its id is recorded already."""
        self._writer.begin()

    def recorded(self) -> Log:
        """What is recorded of a run that is taken up again. What had to be mended for that is in `repair`."""
        log, self.repair = self._writer.recorded()
        self._chain = log.chain
        self._seals = log.is_sealed
        return log

    def record(self, event: AnyEvent | Unknown) -> None:
        """Take one event, in order."""
        if isinstance(event, Unknown):
            return
        if event.step != self._step:
            self._step_ended = True
            self._step = event.step
        self._batch.append(self._sealed(encode(event)))
        if self._watch is not None:
            self._watch(event)

    def flush(self) -> None:
        """Write the batch: its intents are durable before their effects start."""
        if not self._batch:
            return
        self._writer.append(self._batch)
        self._batch.clear()
        if self._durability == "full" or (self._durability == "step" and self._step_ended):
            self.require_sync()
        if self._step_ended:
            self._writer.step_ended()
            self._step_ended = False

    def require_sync(self) -> None:
        """The next effect may not start before what is written is safe from a lost machine."""
        self.sync_due = True

    async def synced(self) -> None:
        """Do what was required, together with the other runs of this event loop."""
        self.sync_due = False
        await group_commit().synced(self._writer)

    def settle(self) -> None:
        """Write all that was recorded, safe from a lost machine: the run rests."""
        self.flush()
        self.sync_due = False
        self._writer.rest()

    def close(self) -> None:
        """Settle, and release the run."""
        try:
            self.settle()
        finally:
            self._writer.close()

    def _sealed(self, line: bytes) -> bytes:
        if not self._seals:
            return line
        self._chain = chained(self._chain, line)
        return sealed(line, self._chain)


class MemoryLog:
    """A log that keeps its events: for tests, and for runs that nobody wants on disk."""

    def __init__(self) -> None:
        self.events: list[AnyEvent | Unknown] = []

    def record(self, event: AnyEvent | Unknown) -> None:
        """Keep one event."""
        self.events.append(event)

    def flush(self) -> None:
        """Nothing to make durable."""
