"""Plays moves against a live goal run: the engine's own mailbox, loop, log and fold, and no model or tool.

Every effect that the run starts stays open until a move lets it land, fail or be lost, so a script can
hang a tool, reorder landings, let the clock jump, or kill the process at any point.
"""

import asyncio
from typing import Any, cast

from stepfold.engine.runtime.drive import drive
from stepfold.engine.runtime.live import LiveEffects
from stepfold.engine.runtime.reopen import push_reopening, reopen
from stepfold.engine.runtime.run_log import MemoryLog, RunLog
from stepfold.engine.runtime.snapshots import folded_records
from stepfold.engine.testing.invariants import (
    holds_of_a_goal_run,
    holds_of_a_log,
    holds_of_a_request,
    insist,
    same_run,
)
from stepfold.engine.testing.moves import Move
from stepfold.events import vocabulary as v
from stepfold.events.codec import decode, encode
from stepfold.events.configuration import GoalConfig
from stepfold.events.journal import Recorded
from stepfold.events.reconcile import NOTHING
from stepfold.events.vocabulary import BLANK
from stepfold.projections.effects import AskModel, CallTool, RecallMemory, RunCheck
from stepfold.projections.fold_goal import LISTEN
from stepfold.projections.run import evolve
from stepfold.projections.state import Run

START = 1_700_000_000_000_000
QUIET_TURNS = 4
"""Turns of the event loop without a new event, after which a run waits for the world."""

ENDS_WITHIN = 400
"""Landings after which a run that is fed plain landings must have ended."""


