"""Ways to write a denied command that were thought of, one a line; none may pass the policy."""

import pytest

from stepfold.engine.capabilities.policy import judge
from stepfold.events.configuration import Rule

DENIED = (
    "rm -rf x",
    "rm -r -f x",
    "rm x -fr",
    "rm --recursive -rf x",
    "/bin/rm -rf x",
    "../../bin/rm -rf x",
    "\\rm -rf x",
    "'r'm -rf x",
    'r""m -rf x',
    "r\\\nm -rf x",
    "true; rm -rf x",
    "true&&rm -rf x",
    "false||rm -rf x",
    "true|rm -rf x",
    "true&rm -rf x",
    "true\nrm -rf x",
    "(rm -rf x)",
    "{ rm -rf x; }",
    "! rm -rf x",
    "if rm -rf x; then :; fi",
    "while rm -rf x; do :; done",
    "for f in a; do rm -rf $f; done",
    "case a in a) rm -rf x;; esac",
    "f() { rm -rf x; }; f",
    "echo $(rm -rf x)",
    "echo `rm -rf x`",
    'echo "`rm -rf x`"',
    'echo "${a:-$(rm -rf x)}"',
    "cat <(rm -rf x)",
    "a=$(rm -rf x)",
    "A=1 B=2 rm -rf x",
    "<in rm -rf x",
    ">out rm -rf x",
    "2>err rm -rf x",
    "sh -c 'rm -rf x'",
    "bash -lc 'rm -rf x'",
    "bash -o pipefail -c 'rm -rf x'",
    "bash --norc -ec 'rm -rf x'",
    "echo 'rm -rf x' | sh",
    "sh <<E\nrm -rf x\nE",
    "cat <<E\n$(rm -rf x)\nE",
    "bash <<< 'rm -rf x'",
    "eval rm -rf x",
    "eval 'rm -rf' x",
    "exec rm -rf x",
    "command rm -rf x",
    "builtin command rm -rf x",
    "env rm -rf x",
    "env -i A=1 rm -rf x",
    "env -S 'rm -rf x'",
    "nohup rm -rf x",
    "nice -n 5 rm -rf x",
    "time rm -rf x",
    "timeout -k 1 5 rm -rf x",
    "sudo -u root rm -rf x",
    "stdbuf -o0 rm -rf x",
    "setsid -w rm -rf x",
    "xargs rm -rf",
    "echo -rf x | xargs rm",
    "find . -exec rm -rf {} +",
    "find . -name a -execdir rm -rf {} \\;",
    "busybox rm -rf x",
    "trap 'rm -rf x' EXIT",
    "flock lock -c 'rm -rf x'",
    "su root -c 'rm -rf x'",
    "$CMD -rf x",
    "$(echo rm) -rf x",
    "r{m,} -rf x",
    "/bin/r? -rf x",
    "$'\\x72m' -rf x",
    "rm $FLAGS x",
    'rm "$@" x',
    "git -C x push",
    "git --no-pager push",
    "git $SUB origin",
    "git pus?",
    "git -C x p*",
    "git [p]ush origin",
    "rm -r? x",
    "rm -[r]f x",
    "rm *",
    "env git pus?",
    "echo x | xargs git p?sh",
    "xargs -I {} git pu* {}",
    "sh -c 'git pus?'",
    "'unbalanced",
    "echo $(rm -rf x",
)
RULES = (Rule("deny", "rm -rf *"), Rule("deny", "git push"))


@pytest.mark.parametrize("command", DENIED)
def test_a_denied_command_stays_denied_however_it_is_written(command: str) -> None:
    verdict = judge(command, RULES)
    assert not verdict.allowed
    assert verdict.why


RULES_OF_THREE_WORDS = (Rule("deny", "git remote add"),)


@pytest.mark.parametrize("command", ["git remote a*", "git rem* add", "git *", "git r* x"])
def test_a_word_completed_from_file_names_may_stand_for_several(command: str) -> None:
    denied = not judge(command, RULES_OF_THREE_WORDS).allowed
    assert denied == (command != "git r* x")


@pytest.mark.parametrize(
    "command",
    ["ls *.py", "git add *", "rm *.tmp", "git 'pus?'", 'git "p*"', "git commit -m '*'", "echo rm -r?"],
)
def test_a_word_that_can_become_nothing_denied_passes(command: str) -> None:
    assert judge(command, RULES).allowed
