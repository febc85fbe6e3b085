"""What git's settings name in a project, whoever's they are, and what that keeps from being written."""

import os
import subprocess
from pathlib import Path

import pytest

from stepfold.engine.capabilities import git_settings
from stepfold.engine.capabilities.git_settings import SettingsUnread
from stepfold.engine.capabilities.named_files import kept_of, named_in, way_to
from stepfold.engine.capabilities.repositories import known_in
from stepfold.engine.capabilities.workspace import PathOutside, Workspace
from tests.engine.capabilities.ordinary_user import CAN_BE_NOBODY, given_to_nobody
from tests.engine.capabilities.test_planted_repositories import as_nobody, planted


def kept(project: Path) -> set[str]:
    """The paths in the project that a command may not change, repositories apart."""
    named = named_in(str(project), known_in(str(project)).repositories.values())
    return {path.removeprefix(f"{project}/") for path in kept_of(str(project), named)}


def configured(folder: Path, *pairs: str) -> None:
    for pair in pairs:
        key, _, value = pair.partition(" ")
        subprocess.run(["git", "config", "--add", key, value], cwd=folder, check=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home without settings, but for those that a test puts there."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path / "home"


def test_a_repository_without_such_settings_names_nothing(repository: Path) -> None:
    configured(repository, "branch.src.merge refs/heads/src", "remote.o.url ./notes.txt")
    assert kept(repository) == set()


def test_each_file_on_the_way_is_kept_and_each_link(repository: Path) -> None:
    (repository / "way").symlink_to("src")
    configured(repository, "core.fsmonitor way/main.py", "diff.x.textconv cat notes.txt")
    configured(repository, "alias.all !black src", "filter.x.clean tools/missing")
    assert kept(repository) == {"way", "src/main.py", "notes.txt"}


@pytest.mark.parametrize("path", [".", "", "..", "../..", "/", "src/.."])
def test_the_project_itself_is_never_kept(repository: Path, path: str) -> None:
    configured(repository, f"core.hooksPath {path}", f"core.editor {path}/")
    assert kept(repository) == set()
    assert Workspace(repository).writable("src/main.py")


def test_settings_of_the_user_count_in_each_repository(repository: Path, home: Path) -> None:
    assert kept(repository) == set()
    (home / ".gitconfig").write_text("[core]\n\thooksPath = notes.txt\n[include]\n\tpath = more\n")
    (home / "more").write_text(f"[gpg]\n\tprogram = {repository}/src/main.py\n")
    assert kept(repository) == {"notes.txt", "src/main.py"}
    (home / "more").unlink()
    assert kept(repository) == {"notes.txt"}


def test_programs_that_the_environment_names_are_kept(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_SSH_COMMAND", "ssh -F notes.txt")
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(repository / "src"))
    assert kept(repository) == {"notes.txt", "src"}


def test_the_users_settings_themselves_are_kept_where_they_lie_in_the_project(
    repository: Path, home: Path
) -> None:
    (home / ".gitconfig").symlink_to(repository / "notes.txt")
    (repository / "notes.txt").write_text("")
    assert kept(repository) == {"notes.txt"}


def test_settings_of_a_repository_that_the_project_lies_in_count(repository: Path) -> None:
    configured(repository, "core.hooksPath src")
    (repository / "src" / "project").mkdir()
    configured(repository, "core.fsmonitor src/project/tool")
    (repository / "src" / "project" / "tool").touch()
    assert kept(repository / "src" / "project") == {"tool"}


def test_settings_of_a_linked_worktree_count(repository: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "worktree", "add", "-q", tmp_path / "linked"], cwd=repository, check=True)
    configured(repository, "core.hooksPath src")
    assert kept(tmp_path / "linked") == {"src"}


def test_settings_of_a_submodule_count(repository: Path) -> None:
    (repository / ".git" / "modules").mkdir()
    words = ["git", "init", "-q", "--separate-git-dir", ".git/modules/sub", "sub"]
    subprocess.run(words, cwd=repository, check=True)
    (repository / "sub" / "tool").touch()
    configured(repository / "sub", "core.fsmonitor ./tool", "core.editor sh ../src/main.py")
    assert kept(repository) == {"sub/tool", "src/main.py"}


