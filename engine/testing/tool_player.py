"""Plays moves against a live tool-calling run: the real harness, its models and tools waiting for a move."""

import asyncio
import json
from typing import Any

from stepfold.engine.models.protocol import Request
from stepfold.engine.runtime.agent_run import HarnessError, agent_run, status_of
from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.run_policy import RunConfig, RunPolicy
from stepfold.engine.runtime.steering import CancellationToken, SteeringHandle
from stepfold.engine.runtime.tools import ToolResult, tool
from stepfold.engine.testing.invariants import holds_of_a_log, insist, provider_takes, same_run
from stepfold.engine.testing.moves import Move
from stepfold.engine.testing.player import QUIET_TURNS, JumpingClock
from stepfold.events import vocabulary as v
from stepfold.events.configuration import HarnessConfig
from stepfold.events.vocabulary import BLANK, Command, ToolCall
from stepfold.projections.run import fold

STEERED = ("pause", "inject", "redirect", "cancel")
TOOLS = (("pure", "pure"), ("once", "once"))
ENDS_WITHIN = 200


class ToolPlayer:
    """One tool-calling run under a script. `play` makes one move, and checks what must hold."""

    def __init__(self, config: HarnessConfig) -> None:
        self.config = config
        self.loop = asyncio.new_event_loop()
        self.clock = JumpingClock()
        self.asked: list[asyncio.Future[Any]] = []
        self.called: list[asyncio.Future[Any]] = []
        self.events: list[Any] = []
        self.result: Any = None
        self._life: Any = None
        self._token, self._handle = CancellationToken(), SteeringHandle(STEERED)
        self.task = self.loop.create_task(self._run(config))
        self._go_on()

    @property
    def run(self) -> Any:
        """The run, folded from its log."""
        return fold(self.events)

    @property
    def ended(self) -> bool:
        """Whether the run has ended or rests."""
        return self.task.done()

    def close(self) -> None:
        """End the event loop."""
        self.task.cancel()
        self.loop.run_until_complete(asyncio.gather(self.task, return_exceptions=True))
        self.loop.close()

    def play(self, move: Move) -> None:
        """Make one move, and check the run. Raises Broken, and whatever the engine raises."""
        self.move(move)
        self.check()

    def move(self, move: Move) -> None:
        """Make one move."""
        self._do(move)
        self._go_on()

    def check(self) -> None:
        """All that must hold of the run now."""
        if not self.events:
            return
        holds_of_a_log(self.events)
        run = self.run
        if self._life is not None:
            same_run(self._life.run, run)
        insist(run.call <= self.config.max_model_calls, "no more model calls than the cap", run.call)
        calls = sum(isinstance(event, v.ToolStarted) for event in self.events)
        insist(calls <= self.config.max_tool_calls, "no more tool calls than the cap", calls)
        if run.state == "asking":
            provider_takes(run.history.turns)
        self._ends_once()
        self._cancelled_starts_nothing()

    def finish(self) -> None:
        """Feed the run plain landings until it ends, as every run must."""
        for _ in range(ENDS_WITHIN):
            if self.ended:
                break
            self._do(Move("jump", number=3600))
            self._do(Move("land") if self._open(self.called) else Move("say", "done"))
            self._go_on()
        insist(self.ended, "every run ends", self.run.state)
        self.check()
        run = self.run
        insist(agent_run(run, tuple(self.events)) == self.result.run, "the result is a fold of the log")
        insist(status_of(run) == self.result.status, "the status is a fold of the log")

    def _ends_once(self) -> None:
        ends = [event for event in self.events if isinstance(event, (v.RunCompleted, v.RunFailed))]
        insist(len(ends) <= 1, "a run ends once", ends)
        if ends:
            after = self.events[self.events.index(ends[0]) + 1 :]
            insist(not after, "nothing follows the end", after)

    def _cancelled_starts_nothing(self) -> None:
        cancelled = False
        for event in self.events:
            steered = isinstance(event, v.Steered) and event.accepted and event.command == "cancel"
            cancelled = cancelled or steered or isinstance(event, v.CancelRequested)
            starts = isinstance(event, (v.ToolStarted, v.ModelStarted))
            insist(not (cancelled and starts), "a cancelled run starts nothing", event)

    async def _run(self, config: HarnessConfig) -> None:
        policy = RunPolicy(
            max_model_calls=config.max_model_calls,
            max_tool_calls=config.max_tool_calls,
            retry=config.retry,
            on_limit=config.on_limit,
            unknown_tool=config.unknown_tool,
            invalid_arguments=config.invalid_arguments,
            tool_errors=config.tool_errors,
            error_on_empty_response=config.error_on_empty_response,
            no_progress=config.no_progress,
        )
        harness = AgentHarness(
            _Model(self), [self._tool(*traits) for traits in TOOLS], policy=policy, clock=self.clock
        )
        settings = RunConfig(
            run_id="fuzz", timeout=config.wall_clock, cancellation=self._token, steering=self._handle
        )
        self._life = _life(harness, settings, self.events.append)
        try:
            self.result = await self._life.begin(["go"])
        except HarnessError as error:
            self.result = error

    def _tool(self, name: str, idempotency: Any) -> Any:
        async def run(n: int = 0) -> Any:
            return await self.wait_in(self.called)

        return tool(run, name=name, idempotency=idempotency, description=name)

    async def wait_in(self, line: list[asyncio.Future[Any]]) -> Any:
        """Wait until a move answers."""
        answer: asyncio.Future[Any] = self.loop.create_future()
        line.append(answer)
        return await answer

    def _go_on(self) -> None:
        async def until_quiet() -> None:
            quiet, seen = 0, -1
            while quiet < 3 * QUIET_TURNS and not self.task.done():
                await asyncio.sleep(0)
                quiet = quiet + 1 if len(self.events) == seen else 0
                seen = len(self.events)

        self.loop.run_until_complete(until_quiet())
        if self.task.done():
            self.task.result()

    @staticmethod
    def _open(line: list[asyncio.Future[Any]]) -> list[asyncio.Future[Any]]:
        return [answer for answer in line if not answer.done()]

    def _do(self, move: Move) -> None:
        match move.deed:
            case "say":
                self._answer(v.ModelReplied(*BLANK, text=move.text, finish_reason="stop"))
            case "call":
                calls = tuple(ToolCall(*call) for call in json.loads(move.text))
                self._answer(v.ModelReplied(*BLANK, text="", tool_calls=calls, finish_reason="tool_calls"))
            case "err":
                self._answer(v.ModelErred(*BLANK, error="server", retryable=bool(move.number)))
            case "land":
                for answer in self._open(self.called)[move.which :][:1]:
                    answer.set_result(ToolResult(move.text, error="kaboom") if move.number else move.text)
            case "fail":
                for answer in self._open(self.called)[move.which :][:1]:
                    answer.set_exception(ValueError(move.text))
            case "cancel":
                self._token.cancel()
            case "steer" if not self.ended and move.text in STEERED:
                self._handle.send(Command(move.text, "s"))
            case "jump":
                self.clock.jump(move.number)

    def _answer(self, event: Any) -> None:
        for answer in self._open(self.asked)[:1]:
            answer.set_result(event)


def _life(harness: AgentHarness, config: RunConfig, told: Any) -> Any:
    from stepfold.engine.runtime.harness_life import Life

    return Life(harness, None, None, config, stream=False, told=told)


class _Model:
    """A model that says what the next move says."""

    name = "fuzz"
    supports_tools = True
    supports_structured = False
    identity = ""

    def __init__(self, player: ToolPlayer) -> None:
        self._player = player

    async def reply(self, request: Request) -> Any:
        """Wait for the move."""
        return await self._player.wait_in(self._player.asked)
