"""What holds of every tool-calling run: random models, tools, hooks, cancels, clocks, steering and policies.

Each world is drawn by Hypothesis and played through the real harness with asyncio, in virtual time.
"""

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepfold.engine.runtime.agent_run import agent_run, status_of
from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.middleware import Cancelled, Middleware, MiddlewareError, RunContext
from stepfold.engine.runtime.replay import replay
from stepfold.engine.runtime.run_policy import ResponseFormat, RunConfig, RunPolicy
from stepfold.engine.runtime.steering import COMMANDS, CancellationToken, SteeringHandle
from stepfold.engine.runtime.sub_agents import sub_agent
from stepfold.engine.runtime.tools import ToolResult, tool
from stepfold.events.codec import encode
from stepfold.events.configuration import Generation, Retry
from stepfold.events.vocabulary import Command, Message, Observed
from stepfold.projections.run import fold
from tests.harness_house import Played, Streaming, VirtualClock, calls, check, cut, erred, settled, text

STEERED = ("pause", "inject", "redirect", "cancel")


class World:
    """All around a harness, drawn from one seed; what a model says depends on call and attempt alone."""

    def __init__(self, number: int) -> None:
        self.number = number
        chance = random.Random(number)
        self.clock = VirtualClock()
        self.ran: Counter[str] = Counter()
        self.length = chance.randint(1, 5)
        self.cancel_at = chance.choice([None, None, None, chance.randint(0, 400)])
        self.timeout = chance.choice([None, None, chance.randint(1, 500) / 1000])
        self.steer_at = chance.choice([None, None, chance.randint(0, 300)])
        self.batch = [Command(chance.choice(STEERED), "s") for _ in range(chance.randint(1, 2))]
        self.allowed = chance.choice([STEERED, STEERED, ("inject",), COMMANDS])
        self.hooks = [
            {hook: chance.choice(HOOK_DEEDS) for hook in HOOKS if chance.random() < 0.25}
            for _ in range(chance.choice([0, 0, 1, 2]))
        ]
        self.wraps = chance.random() < 0.15
        self.policy = RunPolicy(
            max_model_calls=chance.choice([1, 3, 25]),
            max_tool_calls=chance.choice([1, 4, 50]),
            tool_timeout=chance.choice([None, 0.05]),
            retry=Retry(
                attempts=chance.choice([1, 3]), sleep=chance.random() < 0.5, jitter=chance.random() < 0.5
            ),
            generation=Generation(mode="tools", max_tokens=chance.choice([None, 100])),
            on_limit=chance.choice(["error", "stop_with_partial"]),
            unknown_tool=chance.choice(["fail", "return_tool_error", "rewrite:pure", "rewrite:gone"]),
            invalid_arguments=chance.choice(["return_tool_error", "normalize", "fail"]),
            tool_errors=chance.choice(["fail", "return_to_model", "message:no"]),
            truncated_empty_retries=chance.choice([0, 1, 2]),
            error_on_empty_response=chance.random() < 0.3,
            no_progress=chance.random() < 0.3,
            record_deltas=chance.random() < 0.3,
            response_format=ResponseFormat("answer", b'{"type":"object"}') if chance.random() < 0.2 else None,
        )

    def said(self, request: Any) -> Any:
        """What the model answers to this call and attempt."""
        chance = random.Random(f"{self.number}/{request.call}/{request.attempt}/{request.model}")
        kind = chance.choice(["text", "calls", "calls", "calls", "error", "blank", "slow", "raise"])
        if kind == "calls" and request.call <= self.length:
            return calls(*(_call(chance, n) for n in range(chance.randint(1, 4))))
        if kind == "error":
            return erred(retryable=chance.random() < 0.7, error=chance.choice(["server", "timeout", "auth"]))
        if kind == "slow":
            return self._slowly(chance.randint(1, 300), text("slow"))
        if kind == "raise":
            raise ConnectionError("gone")
        if kind == "blank":
            return cut()
        return text(chance.choice(["done", "", '{"a":1}']))

    async def _slowly(self, milliseconds: int, what: Any) -> Any:
        await self.clock.sleep(milliseconds / 1000)
        return what

    def tool(self, name: str, idempotency: Any) -> Any:
        """A tool whose deed depends on its name and arguments."""

        async def run(context: RunContext, n: int = 0) -> Any:
            self.ran[context.child_run_id.partition(".")[2].partition("-")[0]] += 1
            chance = random.Random(f"{self.number}/{name}/{n}")
            match chance.choice(["return", "return", "error", "raise", "fatal", "cancel", "hang", "slow"]):
                case "return":
                    return f"{name} {n}"
                case "error":
                    return ToolResult("nope", error="kaboom")
                case "raise":
                    raise ValueError("boom")
                case "fatal":
                    raise MiddlewareError("stop here")
                case "cancel":
                    raise Cancelled("enough")
                case "hang" if self.timeout is not None:
                    return await asyncio.Event().wait()
                case _:
                    return await self._slowly(chance.randint(1, 200), f"{name} slow")

        return tool(run, name=name, idempotency=idempotency)

    def harness(self, store: Path | None = None) -> AgentHarness:
        """A harness in this world."""
        middleware = [Deeds(name, deeds, self) for name, deeds in zip("mn", self.hooks, strict=False)]
        child = AgentHarness(
            Streaming(lambda request: text("child")), policy=RunPolicy(max_model_calls=2), clock=self.clock
        )
        return AgentHarness(
            [Streaming(self.said, name="first"), Streaming(self.said, name="second")],
            [
                self.tool("pure", "pure"),
                self.tool("once", "once"),
                sub_agent(child, name="child", description="a child"),
            ],
            [*middleware, *([Wrap()] if self.wraps else [])],
            self.policy,
            store=store,
            clock=self.clock,
        )

    async def play(self) -> Played:
        """One run, from start to end."""
        token, handle = CancellationToken(), SteeringHandle(self.allowed)
        config = RunConfig(run_id="r", timeout=self.timeout, cancellation=token, steering=handle)
        outside = []
        if self.cancel_at is not None:
            outside.append(asyncio.create_task(self._later(self.cancel_at, token.cancel)))
        if self.steer_at is not None:
            outside.append(asyncio.create_task(self._later(self.steer_at, lambda: handle.send(*self.batch))))
        await asyncio.sleep(0)
        running = self.harness().invoke_with_status(config=config, messages=["go"])
        played = await asyncio.wait_for(settled(running), 20)
        for task in outside:
            task.cancel()
        await asyncio.gather(*outside, return_exceptions=True)
        return played

    async def _later(self, milliseconds: int, act: Any) -> None:
        await self.clock.sleep(milliseconds / 1000)
        act()


