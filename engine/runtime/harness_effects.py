"""The hands of a tool-calling run: models with cache and wraps, tools with timeouts, hooks, sub-agents."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from inspect import isawaitable
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from stepfold.engine.core.arguments import visible_schema
from stepfold.engine.models.prices import NO_PRICES, Price, priced
from stepfold.engine.models.protocol import Model, Request
from stepfold.engine.runtime.hooks import call_hook, injected_into, request_messages
from stepfold.engine.runtime.live import Landing
from stepfold.engine.runtime.middleware import (
    CallRequest,
    Cancelled,
    Interrupted,
    Middleware,
    MiddlewareError,
    RunContext,
    overrides,
)
from stepfold.engine.runtime.response_cache import ResponseCache, cache_key, is_history_free
from stepfold.engine.runtime.tools import Tool, text_of
from stepfold.events.configuration import Manifest, ModelSpec
from stepfold.events.vocabulary import (
    BLANK,
    NULL,
    ModelDelta,
    ModelErred,
    ModelReplied,
    ToolErred,
    ToolReturned,
)
from stepfold.projections.effects import AskModel, CallHook, CallTool
from stepfold.projections.fold_calls import child_id
from stepfold.projections.fold_hooks import request_change
from stepfold.projections.fold_shared import slot_of
from stepfold.projections.harness_settings import config_of
from stepfold.projections.state import Run

ON_ERROR_SECONDS = 5.0
"""How long a failed run waits for one `on_error` hook: nothing else bounds it any more."""

FATAL: dict[type[BaseException], str] = {
    Cancelled: "Cancelled",
    asyncio.CancelledError: "Cancelled",
    Interrupted: "Interrupted",
    MiddlewareError: "Middleware",
}
"""Exceptions that no policy turns into a result, and the kind that they give the run."""


class HarnessEffects:
    """Carries out the effects of one run of a harness."""

    def __init__(
        self,
        *,
        models: Mapping[str, Model],
        tools: Mapping[str, Tool],
        middleware: Mapping[str, Middleware],
        state: Any,
        data: Any,
        injected: Mapping[str, Any],
        cache: ResponseCache | None,
        delta: Callable[[ModelDelta, AskModel], None] | None,
        prices: Mapping[str, Price] = NO_PRICES,
    ) -> None:
        self._models = models
        self._tools = tools
        self._middleware = middleware
        self._state = state
        self._data = data
        self._injected = injected
        self._cache = cache
        self._delta = delta
        self._prices = prices
        self._model_wraps = [m for m in middleware.values() if overrides(m, "wrap_model")]
        self._tool_wraps = [m for m in middleware.values() if overrides(m, "wrap_tool")]
        self._delta_hooks = [m for m in middleware.values() if overrides(m, "on_delta")]
        self._offered: tuple[Manifest, ...] | None = None

    def perform(self, effect: Any, run: Run) -> Landing | Awaitable[Landing]:
        """Carry out one effect. What this raises lands as a failure of the effect."""
        match effect:
            case AskModel() if self._prices:
                return self._ask_and_price(effect, run)
            case AskModel():
                return self._ask(effect, run)
            case CallTool():
                return self._call(effect, run)
            case CallHook():
                return self._hook(effect, run)
            case _:
                raise TypeError(f"a tool-calling run has no effect {type(effect).__name__}")

    # --- models ---------------------------------------------------------------------------------------

    def _ask(self, effect: AskModel, run: Run) -> Landing | Awaitable[Landing]:
        model = self._models.get(effect.model)
        if model is None:
            return ModelErred(*BLANK, error="model_not_found", detail=f"no model is named {effect.model!r}")
        needed = self._cache is not None or self._model_wraps or getattr(model, "reads_messages", True)
        request = harness_request(run, effect, self._tools_offered(run), messages=bool(needed))
        stream = config_of(run).stream and hasattr(model, "stream")
        if self._cache is None and not self._model_wraps and not stream:
            return model.reply(request)
        return self._answered(model, request, effect, run, stream)

    async def _ask_and_price(self, effect: AskModel, run: Run) -> Landing:
        landing = self._ask(effect, run)
        landed = await landing if isawaitable(landing) else landing
        # A reply from the cache was paid for when it was made.
        if not isinstance(landed, ModelReplied) or landed.cache == "hit":
            return landed
        return priced(landed, effect.model, self._prices)

    def _tools_offered(self, run: Run) -> tuple[Manifest, ...]:
        if self._offered is None:
            self._offered = tools_offered(run)
        return self._offered

    async def _answered(
        self, model: Model, request: Request, effect: AskModel, run: Run, stream: bool
    ) -> Landing:
        key = self._cache_key(request, run)
        kept = self._kept(key)
        if kept is not None:
            return replace(kept, cache="hit")

        pieces: list[str] = []

        async def innermost(asked: Request) -> Any:
            if stream:
                return await self._streamed(model, asked, effect, run, pieces)
            reply = model.reply(asked)
            return await reply if isawaitable(reply) else reply

        ask: Callable[[Request], Awaitable[Any]] = innermost
        for wrap in reversed(self._model_wraps):
            ask = _wrapped_model(wrap, ask)
        try:
            landed = await ask(request)
        except tuple(FATAL) as error:
            if _is_own_end(error):
                raise
            return ModelErred(*BLANK, error=FATAL[_fatal_class(error)], detail=_one_line(error))
        if not isinstance(landed, ModelReplied):
            return landed if isinstance(landed, ModelErred) else _no_reply(landed)
        if key and self._cache is not None:
            # Only the first model of the list writes: what a fallback said is not that model's answer.
            if effect.model == config_of(run).models[0].name:
                with suppress(Exception):
                    self._cache.put(key, landed)
            landed = replace(landed, cache="miss")
        # Where the pieces are in the log, they hold the text; but a wrap may have made another of it.
        if pieces and config_of(run).record_deltas and landed.text == "".join(pieces):
            return replace(landed, text="", streamed=True)
        return landed

    def _kept(self, key: str) -> ModelReplied | None:
        if not key or self._cache is None:
            return None
        # Whatever goes wrong with a cache is a miss: it may be anybody's class.
        with suppress(Exception):
            return self._cache.get(key)
        return None

    def _cache_key(self, request: Request, run: Run) -> str:
        if self._cache is None or not is_history_free(request):
            return ""
        config = config_of(run)
        spec = next((m for m in config.models if m.name == request.model), ModelSpec(name=request.model))
        return cache_key(
            request, identity=spec.identity or spec.name, stream=config.stream, namespace=config.namespace
        )

    async def _streamed(
        self, model: Any, request: Request, effect: AskModel, run: Run, pieces: list[str]
    ) -> Landing:
        context = self._context(run)
        async for piece in model.stream(request):
            if not isinstance(piece, ModelDelta):
                landing: Landing = piece
                return landing
            pieces.append(piece.text)
            for middleware in self._delta_hooks:
                await _delta_hook(middleware, context, piece.text)
            if self._delta is not None:
                self._delta(piece, effect)
        return ModelErred(
            *BLANK, error="bad_response", detail="the stream ended without a reply", retryable=True
        )

    # --- tools ----------------------------------------------------------------------------------------

    def _call(self, effect: CallTool, run: Run) -> Landing | Awaitable[Landing]:
        tool = self._tools.get(effect.name)
        if tool is None:
            return ToolErred(*BLANK, error="ToolNotFound", detail=effect.name, fatal=True)
        return self._ran(tool, effect, run)

    async def _ran(self, tool: Tool, effect: CallTool, run: Run) -> Landing:
        timeout = tool.timeout if tool.timeout is not None else config_of(run).tool_timeout
        context = self._context(run, effect)
        if timeout is None:
            return await self._called(tool, effect, context)
        try:
            async with asyncio.timeout(timeout):
                return await self._called(tool, effect, context)
        except TimeoutError:
            return ToolReturned(
                *BLANK, content=f"Error: {tool.name} timed out after {timeout * 1000:g} ms", error="Timeout"
            )

    async def _called(self, tool: Tool, effect: CallTool, context: RunContext) -> Landing:
        async def innermost(request: CallRequest) -> Any:
            arguments = msgspec.json.decode(request.arguments or "{}")
            whole = injected_into(arguments, tool.manifest.hidden, self._injected)
            if tool.is_async:
                try:
                    return await tool.call(whole, context)
                except SystemExit as error:
                    raise ToolEscaped(error) from error
            return await asyncio.to_thread(_contained, tool, whole, context)

        call: Callable[[CallRequest], Awaitable[Any]] = innermost
        for wrap in reversed(self._tool_wraps):
            call = _wrapped_tool(wrap, call)
        request = CallRequest(effect.call_id, effect.name, effect.arguments.decode("utf-8", "surrogatepass"))
        try:
            result = await call(request)
        except tuple(FATAL) as error:
            if _is_own_end(error):
                raise
            kind = FATAL[_fatal_class(error)]
            return ToolErred(*BLANK, error=kind, detail=str(error), fatal=True)
        except Exception as error:
            fatal = bool(getattr(error, "fatal", False))
            kind = str(getattr(error, "kind", type(error).__name__))
            return ToolErred(*BLANK, error=kind, detail=str(error), fatal=fatal)
        if isinstance(result, ToolReturned | ToolErred):
            return result
        text = text_of(result)
        return ToolReturned(*BLANK, content=text.content, error=text.error)

    # --- hooks ----------------------------------------------------------------------------------------

    async def _hook(self, effect: CallHook, run: Run) -> Landing:
        limit = ON_ERROR_SECONDS if effect.hook == "on_error" else None
        async with asyncio.timeout(limit):
            return await call_hook(self._middleware[effect.name], effect, run, self._context(run))

    def _context(self, run: Run, effect: CallTool | None = None) -> RunContext:
        deadline = run.harness.deadline
        slot = None if effect is None else slot_of(run, effect.key)
        return RunContext(
            run_id=run.run_id,
            state=self._state,
            data=self._data,
            depth=config_of(run).depth,
            usage=run.usage,
            injected=self._injected,
            remaining=None if deadline is None else (deadline - run.now) / 1_000_000,
            max_depth=config_of(run).max_depth,
            call_id="" if slot is None else slot.call_id,
            child_run_id="" if slot is None else child_id(run, slot),
        )


def _fatal_class(error: BaseException) -> type[BaseException]:
    return next(kind for kind in FATAL if isinstance(error, kind))


def _is_own_end(error: BaseException) -> bool:
    """Whether the effect is being cancelled from outside: then there is nothing to hand back."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


