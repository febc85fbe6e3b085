from collections.abc import Callable
from shlex import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.capabilities.commandline import Unreadable, read_commands
from stepfold.engine.capabilities.policy import judge
from stepfold.events.configuration import Rule

DENY = (Rule("deny", "rm -rf *"), Rule("deny", "git push"))
ALLOW = (Rule("allow", "pytest"), Rule("allow", "git *"), Rule("allow", "./run.sh"), Rule("allow", "echo"))


def words(line: str) -> list[list[str]]:
    return [[word.text for word in command] for command in read_commands(line)]


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("ls -l 'a b' \"c d\"", [["ls", "-l", "a b", "c d"]]),
        ("a | b && c || d; e & f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("(a; b)\nc # d", [["a"], ["b"], ["c"]]),
        ("a >out 2>&1 <in", [["a"]]),
        ("a $(b c) `d`", [["b", "c"], ["d"], ["a", "", ""]]),
        ('echo "$(b "$(c)")"', [["c"], ["b", ""], ["echo", ""]]),
        ("cat <<EOF\nrm $(a)\nEOF\nb", [["cat"], ["a"], ["b"]]),
        ("cat <<'EOF'\nrm $(a)\nEOF\nb", [["cat"], ["b"]]),
        ("echo $((1 + 2))", [["echo", ""]]),
        ("diff <(a) <(b)", [["a"], ["b"], ["diff", "", ""]]),
        ("", []),
    ],
)
def test_a_line_is_taken_apart_into_its_commands(line: str, commands: list[list[str]]) -> None:
    assert words(line) == commands


@pytest.mark.parametrize(
    "line", ["'a", '"a', "$(a", "`a", "a >", "cat <<EOF\na", "a \\", "a\0b", "$(" * 40 + ")" * 40]
)
def test_what_cannot_be_read_is_said_so(line: str) -> None:
    with pytest.raises(Unreadable):
        read_commands(line)


@pytest.mark.parametrize(
    "line",
    [
        "rm -r x",
        "echo 'rm -rf x'",
        "echo rm -rf x",
        "grep 'git push' notes",
        "cat > a <<'EOF'\nrm -rf x\nEOF",
        "git log -n push",
        'git commit -m "$(cat message)"',
        "python -c 'print(1)'",
        "bash build.sh",
        "for f in a b; do cat $f; done",
        "if [ -f a ]; then cat a; fi",
        "a=$(ls | wc -l); echo $a",
        "find . -name '*.py' -exec cat {} \\;",
    ],
)
def test_what_no_rule_names_is_allowed(line: str) -> None:
    assert judge(line, DENY).allowed


def test_without_rules_everything_is_allowed_even_what_cannot_be_read() -> None:
    assert judge("rm -rf / '", ()).allowed


@pytest.mark.parametrize(
    "line", ["pytest -q", "/usr/bin/pytest", "timeout 5 pytest | echo a", "git push", "./run.sh"]
)
def test_with_allow_rules_what_they_name_runs(line: str) -> None:
    assert judge(line, ALLOW).allowed


@pytest.mark.parametrize(
    "line",
    ["ls", "pytest; ls", "git", "/tmp/run.sh", "timeout 5 ls", "sh -c ls", "echo $(ls)", "$X", "pytest 'a"],
)
def test_with_allow_rules_the_rest_is_denied(line: str) -> None:
    verdict = judge(line, ALLOW)
    assert not verdict.allowed
    assert verdict.why


def test_the_first_rule_that_matches_wins() -> None:
    rules = (Rule("allow", "git push origin"), Rule("deny", "git push"), Rule("allow", "git"))
    assert judge("git push origin", rules).rule == "git push origin"
    assert judge("git push other", rules).rule == "git push"
    assert judge("git status", rules).allowed


def test_a_star_stands_for_characters_in_a_word_and_for_one_word() -> None:
    assert not judge("pip3 install a", (Rule("deny", "pip* install"),)).allowed
    assert judge("pip3 list", (Rule("deny", "pip* install"),)).allowed
    assert judge("rm", (Rule("deny", "rm *"),)).allowed


@given(st.text(alphabet="rm -f'\"`$(){};|&<>\\\nab*?#=!~[]0", max_size=60))
def test_any_line_gets_a_verdict(line: str) -> None:
    verdict = judge(line, DENY)
    assert verdict.allowed or verdict.why


WRAPS: dict[str, Callable[[str], str]] = {
    "list": lambda line: f"a; {line}",
    "pipe": lambda line: f"a | {line}",
    "subshell": lambda line: f"({line})",
    "block": lambda line: f"{{ {line}; }}",
    "if": lambda line: f"if a; then {line}; fi",
    "substitution": lambda line: f"echo $( {line} )",
    "quoted substitution": lambda line: f'echo "$( {line} )"',
    "sh -c": lambda line: f"sh -c {quote(line)}",
    "eval": lambda line: f"eval {quote(line)}",
    "env -S": lambda line: f"env -S {quote(line)}",
    "timeout bash": lambda line: f"timeout -k 1 5 bash -lc {quote(line)}",
    "find": lambda line: f"find . -exec sh -c {quote(line)} \\;",
}


@given(
    st.sampled_from(["rm -rf a", "git push"]),
    st.lists(st.sampled_from(sorted(WRAPS)), min_size=1, max_size=5),
)
def test_no_wrapping_hides_a_denied_command(command: str, wraps: list[str]) -> None:
    for wrap in wraps:
        command = WRAPS[wrap](command)
    assert not judge(command, DENY).allowed


ASK_RULES = (Rule("deny", "rm"), Rule("ask", "git push"), Rule("allow", "git"), Rule("allow", "ls"))


@pytest.mark.parametrize(
    ("command", "allowed", "asks"),
    [
        ("git push origin", True, "git push"),
        ("ls && git -C . push", True, "git push"),
        ("sh -c 'git push'", True, "git push"),
        ("git status", True, ""),
        ("git push; rm x", False, ""),
        ("cat x", False, ""),
    ],
)
def test_what_a_person_must_approve(command: str, allowed: bool, asks: str) -> None:
    verdict = judge(command, ASK_RULES)

    assert (verdict.allowed, verdict.asks) == (allowed, asks)
