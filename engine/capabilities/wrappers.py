"""Commands that run other commands: which ones, and where in their words the other command stands.

Pure. `unwrap` answers one layer; the policy asks again for what it gets.
"""

import re
from collections.abc import Callable, Mapping

from msgspec import Struct

from stepfold.engine.capabilities.commandline import Command, Unreadable, Word, read_commands

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "rbash"})

KEYWORDS = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "{", "time"})
"""Words after which a command begins."""

CLOSERS = frozenset({"fi", "done", "esac", "}"})
HEADS = frozenset({"for", "select", "case"})
"""Words that open a head in which nothing runs; what its substitutions run is read on its own."""

DEFINES = frozenset({"function", "coproc", "alias"})
"""Words after which a name runs what stands elsewhere: an allowed name could then be anything."""

ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^]]*\])?\+?=")
"""A word in front of a command that sets a variable."""

_ENVIRONMENT_WORD = re.compile(r"[^-=][^=]*=")
"""What `env` takes as a variable: any name, `BASH_FUNC_ls%%` for instance."""


class Wrapper(Struct, frozen=True):
    """How a wrapping command is called: options that take a value, and operands before the command."""

    valued: frozenset[str] = frozenset()
    operands: int = 0
    assignments: bool = False


def _valued(*options: str) -> frozenset[str]:
    return frozenset(options)


WRAPPERS: Mapping[str, Wrapper] = {
    "env": Wrapper(_valued("-u", "--unset", "-C", "--chdir"), assignments=True),
    "sudo": Wrapper(
        _valued(
            "-u", "-g", "-h", "-p", "-C", "-T", "-r", "-t", "-U", "-D", "-R", "--user", "--group", "--chdir"
        ),
        assignments=True,
    ),
    "doas": Wrapper(_valued("-u", "-C")),
    "nohup": Wrapper(),
    "setsid": Wrapper(),
    "nice": Wrapper(_valued("-n", "--adjustment")),
    "ionice": Wrapper(_valued("-c", "-n", "--class", "--classdata")),
    "chrt": Wrapper(operands=1),
    "taskset": Wrapper(operands=1),
    "time": Wrapper(_valued("-f", "-o", "--format", "--output")),
    "timeout": Wrapper(_valued("-s", "-k", "--signal", "--kill-after"), operands=1),
    "stdbuf": Wrapper(_valued("-i", "-o", "-e", "--input", "--output", "--error")),
    "xargs": Wrapper(
        _valued(
            "-I",
            "-n",
            "-P",
            "-L",
            "-d",
            "-E",
            "-s",
            "-a",
            "--max-args",
            "--max-procs",
            "--delimiter",
            "--arg-file",
        )
    ),
    "parallel": Wrapper(_valued("-j", "--jobs", "-n", "-I", "-a")),
    "watch": Wrapper(_valued("-n", "--interval")),
    "flock": Wrapper(_valued("-w", "-E", "--timeout"), operands=1),
    "chroot": Wrapper(_valued("--userspec", "--groups"), operands=1),
    "strace": Wrapper(_valued("-e", "-o", "-s", "-p", "-u", "-E")),
    "unshare": Wrapper(_valued("-S", "-G", "-R", "-w")),
    "busybox": Wrapper(),
    "toybox": Wrapper(),
    "command": Wrapper(),
    "builtin": Wrapper(),
    "exec": Wrapper(_valued("-a")),
    "caffeinate": Wrapper(_valued("-t", "-w")),
    "proxychains": Wrapper(_valued("-f")),
    "prlimit": Wrapper(),
    "setpriv": Wrapper(),
    "setarch": Wrapper(operands=1),
    "linux32": Wrapper(),
    "linux64": Wrapper(),
    "runuser": Wrapper(_valued("-u", "-g", "-G", "-s"), operands=1),
    "su": Wrapper(_valued("-s", "-g", "-G"), operands=1),
    "script": Wrapper(_valued("-t"), operands=1),
}

_NEVER = re.compile("(?!)")
_JOINED_C = re.compile(r"-[A-Za-bd-z]+c")
_HOLDS_A_COMMAND = {
    "env": re.compile(r"-[A-RT-Za-z0]+S"),
    "script": _JOINED_C,
    "su": _JOINED_C,
    "runuser": _JOINED_C,
}
"""Joined options of which the last takes a whole command as its text."""

_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FIND_ENDS = frozenset({";", "+"})


def program(word: Word) -> str:
    """The name of a program without its folder, however it is written."""
    return word.text.rstrip("/").rpartition("/")[2]


def trimmed(command: Command) -> Command:
    """The command without the keywords and assignments in front of it; empty when nothing would run."""
    words = command
    while words:
        first = words[0]
        if first.text in DEFINES:
            raise Unreadable("a command that is defined under another name")
        if first.text in HEADS:
            return ()
        if first.text in CLOSERS or first.text in KEYWORDS or ASSIGNMENT.match(first.text):
            words = words[1:]
            continue
        break
    return words


def doubtful_rests(command: Command) -> list[Command]:
    """Every tail of a wrapping command, each of which its options may make the command that it runs.

    Earned by joined options (`timeout -vk 5 10 rm x`), which no table of options reads right for all
    versions of a program. A denial takes the doubt; nothing is allowed because of it. Raises Unreadable
    where a word of joined options holds a command as its text (`env -iS'rm x'`).
    """
    name = program(command[0])
    if name not in WRAPPERS:
        return []
    for word in command[1:]:
        if _HOLDS_A_COMMAND.get(name, _NEVER).match(word.text):
            raise Unreadable(f"options of {name} that hold a command")
    return [command[at:] for at in range(1, len(command)) if not command[at].opaque]


