"""What reaches a terminal: text made visible, never interpreted."""

import os
import sys
from pathlib import Path

import click

from stepfold.events.store import is_postgresql


def visible(text: str) -> str:
    """The text with all that can't be printed as escapes; LF and tab stay.

    Model replies and tool output are untrusted: an escape sequence in them must not move the cursor,
    colour the screen or hide what stands before it.
    """
    # By lines, for a transcript has megabytes of them, and nearly all can be printed as they are.
    return "\n".join("\t".join(map(visible_line, line.split("\t"))) for line in text.split("\n"))


def visible_line(text: str) -> str:
    """The same for what has to stay on one line: a cell of a table, a message."""
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text)


def say(text: str = "", **style: object) -> None:
    """A line for people, on stdout; coloured only on a terminal."""
    click.echo(click.style(visible(text), **style) if style else visible(text))  # type: ignore[arg-type]


def note(text: str = "", **style: object) -> None:
    """A line for people, on stderr."""
    click.echo(click.style(visible(text), **style) if style else visible(text), err=True)  # type: ignore[arg-type]


def counted(number: int, one: str, many: str) -> str:
    """A number with its noun."""
    return f"{number} {one if number == 1 else many}"


def raw(data: bytes) -> None:
    """Bytes, exactly, on stdout; on a terminal, which would obey some of them, with those made visible.

    JSON escapes the controls of ASCII and no others: U+009B begins an escape sequence, U+202E turns a line.
    """
    if sys.stdout.isatty():
        click.echo(visible(data.decode("utf-8", "backslashreplace")), nl=False)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def store_address(store: str | None, project: Path | None = None) -> Path | str:
    """`--store`, else STEPFOLD_STORE, else `.stepfold` in the project; a str for what is no folder.

    A URL may hold a password, so it is never printed: `open_store(…).name` is.
    """
    named = store or os.environ.get("STEPFOLD_STORE", "")
    if is_postgresql(named):
        return named
    return Path(named) if named else (project or Path()) / ".stepfold"
