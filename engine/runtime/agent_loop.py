"""`AgentLoop`: the strict goal loop, ready to run: one action a step, recorded whole."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from stepfold.engine.capabilities.boxes import DEFAULT_LIMITS, Limits
from stepfold.engine.capabilities.checks import detect
from stepfold.engine.capabilities.context import NO_NETWORK, Network
from stepfold.engine.capabilities.manifests import NATIVE, refuse_unknown
from stepfold.engine.capabilities.memory import Memory
from stepfold.engine.capabilities.project_files import news_of
from stepfold.engine.capabilities.sandbox import probe
from stepfold.engine.capabilities.servers import Servers, ServerSpec
from stepfold.engine.capabilities.workspace import Workspace
from stepfold.engine.core.own_guards import OwnGuard, require
from stepfold.engine.models.constraints import probed
from stepfold.engine.models.prices import NO_PRICES, Price
from stepfold.engine.models.protocol import Model
from stepfold.engine.models.resolve import resolve
from stepfold.engine.runtime.chat import Chat
from stepfold.engine.runtime.drive import drive
from stepfold.engine.runtime.ending import drive_to_the_end
from stepfold.engine.runtime.fork import Branch, branch_off, goal_change
from stepfold.engine.runtime.goal_effects import Approve, GoalEffects, nobody_there
from stepfold.engine.runtime.interrupts import interrupts
from stepfold.engine.runtime.live import Landing, LiveEffects
from stepfold.engine.runtime.own_guards import fetch, provided
from stepfold.engine.runtime.reopen import refuse_ended, reopen, rests, take_up
from stepfold.engine.runtime.run_log import RunLog, Watch
from stepfold.engine.runtime.run_policy import new_run_id
from stepfold.engine.runtime.settings_file import read_settings
from stepfold.engine.runtime.snapshots import folded_from, folded_undamaged
from stepfold.engine.runtime.undo import Undo
from stepfold.engine.runtime.workers import landing_of, telling, worker_config, worker_id
from stepfold.events.configuration import (
    NO_BUDGET,
    NO_GUARDS,
    WORDING,
    Budget,
    CheckSpec,
    Generation,
    GoalConfig,
    Guards,
    Rule,
)
from stepfold.events.journal import Recorded, read_log
from stepfold.events.run_store import RunStore
from stepfold.events.store import open_store
from stepfold.events.vocabulary import (
    BLANK,
    CancelRequested,
    ConstraintProbed,
    Message,
    ProjectListed,
    RunReopened,
    RunStarted,
    SandboxProbed,
    ToolErred,
    ToolReturned,
    ToolsListed,
    WorkerSpent,
)
from stepfold.projections.effects import CallTool
from stepfold.projections.fold_goal import config_of
from stepfold.projections.outcome import LoopOutcome, outcome
from stepfold.projections.state import Run


class AgentLoop:
    """Runs goals in a project, one strict action a step.

    `model` is a `Model` or what `--model` takes. Timeouts are in seconds, the window in tokens.
    `checks` are the acceptance checks; None takes those of its `stepfold.toml` (the only thing read
    there), else those that the project shows. `store` is a folder, a `postgresql://` URL or an open
    store; None means `.stepfold` in the project. `watch` is told of every event.
    `servers` are MCP servers, `tool_policy` judges capabilities by name, `web` says what `web.fetch`
    may reach once `network` opens it, `readable` are further folders that commands can read.
    For `preload`, `unattended`, `keep`, `final_newline`, `read_first` and `verify_changes` see `GoalConfig`.
    `budget` ends a run that has used it up; `prices` say what a model's replies cost, by its name.
    """

    def __init__(
        self,
        *,
        model: Model | str,
        project: str | Path = ".",
        max_steps: int = 12,
        model_request_timeout: float = 120.0,
        worker_slots: int = 0,
        worker_depth: int = 1,
        context_window: int = 262_000,
        verification: Literal["commands", "manual"] = "commands",
        checks: Sequence[CheckSpec] | None = None,
        profile: str = "",
        preload: Sequence[str] = (),
        unattended: bool = False,
        keep: Sequence[str] = (),
        final_newline: bool = False,
        read_first: bool = False,
        verify_changes: bool = False,
        store: RunStore | str | Path | None = None,
        generation: Generation | None = None,
        policy: Sequence[Rule] = (),
        sandbox: str = "auto",
        limits: Limits = DEFAULT_LIMITS,
        network: bool = False,
        memory: bool = True,
        durability: str = "normal",
        tool_policy: Sequence[Rule] = (),
        guards: Guards = NO_GUARDS,
        own_guards: Sequence[OwnGuard] = (),
        web: Network = NO_NETWORK,
        readable: Sequence[str] = (),
        servers: Sequence[ServerSpec] = (),
        budget: Budget = NO_BUDGET,
        prices: Mapping[str, Price] = NO_PRICES,
        watch: Watch | None = None,
    ) -> None:
        self.model = resolve(model, timeout=model_request_timeout) if isinstance(model, str) else model
        self.project = Path(project).resolve()
        if not self.project.is_dir():
            raise NotADirectoryError(f"the project {str(project)!r} is no folder: name one that is there")
        refuse_unknown(preload)
        named = self.project / ".stepfold" if store is None else store
        self.store = open_store(named) if isinstance(named, str | Path) else named
        self._config = GoalConfig(
            goal="",
            model=self.model.name,
            project=self.project.name,
            profile=profile,
            max_steps=max_steps,
            model_request_timeout=model_request_timeout,
            worker_slots=worker_slots,
            worker_depth=worker_depth if worker_slots else 0,
            context_window=context_window,
            verification=verification,
            checks=_without_nul(_checks_of(self.project) if checks is None else tuple(checks)),
            manifests=NATIVE,
            preload=tuple(preload),
            unattended=unattended,
            keep=tuple(keep),
            final_newline=final_newline,
            read_first=read_first,
            verify_changes=verify_changes,
            policy=tuple(policy),
            tool_policy=tuple(tool_policy),
            budget=budget,
            guards=replace(guards, own=_own_guards(guards, own_guards)),
            sandbox_required=sandbox != "none",
            network=network,
            memory=memory,
            generation=generation or Generation(),
            wording=WORDING,
        )
        self._constrained: ConstraintProbed | None = None
        self._sandbox = sandbox
        self._limits = limits
        self._web = web
        self._readable = tuple(readable)
        self._servers = tuple(servers)
        self._prices = dict(prices)
        self._durability = durability
        self._watch = watch

    def run(self, goal: str, *, run_id: str = "") -> LoopOutcome:
        """Work towards a goal until the run ends. Ctrl-C ends it cancelled, with its log whole.

        Raises ValueError for an empty goal, and LogError when the log can't be written; what was
        recorded before is whole.
        """
        _refuse_empty(goal)

        async def interruptible() -> LoopOutcome:
            effects = self._effects(run_id or new_run_id())
            with interrupts(effects):
                return await self._run(goal, effects)

        return asyncio.run(interruptible())

    async def run_async(self, goal: str, *, run_id: str = "") -> LoopOutcome:
        """As `run`, inside an event loop. Cancelling the task ends the run at once, its log whole."""
        _refuse_empty(goal)
        return await self._run(goal, self._effects(run_id or new_run_id()))

    def resume(self, run_id: str, *, answer: str | None = None) -> LoopOutcome:
        """Go on with a run where its log stops, under the settings that it was started with.

        `run_id` is an id, its start, or `last`; `answer` answers the question that the run ended with.
        Raises StoreError for a run that is not there, CannotResume, and LogError.
        """
        # Opening a log makes its file, so who asks for a run that never was must not get that far.
        found = self.store.find(run_id)
        refuse_ended(folded_undamaged(self.store.path_of(found)))

        async def interruptible() -> LoopOutcome:
            effects = self._effects(found)
            with interrupts(effects):
                return await self._resume(effects, answer)

        return asyncio.run(interruptible())

    async def _resume(self, effects: LiveEffects, answer: str | None) -> LoopOutcome:
        try:
            return await self._go_on(effects, answer, _never)
        finally:
            await _close(self.model)

    async def _go_on(
        self,
        effects: LiveEffects,
        answer: str | None,
        given_up: Callable[[], bool],
        watch: Watch | None = None,
    ) -> LoopOutcome:
        with self._log(effects, watch) as log:
            reopened = reopen(folded_from(log.recorded(), log.path), log)
            if answer is None and rests(reopened.run):
                return outcome(reopened.run)
            take_up(effects, reopened, answer)
            return await self._drive(reopened.run, effects, log, given_up)

    def fork(
        self, run_id: str | Path, *, at: int, changes: Sequence[str] = (), reply: str | None = None
    ) -> LoopOutcome:
        """Branch off a recorded run (an id of the store, or a trace file) into a run of its own.

        Everything below seq `at` is shared. From there on `changes` (`KEY=VALUE`, as in
        `stepfold.toml`) and this loop's model hold; `reply` is said instead of the one recorded at
        `at`. What the source recorded serves while the fork decides the same; the rest is live, in
        this loop's project. Raises CannotFork, ChangeError and LogError.
        """
        source = read_log(run_id if isinstance(run_id, Path) else self.store.path_of(run_id)).records
        change = goal_change(changes, self.model.name)
        said = None if reply is None else Message("assistant", reply)
        shared = branch_off(source, at=at, change=change, reply=said)

        async def interruptible() -> LoopOutcome:
            effects = self._effects(new_run_id())
            with interrupts(effects):
                return await self._fork(effects, shared)

        return asyncio.run(interruptible())

    async def _fork(self, effects: LiveEffects, shared: Sequence[Recorded]) -> LoopOutcome:
        run = Run()
        with self._log(effects) as log:
            log.begin()
            try:
                found = probe(self._sandbox)
                listed: tuple[ToolsListed | ConstraintProbed, ...] = (
                    *await _listed(effects, found.backend),
                    *await self._constraint(_generation_of(shared)),
                )

                def news(run: Run) -> list[Landing]:
                    sandbox = SandboxProbed(*BLANK, backend=found.backend, why=found.why)
                    # The time since the source was recorded is none in which this run worked.
                    timed = config_of(run).budget.seconds is not None
                    return [
                        *([RunReopened(*BLANK)] if timed else []),
                        *([sandbox] if found.backend != run.backend else []),
                        *listed,
                        *self._files(run),
                    ]

                branch = Branch(shared, live=effects, log=log, news=news)
                await drive(run, branch, branch)
            finally:
                await effects.close()
                await _close(self.model)
        return outcome(run)

    def chat(self, approve: Approve = nobody_there, *, run_id: str = "") -> Chat:
        """A conversation. `approve` asks the person about a call that the policy leaves to them.

        `run_id` names the run of a new chat, or (see `Chat.reopen`) a recorded one.
        """
        chosen = run_id or new_run_id()
        effects = self._effects(chosen, approve)
        return Chat(self, effects, lambda: self._log(effects), self._undo(chosen))

    def chat_config(self, first: str) -> GoalConfig:
        """See `chat.Host`."""
        return replace(self._config, goal=first, chat=True)

    def probed(self) -> SandboxProbed:
        """See `chat.Host`."""
        found = probe(self._sandbox)
        return SandboxProbed(*BLANK, backend=found.backend, why=found.why)

    async def close_model(self) -> None:
        """See `chat.Host`."""
        await _close(self.model)

    def _undo(self, run_id: str) -> Undo:
        return Undo(self.store.folder / "undo" / run_id, Workspace(self.project))

    def _effects(self, run_id: str, approve: Approve = nobody_there) -> LiveEffects:
        memory = Memory(self.store.folder / "memory.sqlite") if self._config.memory else None
        servers = Servers(
            self._servers,
            workspace=Workspace(self.project),
            limits=self._limits,
            readable=self._readable,
        )
        effects = LiveEffects(
            lambda effect, run: hands.perform(effect, run),
            run_id=run_id,
            servers=servers,
            secrets=getattr(self.model, "secrets", ()),
        )
        hands = GoalEffects(
            self.model,
            self.project,
            memory,
            self._limits,
            lambda effect, run: self._work(effect, run, effects.push),
            approve,
            self._undo(run_id),
            store=self.store.folder,
            tell=effects.push,
            web=self._web,
            readable=self._readable,
            servers=servers,
            prices=self._prices,
        )
        return effects

    async def _run(self, goal: str, effects: LiveEffects) -> LoopOutcome:
        try:
            return await self._begin(replace(self._config, goal=goal), effects, _never)
        finally:
            await _close(self.model)

    async def _begin(
        self,
        config: GoalConfig,
        effects: LiveEffects,
        given_up: Callable[[], bool],
        watch: Watch | None = None,
        *,
        parent: str = "",
        parent_call: str = "",
    ) -> LoopOutcome:
        effects.push(
            RunStarted(
                *BLANK, config=config, engine=version("stepfold"), parent=parent, parent_call=parent_call
            )
        )
        with self._log(effects, watch) as log:
            log.begin()
            return await self._drive(Run(), effects, log, given_up)

    async def _work(
        self, effect: CallTool, run: Run, tell: Callable[[WorkerSpent], None]
    ) -> ToolReturned | ToolErred:
        """Run a worker, or go on with one whose parent was taken up again; its log is its own."""
        effects = self._effects(worker_id(run, effect))
        watch = telling(effect.key, tell, self._watch)

        def given_up() -> bool:
            return effect.key not in run.due

        if self.store.holds(effects.run_id):
            return landing_of(await self._go_on(effects, None, given_up, watch), effect)
        config = worker_config(run, effect)
        ended = await self._begin(
            config, effects, given_up, watch, parent=run.run_id, parent_call=effect.call_id
        )
        return landing_of(ended, effect)

    def _log(self, effects: LiveEffects, watch: Watch | None = None) -> RunLog:
        watch = watch or self._watch
        log = RunLog(self.store, effects.run_id, watch=watch, durability=self._durability)
        effects.log = log
        return log

    async def _drive(
        self, run: Run, effects: LiveEffects, log: RunLog, given_up: Callable[[], bool]
    ) -> LoopOutcome:
        def cancel(reason: str) -> None:
            effects.push(CancelRequested(*BLANK, reason=reason))

        try:
            await self._look_around(effects, run)
            await drive_to_the_end(run, effects, log, cancel, given_up)
        finally:
            await effects.close()
        return outcome(run)

    async def _look_around(self, effects: LiveEffects, run: Run) -> None:
        """What this life of the run finds: a sandbox, and the tools of the servers."""
        found = self.probed()
        effects.push(found)
        await self.open_servers(effects, found.backend)
        await self.probe_constraint(effects)
        self.list_files(effects, run)

    async def open_servers(self, effects: LiveEffects, backend: str) -> None:
        """See `chat.Host`."""
        for listed in await _listed(effects, backend):
            effects.push(listed)

    async def probe_constraint(self, effects: LiveEffects) -> None:
        """See `chat.Host`."""
        for found in await self._constraint(self._config.generation):
            effects.push(found)

    def list_files(self, effects: LiveEffects, run: Run) -> None:
        """See `chat.Host`."""
        for news in self._files(run):
            effects.push(news)

    def _files(self, run: Run) -> tuple[ProjectListed, ...]:
        """What a constrained model has still to be told of the project's files."""
        if self._constrained is None or self._constrained.form == "none":
            return ()
        news = news_of(Workspace(self.project), run.goal.files)
        return () if news is None else (news,)

    async def _constraint(self, generation: Generation) -> tuple[ConstraintProbed, ...]:
        """How the server is constrained, if it is to be. Workers and later runs ask the same server."""
        if generation.response_format != "actions":
            return ()
        if self._constrained is None:
            self._constrained = await probed(self.model, generation)
        return (self._constrained,)


