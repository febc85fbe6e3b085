"""Repositories that a command leaves for the user's next `git status`, one way a line; none may run anything.

All are tried in every backend, by the user of the tests and, where that is root, by an ordinary one, each
way in a folder of its own. Afterwards git is asked in every folder of the project, as the user, and what was
planted would leave a witness.
"""

import asyncio
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stepfold.engine.capabilities.repositories import known_in, settle
from stepfold.engine.capabilities.sandbox import Completed, run
from stepfold.engine.capabilities.workspace import Workspace
from tests.engine.capabilities.ordinary_user import (
    AS_NOBODY,
    CAN_BE_NOBODY,
    LIMITED,
    NOBODY,
    given_to_nobody,
    run_as_nobody,
)

MAKING = """
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=init.templateDir GIT_CONFIG_VALUE_0=
made() { git init -q "$1" && echo x > "$1/x" && git -C "$1" add x && armed "$1/.git"; }
armed() { git config -f "$1/config" core.fsmonitor "touch $WITNESS;:"; }
bare() { made "$1.was" && mkdir -p "$1" && mv "$1.was/.git/"* "$1/" && based "$1"; }
based() { git config -f "$1/config" core.bare false; git config -f "$1/config" core.worktree "$PWD/$1"; }
"""

NEW = {
    "a repository": "made sub",
    "one in a folder that is there": "made src",
    "one at the place of one that was moved": "mv lib x9; rm -rf lib; made lib",
    "one at the place of one that was removed": "rm -rf lib; mkdir lib; made lib",
    "a file that points at it": "made src; mv src/.git src/real; echo 'gitdir: real' > src/.git",
    "a file that points out of its folder": "made src; mv src/.git real; echo 'gitdir: ../real' > src/.git",
    "a link to it": "made src; mv src/.git src/real; ln -s real src/.git",
    "one without a .git": "bare pot",
    "one deep below": "mkdir -p a/b/c/d/e/f; bare a/b/c/d/e/f/pot; made a/b/c/d/e",
    "one whose HEAD is a link": "bare pot; rm pot/HEAD; ln -s refs/heads/main pot/HEAD",
    "one whose objects are links": "bare pot; mv pot/objects pot/refs src/; "
    "ln -s ../src/objects pot/objects; ln -s ../src/refs pot/refs",
    "one in two parts": "bare pot; mkdir two; mv pot/HEAD two/; cp pot/index two/; "
    "echo ../pot > two/commondir; "
    "git config -f pot/config extensions.worktreeConfig true; "
    "git config -f two/config.worktree core.worktree $PWD/two; "
    "git config -f two/config.worktree core.bare false",
    "one in a repository": "made sub; cd sub; made in; bare pot",
    "one in what is put aside": "made sub; bare pot; mv pot sub/.git/modules",
    "one where the name to put it aside is taken": "made sub; mkdir sub/.git.proposed; "
    "touch sub/.git.proposed/x; ln -s nowhere sub/.git.proposed.2",
    "one behind a shut door": "made sub; bare pot; mkdir shut; mv sub pot shut; chmod 000 shut",
    "one behind a door without a handle": "mkdir shut; made sub; mv sub shut; chmod 444 shut",
    "one in a folder that can't be changed": "made sub; chmod 555 sub",
    "one in a folder that can't be listed": "made sub; bare pot; mv sub pot door/",
    "one below it, which is then shut for changes": "made sub; mv sub door/inner/; "
    "chmod 111 door/inner; chmod 111 door",
    "one by a name that is no text": "made $'\\xff\\n'; mkdir $'\\xfe'; bare $'\\xfe/pot'",
}
"""What git would run where nothing contains the command, and nobody looks afterwards."""

THERE = {
    "settings of one in the project": "armed lib/.git",
    "settings of one that was moved": "mv lib x9; armed x9/.git",
    "settings through a link": "ln -s lib/.git way; armed way",
    "settings through another name": "ln lib/.git/config way; "
    'git config -f way core.fsmonitor "touch $WITNESS;:"',
    "settings moved into their place": "cp lib/.git/config mine; "
    'git config -f mine core.fsmonitor "touch $WITNESS;:"; mv mine lib/.git/config',
    "settings of one without a .git": "armed store.git",
    "settings of one in a folder that can't be listed": "armed door/lib/.git",
    "settings of one below a folder that can't be listed": "armed door/inner/store.git",
    "its hooks": "mkdir -p lib/.git/hooks store.git/hooks; touch lib/.git/hooks/x store.git/hooks/x",
    "the whole of it": "mv lib/.git mine; rm -rf lib/.git store.git",
    "what points at it": "rm -f part/.git; echo 'gitdir: ../src' > part/.git",
    "its mode": "chmod -R a+rwx lib/.git store.git; touch lib/.git/x store.git/x",
    "what it is mounted on": "umount -l lib/.git; unshare -Ur umount -l lib/.git; touch lib/.git/x",
}
"""Changes to repositories that are there."""