class JumpingClock:
    """Time that a script moves, in microseconds; sleepers wake when it has passed them."""

    def __init__(self) -> None:
        self.moment = START
        self._sleepers: list[tuple[int, asyncio.Future[None]]] = []

    def now(self) -> int:
        """The time now."""
        return self.moment

    async def sleep_until(self, moment: int) -> None:
        """Return once the script has moved the clock to `moment`."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((moment, woken))
        self.jump(0)
        await woken

    def jump(self, seconds: float) -> None:
        """Move the clock, forwards or back."""
        self.moment += round(seconds * 1_000_000)
        for moment, woken in self._sleepers:
            if moment <= self.moment and not woken.done():
                woken.set_result(None)


class _Kept(MemoryLog):
    """A log in memory that can be taken up again."""

    repair = NOTHING


class GoalPlayer:
    """One goal run under a script. `play` makes one move; then all that must hold is checked."""

    def __init__(self, config: GoalConfig) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = JumpingClock()
        self.log = _Kept()
        self.run = Run()
        self._told = Run()
        self.open: dict[str, tuple[Any, asyncio.Future[Any]]] = {}
        self._begin(self.run)
        self.effects.push(v.RunStarted(*BLANK, config=config, engine="fuzz"))
        self._expected: tuple[str, ...] = ()
        self._go_on()

    def close(self) -> None:
        """End the event loop."""
        self.task.cancel()
        self.loop.run_until_complete(asyncio.gather(self.task, return_exceptions=True))
        self.loop.run_until_complete(self.effects.close())
        self.loop.close()

    @property
    def events(self) -> list[Any]:
        """The log so far."""
        return self.log.events

    @property
    def ended(self) -> bool:
        """Whether the run has ended for good."""
        return bool(self.run.status) and not self.run.due

    def play(self, move: Move) -> None:
        """Make one move, and check the run and its log. Raises Broken, and whatever the engine raises."""
        self.move(move)
        self._check_log()

    def move(self, move: Move) -> None:
        """Make one move, and check what the log can't tell afterwards. Raises as `play` does."""
        before = len(self.events)
        self._do(move)
        self._go_on()
        if self._expected:
            self._judge(self.events[before:])
        self._follow()
        same_run(self.run, self._told)
        holds_of_a_request(self.run)

    def check(self) -> None:
        """All that must hold of the run and its log now."""
        self._follow()
        same_run(self.run, self._told)
        self._check_log()

    def _check_log(self) -> None:
        holds_of_a_log(self.events)
        holds_of_a_goal_run(self.run, self.events)

    def finish(self) -> None:
        """Feed the run plain landings until it ends, as every run must."""
        for _ in range(ENDS_WITHIN):
            if self.ended or LISTEN in self.run.due:
                self.check()
                return
            self._do(Move("jump", number=3600))
            self._do(Move("say", "no action") if self._picks(AskModel) else Move("land"))
            self._go_on()
        insist(False, "every run ends", self.run.state)

    def _follow(self) -> None:
        """Fold what the log has gained, as it would be read back."""
        for event in self.events[self._told.seq :]:
            evolve(self._told, decode(encode(event)))

    def _begin(self, run: Run) -> None:
        self.open.clear()
        self.effects = LiveEffects(self._perform, run_id="fuzz", clock=self.clock, listening=True)
        self.task = self.loop.create_task(drive(run, self.effects, self.log))

    def _perform(self, effect: Any, run: Run) -> Any:
        landing: asyncio.Future[Any] = self.loop.create_future()
        self.open[effect.key] = (effect, landing)
        return landing

    def _go_on(self) -> None:
        async def until_quiet() -> None:
            quiet, seen = 0, -1
            while quiet < QUIET_TURNS and not self.task.done():
                await asyncio.sleep(0)
                quiet = quiet + 1 if self.run.seq == seen else 0
                seen = self.run.seq

        self.loop.run_until_complete(until_quiet())
        self.open = {
            key: item for key, item in self.open.items() if key in self.run.due and not item[1].done()
        }
        if self.task.done() and not self.task.cancelled():
            self.task.result()

    def _picks(self, *shapes: type) -> list[str]:
        return [key for key, (effect, _) in self.open.items() if isinstance(effect, shapes)]

    def _do(self, move: Move) -> None:
        self._expected = ()
        match move.deed:
            case "say":
                self._land(
                    move, AskModel, v.ModelReplied(*BLANK, text=move.text, input_tokens=9, output_tokens=2)
                )
            case "err":
                failed = v.ModelErred(
                    *BLANK, error="overloaded", retryable=bool(move.number), retry_after=1.0
                )
                self._land(move, AskModel, failed)
            case "land":
                self._land_plainly(move)
            case "fail":
                for key in self._picks(CallTool, RunCheck, RecallMemory, AskModel)[move.which :][:1]:
                    self.open[key][1].set_exception(RuntimeError(move.text))
            case "cancel" if not self.ended:
                self.effects.push(v.CancelRequested(*BLANK, reason=move.text))
            case "answer" if LISTEN in self.run.due:
                self.effects.push(v.UserAnswered(*BLANK, text=move.text), LISTEN)
            case "jump":
                self.clock.jump(move.number)
            case "late":
                # A tool that lands twice, or after it was given up: nobody waits for it.
                self.effects.push(v.ToolReturned(*BLANK, content=move.text), "tool:9999.0")
            case "die" if not self.ended:
                self._die(move.number)

    def _land(self, move: Move, shape: type, event: Any) -> None:
        for key in self._picks(shape)[:1]:
            self._expected = move.expected
            self.open[key][1].set_result(event)

    def _land_plainly(self, move: Move) -> None:
        keys = self._picks(CallTool, RunCheck, RecallMemory)
        for key in keys[move.which % len(keys) :][:1] if keys else ():
            effect, landing = self.open[key]
            match effect:
                case CallTool():
                    error = "NotFound" if move.number else ""
                    landing.set_result(v.ToolReturned(*BLANK, content=move.text, error=error))
                case RunCheck():
                    code = None if move.number < 0 else move.number
                    landing.set_result(v.CheckReturned(*BLANK, exit_code=code, output=move.text, digest="d"))
                case _:
                    landing.set_result(v.MemoryRecalled(*BLANK, hits=(move.text,) if move.text else ()))

    def _die(self, lost: int) -> None:
        """The process is killed, with so many lines of the last batch unwritten, and another takes over."""
        self.task.cancel()
        self.loop.run_until_complete(asyncio.gather(self.task, return_exceptions=True))
        self.loop.run_until_complete(self.effects.close())
        kept = list(self.events)
        while lost > 0 and len(kept) > 1 and isinstance(kept[-1], v.Decided):
            kept.pop()
            lost -= 1
        self.log = _Kept()
        self.log.events.extend(kept)
        records = tuple(Recorded(encode(event), event) for event in kept)
        reopened = reopen(folded_records(records), cast(RunLog, self.log))
        self.run = reopened.run
        self._told = Run()
        self._begin(self.run)
        if self.run.due:
            push_reopening(self.effects, reopened)

    def _judge(self, new: list[Any]) -> None:
        """A reply whose verdict is known got it."""
        for event in new:
            if isinstance(event, v.ActionRejected):
                insist(event.error in self._expected, "a malformed reply is answered by its error", event)
            if isinstance(event, v.ActionParsed):
                insist("" in self._expected, "a malformed reply is no action", event)
