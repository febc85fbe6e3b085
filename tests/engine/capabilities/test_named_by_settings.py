"""Files of the project that the user's git settings name, changed by a command, one way a line.

Each way is a repository of its own, with settings that its user made; what a command does to what they name
would leave a witness when the user next calls git there. All are tried in every backend, by the user of the
tests and, where that is root, by an ordinary one.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from stepfold.engine.capabilities.left import Left
from stepfold.engine.capabilities.named_files import kept_of, named_in, settle_named
from stepfold.engine.capabilities.repositories import known_in, settle
from tests.engine.capabilities.ordinary_user import (
    AS_NOBODY,
    CAN_BE_NOBODY,
    given_to_nobody,
    run_as_nobody,
)
from tests.engine.capabilities.test_planted_repositories import as_nobody, planted

ARMED = r"""
armed() { printf '#!/bin/sh\ntouch %s\n' "$WITNESS" > "$1" && chmod +x "$1"; }
monitored() { git config -f "$1" core.fsmonitor "touch $WITNESS;:"; }
deep() { printf "%0$1d" 0; }
"""

SETTING_UP = r"""
export GIT_TEMPLATE_DIR= GIT_ALLOW_PROTOCOL=file GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@example.org
export GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@example.org
repository() { git init -q "$1" && touch "$1/x" && git -C "$1" add x; }
deep() { printf "%0$1d" 0; }
"""

COMMIT, STATUS = "git commit -q --allow-empty -m x", "git status"
DIFF = "echo more >> a.txt; git --no-pager diff"
ADD = "echo more >> a.txt; git add a.txt"

WAYS = {
    "an included file": (
        "git config include.path ../shared; touch shared",
        "monitored shared",
        STATUS,
    ),
    "an included file that isn't there": (
        "git config include.path ../shared",
        "monitored shared",
        STATUS,
    ),
    "a file that an included one includes": (
        "git config include.path ../one; git config -f one include.path in/two; mkdir in; touch in/two",
        "monitored in/two",
        STATUS,
    ),
    "a file that is included later": (
        "git config includeIf.onbranch:later.path ../later; touch later",
        "monitored later",
        "git checkout -q -b later; git status",
    ),
    "an included file in a folder that is moved": (
        "mkdir in; git config include.path ../in/one; touch in/one",
        "mv in out; mkdir in; monitored in/one",
        STATUS,
    ),
    "a hook": (
        "git config core.hooksPath .husky; mkdir .husky; echo : > .husky/pre-commit; chmod +x .husky/*",
        "armed .husky/pre-commit",
        COMMIT,
    ),
    "a hook that isn't there": (
        "git config core.hooksPath hooks/own; mkdir -p hooks/own",
        "armed hooks/own/pre-commit",
        COMMIT,
    ),
    "a folder of hooks that isn't there": (
        "git config core.hooksPath .githooks",
        "mkdir .githooks; armed .githooks/pre-commit",
        COMMIT,
    ),
    "what husky's hooks run": (
        "git config core.hooksPath .husky/_; mkdir -p .husky/_; echo : > .husky/pre-commit; "
        "echo '. ./.husky/pre-commit' > .husky/_/pre-commit; chmod +x .husky/_/*",
        "armed .husky/pre-commit",
        COMMIT,
    ),
    "what a hook of the repository leads to": (
        "mkdir -p scripts .git/hooks; echo : > scripts/check; chmod +x scripts/check; "
        "ln -s ../../scripts/check .git/hooks/pre-commit",
        "armed scripts/check",
        COMMIT,
    ),
    "what settings lead to": (
        "mv .git/config own; ln -s ../own .git/config",
        "monitored own",
        STATUS,
    ),
    "what worktrees share": (
        "mkdir shared; mv .git/config .git/objects .git/refs shared; echo ../shared > .git/commondir",
        "monitored shared/config",
        STATUS,
    ),
    "a monitor": (
        "git config core.fsmonitor ./tool; echo : > tool; chmod +x tool",
        "armed tool",
        STATUS,
    ),
    "a monitor that isn't there": (
        "git config core.fsmonitor 'sh tool.sh'",
        "armed tool.sh",
        STATUS,
    ),
    "a monitor behind a link": (
        "mkdir real; echo : > real/tool; chmod +x real/tool; ln -s real way; "
        "git config core.fsmonitor way/tool",
        "armed real/tool; rm way; mkdir other; armed other/tool; ln -s other way",
        STATUS,
    ),
    "a monitor by its second name": (
        "mkdir in; echo : > in/tool; chmod +x in/tool; ln in/tool second; git config core.fsmonitor in/tool",
        "armed second",
        STATUS,
    ),
    "a monitor by a new name": (
        "echo : > tool; chmod +x tool; git config core.fsmonitor ./tool",
        "ln tool second; armed second",
        STATUS,
    ),
    "a monitor in the place of a folder": (
        "mkdir tool; git config core.fsmonitor ./tool",
        "rmdir tool; armed tool",
        STATUS,
    ),
    "a monitor in a repository that is moved": (
        "git init -q lib; touch lib/x; git -C lib add x; git -C lib config core.fsmonitor ./tool",
        "mkdir new; mv lib new/lib; armed new/lib/tool",
        "cd new/lib || cd lib; git status",
    ),
    "a monitor in a folder of a repository, both moved": (
        "git init -q lib; mkdir lib/in; echo : > lib/in/tool; chmod +x lib/in/tool; "
        "git -C lib add in; git -C lib config core.fsmonitor in/tool",
        "mv lib new; mv new/in new/out; mkdir new/in; armed new/in/tool",
        "cd new || cd lib; git status",
    ),
    "a filter": (
        "git config filter.x.clean 'sh tools/clean %f'; mkdir tools; echo cat > tools/clean",
        "armed tools/clean",
        ADD,
    ),
    "a filter from the top folder": (
        """git config filter.x.clean '"$(git rev-parse --show-toplevel)/tools/clean" %f'; mkdir tools; """
        "echo cat > tools/clean; chmod +x tools/clean",
        "rm -rf tools; mkdir -p tools; armed tools/clean",
        ADD,
    ),
    "a filter by its full path": (
        'git config filter.x.clean "$PWD/clean"; printf "#!/bin/sh\\ncat\\n" > clean; chmod +x clean',
        "rm -f clean; armed clean",
        ADD,
    ),
    "a filter that stays": (
        "git config filter.x.process tools/long; mkdir tools; echo : > tools/long; chmod +x tools/long",
        "armed tools/long",
        ADD,
    ),
    "a text conversion": (
        "git config diff.x.textconv 'sh text.sh'; echo 'cat $1' > text.sh",
        "armed text.sh",
        DIFF,
    ),
    "a difference": (
        "git config diff.x.command ./differ; echo : > differ; chmod +x differ",
        "armed differ",
        DIFF,
    ),
    "a merge": (
        "git config merge.x.driver 'sh ./merge %A'; echo : > merge; git checkout -q -b other; "
        "echo other > a.txt; git commit -qam other; git checkout -q main; echo main > a.txt; "
        "git commit -qam main",
        "armed merge",
        "git merge other",
    ),
    "a way to a server": (
        "git config core.sshCommand ./ssh; echo : > ssh; chmod +x ssh",
        "armed ssh",
        "git fetch ssh://nowhere/x",
    ),
    "a signature": (
        "git config gpg.program ./sign; echo : > sign; chmod +x sign",
        "armed sign",
        "git commit -S -q --allow-empty -m x",
    ),
    "a credential": (
        "git config credential.helper '!./secret'; echo : > secret; chmod +x secret",
        "armed secret",
        "echo url=https://example.org | git credential fill",
    ),
    "an alias": (
        "git config alias.own '!f() { sh tools/own; }; f'; mkdir tools; touch tools/own",
        "armed tools/own",
        "git own",
    ),
    "an editor": (
        "git config core.editor ./edit; echo : > edit; chmod +x edit",
        "armed edit",
        "git commit -q --allow-empty",
    ),
    "a name in a command behind one of git": (
        "git config alias.up '!git status && sh deploy'; touch deploy",
        "armed deploy",
        "git up",
    ),
    "a filter from the folder above git's": (
        """git config filter.x.clean '"$(dirname "$(git rev-parse --absolute-git-dir)")/tools/clean"'; """
        "mkdir tools; echo cat > tools/clean; chmod +x tools/clean",
        "armed tools/clean",
        ADD,
    ),
    "an alias that goes to a folder": (
        "git config alias.own '!cd tools && ./own'; mkdir tools; touch tools/own; chmod +x tools/own",
        "armed tools/own",
        "git own",
    ),
    "a hook of a worktree that was copied": (
        "git worktree add -q one; cp -r one two; git config core.hooksPath .own; mkdir one/.own two/.own",
        "armed one/.own/pre-commit; armed two/.own/pre-commit",
        f"(cd one; {COMMIT}); (cd two; {COMMIT})",
    ),
    "what a file that points at a repository says, by its second name": (
        "repository lib; mv lib/.git apart; git -C apart config core.worktree ../lib; "
        "echo 'gitdir: ../apart' > lib/.git; ln lib/.git second; repository other; mv other/.git other/real; "
        "git config -f other/real/config core.fsmonitor ./tool",
        "echo 'gitdir: ../other/real' > second; armed lib/tool",
        "cd lib; git status",
    ),
    "a monitor in a repository that is moved further down than paths go": (
        'repository lib; git -C lib config core.fsmonitor "./$(deep 200)"',
        'up=$PWD; while [ ${#PWD} -lt 3860 ]; do mkdir "$(deep 200)"; cd "$(deep 200)"; done; '
        'last=$(deep $((4070 - ${#PWD}))); mkdir "$last"; mv "$up/lib" "$last/"; cd "$last/lib"; '
        'armed "$(deep 200)"',
        "while cd 0*0; do :; done; cd lib; git status",
    ),
    "a hook of a submodule whose folder isn't there": (
        "repository ../$$; git -C ../$$ commit -qm x; "
        'git submodule --quiet add "$PWD/../$$" sub; git commit -qm sub; '
        "git -C sub config core.hooksPath .own; git submodule --quiet deinit -f sub; rm -rf sub/*",
        "mkdir -p sub/.own; armed sub/.own/post-checkout",
        "git submodule update --init -f; git -C sub checkout -q HEAD",
    ),
}
"""What the user set up, what a command does, and what the user then calls."""

STARTING = """
git init -q -b main . && git config user.name t && git config user.email t@example.org
echo one > a.txt; echo '*.txt filter=x diff=x merge=x' > .gitattributes
git add . && git commit -q -m start
"""

FOLDERS = {f"way-{number}": name for number, name in enumerate(WAYS)}


@pytest.fixture
def yard(base: Path) -> Path:
    """A repository for each way."""
    first = base / "first"
    first.mkdir()
    environment = os.environ | {"GIT_TEMPLATE_DIR": ""}
    subprocess.run(["sh", "-e", "-c", STARTING], cwd=first, check=True, env=environment)
    for folder, name in FOLDERS.items():
        shutil.copytree(first, base / "project" / folder)
        subprocess.run(
            ["sh", "-e", "-c", SETTING_UP + WAYS[name][0]], cwd=base / "project" / folder, check=True
        )
    return base / "project"


def attack(witnesses: Path) -> str:
    return ARMED + "".join(
        f"(cd {folder}; export WITNESS={witnesses}/{folder}; {WAYS[name][1]})\n"
        for folder, name in FOLDERS.items()
    )


def that_run(project: Path, witnesses: Path, by: tuple[str, ...] = ()) -> set[str]:
    """The ways in which the user's next call of git ran something of the command's."""
    for left in witnesses.iterdir():
        left.unlink()
    for folder, name in FOLDERS.items():
        words = [*by, "sh", "-c", WAYS[name][2]]
        subprocess.run(words, cwd=project / folder, capture_output=True, check=False, timeout=60)
    return {name for folder, name in FOLDERS.items() if (witnesses / folder).exists()}


def test_git_runs_what_a_command_changed_where_there_is_no_sandbox(yard: Path, witnesses: Path) -> None:
    planted(attack(witnesses), yard, "none")
    assert that_run(yard, witnesses) == {*WAYS}


def test_what_settings_name_is_not_changed(yard: Path, backend: str, witnesses: Path) -> None:
    completed = planted(attack(witnesses), yard, backend)
    assert that_run(yard, witnesses) == set()
    assert "A setting of git names it (" in completed.left
    assert "/.git/config" in completed.left


if CAN_BE_NOBODY:

    def test_an_ordinary_user_changes_none(yard: Path, backend: str, witnesses: Path) -> None:
        given_to_nobody(yard)
        known = known_in(str(yard))
        named = named_in(str(yard), known.repositories.values())
        kept = [*(str(yard / path) for path in known.repositories.values()), *kept_of(str(yard), named)]
        said = run_as_nobody(f"id -u; {attack(witnesses)}", yard, backend, kept, timeout=30)
        assert b"65534" in said, "the box stood, and the user was that one"

        def settled() -> None:
            left: Left = settle(str(yard), known, ())
            settle_named(str(yard), named, left)

        as_nobody(settled)
        assert that_run(yard, witnesses, AS_NOBODY) == set()


def test_work_beside_the_hooks_goes_on(repository: Path, backend: str) -> None:
    making = (
        "mkdir -p .husky hooks; echo : > .husky/pre-commit; git config core.hooksPath .husky; git branch src"
    )
    subprocess.run(["sh", "-e", "-c", making], cwd=repository, check=True)
    words = "echo 'x = 1' >> src/main.py && mkdir src/new && mv src/main.py src/new/ && git status --short"
    completed = planted(words, repository, backend)
    assert completed.output.splitlines()[0] == b" D src/main.py"
    assert completed.exit_code == 0
    assert completed.left == ""
