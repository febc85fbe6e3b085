from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepfold.events.vocabulary import ToolReturned


def test_list_shows_names_folders_and_where_links_lead(hands: Any, project: Path) -> None:
    (project / "link").symlink_to("notes.txt")
    assert hands("fs.list").content == "link -> notes.txt\nnotes.txt\nsrc/"
    assert hands("fs.list", path="src").content == "main.py"


def test_list_of_what_is_no_folder(hands: Any) -> None:
    assert hands("fs.list", path="nowhere").error == "NotFound"
    assert hands("fs.list", path="notes.txt").error == "WrongKind"


@pytest.mark.parametrize(
    ("lines", "content"),
    [
        ({}, "one\ntwo\nthree\n"),
        ({"start_line": 2}, "two\nthree\n"),
        ({"end_line": 1}, "one\n"),
        ({"start_line": 2, "end_line": 2}, "two\n"),
        ({"start_line": 3, "end_line": 99}, "three\n"),
        ({"start_line": 2.0, "end_line": 2.0}, "two\n"),
    ],
)
def test_read_gives_the_lines_asked_for(hands: Any, lines: dict[str, int], content: str) -> None:
    assert hands("fs.read", path="notes.txt", **lines).content == content


def test_read_refuses_what_is_not_there_or_no_text(hands: Any, project: Path) -> None:
    (project / "binary").write_bytes(b"\x7fELF\0")
    (project / "empty").touch()
    assert hands("fs.read", path="nowhere").error == "NotFound"
    assert hands("fs.read", path="src").error == "WrongKind"
    assert hands("fs.read", path="notes.txt/x").error == "WrongKind"
    assert hands("fs.read", path="binary").error == "Binary"
    assert hands("fs.read", path="empty").content == "(empty file)"
    assert "3 lines" in hands("fs.read", path="notes.txt", start_line=9).content


def test_a_long_file_keeps_both_ends_and_names_the_whole(hands: Any, project: Path) -> None:
    (project / "long").write_text("a" * 50_000)
    result = hands("fs.read", path="long")
    assert len(result.content) < 17_000
    assert result.size == 50_000
    assert f"sha256:{result.digest}" in result.content


def test_write_makes_folders_and_replaces(hands: Any, project: Path) -> None:
    assert hands("fs.write", path="a/b/c.txt", content="x\n").content == "created a/b/c.txt (2 bytes)"
    assert hands("fs.write", path="a/b/c.txt", content="").content == "replaced a/b/c.txt (0 bytes; it had 2)"
    assert (project / "a/b/c.txt").read_bytes() == b""


def test_write_says_how_much_there_was_and_that_a_line_break_was_lost(hands: Any, project: Path) -> None:
    """Asked to change one line, models wrote that line alone, and files lost the line break at their end."""
    (project / "list.txt").write_text("bread\nmilk\n")

    assert hands("fs.write", path="list.txt", content="milk").content == (
        "replaced list.txt (4 bytes; it had 11, and a line break at its end, which it has no more)"
    )
    assert (
        hands("fs.write", path="list.txt", content="tea").content == "replaced list.txt (3 bytes; it had 4)"
    )


def test_a_write_of_what_is_there_is_told_and_no_error(hands: Any, project: Path) -> None:
    hands("fs.write", path="list.txt", content="milk\n")

    again = hands("fs.write", path="list.txt", content="milk\n")

    assert (again.error, again.content) == (
        "",
        "list.txt already had this content (5 bytes): nothing is different now",
    )


@pytest.mark.parametrize("path", [".", "src", "src/", "notes.txt/x"])
def test_write_on_a_folder_or_below_a_file_is_an_error_to_react_to(hands: Any, path: str) -> None:
    result = hands("fs.write", path=path, content="x")
    assert isinstance(result, ToolReturned)
    assert result.error


def test_patch_replaces_the_one_place(hands: Any, project: Path) -> None:
    assert (
        hands("fs.patch", path="src/main.py", old="return 41", new="return 42").content
        == "patched src/main.py at line 2"
    )
    assert (project / "src/main.py").read_text() == "def answer():\n    return 42\n"


def test_patch_keeps_crlf_and_a_missing_last_line_end(hands: Any, project: Path) -> None:
    (project / "dos.txt").write_bytes(b"a\r\nb\r\nc")
    assert not hands("fs.patch", path="dos.txt", old="a\nb", new="a\nx\nb").error
    assert (project / "dos.txt").read_bytes() == b"a\r\nx\r\nb\r\nc"


def test_patch_without_a_match_shows_the_closest_lines(hands: Any) -> None:
    result = hands("fs.patch", path="src/main.py", old="  return 41;", new="x")
    assert result.error == "NoMatch"
    assert "2:     return 41" in result.content


def test_patch_with_several_matches_names_their_lines(hands: Any, project: Path) -> None:
    (project / "twice").write_text("x\ny\nx\n")
    result = hands("fs.patch", path="twice", old="x", new="z")
    assert result.error == "ManyMatches"
    assert "1, 3" in result.content
    assert (project / "twice").read_text() == "x\ny\nx\n"


def test_overlapping_matches_are_several(hands: Any, project: Path) -> None:
    (project / "aaa").write_text("aaa")
    assert hands("fs.patch", path="aaa", old="aa", new="b").error == "ManyMatches"


def test_patch_that_changes_nothing_says_so(hands: Any) -> None:
    assert hands("fs.patch", path="notes.txt", old="one", new="one").error == "NoChange"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=60),
    st.text(alphabet="ab\n", min_size=1, max_size=3),
    st.text(alphabet="ab\n", max_size=3),
)
def test_patch_changes_the_match_and_not_a_byte_else(
    hands: Any, project: Path, content: bytes, old: str, new: str
) -> None:
    file = project / "any"
    file.write_bytes(content)
    result = hands("fs.patch", path="any", old=old, new=new)
    if result.error:
        assert file.read_bytes() == content
        return
    before, _, after = content.partition(old.encode())
    unix = before + new.encode() + after
    assert file.read_bytes().replace(b"\r\n", b"\n") == unix.replace(b"\r\n", b"\n")


def test_the_store_of_runs_is_in_no_listing(hands: Any, project: Path) -> None:
    (project / ".stepfold" / "runs").mkdir(parents=True)
    assert hands("fs.list").content == "notes.txt\nsrc/"
