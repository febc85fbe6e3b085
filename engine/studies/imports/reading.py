"""Reading a file piece by piece: lines of JSON, and the parts of one JSON document. Never a whole file.

What can't be read is told and not guessed at: a torn line, several values on one line, a document
that breaks off.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from stepfold.engine.studies.imports.said import Noticed

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes of a line that is read as one value; a longer one is told and left out."""
LOOSE_AT_MOST = 32 * 1024 * 1024
"""Bytes of a document that is read as a whole, where a strict parser refuses it."""
DEEPEST = 500
_STEPS = {"start_map": 1, "start_array": 1, "end_map": -1, "end_array": -1}

_NOT_JSON = (ValueError, RecursionError, OverflowError)


class Line(NamedTuple):
    """A value, and the number of its line from 1."""

    number: int
    value: Any


class Source:
    """A file to import. What can't be read of it is kept in `noticed` until somebody asks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._noticed: list[Noticed] = []
        self._looked = self._too_deep = False
        self._loosely: Any = None

    @property
    def name(self) -> str:
        """The file's name, without its folder."""
        return self.path.name

    def noticed(self) -> Iterator[Noticed]:
        """What could not be read since the last time, and forget it."""
        found, self._noticed = self._noticed, []
        yield from found

    def texts(self) -> Iterator[tuple[int, str]]:
        """The lines of a text file. Bytes that are no UTF-8 are shown as what they are."""
        for number, line in self._lines():
            yield number, line.decode("utf-8", "backslashreplace")

    def values(self) -> Iterator[Line]:
        """The values of a file of JSON lines."""
        for number, line in self._lines():
            if not line.strip():
                continue
            try:
                yield Line(number, msgspec.json.decode(line))
            except (*_NOT_JSON, msgspec.DecodeError):
                yield from self._one_by_one(number, line)

    def _one_by_one(self, number: int, line: bytes) -> Iterator[Line]:
        text = line.decode("utf-8", "replace").strip()
        decoder = json.JSONDecoder()
        place = values = 0
        while place < len(text):
            try:
                value, place = decoder.raw_decode(text, place)
            except _NOT_JSON:
                self._noticed.append(Noticed("torn_line", f"line {number}", "not read as JSON"))
                break
            values += 1
            yield Line(number, value)
            while place < len(text) and text[place] in " \t\r,":
                place += 1
        if values > 1:
            self._noticed.append(Noticed("fused_line", f"line {number}", f"{values} values on one line"))

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        number = 0
        with self.path.open("rb") as file:
            skip_mark(file)
            while line := file.readline(LONGEST_LINE):
                number += 1
                if len(line) < LONGEST_LINE or line.endswith(b"\n"):
                    yield number, line
                    continue
                while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                    pass
                self._noticed.append(Noticed("line_too_long", f"line {number}", f"over {LONGEST_LINE} bytes"))

    def items(self, prefix: str) -> Iterator[Any]:
        """The values at a place of a JSON document (`messages.item`), one after the other.

        A document that breaks off gives what it has before.
        """
        import ijson

        self._look_once()
        if self._too_deep:
            return
        if self._loosely is not None:
            yield from _at(self._loosely, prefix.split("."))
            return
        with self.path.open("rb") as file:
            skip_mark(file)
            # The first look has told already where a document breaks off.
            with suppress(ijson.JSONError, UnicodeDecodeError, *_NOT_JSON):
                yield from ijson.items(file, prefix, use_float=True)

    def first(self, prefix: str) -> Any:
        """The first value at a place of a JSON document; None where there is none."""
        return next(self.items(prefix), None)

    def _look_once(self) -> None:
        """Is it whole, strict JSON of a bearable depth? Deeper values cost the square of their depth."""
        if self._looked:
            return
        self._looked = True
        import ijson

        try:
            with self.path.open("rb") as file:
                skip_mark(file)
                depth = 0
                for event, _ in ijson.basic_parse(file, use_float=True):
                    depth += _STEPS.get(event, 0)
                    if depth > DEEPEST:
                        self._too_deep = True
                        self._noticed.append(Noticed("nested_too_deep", "", f"over {DEEPEST} levels"))
                        return
        except (ijson.JSONError, UnicodeDecodeError, *_NOT_JSON) as error:
            said = " ".join(str(error).split("\n", 1)[0].split())
            self._loosely = self._loosely_read()
            what = "broken_document" if self._loosely is None else "loose_json"
            self._noticed.append(Noticed(what, "", said))

    def _loosely_read(self) -> Any:
        """Python reads what strict parsers don't (NaN, numbers of any size), but only as a whole."""
        if self.path.stat().st_size > LOOSE_AT_MOST:
            return None
        try:
            return json.loads(self.path.read_bytes())
        except _NOT_JSON:
            return None


def skip_mark(file: BinaryIO) -> None:
    """Go past the byte order mark that some programs put at the beginning of UTF-8."""
    if file.read(len(BOM_UTF8)) != BOM_UTF8:
        file.seek(0)


def _at(value: Any, names: list[str]) -> Iterator[Any]:
    """The values at a place of a document in memory, as `ijson.items` gives them."""
    if not names:
        yield value
    elif names[0] == "item" and isinstance(value, list):
        for item in value:
            yield from _at(item, names[1:])
    elif isinstance(value, dict) and names[0] in value:
        yield from _at(value[names[0]], names[1:])
