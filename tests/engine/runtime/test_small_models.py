"""What a run can be told for the sake of a small model: `read_first`, `verify_changes` and `keep`."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepfold import AgentLoop, replay
from stepfold.engine.capabilities.paths import kept_by
from stepfold.engine.models.scripted import Script
from stepfold.events.configuration import CheckSpec
from stepfold.events.journal import read_log
from stepfold.projections.outcome import LoopOutcome
from tests.house import action, call

FIXED = CheckSpec("fixed", "grep -q '^milk' list.txt")
WRITE = call("fs.write", path="list.txt", content="bread\nmilk\n")
READ = call("fs.read", path="list.txt")
FINISH = action("finish", summary="milk is on the list")
PRELOAD = ("fs.read", "fs.write", "fs.patch", "shell.run")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "list.txt").write_text("bread\n")
    return folder


def script(*replies: str) -> Script:
    return Script.parse(b"\n".join(msgspec.json.encode({"text": reply}) for reply in replies))


def run(project: Path, *replies: str, **settings: Any) -> tuple[LoopOutcome, list[Any]]:
    """The outcome, and the events of the log, which replays to itself."""
    given = {"checks": (FIXED,), "preload": PRELOAD, "memory": False, "max_steps": len(replies)} | settings
    loop = AgentLoop(model=script(*replies), project=project, **given)
    outcome = loop.run("put milk on the list")
    log = loop.store.path_of(outcome.run_id)
    assert replay(log).verdict == "identical"
    return outcome, [record.event for record in read_log(log).records]


def results(events: list[Any]) -> list[tuple[str, str]]:
    """What each call came to, as its error and its text."""
    return [(event.error, event.content) for event in events if type(event).__name__ == "ToolReturned"]


# --- read_first -------------------------------------------------------------------------------------


def test_a_file_that_was_not_read_is_not_replaced(project: Path) -> None:
    """Asked to add a line to a list, models wrote a file of that line, and its check passed."""
    _, events = run(project, call("fs.write", path="list.txt", content="milk"), read_first=True)

    ((error, text),) = results(events)
    assert error == "Unread"
    assert "fs.read it first" in text
    assert (project / "list.txt").read_text() == "bread\n"


@pytest.mark.parametrize("written", ["list.txt", "./list.txt", "sub/../list.txt"])
def test_one_that_was_read_is_by_whatever_name(project: Path, written: str) -> None:
    _, events = run(project, READ, call("fs.write", path="./list.txt", content="milk\n"), read_first=True)

    assert [error for error, _ in results(events)] == ["", ""]


def test_a_line_may_be_numbered_as_json_schema_has_it(project: Path) -> None:
    read = call("fs.read", path="list.txt", start_line=1.0)

    _, events = run(project, read, WRITE, read_first=True)

    assert [error for error, _ in results(events)] == ["", ""]


def test_nor_is_one_that_the_model_wrote_itself_or_that_is_new_or_empty(project: Path) -> None:
    (project / "empty.txt").touch()
    new, empty = (call("fs.write", path=f"{name}.txt", content="one\n") for name in ("new", "empty"))

    _, events = run(project, new, new, empty, empty, read_first=True)

    assert [error for error, _ in results(events)] == [""] * 4


def test_a_read_that_failed_shows_nothing(project: Path) -> None:
    (project / "list.txt").write_bytes(b"\0binary")

    _, events = run(project, READ, WRITE, read_first=True)

    assert [error for error, _ in results(events)] == ["Binary", "Unread"]


def test_what_was_read_is_known_after_a_resume(project: Path) -> None:
    ask = action("ask_user", question="go on?")
    loop = AgentLoop(
        model=script(READ, ask, WRITE, FINISH),
        project=project,
        checks=(),
        preload=PRELOAD,
        read_first=True,
    )
    asked = loop.run("put milk on the list")

    loop.resume(asked.run_id, answer="yes")

    assert (project / "list.txt").read_text() == "bread\nmilk\n"


def test_by_default_a_file_may_be_replaced_unread(project: Path) -> None:
    _, events = run(project, WRITE)

    assert results(events) == [("", "replaced list.txt (11 bytes; it had 6)")]


# --- verify_changes ---------------------------------------------------------------------------------


def test_the_checks_run_after_a_change_and_the_model_reads_what_they_say(project: Path) -> None:
    outcome, events = run(project, WRITE, FINISH, verify_changes=True)

    assert (outcome.status, outcome.steps) == ("completed", 2)
    (judged,) = (event for event in events if type(event).__name__ == "ChecksJudged")
    assert judged.step == 1
    assert "check fixed: passed\nall acceptance checks pass: call finish" in outcome.transcript


def test_they_run_after_each_change_and_only_then(project: Path) -> None:
    wrong = call("fs.write", path="list.txt", content="eggs\n")
    no_match = call("fs.patch", path="list.txt", old="tea", new="milk")

    outcome, events = run(project, READ, wrong, no_match, WRITE, FINISH, verify_changes=True)

    assert outcome.status == "completed"
    assert [event.step for event in events if type(event).__name__ == "ChecksJudged"] == [2, 4]


def test_a_call_that_brings_checks_along_chooses_none_of_them(project: Path) -> None:
    checks = (FIXED, CheckSpec("other", "true"))
    sly = action(
        "capability_call",
        capability="fs.write",
        arguments={"path": "list.txt", "content": "milk\n", "checks": ["other"]},
    )

    _, events = run(project, sly, WRITE, checks=checks, verify_changes=True)

    shown = [event.check_id for event in events if type(event).__name__ == "EvidenceRecorded"]
    assert shown == ["fixed", "other"]


def test_they_do_not_run_while_a_worker_is_changing_the_files(project: Path) -> None:
    """The model read that all checks pass, and its finish was refused: the worker had ended since."""
    part = action("worker_dispatch", task="look at the list")
    verify = action("verify")

    outcome, events = run(
        project, part, WRITE, verify, FINISH, verify_changes=True, worker_slots=2, worker_depth=1
    )

    assert outcome.status == "completed"
    assert [event.step for event in events if type(event).__name__ == "ChecksJudged"] == [3]


def test_a_check_that_changes_the_files_lets_no_change_pass(project: Path) -> None:
    spoils = CheckSpec("spoils", "echo eggs >> list.txt")

    outcome, _ = run(project, WRITE, FINISH, checks=(FIXED, spoils), verify_changes=True)

    assert outcome.unmet == ("fixed",)


def test_a_check_that_is_out_of_time_leaves_the_run_going(project: Path) -> None:
    slow = CheckSpec("slow", "sleep 60", timeout=0.2)

    outcome, _ = run(project, WRITE, READ, checks=(FIXED, slow), verify_changes=True)

    assert (outcome.steps, outcome.unmet) == (2, ("slow",))
    assert "check slow: could not run" in outcome.transcript


def test_without_checks_nothing_is_verified(project: Path) -> None:
    _, events = run(project, WRITE, checks=(), verify_changes=True)

    assert "ChecksJudged" not in {type(event).__name__ for event in events}


# --- keep -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["list.txt", "*.txt", "li??.txt"])
def test_what_is_to_stay_as_it_is_stays(project: Path, pattern: str) -> None:
    _, events = run(
        project, READ, WRITE, call("fs.patch", path="./list.txt", old="bread", new="milk"), keep=[pattern]
    )

    refused = [event for event in events if type(event).__name__ == "ToolRejected"]
    assert [event.hop for event in refused] == ["paths", "paths"]
    assert "change another file" in refused[0].reason
    assert (project / "list.txt").read_text() == "bread\n"


def test_other_files_may_be_written(project: Path) -> None:
    _, events = run(project, WRITE, keep=["test_*.py", "docs/*"])

    assert [error for error, _ in results(events)] == [""]


def test_what_is_to_stay_as_it_is_stays_by_whatever_link(project: Path) -> None:
    (project / "alias").symlink_to("list.txt")

    _, events = run(
        project,
        call("fs.write", path="alias", content="milk\n"),
        call("fs.patch", path="alias", old="bread", new="milk"),
        keep=["list.txt"],
    )

    assert [error for error, _ in results(events)] == ["Kept", "Kept"]
    assert (project / "list.txt").read_text() == "bread\n"


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("tests", "tests/deep/a.py"),
        ("tests/", "tests/a.py"),
        ("fixtures", "tests/fixtures/a.py"),
        ("tests/*", "tests/deep/a.py"),
        ("tests/deep", "tests/deep/a.py"),
        ("**/a.py", "a.py"),
        ("**/a.py", "tests/deep/a.py"),
        ("**/deep/*.py", "deep/a.py"),
    ],
)
def test_a_pattern_means_what_it_means_to_git(pattern: str, path: str) -> None:
    """A folder that was to be kept, `tests` or `tests/`, kept none of its files."""
    assert kept_by(path, (pattern,)) == pattern


@pytest.mark.parametrize(("pattern", "path"), [("tests", "tests.py"), ("a.py/", "ba.py"), ("t/*", "s/t.py")])
def test_and_no_more_than_that(pattern: str, path: str) -> None:
    assert kept_by(path, (pattern,)) == ""


# --- final_newline ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "written"),
    [
        ("milk", b"milk\n"),
        ("bread\r\nmilk", b"bread\r\nmilk\r\n"),
        ("bread\r\nmilk\neggs", b"bread\r\nmilk\neggs\n"),
        ("milk\r\n", b"milk\r\n"),
        ("milk\r", b"milk\r\n"),
        ("", b""),
    ],
)
def test_a_file_ends_in_a_line_break_of_its_own_kind(project: Path, content: str, written: bytes) -> None:
    """In a file of CRLF lines the last one ended in LF alone."""
    run(project, call("fs.write", path="new.txt", content=content), final_newline=True)

    assert (project / "new.txt").read_bytes() == written
