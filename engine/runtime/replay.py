"""Replay: the same `drive` over recorded effects and a log that compares; no model, tool or clock.

Replay's effects hand out the next run of neighbouring observed events, as one batch, and refuse one
that answers no effect in flight. Its log compares each decided event's canonical bytes with the
recorded ones. The first difference is told with what was recorded, what is computed now, the rows of
the table that fired, and the observed event that led to it.
"""

from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from stepfold.engine.core.own_guards import MissingGuard
from stepfold.engine.runtime.batches import Batch
from stepfold.engine.runtime.drive import drive
from stepfold.events.codec import encode
from stepfold.events.configuration import ImportedConfig
from stepfold.events.journal import (
    NO_EVENT,
    WHAT_TO_DO,
    LogError,
    NewerLog,
    Recorded,
    damaged_records_of,
)
from stepfold.events.vocabulary import AnyEvent, Observed, RunStarted, Unknown
from stepfold.projections.state import Run


class ReplayDiverged(Exception):
    """The engine decides otherwise now than when the log was made."""

    def __init__(
        self,
        seq: int,
        kind: str,
        field: str,
        recorded: Any,
        computed: Any,
        caused_by: Any,
        row: dict[str, Any] | None = None,
    ) -> None:
        self.seq = seq
        self.kind = kind
        self.field = field
        self.recorded = recorded
        self.computed = computed
        self.caused_by = caused_by
        self.row = row
        super().__init__(f"diverged at seq {seq} ({kind}): {field} was {recorded!r}, is now {computed!r}")


class _EndOfLog(Exception):
    """The log ends inside a batch, as a killed process leaves it: all that is there agrees."""


class Replay(Struct, frozen=True):
    """The verdict over one trace, in the shape that `stepfold replay --json` prints.

    `field` is a path (`sections.2.digest`); `row` holds the row of the table that fired when the log
    was recorded and the one that fires now, each None where there is no decision on that side.
    `engine` is there where another version of the engine made the log, and may have decided otherwise;
    `damaged` where a line was changed after it was written: then the log differs, not the engine.
    `imported` names the format of a run that another program's loop decided: nothing of it can be
    regenerated, so it is never `identical`.
    """

    trace: str
    verdict: str
    events: int = 0
    seq: int = 0
    kind: str = ""
    field: str = ""
    recorded: Any = None
    computed: Any = None
    caused_by: Any = None
    row: dict[str, Any] | None = None
    line: int = 0
    why: str = ""
    torn_bytes: int = 0
    unknown_kinds: int = 0
    damaged: dict[str, Any] | None = None
    imported: str = ""
    engine: dict[str, str] | None = None

    def as_json(self) -> dict[str, Any]:
        """Only the fields that belong to the verdict."""
        match self.verdict:
            case "identical":
                fields = ["trace", "verdict", "events"]
            case "diverged":
                fields = ["trace", "verdict", "seq", "kind", "field", "recorded", "computed", "caused_by"]
                fields.append("row")
            case _:
                fields = ["trace", "verdict", "line", "why"]
        optional = ("torn_bytes", "unknown_kinds", "damaged", "imported", "engine")
        fields += [name for name in optional if getattr(self, name)]
        return {name: getattr(self, name) for name in fields}


