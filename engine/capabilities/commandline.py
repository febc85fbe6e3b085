"""Reading a shell command line: which simple commands it would run, as words, whatever wraps them.

Pure. The reading is made for judging, not for running: where a shell would compute something, the
word is marked opaque, and what can't be read at all raises `Unreadable` (caught by the policy).
"""

import re

from msgspec import Struct

DEPTH_LIMIT = 12
LEVEL_LIMIT = 40
LENGTH_LIMIT = 100_000

_BREAKS = frozenset(";&|\n()")
_BLANKS = frozenset(" \t")
_CONTROL = re.compile(r"[\x01-\x08\x0b-\x1f\x7f]")
_DEFINES = re.compile(r"\(\s*\)")


class Unreadable(Exception):
    """The command line can't be told apart into commands; the text says what stands in the way."""


class Word(Struct, frozen=True):
    """One word, quotes removed. `opaque`: the shell would put something else in its place.

    `glob`: it would put the names of files in its place, those that fit.
    """

    text: str
    opaque: bool = False
    glob: bool = False


Command = tuple[Word, ...]


def read_commands(line: str, depth: int = 0) -> list[Command]:
    """Every simple command of `line` in order, those inside substitutions and here-documents too.

    Redirections and comments are left out; a pipe, a list, a subshell or a block is taken apart.
    Raises Unreadable: open quotes or brackets, a NUL, more than 12 levels, over 100,000 characters.
    """
    if len(line) > LENGTH_LIMIT:
        raise Unreadable("a command line that is too long")
    if "\0" in line:
        raise Unreadable("a NUL character")
    if _CONTROL.search(line):
        # A carriage return is a blank to the eye, and a plain character to the shell.
        raise Unreadable("a control character")
    reader = _Reader(line, depth)
    reader.read()
    return reader.commands


