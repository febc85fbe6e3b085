"""The walk for repositories, and what becomes of those that a command leaves."""

import asyncio
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepfold.engine.capabilities.guarded_entries import told
from stepfold.engine.capabilities.left import Left
from stepfold.engine.capabilities.repositories import known_in, settle
from stepfold.engine.capabilities.sandbox import run
from stepfold.engine.capabilities.workspace import PathOutside, Workspace


def bare(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or ("HEAD", "objects", "refs"):
        (folder / name).touch()


def after(root: Path, change: Any) -> Left:
    """What is left of a change that comes in between."""
    known = known_in(str(root))
    change()
    return settle(str(root), known, ("stepfold.toml",))


@pytest.mark.parametrize(
    ("names", "aside"),
    [
        (("HEAD", "objects", "refs"), True),
        (("HEAD", "commondir"), True),
        (("HEAD", "objects"), False),
        (("objects", "refs", "config"), False),
    ],
)
def test_a_folder_counts_as_git_counts_it(tmp_path: Path, names: tuple[str, ...], aside: bool) -> None:
    left = after(tmp_path, lambda: bare(tmp_path / "a", *names))
    assert left.aside == ([("a/HEAD", "a/HEAD.proposed")] if aside else [])


def test_the_project_itself_is_made_no_repository(tmp_path: Path) -> None:
    assert after(tmp_path, lambda: bare(tmp_path)).aside == [("HEAD", "HEAD.proposed")]


def test_what_was_there_may_move_and_stays(tmp_path: Path) -> None:
    (tmp_path / "sub" / ".git").mkdir(parents=True)
    (tmp_path / "sub" / ".git" / "HEAD").touch()
    bare(tmp_path / "pot")
    left = after(
        tmp_path, lambda: [(tmp_path / name).rename(tmp_path / f"x{name}") for name in ("sub", "pot")]
    )
    assert left.aside == []


def test_an_empty_git_folder_is_no_repository_until_it_is_filled(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert after(tmp_path, lambda: None).aside == []
    assert after(tmp_path, (tmp_path / ".git" / "config").touch).aside == [(".git", ".git.proposed")]


def test_names_that_are_taken_get_a_number_and_nothing_is_lost(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / "stepfold.toml").write_text(str(number))
        settle(str(tmp_path), known_in(str(tmp_path)), ("stepfold.toml",))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "stepfold.toml.proposed": "0",
        "stepfold.toml.proposed.2": "1",
        "stepfold.toml.proposed.3": "2",
    }


def test_a_link_leads_nowhere(tmp_path: Path) -> None:
    bare(tmp_path / "outside" / "pot")
    (tmp_path / "project").mkdir()
    left = after(
        tmp_path / "project", lambda: (tmp_path / "project" / "way").symlink_to(tmp_path / "outside")
    )
    assert left.aside == []
    assert (tmp_path / "outside" / "pot" / "HEAD").exists()


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """More folders in each other than a path can name, in the last of them a repository."""
    (tmp_path / "project").mkdir()
    folder = os.open(tmp_path / "project", os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=folder)
        deeper = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = deeper
    os.mkdir(".git", dir_fd=folder)
    os.close(os.open(".git/config", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)
    yield tmp_path / "project"
    subprocess.run(["rm", "-rf", tmp_path / "project"], check=True)


def test_deeper_than_a_path_can_name_it_is_found(deep: Path) -> None:
    known = known_in(str(deep))
    assert known.repositories == {}, "no path can name it, so it can't be kept as it is"
    left = settle(str(deep), known, ())
    assert [new[-18:] for _, new in left.aside] == ["/d/d/.git.proposed"]
    assert left.unseen == []


def test_what_lies_deep_is_found_with_few_open_files(deep: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    known = known_in(str(deep))
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 24, limits[1]))
    try:
        left = settle(str(deep), known, ())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (len(left.aside), left.unseen) == (1, [])


def test_a_name_that_nothing_more_fits_on_is_put_aside_shortened(tmp_path: Path) -> None:
    (tmp_path / ("x" * 255)).touch()
    left = Left()
    assert left.put_aside_named(str(tmp_path), "x" * 255, "core.editor")
    assert [path.name for path in tmp_path.iterdir()] == [f"{'x' * 220}.proposed"]


def test_more_repositories_than_memory_holds_paths_of_are_put_aside_all(tmp_path: Path) -> None:
    known = known_in(str(tmp_path))
    for number in range(300):
        (tmp_path / str(number) / ".git" / "refs").mkdir(parents=True)
    left = settle(str(tmp_path), known, ())
    assert (len(left.aside), left.unlisted) == (100, 200)
    assert told(left).endswith("[200 more of these are not listed.]")
    assert len([*tmp_path.glob("*/.git.proposed")]) == 300


def test_a_command_that_is_given_up_leaves_none(project: Path, sandbox: str) -> None:
    async def given_up() -> None:
        making = "mkdir sub; touch sub/HEAD sub/objects sub/refs; sleep 30"
        task = asyncio.ensure_future(run(making, workspace=Workspace(project), backend=sandbox))
        while not (project / "sub" / "refs").exists():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(given_up())
    assert (project / "sub" / "HEAD.proposed").exists()


def test_what_one_command_makes_is_nothing_that_another_knows(project: Path, sandbox: str) -> None:
    async def both() -> None:
        workspace = Workspace(project)
        making = "mkdir sub; touch sub/HEAD sub/objects sub/refs; sleep 0.5"
        first = asyncio.ensure_future(run(making, workspace=workspace, backend=sandbox))
        while not (project / "sub" / "refs").exists():
            await asyncio.sleep(0.01)
        second = run("sleep 0.8; mv sub/HEAD.proposed sub/HEAD", workspace=workspace, backend=sandbox)
        await asyncio.gather(first, second)

    asyncio.run(both())
    assert not (project / "sub" / "HEAD").exists()


def test_one_command_may_make_and_use_a_repository(project: Path, backend: str) -> None:
    words = (
        "git init -q sub && cd sub && git config user.name a && git config user.email a@b && touch x && "
        "git add x && git commit -q -m one && git log --format=%s"
    )
    completed = asyncio.run(run(words, workspace=Workspace(project), backend=backend))
    assert completed.output == b"one\n"
    assert completed.left.startswith("[sub/.git -> sub/.git.proposed: Git runs programs")
    (project / "sub/.git.proposed/HEAD.proposed").rename(project / "sub/.git.proposed/HEAD")
    (project / "sub/.git.proposed").rename(project / "sub/.git")
    asked = subprocess.run(
        ["git", "log", "--format=%s"], cwd=project / "sub", capture_output=True, check=True
    )
    assert asked.stdout == b"one\n"


def test_a_project_that_is_shut_is_opened_to_its_owner_again(project: Path, backend: str) -> None:
    mode = project.stat().st_mode
    completed = asyncio.run(run("chmod 000 src .", workspace=Workspace(project), backend=backend))
    assert project.stat().st_mode == mode
    assert "[., src: It was shut" in completed.left
    assert asyncio.run(run("ls src", workspace=Workspace(project), backend=backend)).output == b"main.py\n"


@pytest.mark.parametrize(
    "path", ["pot/config", "pot/hooks/x", "pot/refs/heads/x", "a/HEAD", "HEAD", "a/b/commondir"]
)
def test_no_native_writes_into_a_repository_or_makes_one(project: Path, path: str) -> None:
    bare(project / "pot")
    bare(project / "a", "objects", "refs")
    bare(project, "objects", "refs")
    bare(project / "a" / "b", "HEAD")
    with pytest.raises(PathOutside, match="part of a git repository"):
        Workspace(project).writable(path)
    assert Workspace(project).writable("a/objects/x")
