"""Keeping a long output short: its head, its tail, and the digest of the whole."""

import hashlib

from msgspec import Struct

MODEL_LIMIT = 16 * 1024
"""Bytes of a result that a model is shown."""


class Capped(Struct, frozen=True):
    """An output as it is kept. `size` in bytes and `digest` (sha256 in hex) are of the whole."""

    text: str
    size: int
    digest: str
    truncated: bool


class Capture:
    """Takes an output in pieces and holds at most `limit` bytes of it (2 or more), whatever comes."""

    def __init__(self, limit: int = MODEL_LIMIT) -> None:
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._hash = hashlib.sha256()
        self.size = 0

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""
        self._hash.update(piece)
        self.size += len(piece)
        room = self._head_limit - len(self._head)
        self._head += piece[:room]
        self._tail += piece[max(room, 0) :][-self._tail_limit :]
        del self._tail[: -self._tail_limit]

    def capped(self) -> Capped:
        """What is held by now, as text; bytes that are no UTF-8 are shown as U+FFFD."""
        left_out = self.size - len(self._head) - len(self._tail)
        digest = self._hash.hexdigest()
        if left_out <= 0:
            return Capped(_text(self._head + self._tail), self.size, digest, truncated=False)
        mark = f"\n[… {left_out} bytes left out, sha256:{digest} of the whole …]\n"
        return Capped(_text(self._head) + mark + _text(self._tail), self.size, digest, truncated=True)


def cap(whole: bytes, limit: int = MODEL_LIMIT) -> Capped:
    """Cap an output that is there as a whole."""
    capture = Capture(limit)
    capture.feed(whole)
    return capture.capped()


def _text(held: bytes | bytearray) -> str:
    return held.decode("utf-8", "replace")
