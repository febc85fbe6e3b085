"""What is taken from a file's values: texts, counts and times, of whatever type the file has there."""

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

MOST = 2**53
"""Counts from here on are not counts."""


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """The value if it is an array, else an empty one."""
    return value if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """A text as it is, nothing for null, and anything else as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError, TypeError):
        return str(type(value).__name__)


def content_of(value: Any) -> str:
    """The text of a message's content: a text, or blocks of which those of text count."""
    if isinstance(value, list):
        return "".join(_texts(value))
    return text_of(value)


def _texts(blocks: list[Any]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, str):
            yield block
        elif isinstance(block, dict) and block.get("type", "text") in ("text", "input_text", "output_text"):
            yield text_of(block.get("text"))


def count_of(value: Any) -> int:
    """A count of tokens; 0 for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MOST:
        return 0
    return int(value)


def amount_of(value: Any) -> float:
    """A sum of money; 0 for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MOST:
        return 0.0
    return float(value)


def time_of(value: Any) -> str:
    """A time of the file in the form of our events, empty for what is none. Seconds since 1970, or ISO.

    A time without a zone is taken as it stands: the file doesn't say which one it means.
    """
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            moment = datetime.fromtimestamp(value, UTC)
        else:
            return ""
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC)
        return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    except (ValueError, OverflowError, OSError):
        return ""
