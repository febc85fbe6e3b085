"""`stepfold log`: byte for byte, compared with its seals, and sealed anew where it was edited."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.cli.log import start_of_last
from stepfold.events.codec import encode
from stepfold.events.journal import read_log
from tests.engine.cli.projects import FINISH, LOAD_FILES, REPAIR, VERIFY, Project


@pytest.fixture
def trace(project: Project) -> Path:
    """The log of a completed run."""
    assert project.run(LOAD_FILES, VERIFY, REPAIR, VERIFY, FINISH).code == 0
    return project.trace


def shorten_the_goal(trace: Path) -> None:
    trace.write_bytes(trace.read_bytes().replace(b"make the test pass", b"make it pass", 1))


def test_a_log_as_it_was_written_is_whole(project: Project, trace: Path) -> None:
    shown = project.ask("log", "last", "--verify")
    told = project.ask("log", "last", "--verify", "--json")

    assert (shown.code, told.code) == (0, 0)
    assert shown.text.startswith("whole ")
    assert "SQLite agrees" in shown.text
    assert (told.json["verdict"], told.json["findings"], told.json["store"]) == ("whole", [], "agrees")
    assert told.json["events"] == told.json["sealed"] == len(project.events())


def test_an_edited_log_is_damaged_where_it_was_edited_and_can_still_be_looked_at(
    project: Project, trace: Path
) -> None:
    shorten_the_goal(trace)

    verified = project.ask("log", "last", "--verify")
    shown = project.ask("show", "last")
    listed = project.ask("runs")
    replayed = project.ask("replay", trace, "--json")

    assert verified.code == 2
    assert "line 1 (seq 0): changed after it was written" in verified.text
    assert "SQLite differs at seq 0" in verified.text
    assert shown.code == 0
    assert f"{trace}:1: changed after it was written" in shown.err
    assert "completed" in listed.text
    assert replayed.code != 0
    assert replayed.json["damaged"]["seq"] == 0


def test_an_edited_log_is_not_resumed_or_forked(project: Project, trace: Path) -> None:
    shorten_the_goal(trace)

    for arguments in (("resume", "last"), ("fork", "last", "--at", 5)):
        refused = project.ask(*arguments, "--project", project.folder, "--model", project.script(FINISH))
        refused.is_refused(f"{trace}:1: changed after it was written", "--reseal")


def test_an_edited_log_is_sealed_anew_and_says_so(project: Project, trace: Path) -> None:
    old = read_log(trace).records[4]
    trace.write_bytes(trace.read_bytes().replace(encode(old.event)[:-1], encode(old.event)[:-1] + b" ", 1))

    resealed = project.ask("log", "last", "--reseal", "a space too many")

    assert resealed.code == 0
    assert "from seq 4 on" in resealed.text
    assert json.loads(trace.read_bytes().splitlines()[0])["resealed"] == [
        {"seq": 4, "why": "a space too many"}
    ]
    verified = project.ask("log", "last", "--verify", "--json")
    assert (verified.code, verified.json["verdict"], verified.json["store"]) == (0, "whole", "agrees")
    assert project.ask("replay", trace).code == 0
    assert "nothing to seal anew" in project.ask("log", "last", "--reseal", "again").text


def test_sealing_anew_wants_a_reason_and_one_thing_is_asked_at_a_time(project: Project, trace: Path) -> None:
    before = trace.read_bytes()

    project.ask("log", "last", "--reseal", " ").is_refused("--reseal", "say why")
    project.ask("log", "last", "--reseal", "x", "--verify").is_refused("name one")

    assert trace.read_bytes() == before


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_the_last_events_are_those_at_the_end(project: Project, trace: Path, count: int) -> None:
    lines = trace.read_bytes().splitlines(keepends=True)

    assert project.ask("log", "last", "--last", count).out == b"".join(lines[-count:])


@given(
    st.lists(st.sampled_from([0, 1, 7, 100, 65_535, 65_536, 200_000]), max_size=6),
    st.integers(1, 8),
    st.booleans(),
)
def test_the_last_lines_begin_where_a_whole_reading_says(lengths: list[int], count: int, ends: bool) -> None:
    whole = b"\n".join(b"x" * length for length in lengths) + (b"\n" if ends and lengths else b"")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "log"
        file.write_bytes(whole)
        start = start_of_last(file, count)

    kept = whole.removesuffix(b"\n").split(b"\n")[-count:]
    assert whole[start:].removesuffix(b"\n") == b"\n".join(kept)


def test_the_last_events_are_followed(project: Project, trace: Path) -> None:
    lines = trace.read_bytes().splitlines(keepends=True)

    assert project.ask("log", "last", "--last", 3, "--follow").out == b"".join(lines[-3:])