async def _delta_hook(middleware: Middleware, context: RunContext, text: str) -> None:
    try:
        result = middleware.on_delta(context, text)
        if isawaitable(result):
            await result
    except Exception as error:
        raise MiddlewareError(f"{type(middleware).__name__}: {error}") from error


def _no_reply(landed: Any) -> ModelErred:
    return ModelErred(*BLANK, error="bad_response", detail=f"a wrap gave {type(landed).__name__}, no reply")


def _wrapped_model(
    wrap: Middleware, inner: Callable[[Request], Awaitable[Any]]
) -> Callable[[Request], Awaitable[Any]]:
    return lambda request: wrap.wrap_model(request, inner)


def _wrapped_tool(
    wrap: Middleware, inner: Callable[[CallRequest], Awaitable[Any]]
) -> Callable[[CallRequest], Awaitable[Any]]:
    return lambda request: wrap.wrap_tool(request, inner)


def tools_offered(run: Run) -> tuple[Manifest, ...]:
    """The tools as the model sees them: nothing that the host injects, the structured answer as one more."""
    config = config_of(run)
    shown = [replace(m, schema=Raw(visible_schema(m)), hidden=()) for m in run.manifests.values()]
    if config.response_strategy == "tool":
        answer = "Give the final answer, in this shape."
        shown.append(Manifest(name=config.response_name, description=answer, schema=config.response_schema))
    return tuple(shown)


