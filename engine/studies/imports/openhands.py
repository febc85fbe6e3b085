"""OpenHands SDK events, one JSON value each: actions, observations, messages, and changes of state."""

import json
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

NO_ARGUMENTS = ("security_risk", "summary")
"""What the SDK adds to the arguments of every call. They are notes on it, and would hide a repeated call."""
STATUSES = {"finished": "completed", "error": "failed", "stuck": "failed", "paused": "paused"}


def runs(source: Source) -> Iterator[Said]:
    """One file, one run: a conversation, or a part of one."""
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
        self._actions: list[dict[str, Any]] = []
        self._usage: dict[str, int | float] = {}
        self._totals: dict[str, int | float] = {}
        self._status = ""
        self._finished = False
        self._said_anything = False

    def read(self, event: dict[str, Any]) -> Iterator[Said]:
        kind = text_of(event.get("kind"))
        if (kind == "ActionEvent" and self._is_of_another_reply(event)) or kind != "ActionEvent":
            yield from self.flush()
        at = time_of(event.get("timestamp"))
        match kind:
            case "ActionEvent":
                self._actions.append(event)
            case "ObservationEvent":
                yield self._result(event, at)
            case "MessageEvent":
                yield self._message(event, at)
            case "SystemPromptEvent":
                yield Spoke("system", _text_of_block(event.get("system_prompt")), at)
                if event.get("tools"):
                    yield Unplaced("tool descriptions", len(sequence(event["tools"])))
            case "AgentErrorEvent":
                yield Answered(
                    id=text_of(event.get("tool_call_id")) or None,
                    name=text_of(event.get("tool_name")),
                    text=text_of(event.get("error")),
                    error="AgentErrorEvent",
                    at=at,
                )
            case "ConversationStateUpdateEvent":
                yield from self._state(event)
            case _:
                yield Unplaced(kind or "event without a kind")

    def _is_of_another_reply(self, event: dict[str, Any]) -> bool:
        return bool(self._actions) and event.get("llm_response_id") != self._actions[-1].get(
            "llm_response_id"
        )

    def flush(self) -> Iterator[Said]:
        """The actions of one reply are together: they are one turn."""
        if not self._actions:
            return
        first = self._actions[0]
        yield Replied(
            text="".join(content_of(event.get("thought")) for event in self._actions),
            reasoning=text_of(first.get("reasoning_content")),
            calls=tuple(map(_call, self._actions)),
            at=time_of(first.get("timestamp")),
            **self._taken_usage(),
        )
        self._finished = any(event.get("tool_name") == "finish" for event in self._actions)
        self._actions = []

    def _taken_usage(self) -> dict[str, Any]:
        usage, self._usage = self._usage, {}
        return usage

    def _result(self, event: dict[str, Any], at: str) -> Answered:
        seen = mapping(event.get("observation"))
        code = seen.get("exit_code")
        error = "is_error" if seen.get("is_error") is True else ""
        if not error and isinstance(code, int) and code:
            error = f"exit code {code}"
        return Answered(
            id=text_of(event.get("tool_call_id")) or None,
            name=text_of(event.get("tool_name")),
            text=content_of(seen.get("content")),
            error=error,
            at=at,
        )

    def _message(self, event: dict[str, Any], at: str) -> Said:
        message = mapping(event.get("llm_message"))
        text = content_of(message.get("content"))
        if event.get("source") == "agent":
            return Replied(
                text=text,
                reasoning=text_of(message.get("reasoning_content")),
                at=at,
                **self._taken_usage(),
            )
        self._finished = False
        return Spoke("user", text, at)

    def _state(self, event: dict[str, Any]) -> Iterator[Said]:
        key = text_of(event.get("key"))
        if key == "execution_status":
            self._status = text_of(event.get("value"))
        elif key == "stats":
            yield from self._stats(mapping(event.get("value")))
        else:
            yield Unplaced(f"state {key or 'without a key'}")

    def _stats(self, value: dict[str, Any]) -> Iterator[Said]:
        """Running totals: what a reply cost is what they rose by. The first are of earlier replies."""
        metrics = mapping(mapping(value.get("usage_to_metrics")).get("default"))
        tokens = mapping(metrics.get("accumulated_token_usage"))
        totals: dict[str, int | float] = {
            "input_tokens": count_of(tokens.get("prompt_tokens")),
            "output_tokens": count_of(tokens.get("completion_tokens")),
            "cost": amount_of(metrics.get("accumulated_cost")),
        }
        if self._totals:
            for name, total in totals.items():
                risen = max(0, total - self._totals[name])
                self._usage[name] = self._usage.get(name, 0) + risen
        elif any(totals.values()):
            yield Noticed(
                "usage_before_start", detail="the first totals count replies that are not in the file"
            )
        self._totals = totals

    def end(self) -> Iterator[Said]:
        """The last lines are read."""
        yield from self.flush()
        if self._finished:
            yield Ended(recorded="finish action", status="completed")
        elif self._status in STATUSES:
            status = STATUSES[self._status]
            error = self._status if status == "failed" else ""
            yield Ended(recorded=f"execution_status {self._status}", status=status, error=error)
        else:
            yield Ended(recorded="no finish action, no terminal state event")


def _text_of_block(value: Any) -> str:
    return text_of(value.get("text")) if isinstance(value, dict) else content_of(value)


def _call(event: dict[str, Any]) -> Call:
    written = text_of(mapping(event.get("tool_call")).get("arguments"))
    return Call(
        text_of(event.get("tool_name")),
        _without_notes(written),
        text_of(event.get("tool_call_id")),
        time_of(event.get("timestamp")),
    )


def _without_notes(written: str) -> str:
    try:
        arguments = json.loads(written)
    except (ValueError, RecursionError):
        return written
    if not isinstance(arguments, dict) or not any(name in arguments for name in NO_ARGUMENTS):
        return written
    return json.dumps({name: value for name, value in arguments.items() if name not in NO_ARGUMENTS})
