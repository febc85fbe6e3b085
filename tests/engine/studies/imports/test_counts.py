"""Every trace gives the turns, calls, results and endings that somebody counted by hand."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from stepfold.engine.studies.imports.formats import guessed
from stepfold.engine.studies.imports.importing import Imported, import_file
from stepfold.events.store import Store

TRACES = Path(__file__).parent / "traces"
COUNTS: dict[str, Any] = json.loads((TRACES / "counts.json").read_text())
NAMES = {"rep": "longest_repeat", "trip3": "third_repeat"}
COUNTED = ("turns", "calls", "results", "rejected", "errors", "orphans", "rep", "trip3")
OTHER_TRACES = os.environ.get("STEPFOLD_TRACES", "")
"""A folder of whole traces with a counts.json, where somebody has one: they are checked too."""


def imported(tmp_path: Path, file: Path, name: str = "auto") -> list[Imported]:
    with Store(tmp_path / "store") as store:
        return list(import_file(store, file, name))


def counted(run: Imported) -> dict[str, Any]:
    found = {name: getattr(run.counts, NAMES.get(name, name)) for name in COUNTED}
    return {**found, "trip3": found["trip3"] or None, "end": run.ended.end_as_recorded}


@pytest.mark.parametrize("name", COUNTS)
def test_a_trace_gives_what_is_in_it(tmp_path: Path, name: str) -> None:
    wanted = COUNTS[name]

    runs = imported(tmp_path, TRACES / name)

    assert {run.format for run in runs} == {wanted["format"]}
    assert [counted(run) for run in runs] == [
        {name: run[name] for name in (*COUNTED, "end")} for run in wanted["runs"]
    ]


@pytest.mark.parametrize("name", [name for name in COUNTS if not name.startswith("who_when")])
def test_the_calls_without_a_result_are_counted(tmp_path: Path, name: str) -> None:
    runs = imported(tmp_path, TRACES / name)

    assert [run.counts.inflight for run in runs] == [run["inflight"] for run in COUNTS[name]["runs"]]


def test_a_hand_over_that_nobody_answered_is_a_call_in_flight(tmp_path: Path) -> None:
    (run,) = imported(tmp_path, TRACES / "who_when/hand_crafted_11.json")

    assert run.counts.calls - run.counts.results == run.counts.inflight == 1


@pytest.mark.skipif(not OTHER_TRACES, reason="no folder of whole traces is named in STEPFOLD_TRACES")
def test_the_whole_traces_agree_too(tmp_path: Path) -> None:
    whole = Path(OTHER_TRACES)
    for name, wanted in json.loads((whole / "counts.json").read_text()).items():
        runs = imported(tmp_path, whole / name)
        assert [counted(run) for run in runs] == [
            {name: run[name] for name in (*COUNTED, "end")} for run in wanted["runs"]
        ], name


@pytest.mark.parametrize("name", COUNTS)
def test_the_format_is_told_by_the_content_and_not_by_the_name(tmp_path: Path, name: str) -> None:
    nameless = tmp_path / "trace"
    nameless.write_bytes((TRACES / name).read_bytes())

    assert guessed(nameless) == COUNTS[name]["format"]


STATUSES = {
    "sweagent/django__django-13670.traj": ["completed"],
    "sweagent/scikit-learn__scikit-learn-13439.traj": [""],
    "mini_swe_agent/pvlib-1606.server_error.traj.json": ["failed"],
    "mini_swe_agent/github_issue.list.traj.json": ["completed"],
    "inspect/browser.json": ["completed"],
    "openhands/pr_review_events.jsonl": [""],
    "codex_tui/binary-size-head.jsonl": [""],
    "tau_bench/gpt-4o-airline.a.json": ["completed", "step_cap", "completed"],
    "toolbench/G1_69_ChatGPT_DFS.json": ["failed"],
    "who_when/hand_crafted_11.json": ["step_cap"],
    "burr/chat-6-errors.log.jsonl": ["failed"],
}


@pytest.mark.parametrize("name", STATUSES)
def test_our_status_stands_beside_the_recorded_end(tmp_path: Path, name: str) -> None:
    assert [run.ended.status for run in imported(tmp_path, TRACES / name)] == STATUSES[name]


def test_a_cap_that_no_file_states_is_marked_as_inferred(tmp_path: Path) -> None:
    react = imported(tmp_path, TRACES / "react_text/hotpotqa_base_trial1_tail.txt")
    tau = imported(tmp_path, TRACES / "tau_bench/gpt-4o-airline.a.json")
    (stated,) = imported(tmp_path, TRACES / "who_when/hand_crafted_11.json")

    capped = [run for run in (*react, *tau) if run.ended.status == "step_cap"]

    assert len(capped) == 11
    assert all(run.ended.inferred for run in capped)
    assert stated.ended.status == "step_cap"
    assert not stated.ended.inferred


def test_a_verdict_after_the_run_is_a_score_and_no_status(tmp_path: Path) -> None:
    tau = imported(tmp_path, TRACES / "tau_bench/gpt-4o-airline.a.json")

    assert [{score.name: score.value for score in run.ended.scores} for run in tau] == [
        {"reward": "1.0"},
        {"reward": "0.0"},
        {"reward": "0.0"},
    ]
    assert tau[2].ended.status == "completed"
