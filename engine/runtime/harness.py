"""`AgentHarness`: the tool-calling loop for programs that embed it: async, recorded, steered, nested."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stepfold.engine.models.prices import NO_PRICES, Price
from stepfold.engine.models.protocol import Model
from stepfold.engine.models.resolve import resolve
from stepfold.engine.runtime.agent_run import (
    AgentLoopResult,
    AgentRun,
    HarnessError,
)
from stepfold.engine.runtime.changes import changed
from stepfold.engine.runtime.clock import Clock
from stepfold.engine.runtime.fork import CannotFork, branch_off
from stepfold.engine.runtime.harness_effects import HarnessEffects, named
from stepfold.engine.runtime.harness_life import Life, Said, message_of
from stepfold.engine.runtime.live import LiveEffects
from stepfold.engine.runtime.middleware import HOOKS, Middleware, overrides
from stepfold.engine.runtime.reopen import CannotResume
from stepfold.engine.runtime.response_cache import ResponseCache
from stepfold.engine.runtime.run_log import MemoryLog, RunLog
from stepfold.engine.runtime.run_policy import RunConfig, RunPolicy, resolved, taken_over
from stepfold.engine.runtime.tools import Tool, ToolDeclarationError, tool
from stepfold.events.configuration import Config, HarnessConfig, MiddlewareSpec, ModelSpec
from stepfold.events.journal import read_log
from stepfold.events.run_store import RunStore
from stepfold.events.store import open_store
from stepfold.events.vocabulary import (
    AnyEvent,
    Command,
    Message,
)


class RunEnded(Struct, frozen=True):
    """The last item of a stream: the result, and the error if there was one."""

    run: AgentRun
    error: str = ""


class AgentHarness:
    """Runs one conversation to its end: model, tools, model, … until the model answers.

    `models` is a `Model`, what `--model` takes, or several of either in fallback order. `tools` are
    `Tool`s or plain typed functions. With a `store` (a folder, a `postgresql://` URL or an open store)
    every run is recorded, as safely as `durability` says (`normal`, `step`, `full`); without one its
    events are on the result alone. `prices` say what a model's replies cost, by its name; a sub-agent goes
    by its own.
    """

    def __init__(
        self,
        models: Model | str | Sequence[Model | str],
        tools: Iterable[Tool | Callable[..., Any]] = (),
        middleware: Iterable[Middleware] = (),
        policy: RunPolicy | None = None,
        *,
        store: RunStore | str | Path | None = None,
        cache: ResponseCache | None = None,
        clock: Clock | None = None,
        durability: str = "normal",
        prices: Mapping[str, Price] = NO_PRICES,
    ) -> None:
        self.policy = policy or RunPolicy()
        self.models = _models(models)
        self.tools = _tools(tools)
        self.middleware = named(tuple(middleware))
        self._store = open_store(store) if isinstance(store, str | Path) else store
        for item in self.tools.values():
            if item.child is not None:
                item.child.adopt(self._store)
        self._cache = cache
        self._clock = clock
        self._durability = durability
        self._prices = dict(prices)
        wanted = self.policy.response_format
        if wanted is not None and wanted.name in self.tools:
            raise ToolDeclarationError(
                f"the response format is named {wanted.name!r}, and so is a tool: rename one of them"
            )

    # --- entries --------------------------------------------------------------------------------------

    async def invoke(
        self,
        state: Any = None,
        context: Any = None,
        config: RunConfig | None = None,
        messages: Sequence[Said] = (),
    ) -> AgentRun:
        """Run to the end. Raises HarnessError, which carries the partial run."""
        return (await self.invoke_with_status(state, context, config, messages)).run

    async def invoke_with_status(
        self,
        state: Any = None,
        context: Any = None,
        config: RunConfig | None = None,
        messages: Sequence[Said] = (),
    ) -> AgentLoopResult:
        """As `invoke`, with a compact status beside the run. A paused run is a result, no error."""
        life = Life(self, state, context, config or RunConfig(), stream=False)
        return _settled(await life.begin(messages))

    async def stream(
        self,
        state: Any = None,
        context: Any = None,
        config: RunConfig | None = None,
        messages: Sequence[Said] = (),
    ) -> AsyncIterator[AnyEvent | RunEnded]:
        """The events as they are recorded, model deltas among them, and then exactly one `RunEnded`.

        Leaving the iteration early cancels the run.
        """
        items: asyncio.Queue[AnyEvent | RunEnded] = asyncio.Queue()
        life = Life(self, state, context, config or RunConfig(), stream=True, told=items.put_nowait)

        async def run() -> None:
            result = await life.begin(messages)
            error = result.status.error if result.run.error else ""
            items.put_nowait(RunEnded(result.run, f"{result.run.error}: {error}" if result.run.error else ""))

        task = asyncio.create_task(run())
        task.add_done_callback(lambda done: _report_crash(done, items))
        try:
            while True:
                item = await items.get()
                if isinstance(item, _Crash):
                    raise item.error
                yield item
                if isinstance(item, RunEnded):
                    return
        finally:
            life.cancel("the stream was left")
            await asyncio.gather(task, return_exceptions=True)

    async def resume(
        self,
        run_id: str,
        state: Any = None,
        context: Any = None,
        config: RunConfig | None = None,
        commands: Sequence[Command] = (Command("resume"),),
    ) -> AgentLoopResult:
        """Go on with a recorded run, paused or cut off, from its log. Raises CannotResume, HarnessError.

        `commands` are given to a paused run, and come from its owner: no handle's allow-list holds for them.
        """
        life = Life(self, state, context, replace(config or RunConfig(), run_id=run_id), stream=False)
        if self._store is None or not self._store.holds(run_id):
            raise CannotResume(f"run {run_id}: nothing of it is recorded in this harness's store")
        return _settled(await life.again(commands))

    async def fork(
        self,
        trace: str | Path,
        *,
        at: int,
        changes: Sequence[str] = (),
        reply: Said | None = None,
        system: str = "",
        state: Any = None,
        context: Any = None,
        config: RunConfig | None = None,
    ) -> AgentLoopResult:
        """Branch off a recorded run (an id of the store, or a trace file) into a run of its own.

        Everything below seq `at` is shared. From there on `changes` (`KEY=VALUE`, as `stepfold judge
        --set` takes them) and this harness's models, tools and middlewares hold; its `policy` does not,
        for the recorded limits go on. `reply` is said instead of the one recorded at `at`: a text, or an
        assistant message with tool calls. `system` is what the first turn says instead. What the source
        recorded serves while the fork decides the same: no model, tool, hook or sub-agent runs for it.
        The rest is live. Raises CannotFork, ChangeError, LogError and HarnessError.
        """
        given = config or RunConfig()
        source = read_log(self._trace_of(trace)).records
        shared = branch_off(
            source,
            at=at,
            change=lambda recorded: self._takes_over(recorded, changes, given),
            reply=None if reply is None else _reply_of(reply),
            system=system,
        )
        life = Life(self, state, context, given, stream=False)
        return _settled(await life.branch(shared))

    def _trace_of(self, trace: str | Path) -> Path:
        if isinstance(trace, Path):
            return trace
        if self._store is None or not self._store.holds(trace):
            raise CannotFork(f"run {trace}: nothing of it is recorded in this harness's store")
        return self._store.path_of(trace)

    def _takes_over(self, recorded: Config, changes: Sequence[str], config: RunConfig) -> Config:
        if not isinstance(recorded, HarnessConfig):
            raise CannotFork("this is no tool-calling run: fork it with `AgentLoop.fork` or `stepfold fork`")
        own = self.configuration(config, stream=recorded.stream)
        taken = taken_over(recorded, own, config)
        if taken.response_strategy == "tool" and taken.response_name in self.tools:
            raise CannotFork(
                f"the run's answer is named {taken.response_name!r}, and so is a tool: rename it"
            )
        return changed(taken, changes)

    async def continue_or_begin(
        self, state: Any, context: Any, config: RunConfig, messages: Sequence[Said]
    ) -> AgentRun:
        """As `invoke`, but a run of that id which is recorded already goes on where its log stops.

        So a parent that is resumed in the middle of a sub-agent's run does not run it twice.
        """
        life = Life(self, state, context, config, stream=False)
        if self._store is None or not self._store.holds(life.run_id):
            return _settled(await life.begin(messages)).run
        return _settled(await life.again(())).run

    def invoke_sync(
        self,
        state: Any = None,
        context: Any = None,
        config: RunConfig | None = None,
        messages: Sequence[Said] = (),
    ) -> AgentRun:
        """`invoke` for programs without an event loop."""
        return asyncio.run(self.invoke(state, context, config, messages))

    def invoke_with_status_sync(
        self,
        state: Any = None,
        context: Any = None,
        config: RunConfig | None = None,
        messages: Sequence[Said] = (),
    ) -> AgentLoopResult:
        """`invoke_with_status` for programs without an event loop."""
        return asyncio.run(self.invoke_with_status(state, context, config, messages))

    def fork_sync(self, trace: str | Path, **named: Any) -> AgentLoopResult:
        """`fork` for programs without an event loop."""
        return asyncio.run(self.fork(trace, **named))

    def resume_sync(self, run_id: str, **named: Any) -> AgentLoopResult:
        """`resume` for programs without an event loop."""
        return asyncio.run(self.resume(run_id, **named))

    def adopt(self, store: RunStore | None) -> None:
        """Record into this store from now on, unless the harness has one of its own."""
        self._store = self._store or store

    @property
    def store(self) -> RunStore | None:
        """Where its runs are recorded."""
        return self._store

    # --- what a life of a run needs -------------------------------------------------------------------

    def configuration(self, config: RunConfig, *, stream: bool) -> HarnessConfig:
        """What `RunStarted` records of this harness under a run's config."""
        specs = [
            MiddlewareSpec(
                name, tuple(hook for hook in HOOKS if overrides(item, hook)), overrides(item, "wrap_tool")
            )
            for name, item in self.middleware.items()
        ]
        return resolved(
            self.policy,
            config,
            [_spec(model) for model in self.models.values()],
            [item.manifest for item in self.tools.values()],
            specs,
            cache=self._cache is not None,
            stream=stream,
        )

    def log(self, run_id: str) -> RunLog | MemoryLog:
        """Where a run is recorded."""
        return (
            MemoryLog() if self._store is None else RunLog(self._store, run_id, durability=self._durability)
        )

    def effects(self, life: Life) -> LiveEffects:
        """The hands of a run."""
        hands = HarnessEffects(
            models=self.models,
            tools=self.tools,
            middleware=self.middleware,
            state=life.state,
            data=life.data,
            injected=life.config.injected,
            cache=self._cache,
            delta=life.delta,
            prices=self._prices,
        )
        secrets = [secret for model in self.models.values() for secret in getattr(model, "secrets", ())]
        return LiveEffects(hands.perform, run_id=life.run_id, clock=self._clock, secrets=secrets)


