"""Middleware that is ready to use: budgets, rate limits, allow-lists, approval, redaction.

Each keeps its state on itself and serves one run at a time, unless its docstring says otherwise.
"""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from inspect import isawaitable
from typing import Any, Literal

from msgspec.structs import replace

from stepfold.engine.runtime.clock import Clock, SystemClock
from stepfold.engine.runtime.middleware import (
    CallRequest,
    CallResult,
    Middleware,
    MiddlewareError,
    ModelRequest,
    RunContext,
)
from stepfold.events.vocabulary import Message

Denial = Literal["answer", "end"]
"""What a denied call becomes: an error that the model reads, or the end of the run."""


class UsageBudget(Middleware):
    """Ends a run that has used up its tokens or its money, sub-agents included, before the next model call.

    `max_cost` is in whatever unit the models' replies give. The run ends with the error `Middleware`.
    """

    name = "usage_budget"

    def __init__(self, max_tokens: int | None = None, max_cost: float | None = None) -> None:
        self.max_tokens = max_tokens
        self.max_cost = max_cost

    def before_model(self, context: RunContext, request: ModelRequest) -> None:
        """Refuse a call when there is nothing left. Raises MiddlewareError."""
        usage = context.usage
        if self.max_tokens is not None and usage.total_tokens >= self.max_tokens:
            raise MiddlewareError(
                f"{usage.total_tokens} tokens are used, and {self.max_tokens} are the budget"
            )
        if self.max_cost is not None and usage.cost >= self.max_cost:
            raise MiddlewareError(f"{usage.cost:g} is spent, and {self.max_cost:g} is the budget")


class RateLimit(Middleware):
    """At most `calls` model calls in any `seconds`. `wait` sleeps until there is room, `refuse` ends the run.

    May be shared by the harnesses of one event loop: then the limit is theirs together.
    """

    name = "rate_limit"

    def __init__(
        self,
        calls: int,
        seconds: float,
        *,
        when_full: Literal["wait", "refuse"] = "wait",
        clock: Clock | None = None,
    ) -> None:
        if calls < 1 or seconds <= 0:
            raise ValueError(f"a rate limit of {calls} calls in {seconds:g} s lets nothing pass")
        self._calls = calls
        self._window = round(seconds * 1_000_000)
        self._when_full = when_full
        self._clock = clock or SystemClock()
        self._times: deque[int] = deque()

    async def before_model(self, context: RunContext, request: ModelRequest) -> None:
        """Take a place, or wait for one. Raises MiddlewareError."""
        while True:
            now = self._clock.now()
            while self._times and self._times[0] + self._window <= now:
                self._times.popleft()
            if len(self._times) < self._calls:
                self._times.append(now)
                return
            if self._when_full == "refuse":
                raise MiddlewareError(f"more than {self._calls} model calls in {self._window / 1e6:g} s")
            await self._clock.sleep_until(self._times[0] + self._window)


class AllowList(Middleware):
    """Lets only the named tools run. Others are answered with an error, or end the run."""

    name = "allow_list"

    def __init__(self, tools: Collection[str], *, denied: Denial = "answer") -> None:
        self._tools = frozenset(tools)
        self._denied = denied

    def before_tool(self, context: RunContext, call: CallRequest) -> None:
        """Refuse what is not on the list."""
        if call.name not in self._tools:
            allowed = ", ".join(sorted(self._tools)) or "none"
            _deny(call, self._denied, f"{call.name} is not allowed; allowed are: {allowed}")


Ask = Callable[[CallRequest], bool | Awaitable[bool]]


class HumanApproval(Middleware):
    """Asks somebody before a tool runs. `ask` gets the call, may be async, and says whether it may run.

    `tools` are those to ask about; None means all.
    """

    name = "human_approval"

    def __init__(self, ask: Ask, tools: Collection[str] | None = None, *, denied: Denial = "answer") -> None:
        self._ask = ask
        self._tools = None if tools is None else frozenset(tools)
        self._denied = denied

    async def before_tool(self, context: RunContext, call: CallRequest) -> None:
        """Ask, off the event loop when the question is a blocking one."""
        if self._tools is not None and call.name not in self._tools:
            return
        if asyncio.iscoroutinefunction(self._ask):
            answer: Any = await self._ask(call)
        else:
            answer = await asyncio.to_thread(self._ask, call)
            answer = await answer if isawaitable(answer) else answer
        if answer is not True:
            _deny(call, self._denied, f"a person refused to let {call.name} run")


def _deny(call: CallRequest, how: Denial, why: str) -> None:
    if how == "end":
        raise MiddlewareError(why)
    call.refuse(f"Error: {why}")


class Redaction(Middleware):
    """Takes what matches a pattern out of the input, the requests and the results before a model reads them.

    `patterns` maps a name to a regular expression; a match becomes `[name]`. What lands is recorded as it
    came (the input in `RunStarted`, a result in `ToolReturned`): this guards the model, not the log.
    """

    name = "redaction"

    def __init__(self, patterns: Mapping[str, str]) -> None:
        self._patterns = [(f"[{name}]", re.compile(pattern)) for name, pattern in patterns.items()]

    def redacted(self, text: str) -> str:
        """A text without what the patterns match."""
        for shown, pattern in self._patterns:
            text = pattern.sub(lambda _, shown=shown: shown, text)  # type: ignore[misc]
        return text

    def before_agent(self, context: RunContext, messages: list[Message]) -> None:
        """The input, once: what is clean in the run's history needs no second look."""
        messages[:] = self._clean(messages)

    def before_model(self, context: RunContext, request: ModelRequest) -> None:
        """What came later: steering, and what other hooks put in. Assistant turns stay as they were said."""
        request.messages[:] = self._clean(request.messages)

    def after_tool(self, context: RunContext, call: CallRequest, result: CallResult) -> None:
        """A result, before it is folded."""
        result.content = self.redacted(result.content)

    def _clean(self, messages: Iterable[Message]) -> list[Message]:
        return [
            message if message.role == "assistant" else _with(message, self.redacted(message.content))
            for message in messages
        ]


def _with(message: Message, content: str) -> Message:
    return message if content == message.content else replace(message, content=content)


__all__ = ["AllowList", "HumanApproval", "RateLimit", "Redaction", "UsageBudget"]
