"""What an allow rule does not vouch for, though its words match: other files of a name, and settings.

Pure. An allow rule names a program, and with it what a standard system runs under that name. A file
of that name elsewhere, a variable that puts other code in its place, and a wrapper that can run more
than the command behind it are none of it. Deny rules know nothing of this: they match any spelling.
"""

import re
from fnmatch import fnmatchcase

from stepfold.engine.capabilities.commandline import Command, Word
from stepfold.engine.capabilities.wrappers import (
    ASSIGNMENT,
    CLOSERS,
    KEYWORDS,
    SHELLS,
    WRAPPERS,
    behind,
    program,
)

SYSTEM_FOLDERS = ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin")
"""Where an absolute path is the program that its bare name stands for."""

TRANSPARENT = frozenset(
    {
        *("env", "nohup", "setsid", "nice", "ionice", "time", "timeout", "stdbuf", "xargs"),
        *("command", "builtin", "exec", "eval", "trap", "taskset", "chrt"),
        *(SHELLS - {"fish", "rbash"}),
    }
)
"""Wrappers that need no rule of their own. The others can change root, user or file, or run a text."""

GOVERNING = frozenset(
    {
        *("PATH", "ENV", "IFS", "HOME", "CDPATH", "FPATH", "ZDOTDIR", "SHELLOPTS", "BASHOPTS", "GLOBIGNORE"),
        *("PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS3", "PS4", "HISTFILE", "INPUTRC", "SHELL", "EXECIGNORE"),
        *("PAGER", "MANPAGER", "EDITOR", "VISUAL", "BROWSER", "LESSOPEN", "LESSCLOSE", "LESS", "RSYNC_RSH"),
        *("GCONV_PATH", "LOCPATH", "NLSPATH", "HOSTALIASES", "TERMINFO", "TERMINFO_DIRS", "MALLOC_TRACE"),
        *("CLASSPATH", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "TAR_OPTIONS", "ZIPOPT"),
        *(
            "MAKEFLAGS",
            "MAKEFILES",
            "GNUMAKEFLAGS",
            "GOFLAGS",
            "GOROOT",
            "RUSTC",
            "RUSTFLAGS",
        ),
        *(
            "RUSTC_WRAPPER",
            "AWKPATH",
            "AWKLIBPATH",
            "OPENSSL_CONF",
            "OPENSSL_MODULES",
            "VIRTUAL_ENV",
            "MAVEN_OPTS",
        ),
    }
)
"""Variables by which a loader, a shell, an interpreter or a tool runs other code."""

GOVERNING_FAMILIES = (
    *("LD_", "DYLD_", "BASH_", "PYTHON", "PERL", "RUBY", "NODE_", "LUA_", "GIT_", "SSH_", "PYTEST_", "PHP"),
    *("PIP_", "NPM_", "npm_", "YARN_", "CARGO_", "XDG_", "GRADLE_", "BUNDLE_", "GEM_", "TCL", "R_", "JULIA_"),
)

_ASSIGNING = frozenset(
    {
        *(
            "export",
            "declare",
            "typeset",
            "local",
            "readonly",
            "let",
            "read",
            "unset",
            "mapfile",
            "readarray",
        ),
        *(
            "printf",
            "getopts",
            "for",
            "select",
            "[[",
            "[",
            "test",
            "env",
            "sudo",
            "doas",
            "wait",
        ),
    }
)
"""Commands that assign what their words name."""

_BEFORE_A_COMMAND = ("env", "sudo", "doas")
"""Those whose assignments stand in front of a command, as in the shell itself."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SUBSCRIPT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[(?![0-9]+\]|[@*]\])[^]]*\]\+?=")
_ARITHMETIC = re.compile(
    r"(?:\(\(|\$\[)[^)\]]*[A-Za-z_$`]"
    r"|\$\{[^}]*\[(?![0-9]+\]|[@*]\])"
    r"|\$\{[#!]?[A-Za-z0-9_@*]+:(?![-+?]| *-?[0-9])"
    r"|\$\{[#!]?[A-Za-z0-9_@*]+="
)
"""Expansions that can assign: arithmetic over names, computed subscripts, and `${NAME=…}`."""


def computing(line: str) -> bool:
    """Whether a line holds an expansion that can assign a variable, `PATH` for instance."""
    return _ARITHMETIC.search(line) is not None


def governing_assignment(command: Command) -> str:
    """The first variable that a command sets and that decides what code runs; empty if there is none.

    `command` comes with the assignments in front of it. Words that are computed count as assigning
    where the command assigns what its words name.
    """
    while command and command[0].text in KEYWORDS | CLOSERS:
        command = command[1:]
    front = 0
    while front < len(command) and ASSIGNMENT.match(command[front].text):
        if _SUBSCRIPT.match(command[front].text):
            return command[front].text.partition("[")[0]
        front += 1
    words: tuple[Word, ...] = command[:front]
    name = program(command[front]) if front < len(command) else ""
    if name in _ASSIGNING:
        words = command
        if name not in ("[", "test", "[[", "printf", *_BEFORE_A_COMMAND) and any(
            word.opaque and not ASSIGNMENT.match(word.text) for word in command[front + 1 :]
        ):
            return "a computed name"
    for word in words:
        for found in _named(word.text, name):
            if governs(found):
                return found
    return ""


def _named(text: str, name: str) -> list[str]:
    """The variables that a word names: of `env` whatever stands before its `=`, else every name in it."""
    if name in _BEFORE_A_COMMAND:
        return [text.partition("=")[0]] if "=" in text else []
    if name in ("[", "[[", "test") or name not in _ASSIGNING:
        return _NAME.findall(text.partition("=")[0]) if "=" in text else []
    return _NAME.findall(text.partition("=")[0]) + (_NAME.findall(text) if name == "let" else [])


def governs(name: str) -> bool:
    """Whether a variable decides what code runs."""
    return name in GOVERNING or name.startswith(GOVERNING_FAMILIES)


def is_program(word: Word, wanted: str) -> bool:
    """Whether a program is what an allow rule names: that bare name, or its file in a system folder.

    A rule that names a folder fits that spelling alone, and no way up out of it. `*` is any program.
    """
    if wanted == "*":
        return True
    if "/" in wanted:
        return fnmatchcase(word.text, wanted) and word.text.count("..") <= wanted.count("..")
    folder, slash, name = word.text.rpartition("/")
    return (not slash or folder in SYSTEM_FOLDERS) and fnmatchcase(name, wanted)


def is_transparent(command: Command) -> bool:
    """Whether a wrapper is one that runs the command behind it and nothing else."""
    name = program(command[0])
    if not is_program(command[0], name) or name not in TRANSPARENT:
        return False
    if name in SHELLS:
        return _plain_shell(command)
    if name not in WRAPPERS:
        return True
    inner = behind(command, WRAPPERS[name])
    own = command[1 : len(command) - len(inner[0])] if inner else command[1:]
    # A computed word may be several: one more option, or the command itself.
    return not any(word.opaque and word.text not in ("{}", "-I{}") for word in own)


def _plain_shell(command: Command) -> bool:
    """`sh -c TEXT`, with options that read no file of their own: not `-i`, `-l`, `--rcfile`."""
    for word in command[1:]:
        text = word.text
        if not text.startswith("-"):
            return not word.opaque
        if text.startswith("-o"):
            return False
        letters = text[1:]
        if text.startswith("--") or not letters or not set(letters) <= set("ceufvn"):
            return False
        if "c" in letters:
            return True
    return False