class RecordedRun:
    """Both sides of a replay over one cursor: effects that hand out, and a log that compares."""

    def __init__(self, records: Iterable[Recorded]) -> None:
        self._records = iter(records)
        self._next = next(self._records, None)
        self.count = 0
        self._last_observed: AnyEvent | None = None
        self._handed_out = 0

    async def next(self, run: Run) -> Sequence[AnyEvent | Unknown]:
        """The next maximal run of neighbouring observed events."""
        batch: list[AnyEvent | Unknown] = []
        cut = Batch(run)
        while self._next is not None and cut.takes(self._next):
            event = self._next.event
            if isinstance(event, Observed):
                self._refuse_unasked(run, event, first=not batch and run.seq == 0)
                self._last_observed = event
            batch.append(event)
            self._advance()
        if not batch and self._next is not None:
            self._refuse(run, self._next.event)
        self._handed_out = len(batch)
        return batch

    def record(self, event: AnyEvent | Unknown) -> None:
        """Compare a decided event with the recorded one; observed ones are the recorded ones."""
        if self._handed_out:
            self._handed_out -= 1
            return
        if self._next is None:
            raise _EndOfLog
        computed = encode(event)  # type: ignore[arg-type]
        if computed != self._next.line:
            self._compare(event, computed)
        self._advance()

    def flush(self) -> None:
        """Nothing is written."""

    def _advance(self) -> None:
        self.count += 1
        self._next = next(self._records, None)

    def _compare(self, event: Any, computed: bytes) -> None:
        assert self._next is not None
        recorded: Any = self._next.event
        self._refuse_newer(recorded)
        # Lines of an older version, or with fields that this engine doesn't know, agree when their
        # canonical form does.
        if encode(recorded) == computed:
            return
        was, now = _fields(encode(recorded)), _fields(computed)
        field, old, new = first_difference(was, now)
        rows = {"recorded": was.get("row"), "computed": now.get("row")}
        raise ReplayDiverged(recorded.seq, str(was.get("kind")), field, old, new, self._cause(), rows)

    def _refuse(self, run: Run, event: Any) -> None:
        if isinstance(event, Observed):
            self._refuse_unasked(run, event, first=run.seq == 0)
        self._missing_decision(event)

    def _refuse_unasked(self, run: Run, event: Observed, *, first: bool) -> None:
        if first and not isinstance(event, RunStarted):
            raise ReplayDiverged(
                event.seq, type(event).__name__, "kind", type(event).__name__, "RunStarted", None
            )
        if event.key and event.key not in run.due:
            raise ReplayDiverged(
                event.seq, type(event).__name__, "key", event.key, sorted(run.due), self._cause()
            )

    def _refuse_newer(self, event: AnyEvent | Unknown) -> None:
        if isinstance(event, Unknown):
            why = f"the kind {event.kind} at seq {event.seq} is of a newer engine: upgrade stepfold"
            raise NewerLog(Path(), why, self.count + 1)

    def _missing_decision(self, event: Any) -> None:
        self._refuse_newer(event)
        raise ReplayDiverged(
            event.seq,
            type(event).__name__,
            "kind",
            type(event).__name__,
            None,
            self._cause(),
            {"recorded": getattr(event, "row", None), "computed": None},
        )

    def _cause(self) -> Any:
        event = self._last_observed
        return None if event is None else {"seq": event.seq, "kind": type(event).__name__, "key": event.key}  # type: ignore[union-attr]


def first_difference(was: Any, now: Any) -> tuple[str, Any, Any]:
    """Where two JSON values first differ: the path, and both sides there. ("", …) when they are whole others.

    Goes into objects, and into arrays of objects of one length: other arrays are told whole, for a name
    at a place says less than the two lists.
    """
    if isinstance(was, dict) and isinstance(now, dict):
        pairs = [(name, was.get(name), now.get(name)) for name in dict.fromkeys([*was, *now])]
    elif _are_objects(was) and _are_objects(now) and len(was) == len(now):
        pairs = [(str(place), *sides) for place, sides in enumerate(zip(was, now, strict=True))]
    else:
        return "", was, now
    for name, left, right in pairs:
        if left != right or type(left) is not type(right):
            path, old, new = first_difference(left, right)
            return f"{name}.{path}".rstrip("."), old, new
    return "", was, now


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _fields(line: bytes) -> dict[str, Any]:
    return msgspec.json.decode(line, type=dict[str, Any])


