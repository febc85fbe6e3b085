"""Burr tracker logs (JSON lines): the steps of a fixed state machine, with spans inside them."""

from collections.abc import Iterator
from typing import Any

from stepfold.engine.studies.imports.reading import Source
from stepfold.engine.studies.imports.said import (
    Answered,
    Began,
    Call,
    Called,
    Ended,
    Noticed,
    Replied,
    Said,
    Unplaced,
)
from stepfold.engine.studies.imports.values import count_of, mapping, text_of, time_of

MODEL_SPANS = (".chat", ".completion", ".completions", ".generate")
"""How the names of spans end that are a call of a model (`openai.chat`)."""


def runs(source: Source) -> Iterator[Said]:
    """One file, one run. An entry is a step that the machine takes, and is told as a call."""
    reader = _Reader()
    began = False
    for _, value in source.values():
        if not began:
            began = True
            yield Began(source.name)
        yield from source.noticed()
        yield from reader.read(mapping(value))
    if began:
        yield from source.noticed()
        yield from reader.end()


class _Reader:
    def __init__(self) -> None:
        self._spans: dict[str, dict[str, Any]] = {}
        self._end: Ended = Ended(recorded="no entry ended")

    def read(self, record: dict[str, Any]) -> Iterator[Said]:
        kind = text_of(record.get("type"))
        span = text_of(record.get("span_id"))
        match kind:
            case "begin_entry":
                yield Called(
                    Call(
                        text_of(record.get("action")),
                        text_of(mapping(record.get("inputs"))),
                        text_of(record.get("sequence_id")),
                        time_of(record.get("start_time")),
                    )
                )
            case "end_entry":
                yield from self._entry(record)
            case "begin_span":
                self._spans[span] = record
            case "attribute":
                if span in self._spans:
                    self._spans[span] = {**self._spans[span], text_of(record.get("key")): record.get("value")}
                else:
                    yield Unplaced("attribute outside of a span")
            case "end_span" if span in self._spans:
                yield from self._closed(self._spans.pop(span), time_of(record.get("end_time")))
            case "end_span":
                yield Unplaced("end_span of a step")
            case _:
                yield Unplaced(kind or "record without a type")

    def _entry(self, record: dict[str, Any]) -> Iterator[Said]:
        action, raised = text_of(record.get("action")), text_of(record.get("exception")).strip()
        at = time_of(record.get("end_time"))
        # Whatever span the step left open is over with it: nobody will close it any more.
        number = text_of(record.get("sequence_id"))
        for span in [name for name in self._spans if name.split(":", 1)[0] == number]:
            yield from self._never_closed(self._spans.pop(span), span)
        yield Answered(
            id=number or None,
            name=action,
            text=raised or text_of(record.get("result")),
            error=raised.splitlines()[-1][:200] if raised else "",
            at=at,
        )
        if record.get("state") is not None:
            yield Unplaced("state")
        if raised:
            self._end = Ended(
                recorded=f"exception in action {action}",
                status="failed",
                error=raised.splitlines()[-1][:200],
                at=at,
            )
        else:
            self._end = Ended(recorded=f"last entry is {action}; no record of an end", at=at)

    def _closed(self, span: dict[str, Any], at: str) -> Iterator[Said]:
        if _asks_a_model(span):
            yield _reply(span, at)
        else:
            yield Unplaced("span")

    def _never_closed(self, span: dict[str, Any], name: str) -> Iterator[Said]:
        title = text_of(span.get("span_name"))
        yield Noticed("span_never_closed", f"span {name}", title)
        if _asks_a_model(span):
            yield _reply(span, "")
            yield Noticed(
                "reply_lost", f"span {name}", "the model was asked; what it said is not in the file"
            )

    def end(self) -> Iterator[Said]:
        """The file is over."""
        for name, span in self._spans.items():
            yield from self._never_closed(span, name)
        yield self._end


def _asks_a_model(span: dict[str, Any]) -> bool:
    return text_of(span.get("span_name")).endswith(MODEL_SPANS)


def _reply(span: dict[str, Any], at: str) -> Replied:
    return Replied(
        text=text_of(span.get("gen_ai.completion.0.content")),
        finish_reason=text_of(span.get("gen_ai.completion.0.finish_reason")),
        model=text_of(span.get("gen_ai.response.model") or span.get("gen_ai.request.model")),
        input_tokens=count_of(
            span.get("gen_ai.usage.prompt_tokens") or span.get("gen_ai.usage.input_tokens")
        ),
        output_tokens=count_of(
            span.get("gen_ai.usage.completion_tokens") or span.get("gen_ai.usage.output_tokens")
        ),
        at=at,
    )
