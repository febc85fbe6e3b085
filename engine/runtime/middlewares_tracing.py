"""Middleware that tells what a run does as spans, in OpenTelemetry's terms for generative AI.

The attribute names are those of the OTel GenAI semantic conventions; a span is a plain dict, handed to a
callback when it ends. Nothing is imported for it: who has an exporter feeds it from the callback.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from stepfold.engine.models.protocol import Request
from stepfold.engine.runtime.clock import Clock, SystemClock
from stepfold.engine.runtime.middleware import Answer, CallRequest, CallResult, Middleware, RunContext
from stepfold.events.vocabulary import Message, ModelErred, ModelReplied

Span = dict[str, Any]
"""`name`, `kind`, `start` and `end` (microseconds since 1970), `attributes`, `status` (`ok` or `error`)."""


class Tracing(Middleware):
    """Gives `tell` one span for each attempt of a model call, each tool call, and the run as a whole.

    `system` is the value of `gen_ai.provider.name`. No text of a message, an argument or a result is in a
    span. One instance serves one run at a time.
    """

    name = "tracing"

    def __init__(
        self, tell: Callable[[Span], Any], *, system: str = "stepfold", clock: Clock | None = None
    ) -> None:
        self._tell = tell
        self._system = system
        self._clock = clock or SystemClock()
        self._began = 0
        self._calls: list[tuple[str, int]] = []

    def before_agent(self, context: RunContext, messages: list[Message]) -> None:
        """The run begins."""
        self._began = self._clock.now()

    async def wrap_model(self, request: Request, call_next: Callable[[Request], Awaitable[Any]]) -> Any:
        """One span an attempt."""
        began = self._clock.now()
        landed = await call_next(request)
        self._end(
            f"chat {request.model}", "client", began, _model_attributes(request, landed), _error(landed)
        )
        return landed

    def before_tool(self, context: RunContext, call: CallRequest) -> None:
        """A call is about to be admitted."""
        self._calls.append((call.call_id, self._clock.now()))

    def after_tool(self, context: RunContext, call: CallRequest, result: CallResult) -> None:
        """One span a call, from its admission to its fold."""
        position = next((n for n, (call_id, _) in enumerate(self._calls) if call_id == call.call_id), None)
        began = self._clock.now() if position is None else self._calls.pop(position)[1]
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.call_id,
            "gen_ai.tool.type": "function",
        }
        self._end(f"execute_tool {call.name}", "internal", began, attributes, result.error)

    def after_agent(self, context: RunContext, answer: Answer) -> None:
        """The run completed."""
        self._end("invoke_agent", "internal", self._began, _run_attributes(context), "")

    def on_error(self, context: RunContext, kind: str, detail: str) -> None:
        """The run failed; so did the calls that never came back."""
        self._calls.clear()
        self._end("invoke_agent", "internal", self._began, _run_attributes(context), kind)

    def _end(self, name: str, kind: str, began: int, attributes: Mapping[str, Any], error: str) -> None:
        whole = {"gen_ai.provider.name": self._system, **attributes}
        if error:
            whole["error.type"] = error
        self._tell(
            {
                "name": name,
                "kind": kind,
                "start": began,
                "end": self._clock.now(),
                "attributes": whole,
                "status": "error" if error else "ok",
            }
        )


def _model_attributes(request: Request, landed: Any) -> Mapping[str, Any]:
    generation = request.generation
    asked = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": request.model,
        "gen_ai.request.max_tokens": request.max_tokens,
        "gen_ai.request.temperature": generation.temperature,
        "gen_ai.request.seed": generation.seed,
        "gen_ai.request.stop_sequences": list(generation.stop) or None,
    }
    if isinstance(landed, ModelReplied):
        asked |= {
            "gen_ai.response.model": landed.model or request.model,
            "gen_ai.response.finish_reasons": [landed.finish_reason] if landed.finish_reason else None,
            "gen_ai.usage.input_tokens": landed.input_tokens,
            "gen_ai.usage.output_tokens": landed.output_tokens,
        }
    return {name: value for name, value in asked.items() if value is not None}


def _run_attributes(context: RunContext) -> Mapping[str, Any]:
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.conversation.id": context.run_id,
        "gen_ai.usage.input_tokens": context.usage.input_tokens,
        "gen_ai.usage.output_tokens": context.usage.output_tokens,
    }


def _error(landed: Any) -> str:
    return landed.error if isinstance(landed, ModelErred) else ""
