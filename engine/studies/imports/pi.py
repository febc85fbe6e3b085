"""The session files of the pi coding agent: JSON lines, appended to as the session goes on."""

from collections.abc import Iterator
from typing import Any

from stepfold.engine.studies.imports.reading import Source
from stepfold.engine.studies.imports.said import (
    Answered,
    Began,
    Call,
    Ended,
    Noticed,
    Replied,
    Said,
    Spoke,
    Unplaced,
)
from stepfold.engine.studies.imports.values import (
    amount_of,
    content_of,
    count_of,
    mapping,
    sequence,
    text_of,
    time_of,
)

ENDS = {"stop": "completed", "aborted": "cancelled", "error": "failed"}
"""What the last reply's stop reason lets conclude; the file itself has no record of an end."""


def runs(source: Source) -> Iterator[Said]:
    """One session is one run, however many tasks the user gave it."""
    began = False
    stop_reason = kind = ""
    for number, value in source.values():
        record = mapping(value)
        kind = text_of(record.get("type"))
        if not began:
            began = True
            yield Began(text_of(record.get("id")) or source.name, text_of(record.get("modelId")))
        yield from source.noticed()
        message = mapping(record.get("message"))
        if kind == "message" and message:
            if message.get("role") == "assistant":
                stop_reason = text_of(message.get("stopReason"))
            yield from _message(number, record, message)
        elif kind == "session":
            yield from _branch(record)
        else:
            yield Unplaced(kind or "record without a type")
    if not began:
        return
    yield from source.noticed()
    status = ENDS.get(stop_reason, "")
    yield Ended(
        recorded=f"file just stops; last reply stopReason {stop_reason or 'none'}, last record {kind}",
        status=status,
        inferred=f"the last reply's stopReason is {stop_reason}" if status else "",
    )


def _branch(record: dict[str, Any]) -> Iterator[Said]:
    if record.get("branchedFrom"):
        yield Noticed("branched_session", "line 1", text_of(record["branchedFrom"]))


def _message(number: int, record: dict[str, Any], message: dict[str, Any]) -> Iterator[Said]:
    at = time_of(record.get("timestamp"))
    match message.get("role"):
        case "user":
            yield Spoke("user", content_of(message.get("content")), at)
        case "assistant":
            yield from _reply(number, message, at)
        case "toolResult":
            yield Answered(
                id=text_of(message.get("toolCallId")),
                name=text_of(message.get("toolName")),
                text=content_of(message.get("content")),
                error="error" if message.get("isError") is True else "",
                at=at,
            )
        case role:
            yield Unplaced(f"message of role {text_of(role) or 'none'}")


def _reply(number: int, message: dict[str, Any], at: str) -> Iterator[Said]:
    blocks = [mapping(block) for block in sequence(message.get("content"))]
    usage = mapping(message.get("usage"))
    reason = text_of(message.get("stopReason"))
    yield Replied(
        text="".join(text_of(block.get("text")) for block in blocks if block.get("type") == "text"),
        reasoning="".join(
            text_of(block.get("thinking")) for block in blocks if block.get("type") == "thinking"
        ),
        calls=tuple(
            Call(text_of(block.get("name")), text_of(block.get("arguments")), text_of(block.get("id")))
            for block in blocks
            if block.get("type") == "toolCall"
        ),
        finish_reason=reason,
        model=text_of(message.get("model")),
        input_tokens=sum(count_of(usage.get(name)) for name in ("input", "cacheRead", "cacheWrite")),
        output_tokens=count_of(usage.get("output")),
        cost=amount_of(mapping(usage.get("cost")).get("total")),
        at=at,
    )
    if reason in {"aborted", "error"}:
        yield Noticed(f"reply_{reason}", f"line {number}", text_of(message.get("errorMessage")))
