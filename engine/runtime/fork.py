"""Branching off a recorded run: its landings serve as long as they still apply, then the run is live."""

from collections.abc import Iterable, Sequence
from itertools import takewhile

from msgspec.structs import replace

from stepfold.engine.capabilities.sandbox import Probe
from stepfold.engine.runtime.batches import batch_at
from stepfold.engine.runtime.changes import changed
from stepfold.engine.runtime.drive import EventLog
from stepfold.engine.runtime.live import LiveEffects
from stepfold.engine.runtime.replay import ReplayDiverged, verify
from stepfold.events.codec import encode
from stepfold.events.configuration import GoalConfig
from stepfold.events.journal import Recorded
from stepfold.events.vocabulary import (
    BLANK,
    AnyEvent,
    ModelReplied,
    RunStarted,
    SandboxProbed,
    ToolErred,
    ToolReturned,
    ToolsListed,
    Unknown,
)
from stepfold.projections.effects import CallTool, Listen
from stepfold.projections.run import evolve, fold
from stepfold.projections.state import Run


class CannotFork(Exception):
    """A fork that makes no sense: where, why, and what would."""


def branch_off(
    records: Sequence[Recorded],
    *,
    at: int,
    changes: Iterable[str] = (),
    model: str = "",
    reply: str | None = None,
) -> tuple[Recorded, ...]:
    """What a fork may be served from its source, its own `RunStarted` first.

    From seq `at` on the changed configuration holds: `changes` are `KEY=VALUE`, `model` is the name of
    the model that takes over. With a `reply` the one recorded at `at` says that instead, and all after
    it is live. Raises CannotFork and ChangeError.
    """
    # A line that this engine can't read can't be written again either: from there on the fork is live.
    known = tuple(takewhile(lambda record: not isinstance(record.event, Unknown), records))
    _check(records, known, at)
    start = known[0].event
    assert isinstance(start, RunStarted)
    own = _started(start, at, changes, model)
    if own.config != start.config or own.forked != start.forked:
        _refuse_after_the_end(records, at)
    served = (Recorded(b"", own), *known[1:])
    return served if reply is None else _edited(served, at, reply)


def _check(records: Sequence[Recorded], known: Sequence[Recorded], at: int) -> None:
    last = len(records)
    if not 0 < at <= last:
        raise CannotFork(f"--at {at}: the run can be forked at the events 1 to {last}; see `stepfold log`")
    if len(known) < at:
        raise CannotFork(
            f"--at {at}: event {len(known)} is of a newer engine: upgrade stepfold, or fork before it"
        )
    start = known[0].event
    if not isinstance(start, RunStarted) or not isinstance(start.config, GoalConfig):
        raise CannotFork("only goal runs can be forked: the tools of other runs live in their own program")
    try:
        verify(known[:at])
    except ReplayDiverged as difference:
        raise CannotFork(
            f"this engine decides otherwise at seq {difference.seq}, before --at {at}: see `stepfold replay`"
        ) from difference


def _started(start: RunStarted, at: int, changes: Iterable[str], model: str) -> RunStarted:
    latest = start.forked or start.config
    wanted = changed(latest, changes)
    if model and isinstance(wanted, GoalConfig) and wanted.model != model:
        wanted = replace(wanted, model=model)
    source = start.run_id
    if encode(replace(start, config=wanted)) == encode(replace(start, config=latest)):
        # A fork of a fork keeps the place where its configuration changed: its prefix folds by that.
        seq = at if start.forked is None else start.source_seq
        return replace(start, source=source, source_seq=seq)
    if at == 1:
        # Nothing but the start is shared, so this is what the run was started with.
        return replace(start, source=source, source_seq=at, config=wanted, forked=None)
    if start.forked is not None and start.source_seq < at:
        raise CannotFork(
            f"--at {at}: the run is itself a fork with settings of its own from seq {start.source_seq} on; "
            f"fork it there or before, or fork its source {start.source}"
        )
    return replace(start, source=source, source_seq=at, forked=wanted)


