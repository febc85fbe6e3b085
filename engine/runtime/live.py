"""Live effects, a mailbox: what is due is started, what is gone is cancelled, what lands is handed on."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from inspect import isawaitable
from typing import Any, Protocol

from msgspec.structs import replace

from stepfold.engine.capabilities.servers import Servers
from stepfold.engine.models.keys import Curtain
from stepfold.engine.runtime.batches import ends_batch
from stepfold.engine.runtime.clock import Clock, SystemClock, Timestamps
from stepfold.events.vocabulary import (
    BLANK,
    AnyEvent,
    ApprovalAnswered,
    CancelRequested,
    CheckReturned,
    HookReturned,
    MemoryRecalled,
    ModelErred,
    ObservedEvent,
    ToolErred,
    Unknown,
    WaitEnded,
)
from stepfold.projections.effects import (
    AskApproval,
    AskModel,
    CallHook,
    CallTool,
    Effect,
    Listen,
    RecallMemory,
    RunCheck,
    Wait,
)
from stepfold.projections.fold_goal import WORKER
from stepfold.projections.state import Run, microseconds

Landing = ObservedEvent
Perform = Callable[[Any, Run], Landing | Awaitable[Landing]]
"""Carries out one effect, at once or in its own time. What it raises lands as that effect's failure."""

LEAVING_SECONDS = 10.0
"""How long a run's end waits for what was cancelled to clean up (a sub-agent to close its log)."""

BATCHES_WITHOUT_A_BREATH = 50
"""After so many batches that never waited, the event loop gets a turn: Ctrl-C must be heard."""


class Durable(Protocol):
    """What effects need of the log of their run."""

    sync_due: bool

    def require_sync(self) -> None:
        """What is written must be safe from a lost machine before the next effect starts."""
        ...

    async def synced(self) -> None:
        """Return when it is."""
        ...


