"""The response cache: which requests may be answered from it, under what key, and where replies are kept."""

import hashlib
import sqlite3
from collections import OrderedDict
from contextlib import closing
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from stepfold.engine.models.protocol import Request
from stepfold.events.vocabulary import BLANK, ModelReplied

_encode = msgspec.json.Encoder(order="deterministic").encode


class ResponseCache(Protocol):
    """Where replies are kept. What goes wrong when reading is a miss, and when writing is nothing."""

    def get(self, key: str) -> ModelReplied | None:
        """The reply kept under a key."""
        ...

    def put(self, key: str, reply: ModelReplied) -> None:
        """Keep a reply."""
        ...


def is_history_free(request: Request) -> bool:
    """Only a request without assistant and tool turns may be answered from the cache."""
    return all(message.role not in {"assistant", "tool"} for message in request.messages)


def cache_key(request: Request, *, identity: str, stream: bool, namespace: str) -> str:
    """SHA-256 of all that shapes the answer, in 64 hex digits.

    What does not shape it (attempt, call number, timeouts, metadata) is not in the key; whose model it
    is, whether it streams, and the namespace are.
    """
    shape = (
        request.model,
        request.messages,
        request.generation,
        request.max_tokens,
        request.tools,
        bytes(request.response_schema).decode("utf-8", "replace"),
        request.response_name,
        request.tool_choice,
    )
    text = _encode((shape, identity, stream, namespace))
    return hashlib.sha256(text).hexdigest()


def _kept(reply: ModelReplied) -> ModelReplied:
    return replace(reply, v=BLANK[0], run_id="", seq=0, step=0, ts="", key="", cache="")


class MemoryCache:
    """Replies of this process, the least recently used dropped beyond `size`."""

    def __init__(self, size: int = 1024) -> None:
        self._size = size
        self._replies: OrderedDict[str, ModelReplied] = OrderedDict()
        self.writes = 0

    def get(self, key: str) -> ModelReplied | None:
        """The reply kept under a key."""
        reply = self._replies.get(key)
        if reply is not None:
            self._replies.move_to_end(key)
        return reply

    def put(self, key: str, reply: ModelReplied) -> None:
        """Keep a reply."""
        self.writes += 1
        self._replies[key] = _kept(reply)
        while len(self._replies) > self._size:
            self._replies.popitem(last=False)


class SqliteCache:
    """Replies in a SQLite file, for this process and others. A broken file is a miss, never an error."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._decoder = msgspec.json.Decoder(ModelReplied)

    def get(self, key: str) -> ModelReplied | None:
        """The reply kept under a key."""
        try:
            with closing(self._opened()) as database:
                row = database.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
            return None if row is None else self._decoder.decode(row[0])
        except (sqlite3.Error, msgspec.DecodeError):
            return None

    def put(self, key: str, reply: ModelReplied) -> None:
        """Keep a reply."""
        try:
            line = msgspec.json.encode(_kept(reply))
            with closing(self._opened()) as database, database:
                database.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", (key, line))
        except (sqlite3.Error, UnicodeEncodeError):
            return

    def _opened(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, timeout=5)
        database.execute("CREATE TABLE IF NOT EXISTS replies(key TEXT PRIMARY KEY, reply BLOB NOT NULL)")
        return database