def _refuse_after_the_end(records: Sequence[Recorded], at: int) -> None:
    before = fold(record.event for record in records[:at])
    if before.status and not before.due:
        last = records[at - 1].event.seq
        raise CannotFork(f"--at {at}: the run has ended there; fork it at {last} or before")


def _edited(records: tuple[Recorded, ...], at: int, reply: str) -> tuple[Recorded, ...]:
    event = records[at].event if at < len(records) else None
    if not isinstance(event, ModelReplied):
        places = [str(record.event.seq) for record in records if isinstance(record.event, ModelReplied)]
        raise CannotFork(f"--at {at}: no reply stands there to edit; replies stand at {', '.join(places)}")
    if event.text == reply and not event.tool_calls:
        return records
    said = replace(event, text=reply, tool_calls=(), reasoning="", finish_reason="", estimated=True)
    # An action that only differs in its arguments is decided alike, and its results are others.
    return (*records[:at], Recorded(b"", said))


class Branch:
    """Effects and log of a fork: the shared records first, then the live effects.

    The source's landings are handed out while the fork decides byte for byte what its source decided.
    From the first difference on everything is live. `probe` tells which sandbox there is now,
    `listed` what the servers offer.
    """

    def __init__(
        self,
        records: Sequence[Recorded],
        *,
        live: LiveEffects,
        log: EventLog,
        probe: Probe,
        listed: Sequence[ToolsListed] = (),
    ) -> None:
        self._records = records
        self._live = live
        self._log = log
        self._probe = probe
        self._listed = listed
        self._shared = True
        self._position = 0
        self._handed_out = 0

    async def next(self, run: Run) -> Sequence[AnyEvent | Unknown]:
        """The source's next landings, or those of the live effects."""
        if self._shared:
            batch = batch_at(self._records, self._position, run)
            if batch:
                self._position += len(batch)
                self._handed_out = len(batch)
                return [replace(event, run_id=self._live.run_id) for event in batch]
            self._shared = False
        if self._records and _goes_on(run):
            self._records = ()
            if self._listed or self._probe.backend != run.backend:
                return await self._announced(run)
        return await self._live.next(run)

    async def _announced(self, run: Run) -> Sequence[AnyEvent | Unknown]:
        if self._probe.backend != run.backend:
            self._live.push(SandboxProbed(*BLANK, backend=self._probe.backend, why=self._probe.why))
        for listed in self._listed:
            self._live.push(listed)
        # Nothing may start before the run knows its sandbox and its tools, so this once nothing is due.
        resting = run.clone()
        resting.due = {}
        return await self._live.next(resting)

    def record(self, event: AnyEvent | Unknown) -> None:
        """Write the event, and see whether the fork still decides as its source did."""
        self._log.record(event)
        if self._handed_out:
            self._handed_out -= 1
        elif self._shared:
            self._shared = self._is_recorded(event)
            self._position += 1

    def _is_recorded(self, event: AnyEvent | Unknown) -> bool:
        if self._position >= len(self._records):
            return False
        return _line(self._records[self._position].event) == _line(event)

    def flush(self) -> None:
        """Write the batch."""
        self._log.flush()


def _goes_on(run: Run) -> bool:
    return any(not isinstance(effect, Listen) for effect in run.due.values())


def _line(event: AnyEvent | Unknown) -> bytes:
    """The line but for the run's id."""
    return b"" if isinstance(event, Unknown) else encode(replace(event, run_id=""))


def served_mutations(source: Sequence[Recorded], fork: Sequence[Recorded]) -> tuple[str, ...]:
    """The calls that changed the source's workspace and were not run again for the fork, in order."""
    run = Run()
    found: list[str] = []
    for was, now in zip(source, fork, strict=False):
        event = now.event
        if event.seq and _line(was.event) != _line(event):
            break
        if isinstance(event, ToolReturned | ToolErred):
            call = run.due.get(event.key)
            manifest = run.manifests.get(call.name) if isinstance(call, CallTool) else None
            if manifest is not None and manifest.mutates:
                found.append(f"{manifest.name} at step {event.step}")
        evolve(run, event)
    return tuple(found)