STARTING = """
git init -q . && git init -q lib && touch lib/y && git -C lib add y && git init -q --bare store.git
git init -q part && touch part/z && git -C part add z
mv part/.git apart && echo 'gitdir: ../apart' > part/.git
mkdir src && touch src/main.py
mkdir -p door/inner && git init -q door/lib && touch door/lib/y && git -C door/lib add y
git init -q --bare door/inner/store.git
"""
"""A project in git, with a repository in it, one that a file points at, and one without a `.git`.

Two more are in `door`, which can be entered and not be listed.
"""


def numbered(ways: dict[str, str]) -> dict[str, str]:
    return {f"way-{number}": name for number, name in enumerate(ways)}


@pytest.fixture
def yard(base: Path) -> Path:
    """A folder for each way, with the same in it."""
    first = base / "project" / "way-0"
    first.mkdir(parents=True)
    environment = os.environ | {"GIT_TEMPLATE_DIR": ""}
    subprocess.run(["sh", "-e", "-c", STARTING], cwd=first, check=True, env=environment)
    for name in [*numbered(NEW)][1:]:
        shutil.copytree(first, base / "project" / name, symlinks=True)
    for door in base.glob("project/*/door"):
        door.chmod(0o311)
    return base / "project"


def all_of(ways: dict[str, str], witnesses: Path) -> str:
    """One command that tries each way in its folder."""
    tried = (
        f"(cd {number} && export WITNESS={witnesses}/{number} && {ways[name]})\n"
        for number, name in numbered(ways).items()
    )
    return MAKING + "".join(tried)


def planted(command: str, project: Path, backend: str, timeout: float = 30) -> Completed:
    return asyncio.run(
        run(command, workspace=Workspace(project), backend=backend, timeout=timeout, limits=LIMITED)
    )


def that_run(ways: dict[str, str], project: Path, witnesses: Path, by: tuple[str, ...] = ()) -> set[str]:
    """The ways that have something run in a `git status`, asked in every folder, the shut ones too."""
    asking = (
        r'chmod -R u+rwX . && find . \( -name "??" -o -name objects -o -name refs \) -prune -o '
        r'-type d -exec sh -c "cd \"\$1\" && git status" sh {} \;'
    )
    for left in witnesses.iterdir():
        left.unlink()
    subprocess.run([*by, "sh", "-c", asking], cwd=project, capture_output=True, check=False)
    return {ways_name for number, ways_name in numbered(ways).items() if (witnesses / number).exists()}


def repositories(project: Path) -> dict[str, bytes]:
    """Every file of the repositories that were there, wherever they lie by now."""
    folders = [*project.glob("*/*/.git"), *project.glob("*/store.git"), *project.glob("*/apart")]
    return {
        str(path.relative_to(folder.parent)): path.read_bytes()
        for folder in folders
        for path in (folder, *folder.rglob("*"))
        if path.is_file()
    }


def test_git_runs_what_is_planted_where_there_is_no_sandbox(yard: Path, witnesses: Path) -> None:
    planted(all_of(NEW, witnesses), yard, "none")
    assert that_run(NEW, yard, witnesses) == {*NEW}


def test_a_planted_repository_is_put_aside(yard: Path, backend: str, witnesses: Path) -> None:
    completed = planted(all_of(NEW, witnesses), yard, backend)
    assert that_run(NEW, yard, witnesses) == set()
    assert ".git -> " in completed.left
    assert "more: Git runs programs" in completed.left


def test_a_repository_that_is_there_stays_as_it_is(yard: Path, backend: str, witnesses: Path) -> None:
    before = repositories(yard)
    planted(all_of(THERE, witnesses), yard, backend)
    assert repositories(yard) == before
    assert that_run(THERE, yard, witnesses) == set()


def as_nobody(work: Callable[[], object]) -> None:
    """Do something in this interpreter as an ordinary user."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


if CAN_BE_NOBODY:

    @pytest.mark.parametrize("ways", [NEW, THERE], ids=["new", "there"])
    def test_an_ordinary_user_plants_none(
        ways: dict[str, str], yard: Path, backend: str, witnesses: Path
    ) -> None:
        given_to_nobody(yard)
        before = repositories(yard)
        known = known_in(str(yard))
        kept = [str(yard / path) for path in known.repositories.values()]
        said = run_as_nobody(f"id -u; {all_of(ways, witnesses)}", yard, backend, kept, timeout=30)
        assert str(NOBODY).encode() in said, "the box stood, and the user was that one"
        if ways is THERE:
            assert repositories(yard) == before
        as_nobody(lambda: settle(str(yard), known, ()))
        assert {stat.S_IMODE(door.stat().st_mode) for door in yard.glob("*/door")} <= {0o311, 0o111}
        assert that_run(ways, yard, witnesses, AS_NOBODY) == set()
