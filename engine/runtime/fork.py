"""Branching off a recorded run: its landings serve as long as they still apply, then the run is live."""

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

from msgspec.json import encode as encode_json
from msgspec.structs import replace

from stepfold.engine.runtime.batches import batch_at
from stepfold.engine.runtime.changes import changed
from stepfold.engine.runtime.drive import EventLog
from stepfold.engine.runtime.live import Landing, LiveEffects
from stepfold.engine.runtime.replay import ReplayDiverged, verify
from stepfold.events.codec import encode
from stepfold.events.configuration import Config, GoalConfig, HarnessConfig
from stepfold.events.journal import Recorded
from stepfold.events.vocabulary import (
    AnyEvent,
    Message,
    ModelReplied,
    ModelStarted,
    RunStarted,
    SubAgentCompleted,
    SubAgentFailed,
    SubAgentStarted,
    ToolErred,
    ToolReturned,
    Unknown,
    WaitEnded,
)
from stepfold.projections.effects import CallTool, Listen
from stepfold.projections.fold_tools import DEADLINE
from stepfold.projections.run import evolve, fold
from stepfold.projections.state import Run


class CannotFork(Exception):
    """A fork that makes no sense: where, why, and what would."""


Change = Callable[[Config], Config]
"""What becomes of a recorded configuration in a fork. Raises CannotFork for that of another loop."""

TOOLS_ELSEWHERE = (
    "this is no goal run: the tools of a tool-calling run live in the program that made it, so fork it there "
    "with `AgentHarness.fork`, or name its harness with --harness MODULE:ATTRIBUTE"
)


def goal_change(changes: Iterable[str], model: str) -> Change:
    """A goal run under `changes` (`KEY=VALUE`), with the model of this name."""

    def change(config: Config) -> Config:
        if not isinstance(config, GoalConfig):
            raise CannotFork(TOOLS_ELSEWHERE)
        wanted = changed(config, changes)
        return replace(wanted, model=model) if isinstance(wanted, GoalConfig) and model else wanted

    return change


def branch_off(
    records: Sequence[Recorded],
    *,
    at: int,
    change: Change,
    reply: Message | None = None,
    system: str = "",
) -> tuple[Recorded, ...]:
    """What a fork may be served from its source, its own `RunStarted` first.

    From seq `at` on the configuration that `change` makes holds, and `system` is what the system turn
    says. With a `reply` the one recorded at `at` says that instead, and all after it is live. Raises
    CannotFork and ChangeError.
    """
    # A line that this engine can't read can't be written again either: from there on the fork is live.
    known = tuple(takewhile(lambda record: not isinstance(record.event, Unknown), records))
    start, shared = _shared(records, known, at, change)
    wanted = change(start.forked or start.config)
    changes_it = _as_started(start, wanted, system, shared) != encode(start)
    if changes_it and shared.status and not shared.due:
        last = records[at - 1].event.seq
        raise CannotFork(f"--at {at}: the run has ended there; fork it at {last} or before")
    own = _changed(start, at, wanted, system) if changes_it else _unchanged(start, at)
    served = (Recorded(b"", own), *_still_apply(known[1:], at, start.forked or start.config, wanted))
    return served if reply is None else _edited(served, at, reply)


def _shared(
    records: Sequence[Recorded], known: Sequence[Recorded], at: int, change: Change
) -> tuple[RunStarted, Run]:
    """The start of the source, and the source as it was at `at`."""
    last = len(records)
    if not 0 < at <= last:
        raise CannotFork(f"--at {at}: the run can be forked at the events 1 to {last}; see `stepfold log`")
    if len(known) < at:
        raise CannotFork(
            f"--at {at}: event {len(known)} is of a newer engine: upgrade stepfold, or fork before it"
        )
    start = known[0].event
    if not isinstance(start, RunStarted):
        raise CannotFork("the log does not begin with a RunStarted: see `stepfold replay`")
    change(start.config)
    try:
        verify(known[:at])
    except ReplayDiverged as difference:
        raise CannotFork(
            f"this engine decides otherwise at seq {difference.seq}, before --at {at}: see `stepfold replay`"
        ) from difference
    return start, fold(record.event for record in known[:at])


