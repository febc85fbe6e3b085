"""The house style of these tests: given a configuration and landings, when more lands, then these decisions.

`Story` folds and decides by hand, one batch at a time; `play` drives a whole run with pure hands. Neither
stands in for anything: both go through the engine's own fold, decision and loop.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from stepfold.engine.runtime.clock import Timestamps
from stepfold.engine.runtime.drive import drive, settle
from stepfold.engine.runtime.live import LiveEffects
from stepfold.engine.runtime.run_log import MemoryLog
from stepfold.engine.testing.invariants import slots_of as slots_of
from stepfold.engine.testing.stories import key_for
from stepfold.events.chain import sealed_anew, unsealed
from stepfold.events.codec import encode
from stepfold.events.configuration import CheckSpec, GoalConfig, Manifest, Retry, Rule
from stepfold.events.journal import Recorded
from stepfold.events.vocabulary import (
    BLANK,
    AnyEvent,
    CancelRequested,
    CheckReturned,
    MemoryRecalled,
    ModelErred,
    ModelReplied,
    Observed,
    RunStarted,
    ToolReturned,
    Unknown,
)
from stepfold.projections.effects import AskModel, CallTool, RecallMemory, RunCheck
from stepfold.projections.run import evolve, fold
from stepfold.projections.state import Run

START = 1_700_000_000_000_000
"""The moment at which every run of the tests begins, in microseconds since 1970."""

ANY_ARGUMENTS = Raw(b'{"type":"object"}')
LOOK = Manifest(name="look", description="looks", schema=ANY_ARGUMENTS, idempotency="pure")
CHANGE = Manifest(name="change", description="changes", schema=ANY_ARGUMENTS, mutates=True)
CHECKS = (CheckSpec("a", "true"), CheckSpec("b", "true"))


def config(**changes: Any) -> GoalConfig:
    """A goal with two checks and two capabilities, no memory and no waiting between attempts."""
    settings: dict[str, Any] = {
        "goal": "mend the parser",
        "model": "scripted",
        "checks": CHECKS,
        "manifests": (LOOK, CHANGE),
        "memory": False,
        "retry": Retry(attempts=2, sleep=False),
    }
    return GoalConfig(**settings | changes)


# --- what a model may say ---------------------------------------------------------------------------


def action(name: str, **arguments: Any) -> str:
    """A reply that keeps the contract."""
    return json.dumps({"name": name, "arguments": arguments})


def call(capability: str, **arguments: Any) -> str:
    """A reply that calls a capability."""
    return action("capability_call", capability=capability, arguments=arguments)


def load(*names: str) -> str:
    """A reply that loads capabilities."""
    return action("capability_load", names=list(names))


SEARCH = action("capability_search", query="look at files")
LOAD = load("look", "change")
VERIFY = action("verify")
FINISH = action("finish", summary="all done")
ASK = action("ask_user", question="which parser?")
WORKERS: dict[str, Any] = {"worker_slots": 1, "worker_depth": 1, "checks": ()}
CHAT: dict[str, Any] = {"chat": True, "checks": ()}
SHELL = Manifest(
    name="shell.run",
    description="runs",
    schema=Raw(b'{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}'),
    mutates=True,
    aliases=(("cmd", "command"),),
)
ASKING: dict[str, Any] = {
    **CHAT,
    "manifests": (SHELL,),
    "policy": (Rule("ask", "rm"),),
    "sandbox_required": False,
}
REMEMBER = action("memory_write", text="tests live in tests/")
WORKER = action("worker_dispatch", task="count the tests")
PROSE = "I think we should look first."


def replied(text: str) -> ModelReplied:
    """A reply as a model's adapter hands it over."""
    return ModelReplied(*BLANK, text=text, input_tokens=10, output_tokens=2)


def erred(*, retryable: bool) -> ModelErred:
    """A failed attempt."""
    return ModelErred(*BLANK, error="overloaded", detail="busy", retryable=retryable)


# --- one batch at a time ----------------------------------------------------------------------------


class Story:
    """Given a configuration, `lands` folds a batch and decides; the kinds that followed are returned."""

    def __init__(self, settings: GoalConfig | None = None, events: Sequence[AnyEvent] = ()) -> None:
        self.log = MemoryLog()
        self.run = Run()
        self.moment = 0
        self._timestamps = Timestamps()
        for event in events:
            self._take(event)
        if not events:
            self.lands(RunStarted(*BLANK, config=settings or config(), engine="test"))

    def lands(self, *batch: Observed | str) -> list[str]:
        """Stamp a batch, fold it, decide until the run rests. A text is the model's reply."""
        taken: set[str] = set()
        for item in batch:
            event = replied(item) if isinstance(item, str) else item
            key = event.key or key_for(self.run, event, taken)
            taken.add(key)
            self.moment += 1000
            ts = self._timestamps.stamp(START + self.moment)
            self._take(replace(event, run_id="story", seq=self.run.seq, step=self.run.step, ts=ts, key=key))
        before = len(self.log.events)
        settle(self.run, self.log)
        return [type(event).__name__ for event in self.log.events[before:]]

    def replies(self, *texts: str) -> "Story":
        """Each text as one batch; landings in between come from `Hands`."""
        hands = Hands(texts)
        while self.run.due:
            effect = next(iter(self.run.due.values()))
            if isinstance(effect, AskModel) and effect.call > len(texts):
                break
            self.lands(hands.perform(effect, self.run))
        return self

    @property
    def events(self) -> list[AnyEvent]:
        """The log so far."""
        return self.log.events  # type: ignore[return-value]

    @property
    def last(self) -> Any:
        """The last event."""
        return self.log.events[-1]

    def _take(self, event: Any) -> None:
        evolve(self.run, event)
        self.log.record(event)


