"""Ways to run something else under an allowed name that were thought of; none may pass the policy."""

import pytest

from stepfold.engine.capabilities.policy import judge
from stepfold.events.configuration import Rule

RULES = tuple(
    Rule("allow", text)
    for text in ("ls", "echo", "git status", "pytest", "python3 -m pytest", "export", "read", "./scripts/*")
)
OTHER_FILES = (
    "./ls",
    "/tmp/ls",
    "../ls",
    "sub/ls",
    "~/ls",
    "$HOME/ls",
    "/usr/bin/../../tmp/ls",
    "//tmp/ls",
    "/bin/./../tmp/ls",
    "/usr/lib/ls",
    "'./ls'",
    ".//ls",
    "./l[s]",
    "/tmp/l?",
    "env ./ls",
    "env -C /tmp ./ls",
    "./env ls",
    "/tmp/timeout 5 ls",
    "/tmp/sh -c ls",
    "./bash -c ls",
    "xargs ./ls",
    "command ./ls",
    "exec ./ls",
    "nice ./ls",
    "sh -c ./ls",
    "eval ./ls",
    "trap ./ls EXIT",
    "echo $(./ls)",
    "ls; ./ls",
    "ls | ./ls",
    "ls() { ./ls; }; ls",
    "scripts/x",
    "./scripts/../../tmp/ls",
    "chroot . ls",
    "sudo ls",
    "unshare -R . ls",
    "strace -o '|./evil' ls",
    "proxychains -f x ls",
    "script -c ls",
    "flock x ls",
    "su -s ./evil root -c ls",
    "echo ./evil | xargs -I ls ls",
    "echo ./evil | xargs -Il ls",
    "echo ./evil | xargs -I{} {}",
    "echo ./evil | xargs --replace=l ls",
    "echo ./evil | xargs -i {}",
    "find . -exec ls {} ;",
    "hash -p ./evil ls; ls",
    "alias ls=./evil; ls",
    "enable -f ./evil.so ls",
    ". ./ls",
    "source ls",
    "bash ls",
    "bash ./ls",
    "bash --rcfile ./evil -ic ls",
    "bash --init-file ./evil -i -c ls",
    "bash -lc ls",
    "bash -ic ls",
    "bash -o posix -c ls",
    "git -c alias.status=!evil status",
    "git stat*",
    "X='1 5 ./evil'; timeout -k $X 5 ls",
    "X=PATH=.; env $X ls",
    "env -u {A,./evil} ls",
)
SETTINGS = (
    "PATH=. ls",
    "PATH=.; ls",
    "PATH+=:. ls",
    "A=1 PATH=. ls",
    "PATH=$(echo .) ls",
    "PATH[0]=. ls",
    "export PATH=.; ls",
    "export P\\ATH=.; ls",
    "export 'PATH'=.; ls",
    "export $X; ls",
    "read PATH; ls",
    "read $X; ls",
    "for PATH in .; do ls; done",
    "env PATH=. ls",
    "env P''ATH=. ls",
    "env -i PATH=. ls",
    "env -S 'PATH=. ls'",
    "env 'BASH_FUNC_ls%%=() { ./evil; }' bash -c ls",
    "LD_PRELOAD=./evil.so ls",
    "LD_LIBRARY_PATH=. ls",
    "LD_AUDIT=./evil.so ls",
    "BASH_ENV=./evil bash -c ls",
    "ENV=./evil sh -c ls",
    "IFS=/ ls",
    "HOME=. git status",
    "PS4='$(./evil)' bash -xc ls",
    "PROMPT_COMMAND=./evil ls",
    "SHELLOPTS=xtrace ls",
    "PYTHONPATH=. pytest",
    "PYTHONSTARTUP=./evil.py pytest",
    "PYTHONHOME=. python3 -m pytest",
    "PYTEST_ADDOPTS='-p evil' pytest",
    "PYTEST_PLUGINS=evil pytest",
    "GIT_SSH_COMMAND=./evil git status",
    "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.fsmonitor GIT_CONFIG_VALUE_0=./evil git status",
    "GIT_DIR=/tmp/x git status",
    "NODE_OPTIONS='-r ./evil.js' ls",
    "PERL5OPT=-Mevil ls",
    "RUBYOPT=-revil ls",
    "PAGER=./evil git status",
    "EDITOR=./evil git status",
    "sh -c 'PATH=. ls'",
    "(PATH=.; ls)",
    "{ PATH=.; ls; }",
    "if PATH=.; then ls; fi",
    "echo $(PATH=. ls)",
    "echo $((PATH=1)); ls",
    "echo $[PATH=1]; ls",
    "((PATH=1)); ls",
    "x='PATH=1'; echo $((x)); ls",
    "a[PATH=1]=2; ls",
    "echo ${a[PATH=1]}; ls",
    "echo ${a:PATH=1}; ls",
    "echo ${LD_PRELOAD:=./evil.so}; ls",
    "echo ${LD_PRELOAD=./evil.so}; ls",
)
HARMLESS = (
    "ls",
    "ls -l ./ls",
    "/bin/ls",
    "/usr/bin/ls -l",
    "/usr/local/bin/pytest -q",
    "A=1 pytest -q",
    "DEBUG=1 env CI=1 pytest",
    "timeout 5 pytest | echo a",
    "/usr/bin/env pytest",
    "sh -c 'ls | echo a'",
    "bash -euc 'ls'",
    "echo a | xargs ls",
    "echo a | xargs -I{} ls {}",
    "echo PATH=.",
    "echo 'LD_PRELOAD=x' $HOME ${HOME} ${a[@]} ${a:-b} ${a:1:2} $((1 + 2))",
    "export DEBUG=1; ls",
    "./scripts/build",
    "git status --short",
)


@pytest.mark.parametrize("command", [*OTHER_FILES, *SETTINGS])
def test_an_allow_rule_lets_nothing_else_run_under_its_name(command: str) -> None:
    verdict = judge(command, RULES)
    assert not verdict.allowed
    assert verdict.why


@pytest.mark.parametrize("command", HARMLESS)
def test_what_an_allow_rule_is_for_still_runs(command: str) -> None:
    assert judge(command, RULES).allowed


def test_a_refused_setting_is_named() -> None:
    assert "sets LD_PRELOAD, which decides what code runs" in judge("LD_PRELOAD=./x.so ls", RULES).why


def test_a_deny_rule_matches_any_spelling_and_does_not_forbid_settings() -> None:
    rules = (Rule("deny", "ls"),)
    for command in ("./ls", "/tmp/ls", "PATH=. ls", "LD_PRELOAD=x ls", "env PATH=. /x/ls", "sub/../ls"):
        assert judge(command, rules).rule == "ls"
    assert judge("PATH=. pytest", rules).allowed


def test_a_wrapper_that_can_do_more_runs_where_a_rule_names_it() -> None:
    rules = (Rule("allow", "sudo"), Rule("allow", "ls"))
    assert judge("sudo ls", rules).allowed
    assert not judge("sudo rm x", rules).allowed


def test_a_star_allows_any_program() -> None:
    assert judge("./anything", (Rule("deny", "rm"), Rule("allow", "*"))).allowed
