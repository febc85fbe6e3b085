"""The seal of a line: a short digest chained over every canonical byte of the log up to and with that line.

A sealed line is the event's canonical bytes with one more field at their end, `"chain"`. It tells
damage (a flipped byte, an edit by hand) from an engine that decides otherwise, at the line where it
is; two logs whose chains agree at one `seq` agree in everything before it. It is no signature:
whoever edits a log can also seal it anew, which is what `stepfold log RUN --reseal` does, and says.

The seal belongs to the line and not to the event, so no fold sees it, and it may not change with the
schema: an engine must find damage in a log of a newer version too.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b

_DIGEST_BYTES = 8
_BEGINS = b',"chain":"'
_ENDS = b'"}'
_LENGTH = len(_BEGINS) + 2 * _DIGEST_BYTES + len(_ENDS)

BEGINNING = ""
"""The chain before the first line."""


def chained(previous: str, line: bytes) -> str:
    """The chain after `line` (canonical bytes, without its seal), `previous` being the one before it."""
    return blake2b(previous.encode() + line, digest_size=_DIGEST_BYTES).hexdigest()


def sealed(line: bytes, chain: str) -> bytes:
    """The line as it is written: with its chain as the last field. An empty chain leaves it as it is."""
    return line[:-1] + _BEGINS + chain.encode() + _ENDS if chain else line


def unsealed(line: bytes) -> tuple[bytes, str]:
    """The canonical bytes and the chain of a line as it was written; "" for a line without a seal."""
    if line[-_LENGTH : -_LENGTH + len(_BEGINS)] != _BEGINS or not line.endswith(_ENDS):
        return line, ""
    chain = line[-_LENGTH + len(_BEGINS) : -len(_ENDS)]
    return line[:-_LENGTH] + b"}", chain.decode("ascii", "replace")


def sealed_anew(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Canonical lines, in order and from the first, each with its seal."""
    chain = BEGINNING
    for line in lines:
        chain = chained(chain, line)
        yield sealed(line, chain)