def _generation_of(records: Sequence[Recorded]) -> Generation:
    """What a recorded run, or a fork of one, asks of its model."""
    start = records[0].event
    config = (start.forked or start.config) if isinstance(start, RunStarted) else None
    return config.generation if isinstance(config, GoalConfig) else Generation()


def _refuse_empty(goal: str) -> None:
    if not goal.strip():
        raise ValueError("the goal is empty: say what is to be done")


def _never() -> bool:
    """A task of a run's own may be cut off, and the run resumed; only Ctrl-C and its like end it."""
    return False


def _checks_of(project: Path) -> tuple[CheckSpec, ...]:
    return read_settings(project).check_specs() or detect(project)


async def _listed(effects: LiveEffects, backend: str) -> tuple[ToolsListed, ...]:
    return () if effects.servers is None else await effects.servers.open(backend)


def _own_guards(guards: Guards, given: Sequence[OwnGuard]) -> tuple[str, ...]:
    """The names of all guards from outside, each of them here. Raises GuardClash and MissingGuard."""
    names = tuple(dict.fromkeys((*guards.own, *provided(given))))
    fetch(names)
    for name in names:
        require(name)
    return names


def _without_nul(checks: tuple[CheckSpec, ...]) -> tuple[CheckSpec, ...]:
    for check in checks:
        if "\0" in check.command:
            raise ValueError(f"the command of the check {check.id!r} holds a NUL, which no shell takes")
    return checks


async def _close(model: Model) -> None:
    """Connections belong to the event loop that opened them, and this one ends with the run."""
    close = getattr(model, "close", None)
    if close is not None:
        await close()