def unwrap(command: Command, depth: int) -> list[Command]:
    """The commands that `command` would run in turn; none when it is no wrapper.

    Raises Unreadable where a wrapper's command can't be known: a shell that reads its input.
    """
    name = program(command[0])
    if name in SHELLS:
        return _of_shell(command, depth)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(command, depth)
    wrapper = WRAPPERS.get(name)
    return behind(command, wrapper) if wrapper is not None else []


def _of_shell(command: Command, depth: int) -> list[Command]:
    """`sh -c TEXT` runs the text; `sh FILE` runs a file that nobody has read; `sh` alone its input."""
    place = 1
    while place < len(command):
        text = command[place].text
        if text in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file"):
            place += 2
        elif text == "-c" or (text.startswith("-") and not text.startswith("--") and "c" in text[1:]):
            return _text_at(command, _first_operand(command, place + 1), depth)
        elif text.startswith(("-", "+")) and "s" not in text.lstrip("-+")[:1] and text != "-":
            place += 1
        elif text.startswith("-"):
            raise Unreadable("a shell that reads its commands from its input")
        else:
            return []
    raise Unreadable("a shell that reads its commands from its input")


def _first_operand(command: Command, place: int) -> int:
    while place < len(command) and command[place].text.startswith(("-", "+")):
        place += 1
    return place


def _text_at(command: Command, place: int, depth: int) -> list[Command]:
    if place >= len(command):
        return []
    if command[place].opaque:
        raise Unreadable("a shell text that is computed")
    return read_commands(command[place].text, depth + 1)


def _of_eval(command: Command, depth: int) -> list[Command]:
    if any(word.opaque for word in command[1:]):
        raise Unreadable("an eval of a computed text")
    return read_commands(" ".join(word.text for word in command[1:]), depth + 1)


def _of_trap(command: Command, depth: int) -> list[Command]:
    return _text_at(command, _first_operand(command, 1), depth)


def _of_find(command: Command, depth: int) -> list[Command]:
    found: list[Command] = []
    words = list(command)
    while True:
        start = next((place for place, word in enumerate(words) if word.text in _FIND_RUNS), None)
        if start is None:
            return found
        rest = words[start + 1 :]
        end = next((place for place, word in enumerate(rest) if word.text in _FIND_ENDS), len(rest))
        if end:
            found.append(tuple(rest[:end]))
        words = rest[end:]


def _of_env(command: Command, depth: int) -> list[Command]:
    """As any wrapper, but `env -S TEXT` splits its text into words."""
    for place, word in enumerate(command[1:], 1):
        for option in ("-S", "--split-string="):
            if word.text == option:
                return _text_at(command, place + 1, depth)
            if word.text.startswith(option):
                return read_commands(word.text[len(option) :], depth + 1)
    return behind(command, WRAPPERS["env"])


def _with_text_option(command: Command, depth: int) -> list[Command]:
    """`su -c TEXT`, `script -c TEXT`, `flock FILE -c TEXT`, `watch TEXT`: a text, or words behind."""
    texts = [place + 1 for place, word in enumerate(command) if word.text in ("-c", "--command")]
    if texts:
        return _text_at(command, texts[0], depth)
    return [
        inner
        for part in behind(command, WRAPPERS[program(command[0])])
        for inner in (
            read_commands(part[0].text, depth + 1) if len(part) == 1 and not part[0].opaque else [part]
        )
    ]


def _with_input(command: Command, depth: int) -> list[Command]:
    """`xargs` and `parallel` add words that nobody has read yet, or put them in the place of a mark."""
    mark = _replaced(command)
    return [
        (
            *(Word(word.text, word.opaque or (bool(mark) and mark in word.text), word.glob) for word in part),
            Word("", opaque=True),
        )
        for part in behind(command, WRAPPERS[program(command[0])])
    ]


def _replaced(command: Command) -> str:
    """The text that `xargs -I TEXT` puts its input in the place of; empty when it does not."""
    for place, word in enumerate(command[1:], 1):
        text = word.text
        if text == "-I":
            return command[place + 1].text if place + 1 < len(command) else ""
        if text.startswith("-I"):
            return text[2:]
        if text.startswith("--replace"):
            return text.partition("=")[2] or "{}"
        if text.startswith("-i"):
            return text[2:] or "{}"
    return "{}" if program(command[0]) == "parallel" else ""


_SPECIAL: Mapping[str, Callable[[Command, int], list[Command]]] = {
    "eval": _of_eval,
    "trap": _of_trap,
    "find": _of_find,
    "env": _of_env,
    "su": _with_text_option,
    "script": _with_text_option,
    "flock": _with_text_option,
    "watch": _with_text_option,
    "parallel": _with_input,
    "xargs": _with_input,
}


def behind(command: Command, wrapper: Wrapper) -> list[Command]:
    """The words that follow a wrapper's options and operands."""
    place = 1
    operands = wrapper.operands
    while place < len(command):
        text = command[place].text
        if text in wrapper.valued:
            place += 2
        elif text.startswith("-") or (wrapper.assignments and _ENVIRONMENT_WORD.match(text)):
            place += 1
        elif operands:
            operands -= 1
            place += 1
        else:
            return [command[place:]]
    return []
