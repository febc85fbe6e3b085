"""A run as a script of moves: what the world does next, as data that can be saved, replayed and shrunk.

A move that fits nothing (an answer where nobody asks) does nothing, so any part of a script is a script.
"""

import json
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from stepfold.events.configuration import GoalConfig, HarnessConfig


class Move(Struct, frozen=True, omit_defaults=True):
    """One thing that the world does.

    `deed` is `say`, `call`, `err`, `land`, `fail`, `cancel`, `answer`, `jump`, `late`, `die` or `steer`;
    `text` and `number` belong to it, `which` picks among the effects in flight, and `expected` holds the
    errors that may answer a reply ("" for: it is an action), where that is known.
    """

    deed: str
    text: str = ""
    number: int = 0
    which: int = 0
    expected: tuple[str, ...] = ()


class Script(Struct, frozen=True, omit_defaults=True):
    """A configuration and what the world does under it."""

    config: GoalConfig | HarnessConfig
    moves: tuple[Move, ...] = ()


def as_json(value: Any) -> str:
    """Any case of the kit as JSON; halves of surrogate pairs, which models say too, stand as escapes."""
    return json.dumps(_plain(value), ensure_ascii=True, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return {
            **(
                {value.__struct_config__.tag_field: value.__struct_config__.tag}
                if value.__struct_config__.tag
                else {}
            ),
            **{
                name: _plain(getattr(value, name))
                for name in value.__struct_fields__
                if not _is_default(value, name)
            },
        }
    if isinstance(value, msgspec.Raw):
        return json.loads(bytes(value))
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, (tuple, list)) else value


def _is_default(value: Struct, name: str) -> bool:
    default = _defaults(type(value))[name]
    return default is not msgspec.NODEFAULT and bool(getattr(value, name) == default)


@cache
def _defaults(shape: type[Struct]) -> dict[str, Any]:
    """By field. Asked once a shape: `fields` evaluates every type hint anew."""
    return {field.name: field.default for field in msgspec.structs.fields(shape)}


def script_from(case: Any) -> Script:
    """Read a script as `as_json` wrote it. Raises msgspec.ValidationError."""
    moves = tuple(msgspec.convert(move, Move) for move in case.get("moves", ()))
    config: Any = msgspec.json.decode(
        json.dumps(case["config"], separators=(",", ":")).encode(), type=GoalConfig | HarnessConfig
    )
    return Script(config, moves)
