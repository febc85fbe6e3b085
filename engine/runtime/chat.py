"""A conversation: a goal run whose turns a person begins, over the same drive, table and log as any run."""

import asyncio
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Protocol

from stepfold.engine.runtime.ending import drive_to_the_end
from stepfold.engine.runtime.interrupts import interrupts
from stepfold.engine.runtime.live import LiveEffects
from stepfold.engine.runtime.reopen import CannotResume, Reopened, push_reopening, reopen, rests
from stepfold.engine.runtime.run_log import RunLog
from stepfold.engine.runtime.snapshots import folded_from
from stepfold.engine.runtime.undo import Undo
from stepfold.events.configuration import GoalConfig, Manifest
from stepfold.events.vocabulary import (
    BLANK,
    CancelRequested,
    ObservedEvent,
    RunStarted,
    SandboxProbed,
    ToolsListed,
    UserAnswered,
    UserLoaded,
)
from stepfold.projections.fold_goal import LISTEN, config_of
from stepfold.projections.outcome import LoopOutcome, outcome
from stepfold.projections.state import Run


class Host(Protocol):
    """What a chat needs of its loop."""

    def chat_config(self, first: str) -> GoalConfig:
        """What a chat that begins with these words is started with."""
        ...

    def probed(self) -> SandboxProbed:
        """Which sandbox there is now."""
        ...

    async def open_servers(self, effects: LiveEffects, backend: str) -> None:
        """Start the servers of tools for one turn, and tell of what they list."""
        ...

    async def probe_constraint(self, effects: LiveEffects) -> None:
        """See how the model's server is constrained, if it is to be, and tell of it."""
        ...

    def list_files(self, effects: LiveEffects, run: Run) -> None:
        """Tell of the project's files, if the model is to name no others."""
        ...

    async def close_model(self) -> None:
        """Connections belong to the event loop of one turn."""
        ...


class Chat:
    """One recorded conversation. Use as a context manager: leaving it closes the log.

    Nothing is recorded before the first words are said; between turns the run waits for the person as
    after `ask_user`, so it shows, replays, queries and resumes like any other.
    """

    def __init__(self, host: Host, effects: LiveEffects, log: Callable[[], RunLog], undo: Undo) -> None:
        self._host = host
        self._effects = effects
        self._open_log = log
        self._log: RunLog | None = None
        self._undo = undo
        self._opening: list[ObservedEvent] = []
        self._listed: tuple[ToolsListed, ...] | None = None
        self._reopened: Reopened | None = None
        self._backend = ""
        self._constrained = False
        self.run = Run()
        self.run_id = effects.run_id

    def __enter__(self) -> "Chat":
        return self

    def __exit__(self, *_: object) -> None:
        if self._log is not None:
            self._log.close()

    def reopen(self) -> None:
        """Take up a recorded chat where its log stops. Raises LogError, and CannotResume for other runs."""
        log = self._open_log()
        try:
            self._reopened = reopen(folded_from(log.recorded(), log.path), log)
            if not config_of(self._reopened.run).chat:
                raise CannotResume(f"run {self.run_id} is no chat: `stepfold resume` goes on with it")
        except BaseException:
            log.close()
            raise
        self._log, self.run = log, self._reopened.run

    @property
    def in_a_turn(self) -> bool:
        """The turn that was cut off when an earlier process ended is still to be gone on with."""
        return bool(self.run.seq) and not rests(self.run)

    def say(self, text: str) -> LoopOutcome:
        """Say something, and let the model act until its turn ends. Ctrl-C ends the turn, not the chat."""
        if self.run.seq:
            self._wake()
            self._effects.push(UserAnswered(*BLANK, text=text), LISTEN)
            return self._turn()
        start = RunStarted(*BLANK, config=self._host.chat_config(text), engine=version("stepfold"))
        self._log = self._open_log()
        self._log.begin()
        for event in (start, self._probed()):
            self._effects.push(event)
        return self._turn()

    def go_on(self) -> LoopOutcome:
        """Go on with a turn that was cut off."""
        self._wake()
        return self._turn()

    def capabilities(self) -> dict[str, tuple[Manifest, bool]]:
        """What there is to load, by name, and whether it is loaded."""
        manifests = self.run.manifests or self._offered()
        loaded = {name for event in self._opening if isinstance(event, UserLoaded) for name in event.names}
        return {
            name: (manifest, name in loaded or name in self.run.goal.loaded)
            for name, manifest in manifests.items()
        }

    def _offered(self) -> dict[str, Manifest]:
        """What the first words will find. Servers are asked once and ended again: nothing is recorded yet."""
        if self._listed is None:
            self._listed = asyncio.run(self._servers_asked())
        of_servers = (manifest for listed in self._listed for manifest in listed.tools)
        return {one.name: one for one in (*self._host.chat_config("").manifests, *of_servers)}

    async def _servers_asked(self) -> tuple[ToolsListed, ...]:
        servers = self._effects.servers
        if servers is None:
            return ()
        try:
            return await servers.open(self._probed().backend)
        finally:
            await servers.close()

    def load(self, names: Sequence[str]) -> None:
        """Load capabilities by name. Names that `capabilities` lacks are left out."""
        self._tell(UserLoaded(*BLANK, names=tuple(names)))

    def undo(self) -> str:
        """Take back the last call that changed a file; what was done, in words. Raises CannotUndo."""
        undone = self._undo.take_back(self.run.goal.changes)
        self._tell(undone)
        return f"{undone.what} {undone.path}, as it was before {undone.name}"

    def _tell(self, event: ObservedEvent) -> None:
        if not self.run.seq:
            self._opening.append(event)
            return
        self._wake()
        self._effects.push(event)
        self._turn()

    def _wake(self) -> None:
        """A chat that is only looked at stays as it was: its new life begins with what is done first."""
        if self._reopened is not None:
            push_reopening(self._effects, self._reopened)
            self._effects.push(self._probed())
            self._reopened = None

    def _probed(self) -> SandboxProbed:
        """What this life of the chat finds; the servers of each of its turns are started in it."""
        found = self._host.probed()
        self._backend = found.backend
        return found

    def _turn(self) -> LoopOutcome:
        assert self._log is not None
        log = self._log

        def cancel(reason: str) -> None:
            self._effects.push(CancelRequested(*BLANK, reason=reason))

        async def driven() -> None:
            with interrupts(self._effects):
                try:
                    await self._host.open_servers(self._effects, self._backend)
                    if not self._constrained:
                        self._constrained = True
                        await self._host.probe_constraint(self._effects)
                    self._host.list_files(self._effects, self.run)
                    # Only now is there all that may have been loaded beforehand.
                    while self._opening:
                        self._effects.push(self._opening.pop(0))
                    await drive_to_the_end(self.run, self._effects, log, cancel)
                finally:
                    await self._effects.close()
                    await self._host.close_model()

        asyncio.run(driven())
        log.settle()
        return outcome(self.run)