class _Reader:
    """One pass over the text, left to right, with the position as its state."""

    def __init__(self, text: str, depth: int) -> None:
        if depth > DEPTH_LIMIT:
            raise Unreadable("commands nested too deeply")
        self.text = text
        self.depth = depth
        self.place = 0
        self.level = 0
        self.commands: list[Command] = []
        self.current: list[Word] = []
        self.documents: list[tuple[str, bool]] = []

    def read(self) -> None:
        while self.place < len(self.text):
            character = self.text[self.place]
            if character in _BLANKS:
                self.place += 1
            elif character == "#":
                self.skip_to_line_end()
            elif self.text.startswith(("<(", ">("), self.place):
                self.current.append(self.word())
            elif character in "<>" or self.text.startswith("&>", self.place):
                self.redirection()
            elif character == "(" and self.current and _DEFINES.match(self.text, self.place):
                raise Unreadable("a function definition")
            elif character in _BREAKS:
                self.close_command()
                self.place += 1
                if character == "\n":
                    self.skip_documents()
            else:
                self.word_or_descriptor()
        self.close_command()
        if self.documents:
            raise Unreadable("a here-document without its end")

    def close_command(self) -> None:
        if self.current:
            self.commands.append(tuple(self.current))
            self.current = []

    def skip_to_line_end(self) -> None:
        end = self.text.find("\n", self.place)
        self.place = len(self.text) if end < 0 else end

    def word_or_descriptor(self) -> None:
        """A word, unless it is the number in front of a redirection (`2>file`)."""
        word = self.word()
        next_one = self.text[self.place : self.place + 1]
        if word.text.isdigit() and next_one and next_one in "<>":
            return
        self.current.append(word)

    def redirection(self) -> None:
        start = self.place
        while self.place < len(self.text) and self.text[self.place] in "<>&|-":
            self.place += 1
        operator = self.text[start : self.place]
        while self.place < len(self.text) and self.text[self.place] in _BLANKS:
            self.place += 1
        if self.place >= len(self.text) or self.text[self.place] in _BREAKS:
            if operator.endswith("-"):
                return
            raise Unreadable("a redirection without a target")
        target_starts = self.place
        target = self.word()
        if operator in ("<<", "<<-"):
            raw = self.text[target_starts : self.place]
            if target.opaque:
                raise Unreadable("a here-document whose end is computed")
            self.documents.append((target.text, not any(mark in raw for mark in "'\"\\")))

    def skip_documents(self) -> None:
        for delimiter, expands in self.documents:
            body: list[str] = []
            while True:
                if self.place >= len(self.text):
                    raise Unreadable("a here-document without its end")
                end = self.text.find("\n", self.place)
                end = len(self.text) if end < 0 else end
                line = self.text[self.place : end]
                self.place = end + 1
                if line.lstrip("\t") == delimiter:
                    break
                body.append(line)
            if expands:
                self.inside("\n".join(body))
        self.documents = []
        self.place = min(self.place, len(self.text))

    def inside(self, text: str) -> None:
        """Text that is expanded and not run, as between double quotes."""
        nested = _Reader(text, self.depth + 1)
        while nested.place < len(text):
            if text[nested.place] == "\\":
                nested.place += 2
            elif text[nested.place] in "$`":
                nested.expansion()
            else:
                nested.place += 1
        self.commands.extend(nested.commands)

    def word(self) -> Word:
        pieces: list[str] = []
        opaque = glob = False
        while self.place < len(self.text):
            character = self.text[self.place]
            if self.text.startswith(("<(", ">("), self.place):
                self.place += 1
                self.commands.extend(read_commands(self.bracketed(), self.depth + 1))
                opaque = True
            elif character in _BLANKS or character in _BREAKS or character in "<>":
                break
            elif character == "\\":
                pieces.append(self.escaped())
            elif character == "'":
                pieces.append(self.until_quote())
            elif character == '"':
                text, computed = self.double_quoted()
                pieces.append(text)
                opaque = opaque or computed
            elif character in "$`":
                opaque = True
                self.expansion()
            else:
                opaque = opaque or character == "{"
                glob = glob or character in "*?["
                pieces.append(character)
                self.place += 1
        return Word("".join(pieces), opaque and pieces not in (["{"], ["{", "}"]), glob)

    def escaped(self) -> str:
        pair = self.text[self.place : self.place + 2]
        self.place += 2
        if len(pair) < 2:
            raise Unreadable("a backslash at the end")
        return "" if pair[1] == "\n" else pair[1]

    def until_quote(self) -> str:
        end = self.text.find("'", self.place + 1)
        if end < 0:
            raise Unreadable("an open quote")
        text = self.text[self.place + 1 : end]
        self.place = end + 1
        return text

    def double_quoted(self) -> tuple[str, bool]:
        pieces: list[str] = []
        computed = False
        self.place += 1
        while self.place < len(self.text):
            character = self.text[self.place]
            if character == '"':
                self.place += 1
                return "".join(pieces), computed
            if character == "\\":
                pair = self.text[self.place : self.place + 2]
                pieces.append("" if pair == "\\\n" else pair[1:] if pair[1:] in '$`"\\' else pair)
                self.place += 2
            elif character in "$`":
                computed = self.expansion() or computed
            else:
                pieces.append(character)
                self.place += 1
        raise Unreadable("an open quote")

    def expansion(self) -> bool:
        """Go past a `$…` or a back-quoted command, reading the commands that it would run."""
        if self.text[self.place] == "`":
            self.back_quoted()
            return True
        self.place += 1
        follows = self.text[self.place : self.place + 1]
        if follows == "(":
            content = self.bracketed()
            if _is_arithmetic(content):
                self.inside(content)
            else:
                self.commands.extend(read_commands(content, self.depth + 1))
        elif follows == "{":
            self.inside(self.braced())
        elif follows == "'":
            self.ansi_quoted()
        elif follows in ("", " ", '"'):
            return False
        elif follows.isalnum() or follows in "_@*#?$!-":
            self.place += 1
            while self.text[self.place : self.place + 1].isalnum() or self.text.startswith("_", self.place):
                self.place += 1
        return True

    def back_quoted(self) -> None:
        start = self.place + 1
        self.place = start
        while self.place < len(self.text) and self.text[self.place] != "`":
            self.place += 2 if self.text[self.place] == "\\" else 1
        if self.place >= len(self.text):
            raise Unreadable("an open back quote")
        content = self.text[start : self.place].replace("\\`", "`").replace("\\\\", "\\").replace("\\$", "$")
        self.place += 1
        self.commands.extend(read_commands(content, self.depth + 1))

    def ansi_quoted(self) -> None:
        self.place += 1
        while self.place < len(self.text) and self.text[self.place] != "'":
            self.place += 2 if self.text[self.place] == "\\" else 1
        if self.place >= len(self.text):
            raise Unreadable("an open quote")
        self.place += 1

    def bracketed(self) -> str:
        return self.enclosed("(", ")")

    def braced(self) -> str:
        return self.enclosed("{", "}")

    def enclosed(self, opening: str, closing: str) -> str:
        """What stands between brackets, quotes inside respected; the position ends behind them."""
        start = self.place + 1
        level = 0
        while self.place < len(self.text):
            character = self.text[self.place]
            if character == "\\":
                self.place += 2
                continue
            if character == "'":
                self.until_quote()
                continue
            if character == '"':
                self.skip_double_quoted()
                continue
            level += (character == opening) - (character == closing)
            self.place += 1
            if level == 0:
                return self.text[start : self.place - 1]
        raise Unreadable("an open bracket")

    def skip_double_quoted(self) -> None:
        """Past a double-quoted text, without reading its commands: they are read with the content."""
        self.level += 1
        if self.level > LEVEL_LIMIT:
            raise Unreadable("quotes nested too deeply")
        self.place += 1
        while self.place < len(self.text):
            character = self.text[self.place]
            if character == '"':
                self.place += 1
                self.level -= 1
                return
            if self.text.startswith(("$(", "${"), self.place):
                self.place += 1
                opening = self.text[self.place]
                self.enclosed(opening, ")" if opening == "(" else "}")
            else:
                self.place += 2 if character == "\\" else 1
        raise Unreadable("an open quote")


def _is_arithmetic(content: str) -> bool:
    """Whether `$(…)` with this content is `$((…))`: the outer brackets close only at the end."""
    if not (content.startswith("(") and content.endswith(")")):
        return False
    level = 0
    for character in content[1:-1]:
        level += (character == "(") - (character == ")")
        if level < 0:
            return False
    return level == 0
