import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stepfold.engine.capabilities.context import CallContext
from stepfold.engine.capabilities.git import repository_folders, status
from stepfold.engine.capabilities.workspace import Workspace


def test_status_and_diff_of_a_real_repository(boxed: Any, repository: Path) -> None:
    (repository / "src/main.py").write_text("def answer():\n    return 42\n")
    (repository / "new").touch()
    assert boxed("git.status").content == "## main\n M src/main.py\n?? new\n"
    assert "+    return 42" in boxed("git.diff").content
    assert boxed("git.diff", path="notes.txt").content == "no difference"


def test_git_without_a_repository_or_a_commit(boxed: Any, project: Path) -> None:
    assert boxed("git.status").error == "NoRepository"
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    subprocess.run(["git", "add", "notes.txt"], cwd=project, check=True)
    assert "+three" in boxed("git.diff").content


def test_git_needs_a_sandbox(hands: Any, repository: Path) -> None:
    assert hands("git.status").error == "NoSandbox"


@pytest.mark.parametrize("name", ["git.status", "git.diff"])
def test_programs_named_by_the_repository_reach_nothing_outside(
    boxed: Any, repository: Path, tmp_path: Path, name: str
) -> None:
    witness = tmp_path / "witness"
    program = repository / "evil.sh"
    program.write_text(f"#!/bin/sh\ntouch {witness}\ntouch {repository}/ran\ncat\n")
    program.chmod(0o755)
    for key in ("core.fsmonitor", "diff.external", "core.pager", "diff.evil.textconv", "diff.evil.command"):
        subprocess.run(["git", "config", key, str(program)], cwd=repository, check=True)
    (repository / ".gitattributes").write_text("*.py diff=evil\n")
    (repository / "src/main.py").write_text("changed\n")
    assert not boxed(name).error
    assert not witness.exists()
    assert not (repository / "ran").exists()


def test_a_linked_worktree_is_read_with_its_repository(
    repository: Path, tmp_path: Path, sandbox: str
) -> None:
    tree = tmp_path / "tree"
    subprocess.run(["git", "worktree", "add", "-q", str(tree)], cwd=repository, check=True)
    (tree / "notes.txt").write_text("changed\n")
    context = CallContext(workspace=Workspace(tree), sandbox=sandbox)
    assert " M notes.txt" in asyncio.run(status({}, context)).content


def test_a_git_file_that_nobody_confirms_shows_no_folder(project: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "HEAD").touch()
    (project / ".git").write_text(f"gitdir: {secret}\n")
    assert repository_folders(Workspace(project)) == ()


def test_status_shows_no_store_and_says_of_nested_repositories_what_git_says(
    boxed: Any, repository: Path
) -> None:
    commit = ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "start"]
    (repository / "lib").mkdir()
    (repository / "lib" / "a").write_text("one\n")
    for words in (["init", "-q"], ["add", "a"], commit):
        subprocess.run(["git", *words], cwd=repository / "lib", check=True)
    adding = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "./lib", "part"]
    for words in (adding, commit):
        subprocess.run(["git", *words], cwd=repository, check=True)
    (repository / "part" / "a").write_text("two\n")
    for store in (".stepfold", "deep/.stepfold"):
        (repository / store).mkdir(parents=True)
        (repository / store / "log").touch()
    assert boxed("git.status").content == "## main\n m part\n?? lib/\n"
    assert "-dirty" in boxed("git.diff").content
    (repository / "deep" / "new").touch()
    assert boxed("git.status").content == "## main\n m part\n?? deep/\n?? lib/\n"
