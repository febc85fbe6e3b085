"""From what a trace says to the events of a run: steps, keys, pairs of calls and results, and the counts."""

from collections.abc import Iterator
from hashlib import blake2b
from importlib.metadata import version

from msgspec import Struct

from stepfold.engine.studies.imports.said import (
    Answered,
    Call,
    Called,
    Ended,
    Erred,
    Noticed,
    Refused,
    Replied,
    Said,
    Spoke,
    Unplaced,
)
from stepfold.events.configuration import ImportedConfig
from stepfold.events.vocabulary import (
    NO_TIME,
    VERSION,
    AnyEvent,
    Found,
    Message,
    MessageRecorded,
    ModelErred,
    ModelReplied,
    RejectionRecorded,
    RunStarted,
    Tally,
    ToolCall,
    ToolCalled,
    ToolReturned,
    TraceEnded,
)
from stepfold.projections.fold_imported import same_arguments

PLACES_AT_MOST = 8
"""So many places of one kind of finding are named; the others are counted."""
KINDS_AT_MOST = 200
"""So many kinds of findings, and of what has no place, are told apart."""
OPENING_AT_MOST = 64
"""So many messages before the first reply belong to the run's input."""


class Counts(Struct):
    """What is in a run. `longest_repeat` is the longest streak of identical calls, `third_repeat` the number
    of the call that was the third identical one in a row, 0 for none.
    """

    events: int = 0
    turns: int = 0
    calls: int = 0
    results: int = 0
    rejected: int = 0
    errors: int = 0
    inflight: int = 0
    orphans: int = 0
    longest_repeat: int = 0
    third_repeat: int = 0


class _Open(Struct, frozen=True):
    """A call without a result so far: its key, its step, its id in the log and in the file, its tool."""

    key: str
    step: int
    call_id: str
    id: str
    name: str


