"""Which words of a git setting can name a file that git runs or reads settings from.

Pure. Git has some hundred settings that name a program, and more are added; so it is told here which name
none, and any other counts. A word that only might be a path costs little: it is kept where a file is there.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from functools import lru_cache

from msgspec import Struct

DATA_SECTIONS = frozenset(
    {
        *("user", "author", "committer", "branch", "url", "color", "safe", "extensions", "advice", "column"),
        *("i18n", "http", "format", "fetch", "push", "pull", "gui", "maintenance", "scalar", "transfer"),
    }
)
"""Sections whose values are names, addresses and choices."""

DATA = frozenset(
    {
        *("core.worktree", "core.excludesfile", "core.attributesfile", "commit.template"),
        *("blame.ignorerevsfile", "mailmap.file", "core.commentchar", "core.whitespace"),
    }
)
"""Settings whose value is a path, or looks like one, of what is neither run nor read for settings."""

ONLY = {"remote": ("uploadpack", "receivepack"), "submodule": ("update",)}
"""Of these sections, what may name a program; all else in them is data."""

FOLDERS = frozenset({"core.hookspath", "init.templatedir", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR"})
"""Settings, and variables of the environment, that name a folder of programs."""

LONGEST_WORD = 4096

_EXPANSION = re.compile(r"\$\([^()]*\)|`[^`]*`|\$\{[^}]*\}|\$\w+")
_HOME = re.compile(r"\$HOME\b|\$\{HOME\}")
_BREAK = re.compile(r":[-=+?]?|[\s;|&()<>{}'\"`=!]+")
_END = re.compile(r"[;|&\n]+")
_ENTERED = re.compile(r"""(?:^|[\s;|&(])(?:cd|pushd|-C)\s+(?:"([^"]*)"|'([^']*)'|([^\s;|&)]+))""")
_LIKE_A_FILE = re.compile(r"[\w-][\w.-]*\.[A-Za-z]{1,4}")
_REST = "\0"


class Words(Struct, frozen=True):
    """What a value may name: `paths` whether something is there or not, `names` where a file is there."""

    paths: tuple[str, ...]
    names: tuple[str, ...]


@lru_cache(maxsize=4096)
def words_of(key: str, value: str) -> Words:
    """The words of a setting that can name a file, as paths relative to wherever it is run.

    The key is spelled as git lists it. `~` and `$HOME` stand for themselves at the start of a word.
    """
    section, _, rest = key.partition(".")
    name = rest.rpartition(".")[2]
    if section in DATA_SECTIONS or key in DATA or name not in ONLY.get(section, (name,)):
        return Words((), ())
    if section == "alias" and not value.startswith(("!", "-")):
        return Words((), ())
    if key in FOLDERS:
        return Words((value,) if value else (), ())
    line = value.removeprefix("!")
    # What comes behind a command of git's is another command.
    found = [_words_of_a_command(part) for part in dict.fromkeys((line, *_END.split(line)))]
    paths = dict.fromkeys(path for words in found for path in words.paths)
    names = dict.fromkeys(name for words in found for name in words.names)
    entered = _entered(line)
    return Words((*paths, *_below(entered, paths)), (*names, *_below(entered, names)))


def _entered(line: str) -> list[str]:
    """The folders that a command line goes to before it runs something."""
    goals = (next(filter(None, match.groups()), "") for match in _ENTERED.finditer(_expanded(line)))
    return [word for goal in goals for word in _spelled(goal) if word]


def _below(folders: Iterable[str], words: Iterable[str]) -> list[str]:
    return [f"{folder}/{word}" for folder in folders for word in words if not word.startswith(("/", "~"))]


def _expanded(line: str) -> str:
    """A command line with a mark in the place of each expansion, those that hold others too."""
    text = _HOME.sub("~", line)
    while (inner := _EXPANSION.sub(_REST, text)) != text:
        text = inner
    return text


def _words_of_a_command(value: str) -> Words:
    at_home = _HOME.sub("~", value)
    variants = [list(_split(text)) for text in (value, at_home, _expanded(value))]
    first = {words[0] for words in variants if words} | {value.strip()}
    words = dict.fromkeys(
        spelled
        for word in (value.strip(), *(word for several in variants for word in several))
        for spelled in _spelled(word)
    )
    fit = [word for word in words if word and len(word) <= LONGEST_WORD]
    # What follows git are names of git's own, but for what is plainly a path.
    git = any(re.fullmatch(r"(?:.*/)?git(?:-\S*)?", word) for word in first)
    bare = [word for word in fit if "/" not in word and word not in first and not git]
    return Words(
        (
            *(word for word in fit if "/" in word),
            *(word for word in bare if _LIKE_A_FILE.fullmatch(word)),
        ),
        tuple(bare),
    )


def _split(text: str) -> Iterator[str]:
    """The words of a command line, and the words in those; quotes that don't end are taken as text."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    for word in words:
        yield word
        yield from (piece for piece in _BREAK.split(word) if piece and piece != word)


def _spelled(word: str) -> Iterator[str]:
    """A word, and what is left of it behind an expansion or an option's letter."""
    rest = word.rpartition(_REST)[2]
    if _REST in word:
        # An expansion is mostly the top folder, so what follows is a path from there.
        yield f"./{rest.lstrip('/')}" if rest.startswith("/") and rest.strip("/") else ""
        return
    yield word
    if re.match(r"-[A-Za-z]\S", word):
        yield word[2:]
