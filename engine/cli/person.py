"""The person at the other end of a chat: a terminal, or a pipe. What they type, and their yes or no."""

import asyncio
import os
import sys
import termios
from contextlib import suppress

import click

from stepfold.engine.cli.output import visible_line
from stepfold.events.vocabulary import BLANK, ApprovalAnswered
from stepfold.projections.effects import AskApproval

YES = frozenset({"y", "yes"})


class Person:
    """Reads lines from standard input: with history and editing where that is a terminal.

    A pipe is read by this object alone, so that a line which answers a question is not swallowed by a
    buffer.
    """

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self.on_a_terminal = sys.stdin.isatty()
        self._pending = b""
        self._ended = False
        if self.on_a_terminal:
            with suppress(ImportError):
                # Importing it is what gives `input` its history.
                import readline  # noqa: F401

    def next_line(self) -> str | None:
        """The next line, None at the end of input. Raises KeyboardInterrupt."""
        if not self.on_a_terminal:
            return self._from_pipe()
        try:
            return input("> ")
        except EOFError:
            click.echo()
            return None

    async def approve(self, effect: AskApproval) -> ApprovalAnswered:
        """Ask whether a call may run; whatever is no clear yes is a no. Cancelled with the turn."""
        shown = visible_line(effect.arguments.decode("utf-8", "replace"))
        rule = visible_line(effect.rule)
        self._forget_what_was_typed_ahead()
        click.echo(f"{visible_line(effect.name)} {shown}\nallow it? (rule {rule!r}) [y/N] ", nl=False)
        sys.stdout.flush()
        line = await self._answer()
        if not self.on_a_terminal:
            click.echo()
        said = (line or "").strip()
        if said.lower() in YES:
            return ApprovalAnswered(*BLANK, approved=True)
        return ApprovalAnswered(*BLANK, approved=False, text="" if said.lower() in {"n", "no"} else said)

    def _forget_what_was_typed_ahead(self) -> None:
        """Nobody can say yes to what they have not seen; a pipe has no eyes, and its lines are in order."""
        if self.on_a_terminal:
            termios.tcflush(self._input, termios.TCIFLUSH)
            self._pending = b""

    async def _answer(self) -> str | None:
        loop = asyncio.get_running_loop()
        while b"\n" not in self._pending and not self._ended:
            arrived = asyncio.Event()
            try:
                loop.add_reader(self._input, arrived.set)
            except OSError:
                # A file is always readable, and not to be waited for.
                self._read()
                continue
            try:
                await arrived.wait()
            finally:
                loop.remove_reader(self._input)
            self._read()
        return self._taken()

    def _from_pipe(self) -> str | None:
        while b"\n" not in self._pending and not self._ended:
            self._read()
        return self._taken()

    def _read(self) -> None:
        piece = os.read(self._input, 65536)
        self._pending += piece
        # On a terminal, one end of input is an answer, and the next read may bring a line again.
        self._ended = not piece

    def _taken(self) -> str | None:
        line, found, rest = self._pending.partition(b"\n")
        self._pending = rest
        if self.on_a_terminal:
            self._ended = False
        return line.decode("utf-8", "replace") if line or found else None
