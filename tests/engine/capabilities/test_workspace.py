import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.capabilities.paths import path_fault
from stepfold.engine.capabilities.workspace import PathOutside, Workspace


def test_a_path_is_resolved_below_the_root_whether_it_exists_or_not(project: Path) -> None:
    workspace = Workspace(project)
    assert workspace.resolve("src/main.py") == project.resolve() / "src/main.py"
    assert workspace.resolve("new/file.txt") == project.resolve() / "new/file.txt"
    assert workspace.resolve(".") == project.resolve()


def test_a_link_inside_the_project_is_followed(project: Path) -> None:
    (project / "link").symlink_to("src")
    assert Workspace(project).resolve("link/main.py") == project.resolve() / "src/main.py"


def test_a_link_loop_is_outside(project: Path) -> None:
    (project / "a").symlink_to("b")
    (project / "b").symlink_to("a")
    with pytest.raises(PathOutside):
        Workspace(project).resolve("a/x")


def test_a_link_put_in_place_after_the_look_leads_nowhere(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "main.py").write_text("secret")
    workspace = Workspace(project)
    real = workspace.resolve("src/main.py")
    (project / "src").rename(project / "was")
    (project / "src").symlink_to(outside)
    with pytest.raises(OSError):
        workspace.read_bytes(real, 100)
    with pytest.raises(OSError):
        workspace.write_bytes(real, b"changed")
    assert (outside / "main.py").read_text() == "secret"


def test_a_named_pipe_is_refused_and_does_not_hang(project: Path) -> None:
    os.mkfifo(project / "pipe")
    with pytest.raises(PermissionError):
        Workspace(project).read_bytes(project.resolve() / "pipe", 100)


def test_a_write_keeps_the_mode_and_leaves_no_draft(project: Path) -> None:
    script = project / "run.sh"
    script.write_text("old")
    script.chmod(0o751)
    workspace = Workspace(project)
    workspace.write_bytes(workspace.resolve("run.sh"), b"new")
    assert script.read_text() == "new"
    assert script.stat().st_mode & 0o777 == 0o751
    assert sorted(path.name for path in project.iterdir()) == ["notes.txt", "run.sh", "src"]


@pytest.mark.parametrize(
    "path", [".git/config", ".git", "sub/.git/hooks/x", ".GIT/config", ".stepfold/runs/a", "stepfold.toml"]
)
def test_what_runs_or_rules_outside_is_not_writable(project: Path, path: str) -> None:
    with pytest.raises(PathOutside):
        Workspace(project).writable(path)


def test_a_link_to_a_protected_entry_is_not_writable(project: Path) -> None:
    (project / ".git").mkdir()
    (project / "innocent").symlink_to(".git")
    with pytest.raises(PathOutside):
        Workspace(project).writable("innocent/config")


def test_the_whole_file_system_is_no_project() -> None:
    with pytest.raises(PathOutside):
        Workspace("/")


@given(st.text(alphabet="ab./\\:~\0C", max_size=20))
def test_no_path_that_passes_both_looks_leaves_the_root(
    tmp_path_factory: pytest.TempPathFactory, path: str
) -> None:
    root = tmp_path_factory.getbasetemp()
    workspace = Workspace(root)
    if path_fault(path):
        with pytest.raises(PathOutside):
            workspace.resolve(path)
        return
    real = workspace.resolve(path)
    assert real == root.resolve() or real.is_relative_to(root.resolve())


@pytest.mark.parametrize(
    ("path", "instead"),
    [
        ("/home/ada/project/src/a.py", "src/a.py"),
        ("/srv/a.py", "a.py"),
        ("/home/ada/project/", "."),
        ("/home/ada/project", "."),
        ("~", "."),
        ("/", "."),
        ("/home/project/../../etc/passwd", "passwd"),
        ("/home/project//etc/passwd", "passwd"),
    ],
)
def test_what_an_absolute_path_is_answered_with_is_not_refused_itself(path: str, instead: str) -> None:
    """A model that asked for `~` was told to give `~`, and one that climbed, to climb from the project."""
    assert path_fault(path, "project").endswith(repr(instead))
    assert path_fault(instead, "project") == ""


def test_no_native_writes_what_a_protected_link_leads_to(project: Path) -> None:
    (project / "stepfold.toml").symlink_to("notes.txt")
    (project / ".stepfold").symlink_to("src")
    for path in ("notes.txt", "src/main.py", "src/new"):
        with pytest.raises(PathOutside, match="can be read and not written"):
            Workspace(project).writable(path)
