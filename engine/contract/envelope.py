"""The strict action contract: one reply is one action, or one of nine named errors.

The nine are tried in the order of `ERRORS`, and the first that fits is the answer.
"""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from stepfold.engine.contract.diagnosis import Refusal
from stepfold.engine.contract.document import read_document, value_end
from stepfold.engine.contract.quoting import quoted, shortened
from stepfold.engine.contract.schemas import TOP_LEVEL
from stepfold.engine.contract.validators import Validator

ERRORS = (
    "Empty",
    "NotJson",
    "NotObject",
    "ExtraTopLevelKeys",
    "MissingName",
    "MissingArguments",
    "ArgumentsNotObject",
    "UnknownTool",
    "SchemaInvalid",
)
"""The names of all rejections, in the order in which they are looked for."""

_KEYS = frozenset(("name", "arguments"))
_BLANK = r"[ \t\r\n]*+"
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NAME_FIRST = re.compile(
    rf"\{{{_BLANK}{_STRING}{_BLANK}:{_BLANK}{_STRING}{_BLANK},{_BLANK}{_STRING}{_BLANK}:{_BLANK}"
)
_ARGUMENTS_FIRST = re.compile(rf"\{{{_BLANK}{_STRING}{_BLANK}:{_BLANK}")


class Action(Struct, frozen=True):
    """A reply that keeps the contract.

    `text[start:end]` of the reply is the exact JSON of the arguments, counted in characters of the
    reply as it came (for bytes: of the decoded reply), fence and white space included.
    """

    name: str
    arguments: dict[str, Any]
    start: int
    end: int


class ActionParseError(Struct, frozen=True):
    """Why a reply is no action.

    `error` is one of `ERRORS`; `detail` says what was wrong and where, in at most 300 characters of
    ASCII. `tool` is the name the reply gave, where it got that far (cut to 64 characters), and
    `cause` tells the kinds of `Empty` and `NotJson` apart: both choose the repair.
    """

    error: str
    detail: str
    tool: str = ""
    cause: str = ""

    @property
    def message(self) -> str:
        """The sentence that the model reads."""
        return f"{self.error}: {self.detail}"


def parse_action(
    text: str | bytes, schemas: Mapping[str, Validator] = TOP_LEVEL
) -> Action | ActionParseError:
    """Read one reply of a model as one action. Returns, and never raises, whatever the reply is.

    `text` is the whole reply; bytes have to be UTF-8. `schemas` holds a validator for every tool that
    may be named. The time taken is linear in the length of the reply.
    """
    try:
        reply = text if isinstance(text, str) else text.decode("utf-8")
        document = read_document(reply)
    except Refusal as refusal:
        error = "Empty" if refusal.cause == "empty" else "NotJson"
        return ActionParseError(error, shortened(refusal.detail), cause=refusal.cause)
    except RecursionError:
        return ActionParseError("NotJson", "no stack is left to read the reply", cause="too_deep")
    except UnicodeDecodeError as failure:
        byte = failure.object[failure.start]
        detail = f"not UTF-8: byte 0x{byte:02X} at offset {failure.start}"
        return ActionParseError("NotJson", detail, cause="encoding")
    return _envelope(document.value, schemas) or _action(reply, document.value, document.start, document.end)


def _envelope(value: Any, schemas: Mapping[str, Validator]) -> ActionParseError | None:
    if not isinstance(value, dict):
        return ActionParseError("NotObject", f"the top level is {_kind(value)}, and must be one object")
    if not _KEYS.issuperset(value):
        extra = [key for key in value if key not in _KEYS]
        return ActionParseError("ExtraTopLevelKeys", _extra_keys(extra))
    name = value.get("name")
    if not isinstance(name, str):
        there = f'"name" is {_kind(name)}, and must be a string' if "name" in value else '"name" is missing'
        return ActionParseError("MissingName", there)
    if "arguments" not in value:
        return ActionParseError("MissingArguments", '"arguments" is missing', name[:64])
    arguments = value["arguments"]
    if not isinstance(arguments, dict):
        detail = f'"arguments" is {_kind(arguments)}, and must be an object'
        return ActionParseError("ArgumentsNotObject", detail, name[:64])
    schema = schemas.get(name)
    if schema is None:
        listed = ", ".join(schemas)
        return ActionParseError(
            "UnknownTool", shortened(f"{quoted(name)} is not one of the tools: {listed}"), name[:64]
        )
    messages = _validate(schema, arguments)
    if messages:
        return ActionParseError("SchemaInvalid", shortened(f"{name}: {'; '.join(messages)}"), name[:64])
    return None


def _validate(schema: Validator, arguments: dict[str, Any]) -> tuple[str, ...]:
    try:
        return schema.validate(arguments)
    except Exception as failure:  # A validator's own fault must not end a run: it is a failed validation.
        return (f"the schema can't be applied to these arguments ({type(failure).__name__})",)


def _action(reply: str, value: dict[str, Any], start: int, end: int) -> Action:
    name, arguments = value["name"], value["arguments"]
    # The reply is known to be a valid envelope, so its outline alone tells where the arguments lie.
    if next(iter(value)) == "name":
        opening = _NAME_FIRST.match(reply, start)
        first = opening.end() if opening else start
        return Action(name, arguments, first, reply.rindex("}", first, end - 1) + 1)
    opening = _ARGUMENTS_FIRST.match(reply, start)
    first = opening.end() if opening else start
    return Action(name, arguments, first, value_end(reply, first))


def _extra_keys(keys: list[str]) -> str:
    shown = ", ".join(quoted(key, 24) for key in keys[:6])
    more = f" and {len(keys) - 6} more" if len(keys) > 6 else ""
    return f'only "name" and "arguments" may stand at the top level, not {shown}{more}'


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return "an array"
        case _:
            return "an object"
