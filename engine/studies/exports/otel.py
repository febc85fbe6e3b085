"""A run as OpenTelemetry spans by the GenAI conventions, in OTLP's JSON: times, tokens, names, and no texts.

Ids are digests of the run and of the place in its log: a run exported twice is the same trace.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from stepfold.events.vocabulary import (
    AnyEvent,
    ModelErred,
    ModelReplied,
    ModelStarted,
    ToolCalled,
    ToolErred,
    ToolReturned,
    ToolStarted,
    Unknown,
)
from stepfold.projections.outcome import outcome
from stepfold.projections.run import evolve
from stepfold.projections.state import Run, microseconds

INTERNAL, CLIENT = 1, 3
OK, ERROR = 1, 2


def spans(events: Iterable[AnyEvent | Unknown]) -> dict[str, Any]:
    """The run as one trace: the agent, and below it each model call and each tool call."""
    run = Run()
    built = _Spans()
    first = last = 0
    for event in events:
        evolve(run, event)
        now = microseconds(event.ts) * 1000
        first = first or now
        last = max(last, now)
        built.take(run, event, now)
    result = outcome(run)
    root = {
        "traceId": _digest(run.run_id, 16),
        "spanId": _digest(f"{run.run_id}:root", 8),
        "name": f"invoke_agent {run.loop}",
        "kind": INTERNAL,
        "startTimeUnixNano": str(first),
        "endTimeUnixNano": str(max(first, last)),
        "attributes": _attributes(
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": "stepfold",
                "gen_ai.conversation.id": run.run_id,
                "gen_ai.usage.input_tokens": result.usage.input_tokens,
                "gen_ai.usage.output_tokens": result.usage.output_tokens,
                "stepfold.status": result.status,
            }
        ),
        "status": {"code": ERROR if result.finish == "failed" else OK},
    }
    resource = {"service.name": "stepfold", "service.version": run.engine}
    scope = {"name": "stepfold", "version": run.engine}
    scoped = {"scope": scope, "spans": [root, *built.finished, *built.open.values()]}
    return {"resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scoped]}]}


class _Spans:
    """The spans below the root: those that are over, and those in flight, by the key they wait for."""

    def __init__(self) -> None:
        self.finished: list[dict[str, Any]] = []
        self.open: dict[str, dict[str, Any]] = {}

    def take(self, run: Run, event: AnyEvent | Unknown, now: int) -> None:
        match event:
            case ModelStarted():
                self.open["model"] = _span(run, event.seq, f"chat {event.model}".strip(), CLIENT, now)
                _add(
                    self.open["model"], {"gen_ai.operation.name": "chat", "gen_ai.request.model": event.model}
                )
            case ModelReplied():
                span = self._asked(run, event.seq, now)
                _add(span, _of_reply(event))
                self._finish(span, now, "")
            case ModelErred() if "model" in self.open or not event.key:
                span = self._asked(run, event.seq, now)
                self._finish(span, now, event.error)
                if event.key and event.retryable:
                    self.open["model"] = _span(run, event.seq + 1, span["name"], CLIENT, now)
            case ToolStarted() | ToolCalled():
                key = event.key or getattr(event, "answer_key", "")
                self.open[key] = _span(run, event.seq, f"execute_tool {event.name}", INTERNAL, now)
                _add(
                    self.open[key],
                    {
                        "gen_ai.operation.name": "execute_tool",
                        "gen_ai.tool.name": event.name,
                        "gen_ai.tool.call.id": event.call_id,
                    },
                )
            case ToolReturned() | ToolErred() if event.key in self.open:
                self._finish(self.open.pop(event.key), now, event.error)
            case _:
                pass

    def _asked(self, run: Run, seq: int, now: int) -> dict[str, Any]:
        """The model call that landed; an imported file tells of its landing alone."""
        return self.open.pop("model") if "model" in self.open else _span(run, seq, "chat", CLIENT, now)

    def _finish(self, span: dict[str, Any], now: int, error: str) -> None:
        # A start that the file gives no time for is taken to be the end: unknown, not long.
        if span["startTimeUnixNano"] == "0":
            span["startTimeUnixNano"] = str(now)
        span["endTimeUnixNano"] = str(max(now, int(span["startTimeUnixNano"])))
        span["status"] = {"code": ERROR if error else OK}
        if error:
            _add(span, {"error.type": error})
        self.finished.append(span)


def _of_reply(reply: ModelReplied) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.model": reply.model,
        "gen_ai.response.finish_reasons": [reply.finish_reason] if reply.finish_reason else "",
        "gen_ai.usage.input_tokens": reply.input_tokens,
        "gen_ai.usage.output_tokens": reply.output_tokens,
    }


def _span(run: Run, seq: int, name: str, kind: int, now: int) -> dict[str, Any]:
    return {
        "traceId": _digest(run.run_id, 16),
        "spanId": _digest(f"{run.run_id}:{seq}", 8),
        "parentSpanId": _digest(f"{run.run_id}:root", 8),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(now),
        "endTimeUnixNano": str(now),
        "attributes": _attributes({"stepfold.step": run.step}),
        "status": {},
    }


def _add(span: dict[str, Any], values: dict[str, Any]) -> None:
    known = {attribute["key"] for attribute in span["attributes"]}
    new = {name: value for name, value in values.items() if name not in known}
    span["attributes"] += _attributes(new)


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items() if value != ""]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case int():
            return {"intValue": str(value)}
        case list():
            return {"arrayValue": {"values": [_value(item) for item in value]}}
        case _:
            return {"stringValue": str(value)}


def _digest(text: str, size: int) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()
