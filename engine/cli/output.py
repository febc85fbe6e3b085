"""What reaches a terminal: text made visible, never interpreted."""

import os
import re
import sys
from pathlib import Path

import click

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufdd0\ufeff]"
)


def visible(text: str) -> str:
    """The text with control, bidirectional and invisible characters as escapes; LF and tab stay.

    Model replies and tool output are untrusted: an escape sequence in them must not move the cursor,
    colour the screen or hide what stands before it.
    """
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def say(text: str = "", **style: object) -> None:
    """A line for people, on stdout; coloured only on a terminal."""
    click.echo(click.style(visible(text), **style) if style else visible(text))  # type: ignore[arg-type]


def note(text: str = "", **style: object) -> None:
    """A line for people, on stderr."""
    click.echo(click.style(visible(text), **style) if style else visible(text), err=True)  # type: ignore[arg-type]


def raw(data: bytes) -> None:
    """Bytes, exactly, on stdout."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def store_folder(store: str | None, project: Path | None = None) -> Path:
    """`--store`, else STEPFOLD_STORE, else `.stepfold` in the project."""
    named = store or os.environ.get("STEPFOLD_STORE", "")
    return Path(named) if named else (project or Path()) / ".stepfold"
