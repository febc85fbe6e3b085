"""Inspect eval logs (`.json`): a run is a sample in an epoch, its events in nested spans."""

from collections.abc import Iterator
from typing import Any

from stepfold.engine.studies.imports.reading import Source
from stepfold.engine.studies.imports.said import (
    Answered,
    Began,
    Call,
    Ended,
    Erred,
    Noticed,
    Replied,
    Said,
    Spoke,
    Unplaced,
)
from stepfold.engine.studies.imports.values import content_of, count_of, mapping, sequence, text_of, time_of
from stepfold.events.vocabulary import Score

POINTER = "attachment://"
CAPS = {"message", "turn"}
"""Limits on the length of a run; those on tokens, time and cost are failures like any other."""
STRUCTURE = {"sample_init", "span_begin", "span_end", "step"}


def runs(source: Source) -> Iterator[Said]:
    """One run a sample and epoch. The log as a whole has a status of its own."""
    status = text_of(source.first("status"))
    model = text_of(mapping(source.first("eval")).get("model"))
    for value in source.items("samples.item"):
        yield from _Sample(mapping(value), status, model).read(source.noticed())


class _Sample:
    def __init__(self, sample: dict[str, Any], log_status: str, model: str) -> None:
        self._sample = sample
        self._attachments = mapping(sample.get("attachments"))
        self._log_status = log_status
        self._model = model
        self._events = [mapping(event) for event in sequence(sample.get("events"))]
        self._judging = _scorer_spans(self._events)
        self._started = {
            text_of(event.get("id")): time_of(event.get("timestamp"))
            for event in self._events
            if event.get("event") == "tool"
        }

    def read(self, noticed: Iterator[Said]) -> Iterator[Said]:
        sample = self._sample
        yield Began(f"sample {text_of(sample.get('id'))} epoch {text_of(sample.get('epoch'))}", self._model)
        yield from noticed
        yield from self._opening()
        for event in self._events:
            yield from self._event(event)
        for name in ("store", "metadata"):
            if sample.get(name):
                yield Unplaced(name)
        retries = sequence(sample.get("error_retries"))
        if retries:
            yield Noticed("sample_retried", detail=f"{len(retries)} earlier attempts ended in an error")
        yield self._end()

    def _opening(self) -> Iterator[Said]:
        """What stands before the first reply in the conversation: every model event holds it again."""
        for value in sequence(self._sample.get("messages")):
            message = mapping(value)
            role = text_of(message.get("role"))
            if role not in {"system", "user"}:
                return
            yield Spoke(role, self._text(message.get("content")))

    def _event(self, event: dict[str, Any]) -> Iterator[Said]:
        kind = text_of(event.get("event"))
        match kind:
            case "model" if text_of(event.get("span_id")) in self._judging:
                yield Unplaced("model call of a scorer")
            case "model":
                yield from self._reply(event)
            case "tool":
                yield from self._result(event)
            case _ if kind in STRUCTURE:
                pass
            case _:
                yield Unplaced(f"event: {kind or 'without a kind'}")

    def _reply(self, event: dict[str, Any]) -> Iterator[Said]:
        output = mapping(event.get("output"))
        choice = mapping(next(iter(sequence(output.get("choices"))), None))
        message, usage = mapping(choice.get("message")), mapping(output.get("usage"))
        at = time_of(event.get("completed")) or time_of(event.get("timestamp"))
        error = text_of(event.get("error") or output.get("error"))
        if error and not choice:
            yield Erred("error", error, at)
            return
        calls = [mapping(call) for call in sequence(message.get("tool_calls"))]
        content = message.get("content")
        yield Replied(
            text=self._text(content),
            calls=tuple(map(self._call, calls)),
            reasoning="".join(
                self._resolved(text_of(block.get("reasoning")))
                for block in map(mapping, sequence(content))
                if block.get("type") == "reasoning"
            ),
            finish_reason=text_of(choice.get("stop_reason")),
            model=text_of(output.get("model")),
            input_tokens=count_of(usage.get("input_tokens"))
            + count_of(usage.get("input_tokens_cache_read"))
            + count_of(usage.get("input_tokens_cache_write")),
            output_tokens=count_of(usage.get("output_tokens")),
            at=at,
        )
        for call in calls:
            if call.get("parse_error"):
                detail = self._resolved(text_of(call["parse_error"]))
                yield Noticed("malformed_call", text_of(call.get("id")), detail[:200])

    def _call(self, call: dict[str, Any]) -> Call:
        call_id = text_of(call.get("id"))
        arguments = self._resolved_deeply(call.get("arguments"))
        return Call(
            text_of(call.get("function")), text_of(arguments), call_id, self._started.get(call_id, "")
        )

    def _result(self, event: dict[str, Any]) -> Iterator[Said]:
        error = mapping(event.get("error"))
        kind = text_of(error.get("type")) or ("error" if error else "")
        pending = event.get("result") is None and not error and not event.get("completed")
        if pending:
            yield Noticed("call_never_returned", text_of(event.get("id")), text_of(event.get("function")))
            return
        text = self._text(event.get("result"))
        yield Answered(
            id=text_of(event.get("id")) or None,
            name=text_of(event.get("function")),
            text=text or self._resolved(text_of(error.get("message"))),
            error=kind,
            refused=kind == "parsing",
            at=time_of(event.get("completed")),
        )
        nested = sequence(event.get("events"))
        if nested:
            yield Unplaced("events inside a tool", len(nested))

    def _text(self, value: Any) -> str:
        if isinstance(value, list):
            return "".join(self._resolved(content_of([block])) for block in value)
        return self._resolved(text_of(value))

    def _resolved(self, text: str) -> str:
        if text.startswith(POINTER):
            return text_of(self._attachments.get(text.removeprefix(POINTER), text))
        return text

    def _resolved_deeply(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: self._resolved(item) if isinstance(item, str) else item for name, item in value.items()
            }
        return value

    def _end(self) -> Ended:
        sample = self._sample
        output = mapping(sample.get("output"))
        reason = text_of(mapping(next(iter(sequence(output.get("choices"))), None)).get("stop_reason"))
        limit = text_of(mapping(sample.get("limit")).get("type"))
        error = mapping(sample.get("error"))
        recorded = (
            f"log status {self._log_status}; sample error {bool(error)}; limit {limit or None}; "
            f"stop_reason {reason or None}"
        )
        scores = tuple(
            Score(name, text_of(mapping(score).get("value")))
            for name, score in mapping(sample.get("scores")).items()
        )
        if error:
            said = text_of(error.get("message")).strip().split("\n", 1)[0][:200]
            return Ended(recorded=recorded, status="failed", error=said or "error", scores=scores)
        if limit:
            status, error_kind = ("step_cap", "") if limit in CAPS else ("failed", f"{limit} limit")
            return Ended(recorded=recorded, status=status, error=error_kind, scores=scores)
        if not reason:
            return Ended(recorded=recorded, scores=scores)
        # A cancelled log may hold whole samples: a run's end is its own.
        return Ended(recorded=recorded, status="completed", scores=scores)


def _scorer_spans(events: list[dict[str, Any]]) -> set[str]:
    """The spans in which a scorer works, with those inside them: their model calls are no turns."""
    found: set[str] = set()
    for event in events:
        if event.get("event") != "span_begin":
            continue
        parent = text_of(event.get("parent_id"))
        if event.get("type") == "scorer" or (parent and parent in found):
            found.add(text_of(event.get("id")))
    return found
