"""What is wrong with a text that is not one JSON document, in words that a small model can act on.

The scanner's position is used, its sentence only to tell the kinds apart: positions and sentences of
the trailing comma changed in Python 3.13, and a rejection has to read the same on every version.
"""

import re
from collections.abc import Callable

from stepfold.engine.contract.nesting import nesting
from stepfold.engine.contract.quoting import quoted

BLANK = " \t\r\n"
"""The white space of JSON, and all that the contract trims."""

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_FENCE = re.compile(r"```([^\s`{\[\"]*)")
_TAGGED = re.compile(r"</?[A-Za-z_|]")
_UNFINISHED = frozenset(
    literal[:length] for literal in ("true", "false", "null", "-0") for length in range(1, len(literal))
)
_QUOTES = frozenset("'‘’“”«»")


class Refusal(Exception):
    """Why a reply holds no document: a `cause` for programs, a `detail` for the model."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(cause, detail)
        self.cause = cause
        self.detail = detail


def place(text: str, position: int) -> str:
    """Name a position of the reply as people count: lines and columns from 1, columns in characters."""
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {position - text.rfind(chr(10), 0, position)}"


def literal_position(text: str, start: int, literal: str) -> int:
    """Find the first `literal` that is not inside a string; `start` when there is none."""
    for found in re.compile(f"{_STRING}|{re.escape(literal)}", re.DOTALL).finditer(text, start):
        if found[0] == literal:
            return found.start()
    return start


def diagnose_rest(text: str, start: int, end: int, after: int, is_object: bool) -> Refusal:
    """Explain what stands behind a first whole JSON value, which ended at `after`."""
    if not is_object and text[start] != "[":
        return _opening_text(text, start)
    rest = text[after:end].lstrip(BLANK)
    where = place(text, end - len(rest))
    if not rest.strip("}" + BLANK):
        braces = rest.count("}")
        many = "one closing brace" if braces == 1 else f"{braces} closing braces"
        return Refusal("extra_brace", f"{many} too many after a whole object ({where})")
    if rest[0] == "{":
        return Refusal("two_documents", f"a second JSON object after the first ({where})")
    if rest.startswith("```"):
        return Refusal("fence", f"a code fence mark after the JSON ({where})")
    if rest[0] in "]}":
        return Refusal("extra_bracket", f"{quoted(rest[0])} too many after a whole value ({where})")
    return Refusal("text_after", f"text after the JSON: {quoted(rest)} ({where})")


def diagnose_failure(text: str, start: int, end: int, position: int, sentence: str) -> Refusal:
    """Explain why the scanner stopped at `position` of a reply whose body is `text[start:end]`."""
    if text[start] not in "{[":
        return _opening_text(text, start)
    if sentence.startswith("Unterminated string"):
        return Refusal("truncated", f"the reply ends inside a string that begins at {place(text, position)}")
    if sentence.startswith("Invalid \\u") and '"' not in text[position:end]:
        return Refusal("truncated", "the reply ends inside an escape")
    if position >= end or text[position:end] in _UNFINISHED:
        return _cut_off(text[start:end])
    for beginning, explain in _SENTENCES:
        if sentence.startswith(beginning):
            return explain(text, position)
    return _expected("valid JSON", text, position)


def _opening_text(text: str, start: int) -> Refusal:
    if text.startswith("```", start):
        return _fence(text, start)
    begun = quoted(text[start : start + 64])
    if text.startswith(("<think", "<|channel", "<reasoning", "[THINK]"), start):
        return Refusal("reasoning", f"reasoning before the JSON object: the reply begins with {begun}")
    if _TAGGED.match(text, start):
        return Refusal("markup", f"markup around the JSON object: the reply begins with {begun}")
    if text[start] == "\ufeff":
        return Refusal("prose", "a byte order mark before the JSON object (line 1, column 1)")
    if "{" in text:
        return Refusal("prose", f"text before the JSON object: the reply begins with {begun}")
    return Refusal("prose", f"no JSON object: the reply begins with {begun}")


def _fence(text: str, start: int) -> Refusal:
    found = _FENCE.match(text, start)
    tag = found[1] if found else ""
    if tag == "":
        return Refusal("fence", 'a code fence without the tag "json"; send the object without a fence')
    if tag != "json":
        return Refusal("fence", f'a code fence tagged {quoted(tag)} is not stripped, only one tagged "json"')
    if "```" not in text[start + 3 :]:
        return Refusal("truncated", "the reply ends before its code fence is closed")
    return Refusal("fence", "text after the code fence; the fence must be the whole reply")


def _cut_off(body: str) -> Refusal:
    still_open = nesting(body)
    if body[-1] == "}" and still_open == 1:
        return Refusal("missing_brace", "one closing brace is missing at the end of the reply")
    brackets = "1 bracket is" if still_open == 1 else f"{still_open} brackets are"
    return Refusal("truncated", f"the reply ends while {brackets} still open")


def _key(text: str, position: int) -> Refusal:
    return (
        _trailing_comma(text, position)
        or _quotes(text, position)
        or _expected("a key in double quotes", text, position)
    )


def _value(text: str, position: int) -> Refusal:
    for literal, right in (("True", "true"), ("False", "false"), ("None", "null")):
        if text.startswith(literal, position):
            return Refusal("literal", f"{literal} is not JSON; write {right} ({place(text, position)})")
    return _trailing_comma(text, position) or _quotes(text, position) or _expected("a value", text, position)


def _quotes(text: str, position: int) -> Refusal | None:
    if text[position] not in _QUOTES:
        return None
    kind = "single quotes" if text[position] == "'" else f"the quote mark {quoted(text[position])}"
    return Refusal("quotes", f'{kind} where JSON needs double quotes "" ({place(text, position)})')


def _trailing_comma(text: str, position: int) -> Refusal | None:
    # Up to Python 3.12 the scanner stops at the bracket, from 3.13 on at the comma before it.
    if text[position] == ",":
        comma = position
    elif text[position] in "]}":
        before = text[:position].rstrip(BLANK)
        comma = len(before) - 1
        if before[-1:] != ",":
            return None
    else:
        return None
    return Refusal("trailing_comma", f"a comma with nothing after it ({place(text, comma)})")


def _delimiter(text: str, position: int) -> Refusal:
    if text[position - 1] == '"' and text[position] not in "{[]}:'\"":
        return Refusal(
            "inner_quote",
            f"a string ends too early before {quoted(text[position])}; inside a string a quote is "
            f'written \\" ({place(text, position)})',
        )
    return _expected("a comma or a closing bracket", text, position)


def _colon(text: str, position: int) -> Refusal:
    return _expected("a colon after the key", text, position)


def _control(text: str, position: int) -> Refusal:
    written = {"\n": "a raw line break; write \\n", "\t": "a raw tab; write \\t", "\r": "a raw CR; write \\r"}
    shown = written.get(text[position], f"a control character {quoted(text[position])}; escape it")
    return Refusal("control_character", f"inside a string: {shown} ({place(text, position)})")


def _escape(text: str, position: int) -> Refusal:
    where = place(text, position)
    return Refusal(
        "escape", f"a backslash that begins no JSON escape; a backslash itself is written \\\\ ({where})"
    )


def _expected(what: str, text: str, position: int) -> Refusal:
    return Refusal("syntax", f"{what} is expected, not {quoted(text[position])} ({place(text, position)})")


_SENTENCES: tuple[tuple[str, Callable[[str, int], Refusal]], ...] = (
    ("Expecting property name", _key),
    ("Illegal trailing comma", _key),
    ("Expecting value", _value),
    ("Expecting ':'", _colon),
    ("Expecting ','", _delimiter),
    ("Invalid control character", _control),
    ("Invalid \\", _escape),
)
