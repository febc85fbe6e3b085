"""A streamed chat completion put together: server-sent lines to chunks, chunks to the unary shape."""

import json
from collections.abc import AsyncIterator
from typing import Any

DONE = b"[DONE]"
HEAD = ("model", "usage", "timings", "error")
"""What a chunk says of the whole reply."""

LONGEST_LINE = 16_000_000
"""Bytes of one server-sent line; more is no chunk of a reply."""


async def data_lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The payload of each `data:` line. Lines end at LF or CR LF only, for JSON may hold U+2028 as it is.

    Raises ValueError for a line without end.
    """
    held = bytearray()
    async for piece in pieces:
        held += piece
        if b"\n" not in piece:
            if len(held) > LONGEST_LINE:
                raise ValueError(f"a line longer than {LONGEST_LINE} bytes")
            continue
        *lines, rest = held.split(b"\n")
        held = rest
        for line in lines:
            if line.startswith(b"data:"):
                yield bytes(line[5:]).strip(b" \r")
    if held.startswith(b"data:"):
        yield bytes(held[5:]).strip(b" \r")


class Merger:
    """Adds chunk to chunk; `completion` is what the server would have answered unstreamed."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._arguments: dict[int, list[str]] = {}
        self._finish: str | None = None

    @property
    def finished(self) -> bool:
        """Whether the server gave the reason why the reply ends, so that it is whole."""
        return self._finish is not None

    @property
    def speaks(self) -> bool:
        """Whether anything of the reply has come: text, thinking or a call."""
        return any(self._content) or bool(self._reasoning or self._calls)

    def add(self, data: bytes) -> str:
        """Take one payload; give back the text in it. Raises ValueError for what is no chunk."""
        chunk = json.loads(data.decode("utf-8"))
        if not isinstance(chunk, dict):
            raise ValueError("a chunk that is no object")
        self._head.update({k: chunk[k] for k in HEAD if chunk.get(k) is not None})
        match chunk.get("choices"):
            case [dict(choice), *_]:
                return self._choice(choice)
            case _:
                return ""

    def completion(self) -> dict[str, Any]:
        """The chunks so far as one chat completion."""
        calls = [
            {**call, "function": {**call["function"], "arguments": "".join(self._arguments[index])}}
            for index, call in sorted(self._calls.items())
        ]
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._content)}
        if calls:
            message["tool_calls"] = calls
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        return {**self._head, "choices": [{"message": message, "finish_reason": self._finish}]}

    def _choice(self, choice: dict[str, Any]) -> str:
        reason = choice.get("finish_reason")
        self._finish = reason if isinstance(reason, str) else self._finish
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return ""
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str):
            self._reasoning.append(thought)
        for call in delta.get("tool_calls") or ():
            if isinstance(call, dict):
                self._call(call)
        text = delta.get("content")
        if not isinstance(text, str):
            return ""
        self._content.append(text)
        return text

    def _call(self, piece: dict[str, Any]) -> None:
        given = piece.get("function")
        function: dict[str, Any] = given if isinstance(given, dict) else {}
        index = self._index(piece, function)
        call = self._calls.setdefault(index, {"id": "", "type": "function", "function": {"name": ""}})
        # Id and name come once; servers that repeat them in each piece mean the same call.
        call["id"] = call["id"] or piece.get("id") or ""
        call["function"]["name"] = call["function"]["name"] or function.get("name") or ""
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments, ensure_ascii=False)
        self._arguments.setdefault(index, []).append(arguments if isinstance(arguments, str) else "")

    def _index(self, piece: dict[str, Any], function: dict[str, Any]) -> int:
        index = piece.get("index")
        if type(index) is int:
            return index
        # Without an index a named piece opens the next call, a nameless one goes on with the last.
        latest = max(self._calls, default=-1)
        return latest + 1 if function.get("name") or latest < 0 else latest
