"""The house style of the harness tests: scripted models, typed tools, asyncio, time that jumps when idle.

`Scripted` is a model like any other: it goes through the engine's own effects, log and fold. Nothing
here stands in for a part of the engine.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from inspect import isawaitable
from typing import Any

from stepfold.engine.models.protocol import Request
from stepfold.engine.runtime.agent_run import AgentLoopResult, AgentRun, HarnessError
from stepfold.engine.runtime.group_commit import group_commit
from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.replay import verify
from stepfold.engine.runtime.run_policy import RunConfig
from stepfold.engine.runtime.tools import Tool, tool
from stepfold.events.codec import encode
from stepfold.events.journal import Recorded
from stepfold.events.vocabulary import BLANK, ModelDelta, ModelErred, ModelReplied, ToolCall
from stepfold.projections.run import fold
from stepfold.projections.state import Slot

START = 1_700_000_000_000_000
IDLE_TURNS = 30
"""Turns of the event loop without anything new before virtual time jumps to the next sleeper."""

OPEN = {"type": "object"}
STARTS = ("ModelStarted", "ToolStarted", "MiddlewareStarted", "SubAgentStarted")


class VirtualClock:
    """Time that stands still while anything runs, and jumps to the next sleeper when all are waiting."""

    def __init__(self) -> None:
        self.moment = START
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0
        self._mover: asyncio.Task[None] | None = None

    def now(self) -> int:
        """The time now, in microseconds."""
        return self.moment

    @property
    def milliseconds(self) -> int:
        """The time since the start."""
        return (self.moment - START) // 1000

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds` of virtual time."""
        await self.sleep_until(self.moment + round(seconds * 1_000_000))

    async def sleep_until(self, moment: int) -> None:
        """Sleep until `moment`."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        entry = (moment, self._count, woken)
        self._sleepers.append(entry)
        if self._mover is None or self._mover.done():
            self._mover = asyncio.create_task(self._move())
        try:
            await woken
        finally:
            if entry in self._sleepers:
                self._sleepers.remove(entry)

    async def _move(self) -> None:
        while self._sleepers:
            await self._all_are_waiting()
            if not self._sleepers:
                return
            first = min(self._sleepers)
            self._sleepers.remove(first)
            self.moment = max(self.moment, first[0])
            if not first[2].done():
                first[2].set_result(None)

    async def _all_are_waiting(self) -> None:
        turns = 0
        while turns < IDLE_TURNS:
            await asyncio.sleep(0)
            # Who waits for the disk waits for no moment.
            turns = 0 if group_commit().is_at_work else turns + 1


Entry = ModelReplied | ModelErred | Callable[[Request], Any]


class Scripted:
    """A model that answers in the order of its script, and says its last entry for ever after."""

    def __init__(self, *script: Entry, name: str = "scripted", **traits: Any) -> None:
        self.name = name
        self.script = script
        self.requests: list[Request] = []
        self.supports_tools = traits.get("supports_tools", True)
        self.supports_structured = traits.get("supports_structured", False)
        self.identity = traits.get("identity", "")

    @property
    def asked(self) -> int:
        """How often it was asked."""
        return len(self.requests)

    async def reply(self, request: Request) -> ModelReplied | ModelErred:
        """The next entry."""
        self.requests.append(request)
        entry = self.script[min(len(self.requests), len(self.script)) - 1]
        said = entry(request) if callable(entry) else entry
        return await said if isawaitable(said) else said


class Streaming(Scripted):
    """The same, in pieces: a text as one delta a word, unless `pieces` says otherwise."""

    def __init__(self, *script: Entry, pieces: Sequence[str] = (), **traits: Any) -> None:
        super().__init__(*script, **traits)
        self._pieces = pieces

    async def stream(self, request: Request) -> Any:
        """The pieces, then the whole."""
        whole = await self.reply(request)
        if isinstance(whole, ModelReplied):
            for piece in self._pieces or ([whole.text] if whole.text else []):
                yield ModelDelta(*BLANK, text=piece)
        yield whole


def text(content: str, given: int = 4, taken: int = 2, **fields: Any) -> ModelReplied:
    """A reply in words, with its usage."""
    return ModelReplied(*BLANK, text=content, input_tokens=given, output_tokens=taken, **fields)


def calls(*asked: tuple[Any, ...], given: int = 4, taken: int = 2, content: str = "") -> ModelReplied:
    """A reply that asks for tools: `(id, name)` or `(id, name, arguments)`."""
    made = tuple(ToolCall(id, name, _arguments(rest)) for id, name, *rest in asked)
    return ModelReplied(
        *BLANK,
        text=content,
        tool_calls=made,
        input_tokens=given,
        output_tokens=taken,
        finish_reason="tool_calls",
    )


def _arguments(rest: Sequence[Any]) -> str:
    if not rest:
        return "{}"
    return rest[0] if isinstance(rest[0], str) else json.dumps(rest[0])


def cut(content: str = "") -> ModelReplied:
    """A reply that ran out of tokens."""
    return text(content, finish_reason="length")


def erred(*, retryable: bool = True, error: str = "server", **fields: Any) -> ModelErred:
    """A failed attempt."""
    return ModelErred(*BLANK, error=error, detail="busy", retryable=retryable, **fields)


def slots_of(*asked: tuple[str, str]) -> list[Slot]:
    """Calls of a turn by hand: `(id, phase)`."""
    slots = [Slot(call_id, "look", b"{}", f"tool:1.{place}") for place, (call_id, _) in enumerate(asked)]
    for slot, (_, phase) in zip(slots, asked, strict=True):
        slot.phase = phase
    return slots


class Counted:
    """A tool that counts its runs and what it was given; `result` is returned, called or raised."""

    def __init__(self, name: str, result: Any = "ok", schema: Any = OPEN, **declared: Any) -> None:
        self.seen: list[dict[str, Any]] = []
        self._result = result
        self.tool: Tool = tool(self._run, name=name, schema=schema, **declared)

    @property
    def runs(self) -> int:
        """How often it ran."""
        return len(self.seen)

    async def _run(self, **arguments: Any) -> Any:
        self.seen.append(arguments)
        if isinstance(self._result, BaseException):
            raise self._result
        result = self._result(**arguments) if callable(self._result) else self._result
        return await result if isawaitable(result) else result


class Played:
    """How a run went: its result and status, whether it ended well or in an error."""

    def __init__(self, result: AgentLoopResult, error: HarnessError | None) -> None:
        self.run: AgentRun = result.run
        self.status = result.status
        self.error = error

    @property
    def kind(self) -> str:
        """The kind of its error."""
        return "" if self.error is None else self.error.kind

    @property
    def events(self) -> tuple[Any, ...]:
        """Its log."""
        return self.run.events

    @property
    def kinds(self) -> list[str]:
        """The kinds of its decided events, with what landed left out, but for its start."""
        observed = ("ModelReplied", "ModelErred", "ToolReturned", "ToolErred", "HookReturned", "WaitEnded")
        return [name for name in map(_name, self.events) if name not in observed]

    @property
    def roles(self) -> list[str]:
        """Who spoke."""
        return [message.role for message in self.run.messages]

    @property
    def answers(self) -> list[tuple[str, str]]:
        """The tool rows: call id and text."""
        return [(m.tool_call_id, m.content) for m in self.run.messages if m.role == "tool"]

    def of(self, *names: str) -> list[Any]:
        """The events of these kinds."""
        return [event for event in self.events if _name(event) in names]


def _name(event: Any) -> str:
    return type(event).__name__


async def played(harness: AgentHarness, *messages: Any, config: RunConfig | None = None) -> Played:
    """Run, and check what must hold of every run."""
    played = await settled(
        harness.invoke_with_status(config=config or RunConfig(run_id="r1"), messages=messages or ["hi"])
    )
    check(played.events)
    return played


async def settled(running: Awaitable[AgentLoopResult]) -> Played:
    """The result of a run, whether it raised or not."""
    try:
        return Played(await running, None)
    except HarnessError as error:
        return Played(AgentLoopResult(error.run, error.status), error)


def play(harness: AgentHarness, *messages: Any, config: RunConfig | None = None) -> Played:
    """`played`, for tests without an event loop."""
    return asyncio.run(played(harness, *messages, config=config))


# --- what holds of every log ------------------------------------------------------------------------


def check(events: Iterable[Any]) -> None:
    """Pairs are closed, calls are answered once and in order, and the log replays to the same bytes."""
    events = list(events)
    replay(events)
    assert [event.seq for event in events] == list(range(len(events)))
    assert not unpaired(events)
    assert_answered(events)


def replay(events: Sequence[Any]) -> None:
    """Regenerate the log without models, tools and hooks; every byte must agree."""
    _, count = verify([Recorded(encode(event), event) for event in events])
    assert count == len(events)


def unpaired(events: Iterable[Any]) -> list[Any]:
    """Started events without a terminal partner; raises AssertionError for a partner without a start."""
    is_open: dict[tuple[Any, ...], Any] = {}
    for event in events:
        match _name(event):
            case "ModelStarted":
                is_open["model", event.call_id] = event
            case "ModelCompleted" | "ModelFailed":
                del is_open["model", event.call_id]
            case "ToolStarted":
                is_open["tool", event.key] = event
            case "ToolCompleted" | "ToolFailed":
                del is_open["tool", event.key]
            case "SubAgentStarted":
                is_open["child", event.child] = event
            case "SubAgentCompleted" | "SubAgentFailed":
                del is_open["child", event.child]
            case "MiddlewareStarted":
                is_open["hook", event.hook, event.name] = event
            case "MiddlewareCompleted":
                del is_open["hook", event.hook, event.name]
    return list(is_open.values())


def assert_answered(events: Sequence[Any]) -> None:
    """Each call of each assistant turn has one answer, in call order."""
    turns = fold(events).history.turns
    for index, turn in enumerate(turns):
        if turn.tool_calls:
            expected = [call.id for call in turn.tool_calls]
            found = [answer.tool_call_id for answer in turns[index + 1 : index + 1 + len(expected)]]
            assert found == expected, (expected, found)