def harness_request(
    run: Run, effect: AskModel, tools: tuple[Manifest, ...], *, messages: bool = True
) -> Request:
    """The request of a model call, exactly: what `stepfold prompt` shows is built here too.

    Without `messages`, for models that don't read them.
    """
    config = config_of(run)
    strategy = config.response_strategy
    return Request(
        model=effect.model,
        messages=tuple(request_messages(run, request_change(run))) if messages else (),
        generation=config.generation,
        max_tokens=effect.max_tokens,
        characters=run.history.characters,
        tools=tools,
        response_schema=config.response_schema if strategy == "provider" else NULL,
        response_name=config.response_name if strategy == "provider" else "",
        call=effect.call,
        attempt=effect.attempt,
        tool_choice=config.response_name if strategy == "tool" and not run.manifests else "",
    )


class ToolEscaped(Exception):
    """A tool raised what no event loop can carry: `kind` is what it was."""

    def __init__(self, error: BaseException) -> None:
        self.kind = type(error).__name__
        super().__init__(str(error) or self.kind)


def _contained(tool: Tool, arguments: dict[str, Any], context: RunContext) -> Any:
    """Run a plain function. What would hang a future or end the process becomes an error of the tool.

    Earned by `next(iter([]))` in a tool: its StopIteration can't be raised into a future, and the run
    waited for ever; and by tools that wrap a command line and end in SystemExit.
    """
    try:
        return tool.call(arguments, context)
    except (StopIteration, GeneratorExit, SystemExit) as error:
        raise ToolEscaped(error) from error


def named(middleware: Sequence[Middleware]) -> dict[str, Middleware]:
    """Middlewares by the names that the log calls them: their own, numbered where two share one."""
    found: dict[str, Middleware] = {}
    for item in middleware:
        base = item.name or type(item).__name__
        name, count = base, 1
        while name in found:
            count += 1
            name = f"{base}-{count}"
        found[name] = item
    return found
