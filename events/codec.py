"""The one encoder and decoder of an event: canonical bytes out, one of the union (or `Unknown`) in.

Canonical means: the field order of the structs, defaults left out, UTF-8, no white space, no line
feed. Two engines that fold the same facts write the same bytes, which is what replay compares.

Python text can hold half a surrogate pair (a model's reply that says so in JSON, a file name), and
UTF-8 can't. Such a half is written as U+FDD0, a noncharacter, and four hex digits; a real U+FDD0 is
written the same way, so the escape is reversible and every line stays valid JSON for other tools.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from stepfold.events import upcasters
from stepfold.events.vocabulary import KINDS, VERSION, AnyEvent, Event, Unknown

_MARK = "\ufdd0"
_MARK_BYTES = _MARK.encode()
_MARK_BEGINS = _MARK_BYTES[0]
_LINE_FEED = ord("\n")
_UNWRITABLE = re.compile("[\ud800-\udfff\ufdd0]")
_ESCAPED = re.compile("\ufdd0([0-9a-f]{4})")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AnyEvent).decode


class _Head(Struct):
    v: int
    run_id: str
    seq: int
    step: int
    ts: str
    kind: str


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_fields = msgspec.json.Decoder(dict[str, Any]).decode
_NOT_JSON = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class LineError(ValueError):
    """A line that is no event. The text says what is wrong with it, in one line."""


class NewerVersion(LineError):
    """The line was written by a later schema than this engine knows."""


def encode(event: Event) -> bytes:
    """The canonical bytes of an event, without the line feed."""
    try:
        line = _encode(event)
    except UnicodeEncodeError:
        line = _encode(_map_text(event, _escape))
    else:
        # A search for one byte costs a tenth of one for three, and decides nearly every line.
        if _MARK_BEGINS in line and _MARK_BYTES in line:
            line = _encode(_map_text(event, _escape))
    return _one_line(line) if _LINE_FEED in line else line


def _one_line(line: bytes) -> bytes:
    # JSON that came from outside as it was written (a schema, a hook's change) may be indented.
    return msgspec.json.format(line, indent=-1)


def decode(line: bytes) -> AnyEvent | Unknown:
    """Read one line. Older versions are upcast; unknown kinds come back as `Unknown`.

    Raises LineError (what is wrong) and its NewerVersion.
    """
    try:
        event = _decode(line)
    except msgspec.ValidationError as error:
        return _decode_unfitting(line, error)
    except _NOT_JSON as error:
        raise LineError(f"not a JSON object: {error}") from error
    if event.v != VERSION:
        return _upcast(_fields_of(line), None)
    if _MARK_BEGINS in line and _MARK_BYTES in line:
        event = _map_text(event, _unescape)
    return event


def _decode_unfitting(line: bytes, error: msgspec.ValidationError) -> AnyEvent | Unknown:
    # A field that does not fit is found before the rest of the line is read, which may be no JSON.
    fields = _fields_of(line)
    try:
        head = _decode_head(line)
    except msgspec.ValidationError:
        # Versions before 1 had another envelope, so the head alone tells nothing about them.
        return _upcast(fields, error)
    if head.v != VERSION:
        return _upcast(fields, error)
    if head.kind in KINDS:
        raise LineError(f"{head.kind} at seq {head.seq}: {error}") from error
    return Unknown(head.v, head.run_id, head.seq, head.step, head.ts, head.kind)


def _fields_of(line: bytes) -> dict[str, Any]:
    try:
        return _decode_fields(line)
    except msgspec.ValidationError as problem:
        raise LineError(f"no event: {problem}") from problem
    except _NOT_JSON as problem:
        raise LineError(f"not a JSON object: {problem}") from problem


def _upcast(fields: dict[str, Any], error: Exception | None) -> AnyEvent | Unknown:
    version = fields.get("v")
    if not isinstance(version, int) or isinstance(version, bool):
        raise LineError(f"no event: {error or 'the field v (schema version) is missing'}")
    if version > VERSION:
        raise NewerVersion(f"schema version {version}, this engine reads up to {VERSION}: upgrade stepfold")
    if version == VERSION:
        raise LineError(f"no event: {error}")
    if version not in upcasters.UPCASTERS:
        raise LineError(f"no event: there was never a schema version {version}")
    try:
        line = _encode(upcasters.upcast(fields, version))
    except (OverflowError, UnicodeEncodeError, RecursionError) as problem:
        raise LineError(f"no event of schema version {version}: {problem}") from problem
    return decode(line)


def _map_text(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_map_text(item, change) for item in value)
    if isinstance(value, Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        changed = {name: _map_text(item, change) for name, item in fields.items()}
        return msgspec.structs.replace(value, **{n: v for n, v in changed.items() if v is not fields[n]})
    return value


def _escape(text: str) -> str:
    return _UNWRITABLE.sub(lambda found: f"{_MARK}{ord(found[0]):04x}", text)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
