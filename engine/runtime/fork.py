"""Branching off a recorded run: its landings serve as long as they still apply, then the run is live."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from stepfold.engine.runtime.drive import Effects, EventLog
from stepfold.events.codec import encode
from stepfold.events.configuration import Config
from stepfold.events.journal import Recorded
from stepfold.events.vocabulary import AnyEvent, ModelReplied, Observed, RunStarted, ToolReturned, Unknown
from stepfold.projections.state import Run


class CannotFork(Exception):
    """A fork that makes no sense: where, why, and what would."""


class Branch:
    """Effects and log of a fork, over the records of its source and the live ones.

    Up to the fork's seq the source's landings are handed out; beyond it they still are, while the fork
    decides byte for byte what the source decided. From the first difference on everything is live.
    `served_mutations` names the calls that changed the source's workspace and were not run again.
    """

    def __init__(
        self,
        records: Sequence[Recorded],
        *,
        run_id: str,
        at: int,
        live: Effects,
        log: EventLog,
        config: Config | None = None,
        reply: str | None = None,
    ) -> None:
        self._records = records
        self._run_id = run_id
        self._at = at
        self._live = live
        self._log = log
        self._config = config
        self._reply = reply
        self._shared = True
        self._position = 0
        self._handed_out = 0
        self.went_live_at: int | None = None
        self.served_mutations: list[str] = []
        self._check()

    def _check(self) -> None:
        last = self._records[-1].event.seq
        if not 0 < self._at <= last + 1:
            raise CannotFork(f"--at {self._at}: the run has the events 1 to {last + 1} to fork at")
        if self._reply is None:
            return
        event = self._records[self._at].event if self._at <= last else None
        if not isinstance(event, ModelReplied):
            near = [r.event.seq for r in self._records if isinstance(r.event, ModelReplied)]
            raise CannotFork(f"--at {self._at} is no reply to edit; replies stand at {near}")

    async def next(self, run: Run) -> Sequence[AnyEvent | Unknown]:
        """The source's next landings, or those of the live effects."""
        if self._shared:
            batch = list(self._landings(run))
            if batch:
                self._handed_out = len(batch)
                return batch
            self._shared = False
            self.went_live_at = run.seq
        return await self._live.next(run)

    def _landings(self, run: Run) -> Iterator[AnyEvent | Unknown]:
        while self._position < len(self._records):
            event = self._records[self._position].event
            if not isinstance(event, Observed | Unknown):
                return
            if isinstance(event, Observed) and event.key and event.key not in run.due:
                return
            if isinstance(event, ToolReturned) and self._mutates(run, event.key):
                self.served_mutations.append(event.key)
            self._position += 1
            yield self._own(event)

    def _mutates(self, run: Run, key: str) -> bool:
        manifest = run.manifests.get(getattr(run.due.get(key), "name", ""))
        return manifest is not None and manifest.mutates

    def _own(self, event: AnyEvent | Unknown) -> AnyEvent | Unknown:
        if isinstance(event, RunStarted):
            event = replace(event, source=event.run_id, source_seq=self._at, forked=self._config)
        if isinstance(event, ModelReplied) and event.seq == self._at and self._reply is not None:
            event = replace(event, text=self._reply, tool_calls=(), reasoning="", estimated=True)
            self._position = len(self._records)
        return replace(event, run_id=self._run_id)

    def record(self, event: AnyEvent | Unknown) -> None:
        """Write the event, and see whether the fork still decides as its source did."""
        self._log.record(event)
        if self._handed_out:
            self._handed_out -= 1
            return
        if not self._shared:
            return
        if self._position >= len(self._records) or not self._same(event):
            self._shared = False
            self.went_live_at = event.seq
            return
        self._position += 1

    def _same(self, event: AnyEvent | Unknown) -> bool:
        recorded = self._records[self._position].event
        if isinstance(recorded, Unknown) or isinstance(event, Unknown):
            return False
        return encode(replace(recorded, run_id=self._run_id)) == encode(event)

    def flush(self) -> None:
        """Write the batch."""
        self._log.flush()