def test_files_that_include_each_other_are_read_once(repository: Path) -> None:
    for name, other in (("one", "two"), ("two", "one")):
        (repository / name).write_text(f"[include]\n\tpath = {other}\n[core]\n\teditor = ./{name}.sh\n")
        (repository / f"{name}.sh").touch()
    configured(repository, "include.path ../one")
    assert kept(repository) == {"one", "two", "one.sh", "two.sh"}


def test_what_stands_above_a_mistake_counts(repository: Path) -> None:
    with (repository / ".git" / "config").open("a") as config:
        config.write("[core]\n\teditor = ./notes.txt\n[wrong\n")
    assert kept(repository) == {"notes.txt"}


def test_what_is_no_file_is_not_read(repository: Path) -> None:
    configured(repository, "include.path ../pipe", "include.path ../src")
    os.mkfifo(repository / "pipe")
    assert kept(repository) == {"pipe"}


def test_more_files_than_anybody_includes_are_refused(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_settings, "FILES_AT_MOST", 3)
    configured(repository, "include.path ../one", "include.path ../two")
    with pytest.raises(SettingsUnread, match="more than 3 files"):
        kept(repository)


def test_a_git_that_lies_in_the_project_is_not_called(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "git").write_text("#!/bin/sh\ntouch called\n")
    (repository / "git").chmod(0o755)
    configured(repository, "core.editor ./notes.txt")
    monkeypatch.setenv("PATH", f"{repository}:.::{os.environ['PATH']}")
    assert kept(repository) == {"notes.txt"}
    monkeypatch.setenv("PATH", str(repository))
    assert git_settings.git_program(str(repository)) == ""


def test_links_in_a_circle_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    assert way_to(str(tmp_path), f"{tmp_path}/one/x").kind == ""


@pytest.mark.parametrize(
    ("setting", "path"),
    [
        ("include.path ../notes.txt", "notes.txt"),
        ("include.path ../new/later", "new/later"),
        ("core.hooksPath src", "src/main.py"),
        ("core.hooksPath src", "src/new"),
        ("core.hooksPath .husky", ".husky/pre-commit"),
        ("core.hooksPath .husky/_", ".husky/pre-commit"),
        ("filter.x.clean python notes.txt", "notes.txt"),
        ("core.fsmonitor ./Notes.txt", "notes.txt"),
    ],
)
def test_no_native_writes_a_file_that_is_named(repository: Path, setting: str, path: str) -> None:
    (repository / ".husky" / "_").mkdir(parents=True)
    assert Workspace(repository).writable(path)
    configured(repository, setting)
    key = setting.partition(" ")[0].lower()
    with pytest.raises(PathOutside, match=rf"a setting names it \({key} in .git/config\)"):
        Workspace(repository).writable(path)
    assert Workspace(repository).writable("docs/other.txt")


def test_no_native_writes_what_settings_name_from_where_a_command_has_moved_them(
    repository: Path, sandbox: str
) -> None:
    subprocess.run(["git", "init", "-q", "lib"], cwd=repository, check=True)
    configured(repository / "lib", "core.fsmonitor ../tools/run")
    planted("mkdir new; mv lib new", repository, sandbox)
    named = "new/tools/run" if (repository / "new" / "lib").exists() else "tools/run"
    with pytest.raises(PathOutside, match=r"core\.fsmonitor"):
        Workspace(repository).writable(named)


def test_a_folder_in_the_place_of_a_program_may_be_filled(repository: Path) -> None:
    configured(repository, "alias.clean !rm -rf ./build ./src")
    assert Workspace(repository).writable("build/out")
    assert Workspace(repository).writable("src/out")


def test_what_a_command_builds_where_a_setting_names_a_program_stays(repository: Path, backend: str) -> None:
    configured(repository, "alias.clean !rm -rf ./build")
    assert planted("mkdir build; touch build/out", repository, backend).left == ""
    assert (repository / "build" / "out").exists()


if CAN_BE_NOBODY:

    def test_settings_that_cannot_be_read_are_refused(base: Path) -> None:
        subprocess.run(["git", "init", "-q", base / "project"], check=True)
        given_to_nobody(base)
        os.chown(base / "project" / ".git" / "config", 0, 0)
        (base / "project" / ".git" / "config").chmod(0o600)

        def asked() -> None:
            with pytest.raises(SettingsUnread, match="config can't be read"):
                named_in(str(base / "project"), [".git"])

        as_nobody(asked)
