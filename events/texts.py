"""Large texts of a log: each stored once, under the digest of its bytes, beside the logs that name it.

What a text over `LARGEST_INLINE` bytes is replaced by in the file is a reference: the JSON string of
U+FDD0, `=` and the digest. Only the file knows of it. The canonical line, its chain and its event hold the
text, so replay, folds and seals see no difference, and a log in which all texts stand inline is as good.

No text can pose as a reference: the codec writes a U+FDD0 with four hex digits behind it, and where JSON
from outside is recorded as it was written, a U+FDD0 and `=` get another `=` in the file.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from stepfold.events.beside import DIGEST_BYTES, digest_beside, opened, texts_of
from stepfold.events.drafts import drafted

LARGEST_INLINE = 64 * 1024
"""Bytes of UTF-8: a longer text is put aside."""

_MARK = "\ufdd0=".encode()
_MARK_BEGINS = _MARK[0]
_ESCAPED = _MARK + b"="
_REFERENCE = re.compile(b'"' + _MARK + b'([0-9a-f]{%d})"' % (2 * DIGEST_BYTES))
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)

_decode_text = msgspec.json.Decoder(str).decode
_encode_text = msgspec.json.Encoder().encode


class LostText(Exception):
    """A text that a line names and that is not there as it was written: which, and how."""


TextOf = Callable[[str], bytes]
"""Gives the text of a digest. Raises LostText."""


class Aside(NamedTuple):
    """A line as it stands in the file, and the texts that it names, by digest."""

    line: bytes
    texts: dict[str, bytes]


def may_name_texts(content: bytes) -> bool:
    """Whether lines of a file have to be looked at. It costs a search for one byte, nearly always."""
    return _MARK_BEGINS in content and _MARK in content


def must_change(batch: bytes) -> bool:
    """Whether a batch of lines may hold what stands otherwise in the file. It costs as little."""
    return len(batch) > LARGEST_INLINE or may_name_texts(batch)


def escaped(line: bytes) -> bytes:
    """A line as it has to stand in a file that may have texts beside it, none of its own put there."""
    return line.replace(_MARK, _ESCAPED)


def aside(line: bytes) -> Aside:
    """A line as it has to stand in the file."""
    texts: dict[str, bytes] = {}

    def shortened(found: re.Match[bytes]) -> bytes:
        token = found[0]
        if len(token) <= LARGEST_INLINE:
            return token
        text = _decode_text(token)
        content = text.encode()
        # JSON from outside may write a text in another way than we would: only ours can be put back.
        if len(content) <= LARGEST_INLINE or _encode_text(text) != token:
            return token
        digest = digest_beside(content)
        texts[digest] = content
        return b'"' + _MARK + digest.encode() + b'"'

    line = escaped(line)
    if len(line) > LARGEST_INLINE:
        line = _STRING.sub(shortened, line)
    return Aside(line, texts)


def named(line: bytes) -> frozenset[str]:
    """The digests of the texts that a line of a file names."""
    return frozenset(digest.decode() for digest in _REFERENCE.findall(line))


def inlined(line: bytes, text_of: TextOf) -> bytes:
    """A line of a file as it may stand in a file that has no texts beside it. Raises LostText."""

    def text(found: re.Match[bytes]) -> bytes:
        digest = found[1].decode()
        try:
            return _encode_text(text_of(digest).decode())
        except UnicodeDecodeError:
            raise LostText(f"its text {digest} is no UTF-8") from None

    return _REFERENCE.sub(text, line)


def restored(line: bytes, text_of: TextOf) -> bytes:
    """What was written: the sealed line of which this one stands in the file. Raises LostText."""
    return inlined(line, text_of).replace(_ESCAPED, _MARK) if may_name_texts(line) else line


def bereft(line: bytes) -> bytes:
    """A line whose texts are lost, as a line that says their references as texts of its own."""
    kept = _REFERENCE.sub(lambda found: b'"' + _LITERAL + found[1] + b'"', line)
    return kept.replace(_ESCAPED, _MARK)


_LITERAL = "\ufdd0fdd0=".encode()


def unchanged(digest: str, content: bytes, where: str) -> bytes:
    """A text that was found under a digest. Raises LostText when it is not the one that was put there."""
    if digest_beside(content) != digest:
        raise LostText(f"its text {digest} in {where} was changed after it was written")
    return content


_COPY_IT = "copy it there from the folder `texts` beside the log that this is a copy of"


class TextFolder:
    """The texts beside a log, and beside all others of its folder."""

    def __init__(self, log: Path) -> None:
        self.folder = texts_of(log)

    def text_of(self, digest: str) -> bytes:
        """The bytes of a text, which are UTF-8. Raises LostText when they are not those it is named by."""
        try:
            with opened(self.folder / digest) as file:
                content = file.read()
        except FileNotFoundError:
            raise LostText(f"its text {digest} is missing from {self.folder}: {_COPY_IT}") from None
        except OSError as error:
            raise LostText(f"its text {digest} in {self.folder} can't be read: {error.strerror}") from None
        return unchanged(digest, content, str(self.folder))

    def put_aside(self, lines: Iterable[bytes]) -> list[bytes]:
        """Lines as they have to stand in the file; the texts that they name are on the disk by then, for a
        lost machine may keep the lines and not what they name. Raises OSError.
        """
        short: list[bytes] = []
        for line in lines:
            written, texts = aside(line)
            for digest, content in texts.items():
                self._keep(digest, content)
            short.append(written)
        return short

    def _keep(self, digest: str, content: bytes) -> None:
        self.folder.mkdir(0o755, exist_ok=True)
        path = self.folder / digest
        with suppress(LostText):
            self.text_of(digest)
            _sync(self.folder)
            return
        with drafted(path) as draft, draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _sync(self.folder)
        _sync(self.folder.parent)


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def self_contained(line: bytes, text_of: TextOf) -> bytes:
    """A line of a file with those of its texts in it that are not lost."""
    if not may_name_texts(line):
        return line
    with suppress(LostText):
        return inlined(line, text_of)
    return line


def self_contained_lines(log: Path) -> Iterator[bytes]:
    """The lines of a log, each with its line feed, as they may stand in a file of their own. What is lost
    stays a reference, which whoever reads it is told of. Raises OSError.
    """
    text_of = TextFolder(log).text_of
    with log.open("rb") as file:
        for line in file:
            yield self_contained(line, text_of)
