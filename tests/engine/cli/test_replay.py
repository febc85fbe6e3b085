"""`stepfold replay`: identical, diverged, unreadable, torn, newer; files, folders and runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.cli.projects import FINISH, LOAD_FILES, REPAIR, VERIFY, Command, Project


@pytest.fixture
def trace(project: Project) -> Path:
    """The log of a completed run."""
    assert project.run(LOAD_FILES, "prose", VERIFY, REPAIR, VERIFY, FINISH).code == 0
    return project.trace


def edited(trace: Path, kind: str, change: Callable[[dict[str, Any]], None]) -> tuple[Path, int]:
    """A copy of a log with the first event of a kind changed, and that event's seq."""
    lines = [json.loads(line) for line in trace.read_bytes().splitlines()]
    event = next(line for line in lines if line["kind"] == kind)
    change(event)
    path = trace.parents[3] / "edited.jsonl"
    path.write_bytes(
        b"".join(
            json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" for line in lines
        )
    )
    return path, event["seq"]


def test_an_untouched_log_is_identical(project: Project, trace: Path) -> None:
    result = project.ask("replay", trace, "--json")

    assert result.code == 0
    assert result.json == {"trace": str(trace), "verdict": "identical", "events": len(project.events())}
    assert project.ask("replay", "last").text.startswith("identical")


def test_an_edited_decision_is_shown_side_by_side(stepfold: Command, trace: Path) -> None:
    path, seq = edited(trace, "EvidenceRecorded", lambda event: event.update(passed=True))

    result = stepfold("replay", path, "--json")

    assert result.code == 3
    verdict = result.json
    assert list(verdict) == [
        "trace",
        "verdict",
        "seq",
        "kind",
        "field",
        "recorded",
        "computed",
        "caused_by",
        "row",
        "damaged",
    ]
    assert (verdict["verdict"], verdict["seq"], verdict["kind"]) == ("diverged", seq, "EvidenceRecorded")
    assert (verdict["field"], verdict["recorded"], verdict["computed"]) == ("passed", True, False)
    assert verdict["caused_by"] == {
        "seq": seq - 1,
        "kind": "CheckReturned",
        "key": verdict["caused_by"]["key"],
    }
    for_people = stepfold("replay", path)
    assert for_people.code == 3
    assert "recorded  true" in for_people.text
    assert "computed  false" in for_people.text


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("ModelStarted", "digest", "0000000000000000"),
        ("ActionParsed", "name", "finish"),
        ("ActionRejected", "error", "Empty"),
        ("CapabilitiesLoaded", "loaded", ["fs.read"]),
        ("RunFinished", "status", "failed"),
    ],
)
def test_any_decided_field_is_compared(
    stepfold: Command, trace: Path, kind: str, field: str, value: object
) -> None:
    path, seq = edited(trace, kind, lambda event: event.update({field: value}))

    verdict = stepfold("replay", path, "--json").json

    assert (verdict["verdict"], verdict["seq"], verdict["kind"], verdict["field"], verdict["recorded"]) == (
        "diverged",
        seq,
        kind,
        field,
        value,
    )


def test_an_edited_reply_shows_in_what_follows_from_it(stepfold: Command, trace: Path) -> None:
    path, seq = edited(trace, "ModelReplied", lambda event: event.update(text="no JSON any more"))

    result = stepfold("replay", path, "--json")

    assert result.code == 3
    assert result.json["seq"] > seq
    assert result.json["caused_by"]["seq"] == seq


def test_a_line_that_is_none_is_named(stepfold: Command, trace: Path, tmp_path: Path) -> None:
    lines = trace.read_bytes().splitlines(keepends=True)
    path = tmp_path / "broken.jsonl"
    path.write_bytes(b"".join([*lines[:4], b"{nonsense}\n", *lines[5:]]))

    result = stepfold("replay", path, "--json")

    assert result.code == 2
    assert list(result.json) == ["trace", "verdict", "line", "why"]
    assert (result.json["verdict"], result.json["line"]) == ("unreadable", 5)


def test_a_missing_line_is_named(stepfold: Command, trace: Path, tmp_path: Path) -> None:
    lines = trace.read_bytes().splitlines(keepends=True)
    path = tmp_path / "gap.jsonl"
    path.write_bytes(b"".join([*lines[:4], *lines[5:]]))

    result = stepfold("replay", path, "--json")

    assert (result.code, result.json["line"]) == (2, 5)
    assert "seq 4 is missing" in result.json["why"]


def test_a_torn_last_line_is_told_and_the_rest_is_identical(
    stepfold: Command, trace: Path, tmp_path: Path
) -> None:
    path = tmp_path / "torn.jsonl"
    path.write_bytes(trace.read_bytes()[:-9])

    result = stepfold("replay", path, "--json")

    assert result.code == 0
    assert (result.json["verdict"], result.json["torn_bytes"] > 0) == ("identical", True)
    assert "torn" in stepfold("replay", path).err


def test_a_log_cut_at_any_line_is_identical_as_far_as_it_goes(
    stepfold: Command, trace: Path, tmp_path: Path
) -> None:
    lines = trace.read_bytes().splitlines(keepends=True)
    folder = tmp_path / "cuts"
    folder.mkdir()
    for count in range(1, len(lines) + 1):
        (folder / f"{count:03}.jsonl").write_bytes(b"".join(lines[:count]))

    result = stepfold("replay", folder, "--json")

    assert result.code == 0
    assert [verdict["events"] for verdict in result.json_lines] == list(range(1, len(lines) + 1))


def test_a_newer_version_is_refused_by_name(stepfold: Command, trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "newer.jsonl"
    path.write_bytes(trace.read_bytes().replace(b'"v":1,', b'"v":99,'))

    result = stepfold("replay", path, "--json")

    assert (result.code, result.json["verdict"], result.json["line"]) == (2, "unreadable", 1)
    assert "schema version 99" in result.json["why"]
    assert "upgrade" in result.json["why"]


@pytest.mark.parametrize("content", [b"", b"\n", b"\x00" * 100, b"[]\n", b"not a trace\n", b"\xff\xfe\n"])
def test_what_is_no_trace_is_unreadable(stepfold: Command, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "none.jsonl"
    path.write_bytes(content)

    result = stepfold("replay", path, "--json")

    assert (result.code, result.json["verdict"]) == (2, "unreadable")
    assert result.err == ""


def test_the_worst_of_a_folder_is_its_exit_code(stepfold: Command, trace: Path, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    (folder / "below").mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(trace.read_bytes())
    assert stepfold("replay", folder).code == 0
    (folder / "b.jsonl").write_bytes(b"nonsense\n")
    assert stepfold("replay", folder).code == 2
    edited(trace, "FinishAccepted", lambda event: event.update(by="magic"))[0].rename(
        folder / "below" / "c.jsonl"
    )

    result = stepfold("replay", folder, "--json")

    assert result.code == 3
    assert [verdict["verdict"] for verdict in result.json_lines] == ["identical", "unreadable", "diverged"]


def test_a_missing_file_and_an_empty_folder_are_told(stepfold: Command, tmp_path: Path) -> None:
    missing = stepfold("replay", tmp_path / "missing.jsonl", "--json")
    assert (missing.code, missing.json["verdict"]) == (2, "unreadable")
    (tmp_path / "empty").mkdir()
    stepfold("replay", tmp_path / "empty").is_refused("no *.jsonl")
    stepfold("replay").is_refused("Missing argument")