class Recorder:
    """Takes what a format says of one run, and gives its events."""

    def __init__(self, run_id: str, source: ImportedConfig) -> None:
        self.counts = Counts()
        self.ended: TraceEnded | None = None
        self.run_id = run_id
        self._source = source
        self._step = 0
        self._place = 0
        self._opening: list[Spoke] | None = []
        self._open: dict[str, _Open] = {}
        self._ids: set[str] = set()
        self._findings: dict[str, Found] = {}
        self._unmapped: dict[str, int] = {}
        self._streak: tuple[str, int] = ("", 0)

    def take(self, said: Said) -> Iterator[AnyEvent]:
        """The events of what was said."""
        match said:
            case Spoke() if self._opening is not None and len(self._opening) < OPENING_AT_MOST:
                self._opening.append(said)
            case Noticed():
                self._notice(said.what, said.where, said.detail)
            case Unplaced():
                self._unplaced(said.what, said.count)
            case _:
                if self._opening is not None:
                    yield self._started(self._opening)
                    self._opening = None
                yield from self._events_of(said)

    def _events_of(self, said: Said) -> Iterator[AnyEvent]:
        match said:
            case Spoke():
                yield MessageRecorded(*self._envelope(said.at), role=said.role, text=said.text)
            case Replied():
                yield from self._replied(said)
            case Called():
                yield from self._called(said.call)
            case Answered():
                yield from self._answered(said)
            case Refused():
                self.counts.rejected += 1
                yield RejectionRecorded(
                    *self._envelope(said.at), subject="reply", error=said.error, detail=said.detail
                )
            case Erred():
                yield ModelErred(*self._envelope(said.at), error=said.error, detail=said.detail)
            case Ended():
                yield self._end(said)

    def _envelope(self, at: str) -> tuple[int, str, int, int, str]:
        seq = self.counts.events
        self.counts.events += 1
        return (VERSION, self.run_id, seq, self._step, at or NO_TIME)

    def _started(self, opening: list[Spoke]) -> RunStarted:
        at = next((spoke.at for spoke in opening if spoke.at), "")
        said = tuple(Message(spoke.role, spoke.text) for spoke in opening)
        return RunStarted(*self._envelope(at), config=self._source, engine=version("stepfold"), input=said)

    def _replied(self, said: Replied) -> Iterator[AnyEvent]:
        self._step += 1
        self._place = 0
        self._ids.clear()
        self.counts.turns += 1
        calls = tuple((call, self._next_key()) for call in said.calls)
        asked = tuple(ToolCall(self._id_of(call, key), call.name, call.arguments) for call, key in calls)
        yield ModelReplied(
            *self._envelope(said.at),
            text=said.text,
            tool_calls=asked,
            finish_reason=said.finish_reason,
            model=said.model,
            reasoning=said.reasoning,
            input_tokens=said.input_tokens,
            output_tokens=said.output_tokens,
            cost=said.cost,
            agent=said.agent,
        )
        for (call, key), written in zip(calls, asked, strict=True):
            self._opened(call, key, written.id)
            yield ToolCalled(*self._envelope(call.at), call_id=written.id, name=call.name, answer_key=key)

    def _called(self, call: Call) -> Iterator[AnyEvent]:
        key = self._next_key()
        call_id = self._id_of(call, key)
        self._opened(call, key, call_id)
        # An empty text would say that a reply holds the arguments.
        arguments = call.arguments or "{}"
        yield ToolCalled(
            *self._envelope(call.at), call_id=call_id, name=call.name, answer_key=key, arguments=arguments
        )

    def _next_key(self) -> str:
        key = f"tool:{self._step}.{self._place}"
        self._place += 1
        return key

    def _id_of(self, call: Call, key: str) -> str:
        if call.id in self._ids:
            self._notice("repeated_call_id", f"step {self._step}", "one reply gives several calls this id")
            return key
        self._ids.add(call.id or key)
        return call.id or key

    def _opened(self, call: Call, key: str, call_id: str) -> None:
        counts = self.counts
        counts.calls += 1
        self._open[key] = _Open(key, self._step, call_id, call.id, call.name)
        same = f"{call.name}\x1f{same_arguments(call.arguments)}"
        before, count = self._streak
        count = count + 1 if same == before else 1
        self._streak = (same, count)
        counts.longest_repeat = max(counts.longest_repeat, count)
        if count == 3 and not counts.third_repeat:
            counts.third_repeat = counts.calls

    def _answered(self, said: Answered) -> Iterator[AnyEvent]:
        counts = self.counts
        counts.results += 1
        call = self._asker(said)
        if call is None:
            counts.orphans += 1
            self._notice("result_without_call", said.id or f"step {self._step}", said.name or "")
        if said.refused:
            counts.rejected += 1
            yield RejectionRecorded(
                *self._envelope(said.at),
                subject="call",
                error=said.error,
                call_id=call.call_id if call else said.id or "",
                name=call.name if call else said.name or "",
            )
        elif said.error:
            counts.errors += 1
        whole = said.text.encode("utf-8", "surrogatepass")
        yield ToolReturned(
            *self._envelope(said.at),
            key=call.key if call else "",
            content="" if said.repeats else said.text,
            error=said.error,
            size=len(whole) if said.repeats else 0,
            digest=blake2b(whole, digest_size=16).hexdigest() if said.repeats else "",
            call_id="" if call else said.id or "",
        )

    def _asker(self, said: Answered) -> _Open | None:
        found = None
        if said.id:
            # Of calls that share an id those of the latest step are meant, and of these the first.
            same = [call for call in self._open.values() if call.id == said.id]
            found = next((call for call in same if call.step == same[-1].step), None)
        elif said.name:
            found = next((call for call in self._open.values() if call.name == said.name), None)
        elif said.id is None:
            found = next(iter(self._open.values()), None)
        if found is not None:
            del self._open[found.key]
        return found

    def _end(self, said: Ended) -> TraceEnded:
        counts = self.counts
        counts.inflight = len(self._open)
        for call in self._open.values():
            self._notice("call_without_result", f"{call.key.removeprefix('tool:')} {call.id}", call.name)
        self.ended = TraceEnded(
            *self._envelope(said.at),
            end_as_recorded=said.recorded,
            status=said.status,
            inferred=said.inferred,
            error=said.error,
            scores=said.scores,
            findings=tuple(self._findings.values()),
            unmapped=tuple(Tally(what, count) for what, count in sorted(self._unmapped.items())),
        )
        return self.ended

    def _notice(self, what: str, where: str, detail: str) -> None:
        known = self._findings.get(what)
        if known is None:
            if len(self._findings) < KINDS_AT_MOST:
                self._findings[what] = Found(what, 1, (where,) if where else (), detail)
            return
        places = known.where
        if where and len(places) < PLACES_AT_MOST:
            places = (*places, where)
        self._findings[what] = Found(what, known.count + 1, places, known.detail)

    def _unplaced(self, what: str, count: int) -> None:
        if what not in self._unmapped and len(self._unmapped) >= KINDS_AT_MOST:
            what = "other"
        self._unmapped[what] = self._unmapped.get(what, 0) + count
