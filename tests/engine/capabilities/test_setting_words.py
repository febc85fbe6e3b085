"""Which words of a setting count as files: too few leave a way open, too many shut the project's folders."""

import pytest

from stepfold.engine.capabilities.setting_words import words_of


@pytest.mark.parametrize(
    ("key", "value", "path"),
    [
        ("core.hookspath", ".husky", ".husky"),
        ("core.hookspath", "my hooks", "my hooks"),
        ("core.fsmonitor", "./tool", "./tool"),
        ("gpg.program", "my tools/sign", "my tools/sign"),
        ("filter.x.clean", "python tools/clean.py %f", "tools/clean.py"),
        ("filter.x.clean", "python clean.py %f", "clean.py"),
        ("diff.x.textconv", "sh -c 'a && ./b.sh $1'", "./b.sh"),
        ("diff.x.textconv", "it's tools/text", "tools/text"),
        ("diff.x.command", "tool --config=conf/x", "conf/x"),
        ("core.sshcommand", "ssh -F./conf", "./conf"),
        ("core.editor", "$HOME/project/edit", "~/project/edit"),
        ("core.pager", '"${TOP}/page" -x', "./page"),
        ("merge.x.driver", '"$(git rev-parse --show-toplevel)/tools/merge" %O %A', "./tools/merge"),
        ("filter.x.clean", '"$(dirname "$(git rev-parse --git-dir)")/tools/clean"', "./tools/clean"),
        ("alias.own", "!cd tools && ./own", "tools/./own"),
        ("alias.own", '!cd "$(git rev-parse --show-toplevel)/tools"; ./own', "./tools/./own"),
        ("alias.own", "!git -C lib status; make -C 'tools' -f own.mk", "tools/own.mk"),
        ("GIT_SSH_COMMAND", "ssh -F ./conf", "./conf"),
        ("core.editor", "${EDITOR:-tools/edit}", "tools/edit"),
        ("alias.own", "!f() { ./own; }; f", "./own"),
        ("alias.own", "-c core.fsmonitor=./own status", "./own"),
        ("submodule.x.update", "!./update", "./update"),
        ("remote.x.uploadpack", "./serve", "./serve"),
        ("made.up.later", "run ./this", "./this"),
    ],
)
def test_a_path_counts_whether_it_is_there_or_not(key: str, value: str, path: str) -> None:
    assert path in words_of(key, value).paths


def test_a_bare_name_counts_where_a_file_is_there() -> None:
    words = words_of("filter.x.clean", "python clean %f")
    assert words.paths == ()
    assert words.names == ("clean", "%f")


def test_a_name_behind_a_command_of_gits_counts() -> None:
    assert "deploy" in words_of("alias.up", "!git pull main && sh deploy").names
    assert "main" not in words_of("alias.up", "!git pull main && sh deploy").names


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("user.name", "src/main.py"),
        ("branch.src/main.merge", "refs/heads/src"),
        ("branch.main.description", "see docs/plan.md"),
        ("remote.origin.url", "../src"),
        ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
        ("submodule.lib.url", "./lib"),
        ("url.src/.insteadof", "lib/"),
        ("core.worktree", "../src"),
        ("core.excludesfile", "conf/ignored"),
        ("commit.template", "docs/message.txt"),
        ("safe.directory", "/project/src"),
        ("core.bare", "false"),
        ("core.fsmonitor", "true"),
        ("core.editor", "vim"),
        ("alias.src", "checkout src/main.py"),
        ("alias.log", "!git log main src"),
        ("core.hookspath", ""),
    ],
)
def test_what_is_no_program_names_nothing(key: str, value: str) -> None:
    words = words_of(key, value)
    assert (words.paths, words.names) == ((), ())