class _Crash(Struct):
    error: BaseException


def _report_crash(task: "asyncio.Task[None]", items: "asyncio.Queue[Any]") -> None:
    if not task.cancelled() and task.exception() is not None:
        items.put_nowait(_Crash(task.exception()))  # type: ignore[arg-type]


def _settled(result: AgentLoopResult) -> AgentLoopResult:
    if result.run.status in {"failed", "cancelled"}:
        raise HarnessError(result.run.error, result.run.detail, result.run, result.status)
    return result


def _reply_of(said: Said) -> Message:
    return Message("assistant", said) if isinstance(said, str) else message_of(said)


def _models(models: Model | str | Sequence[Model | str]) -> dict[str, Model]:
    given = [models] if isinstance(models, str) or not isinstance(models, Sequence) else list(models)
    found: dict[str, Model] = {}
    for item in given:
        model = resolve(item) if isinstance(item, str) else item
        if found.setdefault(model.name, model) is not model:
            raise ToolDeclarationError(
                f"two models are named {model.name!r}: the log tells them apart by name"
            )
    return found


def _tools(tools: Iterable[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    for item in tools:
        declared = item if isinstance(item, Tool) else tool(item)
        if declared.name in found:
            raise ToolDeclarationError(f"two tools are named {declared.name!r}: rename one of them")
        found[declared.name] = declared
    return found


def _spec(model: Model) -> ModelSpec:
    return ModelSpec(
        name=model.name,
        tools=bool(getattr(model, "supports_tools", True)),
        structured=bool(getattr(model, "supports_structured", False)),
        identity=str(getattr(model, "identity", "")),
    )