class LiveEffects:
    """The hands of a live run.

    `perform` carries out effects; `log` is made safe from a lost machine before an effect that may not
    run twice, and whenever its durability asks for it. `servers` live as long as these effects do. What
    lands is recorded without the `secrets`, wherever it comes from: a tool may find the key of the model
    in a file.
    """

    def __init__(
        self,
        perform: Perform,
        *,
        run_id: str,
        clock: Clock | None = None,
        log: Durable | None = None,
        listening: bool = False,
        servers: Servers | None = None,
        secrets: Iterable[str] = (),
    ) -> None:
        self._curtain = Curtain(secrets)
        self._perform = perform
        self._clock = clock or SystemClock()
        self._timestamps = Timestamps()
        self.log = log
        self._listening = listening
        self.servers = servers
        if servers is not None:
            servers.announce = self.push
        self._mailbox: deque[tuple[str, str, Landing]] = deque()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._started: set[str] = set()
        self._arrived: asyncio.Event | None = None
        self.run_id = run_id
        self._opened = False
        self._breathless = 0

    def push(self, event: Landing, key: str = "") -> None:
        """Put in an event that nobody asked for (a cancel, steering), or the landing of a due effect.

        An effect whose landing is pushed is not started any more.
        """
        if key:
            self._started.add(key)
        if self.servers is not None and isinstance(event, CancelRequested):
            self.servers.give_up()
        self._land(key, event)

    async def next(self, run: Run) -> Sequence[AnyEvent | Unknown]:
        """See `drive.Effects.next`."""
        if run.ts and not self._opened:
            self._opened = True
            self._go_on_from(microseconds(run.ts))
        if run.status and not run.due:
            # Nothing follows the end of a run: a cancel that comes too late is no part of it.
            return ()
        self._cancel_what_is_gone(run)
        await self._be_safe(run)
        self._start_what_is_new(run)
        await self._breathe()
        while True:
            if batch := self._drain(run):
                return batch
            if not self._tasks and not (self._listening and _listens(run)):
                return ()
            await self._arrival()

    async def close(self) -> None:
        """Cancel whatever still flies, wait until it is gone, and end the servers."""
        for task in self._tasks.values():
            task.cancel()
        leaving = {*self._leaving, *self._tasks.values()}
        self._tasks.clear()
        if leaving:
            await asyncio.wait(leaving, timeout=LEAVING_SECONDS)
        if self.servers is not None:
            await self.servers.close()

    def _go_on_from(self, moment: int) -> None:
        """An earlier life's clock may have been ahead of ours, also of what is in the mailbox already."""
        self._timestamps.not_before(moment)
        floor = self._timestamps.stamp(moment)
        self._mailbox = deque((key, max(ts, floor), event) for key, ts, event in self._mailbox)

    async def _be_safe(self, run: Run) -> None:
        if self.log is None:
            return
        new = (effect for key, effect in run.due.items() if key not in self._started)
        if any(isinstance(effect, CallTool) and runs_once(effect, run) for effect in new):
            self.log.require_sync()
        if self.log.sync_due:
            await self.log.synced()

    def _start_what_is_new(self, run: Run) -> None:
        for key, effect in run.due.items():
            if key not in self._started and not isinstance(effect, Listen):
                self._started.add(key)
                self._start(key, effect, run)

    def _start(self, key: str, effect: Effect, run: Run) -> None:
        if isinstance(effect, Wait):
            self._tasks[key] = asyncio.create_task(self._wait(key, effect.until))
            return
        try:
            landing = self._perform(effect, run)
        except Exception as error:
            self._land(key, failure_of(effect, error))
            return
        if isawaitable(landing):
            self._tasks[key] = asyncio.create_task(self._await(key, effect, landing))
        else:
            self._land(key, landing)

    async def _await(self, key: str, effect: Effect, landing: Awaitable[Landing]) -> None:
        try:
            landed = await landing
        except Exception as error:
            landed = failure_of(effect, error)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled this effect: something inside it was, and the run must not wait for ever.
            landed = failure_of(effect, RuntimeError("it was cancelled from within"))
        self._tasks.pop(key, None)
        self._land(key, landed)

    async def _wait(self, key: str, until: int) -> None:
        await self._clock.sleep_until(until)
        self._tasks.pop(key, None)
        self._land(key, WaitEnded(*BLANK))

    def _land(self, key: str, event: Landing) -> None:
        clean = self._curtain.value(event)
        self._mailbox.append((key, self._timestamps.stamp(self._clock.now()), clean))
        if self._arrived is not None:
            self._arrived.set()

    def _drain(self, run: Run) -> list[Landing]:
        batch: list[Landing] = []
        while self._mailbox:
            key, ts, event = self._mailbox.popleft()
            # A cancelled effect may still have landed. Nobody waits for it, so it never happened.
            if key and key not in run.due:
                continue
            self._started.discard(key)
            batch.append(
                replace(event, run_id=self.run_id, seq=run.seq + len(batch), step=run.step, ts=ts, key=key)
            )
            if ends_batch(batch[-1]):
                break
        return batch

    def _cancel_what_is_gone(self, run: Run) -> None:
        if not self._tasks:
            return
        for key in [key for key in self._tasks if key not in run.due]:
            task = self._tasks.pop(key)
            task.cancel()
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
            self._started.discard(key)

    async def _arrival(self) -> None:
        self._breathless = 0
        self._arrived = asyncio.Event()
        if not self._mailbox:
            await self._arrived.wait()
        self._arrived = None

    async def _breathe(self) -> None:
        self._breathless += 1
        if self._breathless >= BATCHES_WITHOUT_A_BREATH:
            self._breathless = 0
            await asyncio.sleep(0)


def _listens(run: Run) -> bool:
    return any(isinstance(effect, Listen) for effect in run.due.values())


def runs_once(effect: CallTool, run: Run) -> bool:
    """Whether a call may not be repeated on suspicion. A tool without a manifest is taken to be one.

    A worker has a log of its own, which tells what it had done: to call it again is to go on with it.
    """
    if effect.name == WORKER:
        return False
    manifest = run.manifests.get(effect.name)
    return manifest is None or manifest.idempotency == "once"


def failure_of(effect: Effect, error: Exception) -> Landing:
    """How an exception in a handler lands: a failure of that effect, by kind and in one line."""
    kind, detail = type(error).__name__, " ".join(str(error).split())
    match effect:
        case AskModel():
            return ModelErred(*BLANK, error=kind, detail=detail)
        case CallTool():
            return ToolErred(*BLANK, error=kind, detail=detail)
        case RunCheck():
            return CheckReturned(*BLANK, exit_code=None, output=f"{kind}: {detail}")
        case RecallMemory():
            return MemoryRecalled(*BLANK)
        case CallHook():
            return HookReturned(*BLANK, error=kind, detail=detail)
        case AskApproval():
            return ApprovalAnswered(*BLANK, approved=False, text=f"{kind}: {detail}")
        case Wait() | Listen():
            return WaitEnded(*BLANK)
