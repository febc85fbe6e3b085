"""Middleware: what a hook is given, what it may change, and how a whole middleware looks.

A hook changes what it is handed (a request, a reply, a call, a result, the answer), raises a control
through the context, or raises an exception. The shell compares before and after, and the difference
is what the log records: replay folds it and needs none of this code.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from stepfold.events.vocabulary import Message, ModelReplied, ToolCall
from stepfold.projections.usage import Usage

HOOKS = (
    "before_agent",
    "before_model",
    "after_model",
    "before_tool",
    "after_tool",
    "after_agent",
    "on_error",
)
"""The hooks that the log records. `on_delta`, `wrap_model` and `wrap_tool` run inside an effect."""


class MiddlewareError(Exception):
    """What a middleware raises to end the run, with a reason for people."""


class Cancelled(Exception):
    """What a tool or a wrap raises to end the run as cancelled. No policy turns it into a result."""


class Interrupted(Exception):
    """What a tool or a wrap raises to end the run for a person to look at; no result, whatever the policy."""


class RunContext:
    """What a hook or a tool knows of the run it serves.

    `state` is the caller's, to be read and not changed; `data` the caller's context. `usage` is what
    the run has cost so far, `remaining` the seconds until its deadline. `child_run_id` is the id of
    the run that this call would start, if its tool is a sub-agent.
    """

    def __init__(
        self,
        *,
        run_id: str,
        state: Any,
        data: Any,
        depth: int,
        usage: Usage,
        injected: Mapping[str, Any],
        remaining: float | None = None,
        max_depth: int = 0,
        call_id: str = "",
        child_run_id: str = "",
    ) -> None:
        self.run_id = run_id
        self.state = state
        self.data = data
        self.depth = depth
        self.usage = usage
        self.injected = injected
        self.remaining = remaining
        self.max_depth = max_depth
        self.call_id = call_id
        self.child_run_id = child_run_id
        self.control: tuple[str, str] = ("", "")

    def stop_with_final(self, text: str) -> None:
        """End the run with this answer, at this edge."""
        if self.control[0] != "interrupt":
            self.control = ("stop_with_final", text)

    def interrupt(self, reason: str) -> None:
        """End the run as interrupted, at this edge; beats a stop."""
        self.control = ("interrupt", reason)


class ModelRequest:
    """A request that is about to be sent. Change its fields in place."""

    def __init__(self, model: str, messages: list[Message], max_tokens: int | None) -> None:
        self.model = model
        self.messages = messages
        self.max_tokens = max_tokens


class ModelReply:
    """A reply that is about to be taken."""

    def __init__(self, text: str, tool_calls: list[ToolCall], reply: ModelReplied) -> None:
        self.text = text
        self.tool_calls = tool_calls
        self.recorded = reply


class CallRequest:
    """A call that is about to be admitted. `arguments` is the text that the model wrote."""

    def __init__(self, call_id: str, name: str, arguments: str) -> None:
        self.call_id = call_id
        self.name = name
        self.arguments = arguments
        self.refusal = ""

    def refuse(self, text: str) -> None:
        """Answer the call with `text` instead of running it. The run goes on, and the call does not count."""
        self.refusal = text or "refused"


class CallResult:
    """A result that is about to be folded."""

    def __init__(self, content: str, error: str) -> None:
        self.content = content
        self.error = error


class Answer:
    """The final text of the run."""

    def __init__(self, text: str) -> None:
        self.text = text


NextModel = Callable[[Any], Awaitable[Any]]
NextTool = Callable[[CallRequest], Awaitable[Any]]


class Middleware:
    """The base that documents every hook; override those you need, sync or async.

    A hook that is not overridden is never called and leaves no event. `before_*` hooks run in the
    order of registration, `after_*` in the reverse, and the first registered wrap is the outermost.
    """

    name: str = ""

    def before_agent(self, context: RunContext, messages: list[Message]) -> Any:
        """Once, before the first model call. What changes in the list of messages stays in the run."""

    def before_model(self, context: RunContext, request: ModelRequest) -> Any:
        """Before each model call. What changes here holds for this request alone."""

    def after_model(self, context: RunContext, reply: ModelReply) -> Any:
        """After each reply, before it is taken."""

    def before_tool(self, context: RunContext, call: CallRequest) -> Any:
        """Before each call is admitted. `call.refuse(text)` answers it; MiddlewareError ends the run."""

    def after_tool(self, context: RunContext, call: CallRequest, result: CallResult) -> Any:
        """After each result, before it is folded."""

    def after_agent(self, context: RunContext, answer: Answer) -> Any:
        """Once, before the run completes."""

    def on_error(self, context: RunContext, kind: str, detail: str) -> Any:
        """Once, after a run failed. What this raises or changes has no effect."""

    def on_delta(self, context: RunContext, text: str) -> Any:
        """For each streamed piece."""

    async def wrap_model(self, request: Any, call_next: NextModel) -> Any:
        """Around each attempt of a model call (an attempt, not the call: retries are the log's)."""
        return await call_next(request)

    async def wrap_tool(self, call: CallRequest, call_next: NextTool) -> Any:
        """Around each tool call; its presence makes calls of a turn run one after the other."""
        return await call_next(call)


def overrides(middleware: Middleware, hook: str) -> bool:
    """Whether a middleware has this hook."""
    return getattr(type(middleware), hook, None) is not getattr(Middleware, hook)
