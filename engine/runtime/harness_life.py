"""One process's part of a tool-calling run: the wiring of mailbox, log, steering, cancellation and stream."""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Protocol

from msgspec.structs import replace

from stepfold.engine.runtime.agent_run import AgentLoopResult, agent_run, status_of
from stepfold.engine.runtime.drive import Effects, EventLog
from stepfold.engine.runtime.ending import drive_to_the_end
from stepfold.engine.runtime.fork import Branch
from stepfold.engine.runtime.live import LiveEffects
from stepfold.engine.runtime.reopen import push_reopening, reopen
from stepfold.engine.runtime.run_log import MemoryLog, RunLog
from stepfold.engine.runtime.run_policy import RunConfig, new_run_id
from stepfold.engine.runtime.snapshots import folded_from
from stepfold.events.configuration import HarnessConfig
from stepfold.events.journal import Recorded
from stepfold.events.vocabulary import (
    BLANK,
    AnyEvent,
    CancelRequested,
    Command,
    Message,
    ModelDelta,
    RunReopened,
    RunStarted,
    SteeringReceived,
    ToolCall,
    Unknown,
)
from stepfold.projections.effects import AskModel
from stepfold.projections.fold_tools import STEERING
from stepfold.projections.state import Run

Said = Message | Mapping[str, Any] | str
"""What a caller may put into the input: a message, one in OpenAI's form, or the text of a user's."""


class Host(Protocol):
    """What a life needs of its harness."""

    def configuration(self, config: RunConfig, *, stream: bool) -> HarnessConfig:
        """What `RunStarted` records."""
        ...

    def log(self, run_id: str) -> RunLog | MemoryLog:
        """Where a run is recorded."""
        ...

    def effects(self, life: "Life") -> LiveEffects:
        """The hands of a run."""
        ...


class Life:
    """One process's part of a run: begun, or taken up again, and driven to where it rests."""

    def __init__(
        self,
        harness: Host,
        state: Any,
        data: Any,
        config: RunConfig,
        *,
        stream: bool,
        told: Callable[[Any], None] | None = None,
    ) -> None:
        self.state = state
        self.data = data
        self.config = config
        self.run_id = config.run_id or new_run_id()
        self._harness = harness
        self._stream = stream
        self._told = told
        self.run = Run()
        self._effects = harness.effects(self)

    def delta(self, piece: ModelDelta, effect: AskModel) -> None:
        """A streamed piece goes to whoever listens, and into the log only if that was asked for."""
        if getattr(self.run.config, "record_deltas", False):
            self._effects.push(piece)
        elif self._told is not None:
            self._told(replace(piece, run_id=self.run_id, step=self.run.step, key=effect.key))

    def cancel(self, reason: str) -> None:
        """Ask the run for its end."""
        self._effects.push(CancelRequested(*BLANK, reason=reason))

    async def begin(self, messages: Sequence[Said]) -> AgentLoopResult:
        """The first life."""
        self._effects.push(
            RunStarted(
                *BLANK,
                config=self._harness.configuration(self.config, stream=self._stream),
                engine=version("stepfold"),
                input=tuple(message_of(message) for message in messages),
                parent=self.config.parent,
                parent_call=self.config.parent_call,
            )
        )
        log = self._harness.log(self.run_id)
        if isinstance(log, RunLog):
            log.begin()
        return await self._drive(log)

    async def again(self, commands: Sequence[Command]) -> AgentLoopResult:
        """A later life."""
        log = self._harness.log(self.run_id)
        assert isinstance(log, RunLog)
        reopened = reopen(folded_from(log.recorded(), log.path), log)
        self.run = reopened.run
        if not self.run.due:
            log.close()
            return AgentLoopResult(agent_run(self.run), status_of(self.run))
        push_reopening(self._effects, reopened)
        if STEERING in self.run.due and commands:
            self._effects.push(SteeringReceived(*BLANK, commands=tuple(commands)), STEERING)
        return await self._drive(log)

    async def branch(self, shared: Sequence[Recorded]) -> AgentLoopResult:
        """A life that a source's records serve for as long as they apply; see `fork.branch_off`."""
        log = self._harness.log(self.run_id)
        if isinstance(log, RunLog):
            log.begin()
        return await self._drive(log, shared)

    async def _drive(self, log: RunLog | MemoryLog, shared: Sequence[Recorded] = ()) -> AgentLoopResult:
        stops = []
        if self.config.cancellation is not None:
            stops.append(self.config.cancellation.listen(self.cancel))
        if self.config.steering is not None:
            stops.append(self.config.steering.listen(self._hear))
        told = _Told(log, self._told)
        if isinstance(log, RunLog):
            self._effects.log = log
        try:
            if shared:
                branch = Branch(shared, live=self._effects, log=told, news=_reopened)
                await self._to_the_end(branch, branch)
            else:
                await self._to_the_end(self._effects, told)
        finally:
            for stop in stops:
                stop()
            await self._effects.close()
            if isinstance(log, RunLog):
                log.close()
        events = tuple(event for event in told.events if not isinstance(event, Unknown))
        return AgentLoopResult(agent_run(self.run, events), status_of(self.run))

    async def _to_the_end(self, effects: Effects, log: EventLog) -> None:
        """Drive; when this task is cancelled, end the run cancelled first, so that its log is whole."""
        await drive_to_the_end(self.run, effects, log, self.cancel)

    def _hear(self, batch: tuple[Command, ...]) -> None:
        self._effects.push(SteeringReceived(*BLANK, commands=batch))


def _reopened(run: Run) -> tuple[RunReopened]:
    """A fork goes on later than its source: the time between is not counted against its deadline."""
    return (RunReopened(*BLANK),)


class _Told:
    """A log that also tells a stream, and keeps the events for the result."""

    def __init__(self, log: EventLog, told: Callable[[Any], None] | None) -> None:
        self._log = log
        self._told = told
        self.events: list[AnyEvent | Unknown] = []

    def record(self, event: AnyEvent | Unknown) -> None:
        self._log.record(event)
        self.events.append(event)
        if self._told is not None:
            self._told(event)

    def flush(self) -> None:
        self._log.flush()


def message_of(said: Said) -> Message:
    """What a caller said, as a message; a text is a user's."""
    if isinstance(said, Message):
        return said
    if isinstance(said, str):
        return Message("user", said)
    return Message(
        str(said["role"]),
        str(said.get("content") or ""),
        tuple(_call(call) for call in said.get("tool_calls") or ()),
        str(said.get("tool_call_id") or ""),
    )


def _call(call: Mapping[str, Any]) -> ToolCall:
    function = call["function"]
    return ToolCall(str(call["id"]), str(function["name"]), str(function.get("arguments") or "{}"))