def _call(chance: random.Random, position: int) -> tuple[str, str, str]:
    name = chance.choice(["pure", "once", "pure", "once", "child", "gone", "answer"])
    written = '{"input":"x"}' if name == "child" else f'{{"n":{chance.randint(0, 5)}}}'
    return (
        chance.choice(["same", f"c{position}"]),
        name,
        chance.choice([written, written, written, "broken", "[]"]),
    )


HOOKS = [
    "before_agent",
    "before_model",
    "after_model",
    "before_tool",
    "after_tool",
    "after_agent",
    "on_error",
]
HOOK_DEEDS = ("nothing", "nothing", "change", "refuse", "stop", "interrupt", "raise", "slow")


class Deeds(Middleware):
    """Hooks that do what was drawn for them."""

    def __init__(self, name: str, deeds: dict[str, str], world: World) -> None:
        self.name = name
        self._world = world
        for hook, deed in deeds.items():
            # A hook counts when the class has it, so each instance gets a class of its own.
            self.__class__ = type("Deeds", (self.__class__,), {hook: self._does(deed)})

    def _does(self, deed: str) -> Any:
        async def hook(_: Any, context: RunContext, *given: Any) -> None:
            match deed:
                case "change":
                    _change(given[0])
                case "refuse" if hasattr(given[0], "refuse"):
                    given[0].refuse("no")
                case "stop":
                    context.stop_with_final("stopped")
                case "interrupt":
                    context.interrupt("look")
                case "raise":
                    raise ValueError("a hook fails")
                case "slow":
                    await self._world.clock.sleep(0.05)

        return hook