def run_to_end(coroutine: Coroutine[Any, Any, Run]) -> Run:
    """Run a coroutine that never waits, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: Run = stop.value
        return result
    coroutine.close()
    raise RuntimeError("a replay waited for something: its effects are not recorded ones")


def verify(records: Iterable[Recorded]) -> tuple[Run, int]:
    """Regenerate a log from its observed events; the run, and how many events agreed.

    Raises ReplayDiverged at the first difference.
    """
    recorded = RecordedRun(records)
    run = Run()
    with suppress(_EndOfLog):
        run_to_end(drive(run, recorded, recorded))
    return run, recorded.count


class _Regenerated(RecordedRun):
    """The recorded landings under the decisions of today, whatever was decided then."""

    def __init__(self, records: Iterable[Recorded]) -> None:
        super().__init__([record for record in records if isinstance(record.event, Observed)])
        self.events: list[AnyEvent] = []

    async def next(self, run: Run) -> Sequence[AnyEvent | Unknown]:
        """One landing after the other, as long as each answers something that is due."""
        if self._next is None:
            return ()
        event: Any = self._next.event
        self._refuse_unasked(run, event, first=run.seq == 0)
        self._advance()
        return [msgspec.structs.replace(event, seq=run.seq, step=run.step)]

    def record(self, event: AnyEvent | Unknown) -> None:
        """Keep what is decided now."""
        self.events.append(event)  # type: ignore[arg-type]


def regenerate(records: Iterable[Recorded]) -> tuple[AnyEvent, ...]:
    """A log's landings with the decisions of today: what a fixture is rewritten to when a rule changed.

    Raises ReplayDiverged when a landing answers nothing any more: then the run can only be recorded anew.
    """
    regenerated = _Regenerated(records)
    run_to_end(drive(Run(), regenerated, regenerated))
    return tuple(regenerated.events)


NOT_OURS = (
    "another program's loop decided it, so there is nothing to regenerate; "
    "`stepfold log RUN --verify` tells whether it is as it was imported"
)


class _Watched:
    """A trace on its way to be verified, a line at a time: what was torn, what was changed, who made it."""

    def __init__(self, path: Path) -> None:
        self._torn: list[bytes] = []
        self._records = damaged_records_of(path, self._torn)
        self.damaged: dict[str, Any] | None = None
        self.engine: dict[str, str] | None = None
        self.imported = ""

    def __iter__(self) -> Iterator[Recorded]:
        for record in self._records:
            if isinstance(record.event, RunStarted):
                self._compare_engines(record.event.engine)
                config = record.event.config
                self.imported = config.format if isinstance(config, ImportedConfig) else ""
            if record.damage and self.damaged is None:
                seq = record.event.seq
                self.damaged = {"seq": seq, "line": seq + 1, "why": record.damage}
            yield record

    def read_the_rest(self) -> None:
        """Raises LogError for a line that can't be read, wherever the verification stopped."""
        for _ in self:
            pass

    @property
    def torn_bytes(self) -> int:
        return sum(map(len, self._torn))

    def _compare_engines(self, recorded: str) -> None:
        this = version("stepfold")
        if recorded != this:
            self.engine = {"recorded": recorded, "this": this}


def replay(trace: str | Path) -> Replay:
    """Replay one trace file, in memory that grows with what the run holds and not with its log.

    Never raises on what is in the file: the verdict says it.
    """
    watched = _Watched(Path(trace))
    try:
        return _verdict(str(trace), watched)
    except NewerLog as error:
        # Whoever reads this must not take a log for damaged that only needs another engine.
        why = error.why if "newer" in error.why else f"of a newer engine: {error.why}"
        return Replay(str(trace), "unreadable", line=error.line, why=why)
    except LogError as error:
        return Replay(str(trace), "unreadable", line=error.line, why=error.why)
    except MissingGuard as error:
        return Replay(str(trace), "unreadable", why=str(error))


def _verdict(trace: str, watched: _Watched) -> Replay:
    try:
        run, count = verify(iter(watched))
    except ReplayDiverged as difference:
        watched.read_the_rest()
        return Replay(
            trace,
            "diverged",
            seq=difference.seq,
            kind=difference.kind,
            field=difference.field,
            recorded=difference.recorded,
            computed=difference.computed,
            caused_by=difference.caused_by,
            row=difference.row,
            damaged=watched.damaged,
            engine=watched.engine,
        )
    damaged = watched.damaged
    if damaged is not None:
        # Every decision follows, so the change is in what came from outside, and nothing else tells of it.
        why = f"{damaged['why']}; {WHAT_TO_DO}"
        return Replay(trace, "unreadable", line=damaged["line"], why=why, damaged=damaged)
    if not count:
        return Replay(trace, "unreadable", why=NO_EVENT)
    if watched.imported:
        return Replay(
            trace,
            "unreadable",
            line=1,
            why=f"imported from {watched.imported}: {NOT_OURS}",
            imported=watched.imported,
        )
    return Replay(
        trace, "identical", events=count, torn_bytes=watched.torn_bytes, unknown_kinds=run.unknown_kinds
    )
