"""The pages as a reader uses them: which blocks they hold, and what a shell makes of each."""

import os
import re
import subprocess
import sys
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parents[2]
PAGES = tuple(page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if page.exists())

_FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ELLIPSIS = "…"


class Block(Struct, frozen=True):
    """A fenced block: its language, its text, and the line of the page it begins at."""

    language: str
    text: str
    line: int


class Typed(Struct, frozen=True):
    """A command of a `console` block, and the output that the page shows for it."""

    command: str
    shown: str


def blocks_of(page: Path) -> list[Block]:
    """All fenced blocks of a page that name a language."""
    text = page.read_text()
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start()) + 1) for found in _FENCE.finditer(text)
    ]


def typed_in(block: Block) -> list[Typed]:
    """The commands of a `console` block: `$ ` begins one, `> ` goes on with it, the rest is its output."""
    typed: list[tuple[list[str], list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            typed.append(([line[2:]], []))
        elif (line.startswith("> ") or line == ">") and not typed[-1][1]:
            typed[-1][0].append(line[2:])
        else:
            typed[-1][1].append(line)
    return [Typed("\n".join(command), "\n".join(shown)) for command, shown in typed]


class Shell:
    """A folder in which a page is played from top to bottom; `cd` lasts from one command to the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mark = folder / ".where"
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("STEPFOLD_", "OPENAI_"))
        }
        self._environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.here = folder / "reader"
        self.here.mkdir()

    def type(self, command: str) -> tuple[int, str]:
        """Run a command as bash does; its exit code, and both streams in the order they came."""
        text = f"{command}\ncode=$?; pwd > {self._mark}; exit $code"
        ended = self._start(["bash", "-c", text])
        self.here = Path(self._mark.read_text().strip())
        return ended.returncode, ended.stdout

    def python(self, text: str) -> tuple[int, str]:
        """Run a Python program in the folder where the reader is."""
        ended = self._start([sys.executable, "-c", text])
        return ended.returncode, ended.stdout

    def _start(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.here,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def agrees(shown: str, came: str) -> bool:
    """Whether an output is the one that a page shows, where `…` stands for anything at all."""
    parts = [re.escape(part) for part in shown.rstrip().split(_ELLIPSIS)]
    return re.fullmatch("(?s:.*?)".join(parts), _unpadded(came)) is not None


def _unpadded(text: str) -> str:
    """Without white space at the ends of lines, which no page can show."""
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())
