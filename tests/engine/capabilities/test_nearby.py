"""A path that leads nowhere is answered with what the model may have meant."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.capabilities.files import list_folder, patch_file, read_file, write_file
from stepfold.engine.capabilities.nearby import LIKE_AT_MOST, LOOKED_AT, SHOWN_AT_MOST, hint, same_name
from stepfold.engine.capabilities.workspace import Workspace


def workspace(folder: Path, *paths: str) -> Workspace:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("text\n")
    return Workspace(folder)


def test_the_same_name_in_another_folder_comes_before_a_like_one(tmp_path: Path) -> None:
    files = workspace(tmp_path, "src/greet.py", "greets.py")

    assert hint("tests/greet.py", files) == "did you mean src/greet.py?"


def test_a_misspelt_name_is_found(tmp_path: Path) -> None:
    files = workspace(tmp_path, "note.txt", "parser.py")

    assert hint("notes.txt", files) == "did you mean note.txt?"


def test_with_nothing_alike_it_tells_what_there_is(tmp_path: Path) -> None:
    files = workspace(tmp_path, "a/one.py", "two.md")

    assert hint("config.json", files) == "there are two.md, a/one.py"


def test_an_empty_project_has_no_files(tmp_path: Path) -> None:
    assert hint("config.json", workspace(tmp_path)) == "there are no files yet"


def test_it_stays_short_in_a_project_of_many_files(tmp_path: Path) -> None:
    files = workspace(tmp_path, *(f"{number:03}.txt" for number in range(100)))

    assert hint("zebra", files).count(",") == SHOWN_AT_MOST
    assert hint("099.tx", files).count(" or ") == LIKE_AT_MOST - 1


def test_neither_the_store_nor_a_repository_nor_a_link_is_told_of(tmp_path: Path) -> None:
    files = workspace(tmp_path, ".stepfold/run.jsonl", ".git/run.jsonl", "a.txt")
    (tmp_path / "away").symlink_to("/etc")

    assert hint("run.jsonl", files) == "there are a.txt"
    assert hint("passwd", files) == "there are a.txt"


def test_each_call_that_misses_says_so(tmp_path: Path) -> None:
    files = workspace(tmp_path, "note.txt")

    for missed in (
        read_file({"path": "notes.txt"}, files),
        patch_file({"path": "notes.txt", "old": "a", "new": "b"}, files),
        list_folder({"path": "notes.txt"}, files),
    ):
        assert missed.error == "NotFound"
        assert missed.content.endswith("did you mean note.txt?")


def test_a_file_where_a_folder_was_wanted_is_told_to_be_read(tmp_path: Path) -> None:
    listed = list_folder({"path": "note.txt"}, workspace(tmp_path, "note.txt"))

    assert (listed.error, listed.content) == ("WrongKind", "note.txt is no folder: fs.read reads it")


def test_a_new_file_in_a_new_folder_tells_of_the_one_that_is_called_so(tmp_path: Path) -> None:
    files = workspace(tmp_path, "greet.py")

    made = write_file({"path": "src/greet.py", "content": "x"}, files)
    beside = write_file({"path": "src/other.py", "content": "x"}, files)

    assert made.content == (
        "created src/greet.py (1 bytes), in a new folder. greet.py is another file, and unchanged"
    )
    assert beside.content == "created src/other.py (1 bytes)"


def test_of_many_files_of_one_name_none_was_meant(tmp_path: Path) -> None:
    files = workspace(tmp_path, "a/__init__.py", "b/__init__.py")

    assert same_name("c/__init__.py", files) == ""


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """More folders in each other than Python may call functions, or a path can name."""
    (tmp_path / "project").mkdir()
    folder = os.open(tmp_path / "project", os.O_RDONLY)
    for _ in range(2_500):
        os.mkdir("d", dir_fd=folder)
        deeper = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = deeper
    os.close(folder)
    yield tmp_path / "project"
    subprocess.run(["rm", "-rf", tmp_path / "project"], check=True)


def test_a_file_is_written_and_missed_whatever_a_command_left_there(deep: Path) -> None:
    # The file was written, and the call reported as failed: the walk went as deep as the folders.
    files = workspace(deep, "greet.py")

    made = write_file({"path": "src/greet.py", "content": "x"}, files)

    assert (made.error, made.content[:20]) == ("", "created src/greet.py")
    assert hint("gret.py", files).startswith("did you mean greet.py")


def test_folders_without_files_are_not_looked_through_without_end(tmp_path: Path) -> None:
    for number in range(LOOKED_AT + 1):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "wanted.txt").touch()

    assert hint("wanted.txt", Workspace(tmp_path)) == "there are no files near its root"


@given(path=st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_any_path_gets_an_answer(path: str) -> None:
    assert hint(path, Workspace(Path(__file__).parent))