# --- whole runs -------------------------------------------------------------------------------------


class Hands:
    """Pure hands: what lands depends on the effect alone, so that a run cut off anywhere goes on alike.

    `replies` answers model call n with its n-th entry (a text, or an event), and finishes after the
    last. `tools` maps a capability to a function of its arguments; `exit_codes` a check to its code.
    """

    def __init__(
        self,
        replies: Sequence[str | Observed],
        tools: Mapping[str, Callable[[bytes], Observed]] | None = None,
        exit_codes: Mapping[str, int | None] | None = None,
    ) -> None:
        self._replies = replies
        self._tools = tools or {}
        self._exit_codes = exit_codes or {}

    def perform(self, effect: Any, run: Run) -> Any:
        """The landing of one effect."""
        match effect:
            case AskModel():
                said = self._replies[effect.call - 1] if effect.call <= len(self._replies) else FINISH
                return replied(said) if isinstance(said, str) else said
            case CallTool():
                tool = self._tools.get(effect.name)
                return (
                    ToolReturned(*BLANK, content=f"{effect.name} did it")
                    if tool is None
                    else tool(effect.arguments)
                )
            case RunCheck():
                code = self._exit_codes.get(effect.check_id, 0)
                return CheckReturned(*BLANK, exit_code=code, output="out", digest="0123456789abcdef")
            case RecallMemory():
                return MemoryRecalled(*BLANK, hits=("tests live in tests/",))
            case _:
                raise TypeError(type(effect).__name__)


class TestClock:
    """Time that passes by a millisecond whenever somebody looks, and jumps over every sleep."""

    __test__ = False

    def __init__(self, moment: int = START) -> None:
        self.moment = moment

    def now(self) -> int:
        """The time now."""
        self.moment += 1000
        return self.moment

    async def sleep_until(self, moment: int) -> None:
        """Jump to `moment`."""
        self.moment = max(self.moment, moment)


class _Interrupted:
    """Effects with a cancel pushed in front of a given batch."""

    def __init__(self, effects: LiveEffects, batch: int | None) -> None:
        self._effects = effects
        self._batch = batch
        self._count = 0

    async def next(self, run: Run) -> Any:
        if self._count == self._batch:
            self._effects.push(CancelRequested(*BLANK, reason="test"))
        self._count += 1
        return await self._effects.next(run)


def play(settings: GoalConfig, hands: Hands, *, cancel_at: int | None = None) -> tuple[Run, list[AnyEvent]]:
    """A whole run from its start; `cancel_at` counts batches from 0."""
    log = MemoryLog()
    effects = LiveEffects(hands.perform, run_id="r", clock=TestClock())
    effects.push(RunStarted(*BLANK, config=settings, engine="test"))
    run = asyncio.run(drive(Run(), _Interrupted(effects, cancel_at), log))
    return run, log.events  # type: ignore[return-value]


def go_on(events: Sequence[AnyEvent], hands: Hands) -> tuple[Run, list[AnyEvent]]:
    """Take a cut log up again: fold it, decide what is open, carry out what is due."""
    log = MemoryLog()
    log.events.extend(events)
    run = fold(events)
    settle(run, log)
    effects = LiveEffects(hands.perform, run_id="r", clock=TestClock(START + 60_000_000))
    asyncio.run(drive(run, effects, log))
    return run, log.events  # type: ignore[return-value]


# --- reading a log ----------------------------------------------------------------------------------


def recorded(events: Sequence[AnyEvent | Unknown]) -> list[Recorded]:
    """Events as a file would give them back."""
    return [Recorded(encode(event), event) for event in events]


def kinds(events: Sequence[AnyEvent]) -> list[str]:
    """The kinds, in order."""
    return [type(event).__name__ for event in events]


def of_kind(events: Sequence[AnyEvent], *names: str) -> list[Any]:
    """The events of these kinds, in order."""
    return [event for event in events if type(event).__name__ in names]


def prefixes(events: Sequence[AnyEvent]) -> Iterator[Run]:
    """The run after each of the events, one accumulator changed in place."""
    run = Run()
    for event in events:
        yield evolve(run, event)


def edited(log: bytes) -> bytes:
    """A log whose lines were changed by hand, sealed anew without a word."""
    return b"".join(line + b"\n" for line in sealed_anew(unsealed(line)[0] for line in log.splitlines()))
