"""The session log of the Codex terminal client (JSON lines): mostly screen noise, and in it what happened."""

from collections.abc import Iterator
from typing import Any

from stepfold.engine.studies.imports.reading import Source
from stepfold.engine.studies.imports.said import (
    Answered,
    Began,
    Call,
    Called,
    Ended,
    Erred,
    Noticed,
    Replied,
    Said,
    Spoke,
    Unplaced,
)
from stepfold.engine.studies.imports.values import count_of, mapping, sequence, text_of, time_of

NOISE = {"app_event", "key_event", "insert_history"}
PIECES = {
    "agent_message_delta",
    "agent_reasoning_delta",
    "agent_reasoning_section_break",
    "exec_command_output_delta",
}
"""Their whole comes later in a record of its own."""


def runs(source: Source) -> Iterator[Said]:
    """One session is one run."""
    reader = _Reader()
    began = False
    for _, value in source.values():
        record = mapping(value)
        if not began:
            began = True
            yield Began(source.name, text_of(record.get("model")))
        yield from source.noticed()
        yield from reader.read(record)
    if began:
        yield from source.noticed()
        yield from reader.end()


class _Reader:
    """Holds back one turn: its usage record comes last, and is what shows that there was a reply."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._turn: list[Call | Answered] = []
        self._at = ""
        self._last = ""
        self._tasks = [0, 0]
        self._ending = ("", "")

    def read(self, record: dict[str, Any]) -> Iterator[Said]:
        kind, at = text_of(record.get("kind")), time_of(record.get("ts"))
        self._last = kind
        match kind:
            case "codex_event":
                message = mapping(mapping(record.get("payload")).get("msg"))
                yield from self._message(text_of(message.get("type")), message, at)
            case "op":
                yield from self._operation(mapping(record.get("payload")), at)
            case "session_start" | "session_end":
                pass
            case _ if kind in NOISE:
                yield Unplaced(f"screen: {kind}")
            case _:
                yield Unplaced(kind or "record without a kind")

    def _message(self, kind: str, message: dict[str, Any], at: str) -> Iterator[Said]:
        match kind:
            case "agent_message":
                self._heard(self._texts, text_of(message.get("message")), at)
            case "agent_reasoning":
                self._heard(self._thoughts, text_of(message.get("text")), at)
            case "exec_command_begin":
                self._began(_call("exec_command", {"command": message.get("command")}, message, at))
            case "patch_apply_begin":
                self._began(_call("apply_patch", {"changes": message.get("changes")}, message, at))
            case "mcp_tool_call_begin":
                self._began(_call("mcp_tool_call", message.get("invocation"), message, at))
            case "exec_command_end" | "patch_apply_end" | "mcp_tool_call_end":
                self._turn.append(_result(message, at))
            case "token_count":
                yield from self._replied(message, at)
            case "task_started":
                self._tasks[0] += 1
            case "task_complete":
                self._tasks[1] += 1
                self._ending = ("task_complete", "completed")
            case "turn_aborted":
                self._ending = ("turn_aborted", "cancelled")
            case "error":
                self._ending = ("error", "failed")
                yield Erred("error", text_of(message.get("message")), at)
            case "session_configured" | "shutdown_complete":
                pass
            case _ if kind in PIECES:
                yield Unplaced(f"pieces: {kind}")
            case _:
                yield Unplaced(f"event: {kind or 'without a type'}")

    def _operation(self, payload: dict[str, Any], at: str) -> Iterator[Said]:
        if payload.get("type") != "user_input":
            yield Unplaced(f"op: {text_of(payload.get('type'))}")
            return
        for item in sequence(payload.get("items")):
            yield Spoke("user", text_of(mapping(item).get("text")), at)

    def _heard(self, parts: list[str], text: str, at: str) -> None:
        self._at = self._at or at
        parts.append(text)

    def _began(self, call: Call) -> None:
        self._at = self._at or call.at
        self._turn.append(call)

    def _replied(self, usage: dict[str, Any], at: str) -> Iterator[Said]:
        calls = tuple(call for call in self._turn if isinstance(call, Call))
        yield Replied(
            text="\n".join(self._texts),
            reasoning="\n".join(self._thoughts),
            calls=calls,
            input_tokens=count_of(usage.get("input_tokens")),
            output_tokens=count_of(usage.get("output_tokens")),
            at=self._at or at,
        )
        if not (self._texts or calls):
            yield Noticed("reply_lost", detail="a usage record is all there is of the reply")
        yield from (said for said in self._turn if isinstance(said, Answered))
        self._texts, self._thoughts, self._turn, self._at = [], [], [], ""

    def end(self) -> Iterator[Said]:
        """What is left has no usage record: its calls are told, and no reply is made up for them."""
        for said in self._turn:
            if isinstance(said, Answered):
                yield said
            else:
                yield Called(said)
                yield Noticed("call_without_reply", detail="the reply that asked for it has no usage record")
        if self._texts or self._thoughts:
            yield Unplaced("text of a reply without a usage record", len(self._texts) + len(self._thoughts))
        started, completed = self._tasks
        recorded, status = self._ending
        if started > completed or not recorded:
            recorded = f"cut: last record is {self._last}; tasks started {started}, completed {completed}"
            status = status if status != "completed" else ""
        yield Ended(recorded=recorded, status=status, error=recorded if status == "failed" else "")


def _call(name: str, arguments: Any, message: dict[str, Any], at: str) -> Call:
    return Call(name, text_of(arguments), text_of(message.get("call_id")), at)


def _result(message: dict[str, Any], at: str) -> Answered:
    code = message.get("exit_code")
    error = f"exit code {text_of(code)}" if code not in (None, 0) else ""
    if message.get("success") is False:
        error = "not applied"
    parts = (text_of(message.get(name)) for name in ("stdout", "stderr", "result"))
    return Answered(
        id=text_of(message.get("call_id")) or None,
        text="\n".join(part for part in parts if part),
        error=error,
        at=at,
    )