def _change(subject: Any) -> None:
    match subject:
        case list():
            subject.append(Message("system", "added"))
        case str():
            return
        case _ if hasattr(subject, "messages"):
            subject.messages = [*subject.messages[1:], Message("user", "other")]
        case _ if hasattr(subject, "arguments"):
            subject.arguments = '{"n": 3}'
        case _ if hasattr(subject, "content"):
            subject.content += "!"
        case _:
            subject.text += "!"


class Wrap(Middleware):
    """A tool wrap, for the serial path."""

    async def wrap_tool(self, call: Any, call_next: Any) -> Any:
        return await call_next(call)


def assert_legal(played: Played, world: World) -> None:
    """What holds of every run."""
    events = played.events
    check(events)
    assert agent_run(fold(events), events) == played.run
    assert status_of(fold(events)) == played.status
    assert played.run.model_calls <= world.policy.max_model_calls
    # Unknown and invalid calls are answered by the loop; they count, and can't be more than the cap either.
    assert played.run.tool_calls <= world.policy.max_tool_calls
    assert_ends_well(events)
    assert_nothing_starts_after_a_cancel(events)
    assert all(count == 1 for count in world.ran.values())


def assert_ends_well(events: Sequence[Any]) -> None:
    """Exactly one end, or a rest."""
    ends = [type(e).__name__ for e in events if type(e).__name__ in {"RunCompleted", "RunFailed"}]
    rests = type(events[-1]).__name__ == "ControlApplied" and events[-1].control == "paused"
    assert len(ends) == (0 if rests else 1)


def assert_nothing_starts_after_a_cancel(events: Sequence[Any]) -> None:
    """Only `on_error` hooks may start once a cancel was folded."""
    cancelled = False
    for event in events:
        name = type(event).__name__
        if name == "CancelRequested" or (name == "Steered" and event.accepted and event.command == "cancel"):
            cancelled = True
        elif cancelled and name.endswith("Started"):
            assert getattr(event, "hook", "") == "on_error", event


SLOW = settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))


@SLOW
@given(st.integers(0, 2**32))
def test_every_run_is_legal(number: int) -> None:
    world = World(number)
    assert_legal(asyncio.run(world.play()), world)


@settings(SLOW, max_examples=8)
@given(st.integers(0, 2**32))
def test_a_run_cut_at_any_event_goes_on_to_a_legal_end(number: int) -> None:
    world = World(number)
    events = asyncio.run(world.play()).events
    lines = [encode(event) + b"\n" for event in events]
    for kept in range(1, len(events)):
        later = World(number)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "runs/r.jsonl"
            path.parent.mkdir()
            path.write_bytes(b"".join(lines[:kept]))
            asyncio.run(_taken_up(later, Path(folder)))
            assert replay(path).verdict == "identical", (kept, replay(path))
        for key in later.ran:
            assert not (_ran_before(events, kept, key) and _is_once(events, key)), (kept, key)


async def _taken_up(world: World, store: Path) -> None:
    played = await asyncio.wait_for(settled(world.harness(store).resume("r")), 20)
    assert played.status.status in {"completed", "failed", "cancelled", "paused"}


def _ran_before(events: Sequence[Any], kept: int, place: str) -> bool:
    """Whether the effect of a call had begun by then: its intent is written, and its batch was whole."""
    for index, event in enumerate(events[:kept]):
        if type(event).__name__ == "ToolStarted" and event.key == f"tool:{place}":
            rest = events[index + 1 :]
            decided = next((n for n, e in enumerate(rest) if isinstance(e, Observed)), len(rest))
            return index + 1 + decided <= kept
    return False


def _is_once(events: Sequence[Any], place: str) -> bool:
    return any(
        type(e).__name__ == "ToolStarted" and e.key == f"tool:{place}" and e.name == "once" for e in events
    )
