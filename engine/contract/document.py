"""The one JSON document of a reply: what is trimmed, which fence is stripped, which JSON is accepted.

There is one reading of the grammar, the scanner of the standard library, narrowed to RFC 8259 and to
what has one meaning everywhere: no duplicate keys, no NaN, no number that overflows, no half of a
surrogate pair, no nesting deeper than `nesting.DEEPEST`. A plain reply is read faster, where it can be
shown that the faster reading is the same one.
"""

import json
from math import isfinite
from typing import Any, NamedTuple, NoReturn

import msgspec

from stepfold.engine.contract.diagnosis import (
    BLANK,
    Refusal,
    diagnose_failure,
    diagnose_rest,
    literal_position,
    place,
)
from stepfold.engine.contract.nesting import DEEPEST, is_too_deep
from stepfold.engine.contract.quoting import quoted

LONGEST_INTEGER = 4300
"""Digits of the longest integer: Python's default limit, fixed so that no setting changes an answer."""

_OPENING, _CLOSING = "```json", "```"
_ENDS_THE_TAG = frozenset(f'{BLANK}{{["')


class Document(NamedTuple):
    """A decoded document: `text[start:end]` of the reply is exactly its JSON, counted in characters."""

    value: Any
    start: int
    end: int


def read_document(text: str) -> Document:
    """Read the document that is the whole reply, or the whole of its one fence.

    Raises `Refusal`, and nothing else, for everything that is no such document.
    """
    if text[:1] == "{" and text[-1:] == "}" and len(text) <= LONGEST_INTEGER:
        value = _plain(text)
        if value is not None:
            return Document(value, 0, len(text))
    if not text.isascii():
        _refuse_raw_surrogates(text)
    start, end = _bounds(text)
    if start == end:
        raise Refusal("empty", "the reply holds nothing but white space")
    if text[start] in "{[" and is_too_deep(text[start:end]):
        raise Refusal("too_deep", f"brackets nest deeper than {DEEPEST} levels")
    try:
        value, after = _decode(text, start)
    except json.JSONDecodeError as failure:
        raise diagnose_failure(text, start, end, failure.pos, failure.msg) from None
    except ValueError:
        raise Refusal("number", "an integer with more digits than this interpreter is set to read") from None
    except RecursionError:
        raise Refusal("too_deep", "brackets nest too deep for the stack that is left") from None
    except MemoryError:
        raise Refusal("too_big", "the reply needs more memory than there is") from None
    if after != end:
        raise diagnose_rest(text, start, end, after, isinstance(value, dict))
    if "\\ud" in text or "\\uD" in text:
        _refuse_escaped_surrogates(value)
    return Document(value, start, after)


def _plain(text: str) -> dict[str, Any] | None:
    """The object of a reply that has only one reading; None where that must be looked at closely.

    msgspec is five times faster than the scanner below, but keeps the last of two equal keys. So its
    value is written back, and only if that gives the reply's own tokens, white space aside, is it
    taken: then no key was dropped, and no number or escape was read in another way.
    """
    if text.count("{") + text.count("[") > DEEPEST:
        return None
    try:
        data = text.encode()
        value: dict[str, Any] = _read_plain(data)
        return value if _write_plain(value) == _without_white_space(data, indent=-1) else None
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


_read_plain = msgspec.json.Decoder(dict[str, Any]).decode
_write_plain = msgspec.json.Encoder().encode
_without_white_space = msgspec.json.format


def value_end(text: str, start: int) -> int:
    """Return where the JSON value that begins at `start` ends, in a text already known to be valid."""
    return _scan(text, start)[1]


def _bounds(text: str) -> tuple[int, int]:
    if text[:1] == "{" and text[-1:] == "}":
        return 0, len(text)
    start, end = _trimmed(text, 0, len(text))
    fenced = (
        text.startswith(_OPENING, start)
        and text.endswith(_CLOSING, start + len(_OPENING), end)
        and (text[start + len(_OPENING)] in _ENDS_THE_TAG or end == start + len(_OPENING + _CLOSING))
    )
    return _trimmed(text, start + len(_OPENING), end - len(_CLOSING)) if fenced else (start, end)


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    inside = text[start:end]
    body = inside.lstrip(BLANK)
    first = start + len(inside) - len(body)
    return first, first + len(body.rstrip(BLANK))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        _refuse_duplicate(pairs)
    return members


def _refuse_duplicate(pairs: list[tuple[str, Any]]) -> NoReturn:
    first_places: dict[str, int] = {}
    repeated = next(key for at, (key, _) in enumerate(pairs) if first_places.setdefault(key, at) != at)
    raise Refusal("duplicate_key", f"duplicate key {quoted(repeated)}: a key may stand once in its object")


def _integer(digits: str) -> int:
    if len(digits) <= LONGEST_INTEGER or len(digits.lstrip("-")) <= LONGEST_INTEGER:
        return int(digits)
    raise Refusal("number", f"an integer of more than {LONGEST_INTEGER} digits: {quoted(digits, 12)}")


def _float(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise Refusal("number", f"a number too large to stay finite: {quoted(digits, 24)}")
    return number


class _Constant(Exception):
    """NaN or an infinity: the scanner names it, but doesn't tell where it stood."""


def _constant(literal: str) -> NoReturn:
    raise _Constant(literal)


_scan = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
).raw_decode

# A text no longer than the longest integer holds none that is too long: there the C scanner may
# make the integers itself, at a fifth of the cost.
_scan_short = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_float, parse_constant=_constant
).raw_decode


def _decode(text: str, start: int) -> tuple[Any, int]:
    scan = _scan_short if len(text) <= LONGEST_INTEGER else _scan
    try:
        return scan(text, start)
    except _Constant as constant:
        literal = str(constant)
        where = place(text, literal_position(text, start, literal))
        raise Refusal("constant", f"{literal} is not JSON; write a number or null ({where})") from None


def _refuse_raw_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as failure:
        raise Refusal("surrogate", f"half a surrogate pair ({place(text, failure.start)})") from None


def _refuse_escaped_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Refusal(
            "surrogate", "a \\u escape that is half a surrogate pair; write both halves or the character"
        ) from None
