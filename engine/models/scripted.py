"""A model whose replies are written down: a JSONL file, a reply a line."""

import codecs
import json
import math
from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from msgspec import Struct

from stepfold.engine.models.envelope import reply_text
from stepfold.engine.models.failures import RETRYABLE
from stepfold.engine.models.protocol import Request
from stepfold.engine.models.reply import bare_reply, replied, usage_of
from stepfold.events.vocabulary import BLANK, ModelErred, ModelReplied

KEYS = ("text", "message", "error", "usage", "finish_reason", "delay_ms")
ERROR_KEYS = ("kind", "detail", "retryable", "retry_after", "status")


class ScriptError(ValueError):
    """A script that can't be played: which file, which line, what is wrong with it."""


class Line(Struct, frozen=True):
    """One line, judged: its outcome, the usage it gives, and the wait before it in seconds."""

    outcome: ModelReplied | ModelErred
    usage: Any = None
    delay: float = 0.0


class Script:
    """Plays its lines: line n answers the run's n-th logical call, so a resumed run goes on where it was."""

    reads_messages = False

    def __init__(self, lines: tuple[Line, ...], name: str = "script") -> None:
        self._lines = lines
        self.name = name

    @classmethod
    def load(cls, path: str | Path) -> "Script":
        """Read the whole script, before anything runs.

        Raises ScriptError for a file that can't be read, and for the first line that is no reply.
        """
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise ScriptError(f"{path}: can't read the script ({error.strerror})") from None
        return cls.parse(content, str(path), f"script:{Path(path).name}")

    @classmethod
    def parse(cls, content: bytes, source: str = "script", name: str = "") -> "Script":
        """Read a script from bytes; `source` is what errors call it, `name` what the log does.

        Raises ScriptError.
        """
        content = content.removeprefix(codecs.BOM_UTF8)
        # Only a line feed ends a line: JSON may hold the other separators that Unicode knows.
        lines = content.rstrip(b" \t\r\n").split(b"\n") if content.strip() else []
        return cls(tuple(_line(raw, f"{source} line {n}") for n, raw in enumerate(lines, 1)), name or source)

    def __len__(self) -> int:
        return len(self._lines)

    def __repr__(self) -> str:
        return f"Script({self.name!r}, {len(self)} lines)"

    def reply(self, request: Request) -> ModelReplied | ModelErred | Awaitable[ModelReplied | ModelErred]:
        """The line of this call; at once, unless the line asks for a delay."""
        if not 1 <= request.call <= len(self._lines):
            return self._exhausted(request.call)
        line = self._lines[request.call - 1]
        outcome = _answer(line, request)
        return _later(outcome, line.delay) if line.delay else outcome

    def _exhausted(self, call: int) -> ModelErred:
        lines = "1 line" if len(self) == 1 else f"{len(self)} lines"
        detail = f"{self.name} has {lines}, and this is model call {call}: add a line for it"
        return ModelErred(*BLANK, error="script_exhausted", detail=detail)


def _answer(line: Line, request: Request) -> ModelReplied | ModelErred:
    match line.outcome:
        case ModelReplied() as outcome:
            return replied(outcome, line.usage, request)
        case outcome:
            return outcome


async def _later(outcome: ModelReplied | ModelErred, delay: float) -> ModelReplied | ModelErred:
    import asyncio

    await asyncio.sleep(delay)
    return outcome


def _line(raw: bytes, where: str) -> Line:
    line = _object(raw, where)
    _known(line, KEYS, where)
    chosen = [key for key in ("text", "message", "error") if key in line]
    if len(chosen) != 1:
        found = " and ".join(chosen) or "none of them"
        raise ScriptError(f"{where}: needs exactly one of text, message, error, has {found}")
    delay = _number(line.get("delay_ms", 0), f"{where}: delay_ms") / 1000
    return Line(_OUTCOMES[chosen[0]](line, where), _usage(line, where), delay)


def _object(raw: bytes, where: str) -> dict[str, Any]:
    if not raw.strip():
        raise ScriptError(f"{where}: is blank, and line n answers call n: delete it, or write a reply")
    try:
        value = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ScriptError(f"{where}: not UTF-8 (byte {error.start + 1})") from None
    except json.JSONDecodeError as error:
        raise ScriptError(f"{where}: no JSON ({error.msg}, column {error.colno})") from None
    except (ValueError, RecursionError) as error:
        raise ScriptError(f"{where}: no JSON that can be read ({error})") from None
    if not isinstance(value, dict):
        raise ScriptError(f'{where}: no object, write {{"text": "…"}}')
    return value


def _known(line: dict[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in line:
        if key not in keys:
            near = get_close_matches(key, keys, 1)
            meant = f", did you mean {near[0]!r}?" if near else f"; known are {', '.join(keys)}"
            raise ScriptError(f"{where}: unknown key {key!r}{meant}")


def _text(line: dict[str, Any], where: str) -> ModelReplied:
    return bare_reply(_string(line["text"], f"{where}: text"), finish_reason=_finish(line, where))


def _message(line: dict[str, Any], where: str) -> ModelReplied:
    if not isinstance(line["message"], dict):
        raise ScriptError(f"{where}: message is no object")
    text, calls = reply_text(line["message"])
    reasoning = line["message"].get("reasoning_content")
    return bare_reply(
        text,
        tool_calls=calls,
        finish_reason=_finish(line, where) or ("tool_calls" if calls else ""),
        reasoning=reasoning if isinstance(reasoning, str) else "",
    )


def _error(line: dict[str, Any], where: str) -> ModelErred:
    match line["error"]:
        case str(kind):
            return ModelErred(*BLANK, error=kind, detail="written in the script", retryable=kind in RETRYABLE)
        case dict(given):
            _known(given, ERROR_KEYS, f"{where}: error")
            kind = _string(given.get("kind"), f"{where}: error.kind")
            retryable = given.get("retryable", kind in RETRYABLE)
            if not isinstance(retryable, bool):
                raise ScriptError(f"{where}: error.retryable is neither true nor false")
            return ModelErred(
                *BLANK,
                error=kind,
                detail=_string(given.get("detail", "written in the script"), f"{where}: error.detail"),
                retryable=retryable,
                retry_after=_number(given.get("retry_after", 0), f"{where}: error.retry_after"),
                status=int(_number(given.get("status", 0), f"{where}: error.status")),
            )
        case _:
            raise ScriptError(f'{where}: error is neither a kind nor {{"kind": "…", "detail": "…"}}')


_OUTCOMES: dict[str, Callable[[dict[str, Any], str], ModelReplied | ModelErred]] = {
    "text": _text,
    "message": _message,
    "error": _error,
}


def _finish(line: dict[str, Any], where: str) -> str:
    return _string(line.get("finish_reason") or "", f"{where}: finish_reason")


def _usage(line: dict[str, Any], where: str) -> Any:
    usage = line.get("usage")
    if usage is not None and None in usage_of(usage):
        raise ScriptError(f"{where}: usage needs prompt_tokens and completion_tokens, both whole numbers")
    return usage


def _string(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ScriptError(f"{where} is no string")
    return value


def _number(value: Any, where: str) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 10**9 or not math.isfinite(value):
        raise ScriptError(f"{where} is no number from 0 up")
    return float(value)