def _as_started(start: RunStarted, wanted: Config, system: str, shared: Run) -> bytes:
    """The start with what is wanted in the place of what holds: other bytes where that is something else."""
    if system and not (shared.history.turns and shared.history.turns[0].role == "system"):
        raise CannotFork("the conversation begins with no system turn, so there is none to say otherwise in")
    other = "" if not system or shared.history.turns[0].content == system else system
    own = replace(start, forked_system=other or start.forked_system)
    return encode(replace(own, config=wanted) if start.forked is None else replace(own, forked=wanted))


def _unchanged(start: RunStarted, at: int) -> RunStarted:
    # A fork of a fork keeps the place where its configuration changed: its prefix folds by that.
    seq = start.source_seq if start.forked is not None or start.forked_system else at
    return replace(start, source=start.run_id, source_seq=seq)


def _changed(start: RunStarted, at: int, wanted: Config, system: str) -> RunStarted:
    said = system or start.forked_system
    own = replace(start, source=start.run_id, source_seq=at)
    if at == 1:
        # Nothing but the start is shared, so this is what the run was started with.
        return replace(own, config=wanted, input=_saying(start.input, said), forked=None, forked_system="")
    if (start.forked is not None or start.forked_system) and start.source_seq < at:
        raise CannotFork(
            f"--at {at}: the run is itself a fork with settings of its own from seq {start.source_seq} on; "
            f"fork it there or before, or fork its source {start.source}"
        )
    return replace(own, forked=None if wanted == start.config else wanted, forked_system=said)


def _saying(input: tuple[Message, ...], system: str) -> tuple[Message, ...]:
    if not system or not input or input[0].role != "system":
        return input
    return (Message("system", system), *input[1:])


def _still_apply(records: tuple[Recorded, ...], at: int, was: Config, wanted: Config) -> tuple[Recorded, ...]:
    """The records up to where the fork decides the same and they apply no more.

    That is where the source's deadline rang, if the fork has another one; and what follows the first
    question that offers other tools or asks for another form of answer, which no digest covers.
    """
    if not isinstance(was, HarnessConfig) or not isinstance(wanted, HarnessConfig):
        return records
    other_clock = was.wall_clock != wanted.wall_clock
    other_offer = _offer(was) != _offer(wanted)
    for place, record in enumerate(records):
        event = record.event
        if event.seq < at:
            continue
        if other_offer and isinstance(event, ModelStarted):
            return records[: place + 1]
        if other_clock and isinstance(event, WaitEnded) and event.key == DEADLINE:
            return records[:place]
    return records


def _offer(config: HarnessConfig) -> bytes:
    return encode_json(
        (config.manifests, config.response_strategy, config.response_name, config.response_schema)
    )


def _edited(records: tuple[Recorded, ...], at: int, reply: Message) -> tuple[Recorded, ...]:
    event = records[at].event if at < len(records) else None
    if not isinstance(event, ModelReplied):
        places = [str(record.event.seq) for record in records if isinstance(record.event, ModelReplied)]
        raise CannotFork(f"--at {at}: no reply stands there to edit; replies stand at {', '.join(places)}")
    if (event.text, event.tool_calls) == (reply.content, reply.tool_calls) and not event.streamed:
        return records
    said = replace(
        event,
        text=reply.content,
        tool_calls=reply.tool_calls,
        reasoning="",
        finish_reason="",
        estimated=True,
        cache="",
        streamed=False,
    )
    # An action that only differs in its arguments is decided alike, and its results are others.
    return (*records[:at], Recorded(b"", said))


class Branch:
    """Effects and log of a fork: the shared records first, then the live effects.

    The source's landings are handed out while the fork decides byte for byte what its source decided.
    From the first difference on everything is live, and begins with what `news` tells the run then: what
    this process found to be otherwise than the source's.
    """

    def __init__(
        self,
        records: Sequence[Recorded],
        *,
        live: LiveEffects,
        log: EventLog,
        news: Callable[[Run], Sequence[Landing]],
    ) -> None:
        self._records = records
        self._live = live
        self._log = log
        self._news = news
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
            if news := self._news(run):
                return await self._told(run, news)
        return await self._live.next(run)

    async def _told(self, run: Run, news: Sequence[Landing]) -> Sequence[AnyEvent | Unknown]:
        for event in news:
            self._live.push(event)
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
    """The line but for the run's id, of which those of its sub-agents are made."""
    if isinstance(event, Unknown):
        return b""
    if isinstance(event, SubAgentStarted | SubAgentCompleted | SubAgentFailed):
        event = replace(event, child="")
    return encode(replace(event, run_id=""))


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
