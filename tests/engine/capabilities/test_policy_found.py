"""Ways around the policy that were found by trying, each kept so that it stays closed."""

import pytest

from stepfold.engine.capabilities.policy import judge
from stepfold.events.configuration import Rule

ALLOWS_LS = (Rule("allow", "ls"),)
ASKS_TOUCH = (Rule("ask", "touch"),)
DENIES_RM = (Rule("deny", "rm"),)

HIDDEN = {
    "a carriage return makes no comment": "ls \r#; {}",
    "the end of a here-document is not expanded": "ls <<$E\nx\n$E\n{}\n\n",
    "a function under an allowed name": "function ls {{ {}; }}; ls",
    "a function in the other spelling": "ls() {{ {}; }}; ls",
    "a function with a space": "ls ( ) {{ {}; }}; ls",
    "an alias": "alias ls='{}'\nls",
    "a coprocess": "coproc ls {{ {}; }}",
}
JOINED = (
    "timeout -vk 5 10 rm pwn",
    "env -iu X rm pwn",
    "prlimit rm pwn",
    "setpriv rm pwn",
    "setarch x86_64 rm pwn",
    "runuser -u nobody rm pwn",
    "xargs -rn 1 rm",
    "sudo -nu root rm pwn",
    "exec -la x rm pwn",
    "env -vS'rm x'",
    "env -iS'rm x'",
    "script -qc 'rm x'",
    "su -lc 'rm x'",
)
PLAIN = (
    "ls -la",
    "timeout 5 ls",
    "env A=1 ls",
    "cat <<END\nrm\nEND",
    "echo 'rm()'",
    "xargs grep function",
    "timeout 5 echo alias",
    "sudo echo coproc",
)


@pytest.mark.parametrize("name", HIDDEN)
def test_a_hidden_command_is_not_allowed_asked_for_or_undenied(name: str) -> None:
    assert not judge(HIDDEN[name].format("touch pwn"), ALLOWS_LS).allowed
    assert not judge(HIDDEN[name].format("rm pwn"), DENIES_RM).allowed
    asked = judge(HIDDEN[name].format("touch pwn"), ASKS_TOUCH)
    assert not asked.allowed or asked.asks


@pytest.mark.parametrize("command", JOINED)
def test_joined_options_hide_no_denied_command(command: str) -> None:
    assert not judge(command, DENIES_RM).allowed


@pytest.mark.parametrize("command", PLAIN)
def test_plain_commands_stay_undenied(command: str) -> None:
    assert judge(command, DENIES_RM).allowed
