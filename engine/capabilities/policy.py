"""The shell policy: whether the rules of the config let a command line run.

Pure. A rule is a guard rail for a model that means well; what contains one that doesn't is the
sandbox, which holds whatever the policy lets through.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from stepfold.engine.capabilities.allowance import (
    computing,
    governing_assignment,
    is_program,
    is_transparent,
)
from stepfold.engine.capabilities.commandline import DEPTH_LIMIT, Command, Unreadable, Word, read_commands
from stepfold.engine.capabilities.wrappers import doubtful_rests, program, trimmed, unwrap
from stepfold.events.configuration import Rule

COMMAND_LIMIT = 2_000
"""Commands read off one line, wrapped ones included, before it counts as unreadable."""


class Verdict(Struct, frozen=True):
    """What the rules say. `rule` is the pattern that decided (empty when none did), `why` for the model.

    `asks` is the pattern that allows it only with a person's yes.
    """

    allowed: bool
    rule: str = ""
    why: str = ""
    asks: str = ""


ALLOWED = Verdict(True)
"""Where no rule has anything to say."""


def judge(command: str, rules: Sequence[Rule]) -> Verdict:
    """Judge every simple command that a line would run, wrapped ones too; one that is denied denies all.

    For each command the first rule that matches wins. Where none matches, it is allowed, unless
    there is an `allow` rule at all: then the allowed commands are the list, and the rest is denied.
    A line that can't be read is denied as soon as there is any rule, and allowed when there is none.

    A pattern is words, matched from the first on: `git push` matches `git push origin`. A `*` stands
    for any characters within a word, and a `*` word for one word.

    An `ask` rule allows what it matches, if a person says yes; one such command asks for the whole line.

    The verdicts read alike and differ where a command leaves doubt. `deny` and `ask` take the doubt: flags
    count in any order, joined or apart (`rm -rf` matches `rm -r x -f`), options in front of a word
    are passed over (`git -C x push`), a word that the shell computes matches anything, and one that it
    completes from the names of files (`git pus?`) whatever it could become. `allow`
    doesn't: words count as they stand, and a computed word is matched by a `*` word alone. A program
    is denied by its name, in whatever folder; it is allowed by its bare name, which stands for the file
    in a system folder too, or by the very path that the rule writes. Variables that decide what code
    runs (`PATH`, `LD_PRELOAD`, `PYTHONPATH` …) are covered by no allow rule: see `allowance`.
    """
    if not rules:
        return Verdict(True)
    try:
        parts = _all_commands(command)
    except Unreadable as reason:
        return Verdict(False, "", f"the command can't be judged ({reason}): write it as plain commands")
    listed = any(rule.verdict == "allow" for rule in rules)
    last = Verdict(True)
    if listed and computing(command):
        return Verdict(
            False, "", "an expansion that can set a variable is covered by no allow rule: write the value out"
        )
    asks = ""
    for part, words, wraps in parts:
        setting = governing_assignment(part) if listed else ""
        if setting:
            return Verdict(False, "", _about_setting(setting))
        if not words:
            continue
        verdict = _judge_one(words, rules, listed=listed and not wraps)
        if not verdict.allowed:
            return verdict
        asks = asks or verdict.asks
        last = verdict if verdict.rule else last
    return Verdict(True, asks or last.rule, asks=asks)


def judge_name(name: str, rules: Sequence[Rule]) -> Verdict:
    """Judge a capability by its name; `*` in a pattern stands for any characters. The first match wins.

    Where none matches, it is allowed, unless there is an `allow` rule at all. An `ask` rule allows what
    it matches, if a person says yes.
    """
    if not rules:
        return ALLOWED
    for rule in rules:
        if fnmatchcase(name, rule.pattern):
            if rule.verdict == "allow":
                return Verdict(True, rule.pattern)
            if rule.verdict == "ask":
                return Verdict(True, rule.pattern, asks=rule.pattern)
            return Verdict(
                False, rule.pattern, f"{name} is denied by the rule {rule.pattern!r}: go on without it"
            )
    allowed = ", ".join(rule.pattern for rule in rules if rule.verdict == "allow")
    if not allowed:
        return ALLOWED
    return Verdict(False, "", f"{name} is not among the allowed capabilities: {allowed}")


def _all_commands(line: str) -> list[tuple[Command, Command, bool]]:
    """Each command as written, the words of it that run, and whether it only wraps others, listed behind it.

    The doubtful tails of a wrapper are run by it and not by the shell, so nothing in front of them is
    the shell's to take away.
    """
    found: list[tuple[Command, Command, bool]] = []
    waiting = [(part, 0) for part in reversed(read_commands(line))]
    while waiting:
        part, depth = waiting.pop()
        if depth > DEPTH_LIMIT or len(found) > COMMAND_LIMIT:
            raise Unreadable("commands nested too deeply, or too many of them")
        words = trimmed(part)
        if not words:
            found.append((part, (), False))
            continue
        if words[0].opaque or _is_glob(words[0].text):
            raise Unreadable("a program whose name is computed")
        inner = unwrap(words, depth)
        found.append((part, words, bool(inner) and is_transparent(words)))
        found.extend((rest, rest, True) for rest in doubtful_rests(words))
        waiting.extend((one, depth + 1) for one in reversed(inner))
    return found


def _is_glob(text: str) -> bool:
    return any(mark in text for mark in "*?") or ("[" in text and "]" in text)


def _about_setting(name: str) -> str:
    return (
        f"the command sets {name}, which decides what code runs, and no allow rule covers that: "
        "run it without"
    )


def _judge_one(command: Command, rules: Sequence[Rule], *, listed: bool) -> Verdict:
    shown = " ".join(word.text for word in command)[:200]
    for rule in rules:
        pattern = rule.pattern.split()
        if rule.verdict == "deny" and _could_match(command, pattern):
            return Verdict(
                False, rule.pattern, f"{shown!r} is denied by the rule {rule.pattern!r}: do it another way"
            )
        if rule.verdict == "ask" and _could_match(command, pattern):
            return Verdict(True, rule.pattern, asks=rule.pattern)
        if rule.verdict == "allow" and _matches(command, pattern):
            return Verdict(True, rule.pattern)
    if not listed:
        return Verdict(True)
    allowed = ", ".join(rule.pattern for rule in rules if rule.verdict == "allow")
    return Verdict(False, "", f"{shown!r} is not among the allowed commands: {allowed}")


def _matches(command: Command, pattern: Sequence[str]) -> bool:
    """Word by word, as it stands."""
    if not pattern or len(pattern) > len(command):
        return False
    return is_program(command[0], pattern[0]) and all(
        wanted == "*" or (not word.opaque and fnmatchcase(word.text, wanted))
        for word, wanted in zip(command[1:], pattern[1:], strict=False)
    )


def _could_match(command: Command, pattern: Sequence[str]) -> bool:
    """Whether some reading of the command fits the pattern."""
    if not pattern or not fnmatchcase(program(command[0]), pattern[0].rpartition("/")[2]):
        return False
    rest = command[1:]
    flags = [wanted for wanted in pattern[1:] if wanted.startswith("-") and wanted != "-"]
    words = [wanted for wanted in pattern[1:] if not (wanted.startswith("-") and wanted != "-")]
    return all(_has_flag(rest, wanted) for wanted in flags) and _has_words(rest, words)


def _has_flag(words: Command, wanted: str) -> bool:
    if any(word.opaque or _could_be(word, wanted) for word in words):
        return True
    if wanted.startswith("--"):
        return any(word.text.startswith(wanted + "=") for word in words)
    given = {letter for word in words if _is_short(word.text) for letter in word.text[1:]}
    return set(wanted[1:]) <= given


def _could_be(word: Word, wanted: str) -> bool:
    """Whether a word fits one of the pattern, or could once the shell has completed it from file names."""
    return fnmatchcase(word.text, wanted) or (word.glob and fnmatchcase(wanted, word.text))


def _is_short(text: str) -> bool:
    return text.startswith("-") and not text.startswith("--")


def _has_words(words: Command, wanted: Sequence[str]) -> bool:
    """The wanted words from the first on; a word behind a flag may be that flag's value.

    A computed word may be any number of words: where all before it fit, the rest may as well.
    """
    states = {0}
    after_flag = False
    for word in words:
        if len(wanted) in states:
            return True
        if word.opaque and states:
            return True
        if word.text.startswith("-") and word.text != "-":
            after_flag = True
            continue
        advanced = {state + 1 for state in states if _could_be(word, wanted[state])}
        if word.glob:
            # Several files may fit it, so it may stand for several of the words in a row.
            for state in range(len(wanted)):
                if state in advanced and _could_be(word, wanted[state]):
                    advanced.add(state + 1)
        states = advanced | states if after_flag else advanced
        after_flag = False
    return len(wanted) in states
