"""Imported runs are runs: told once, asked like our own, and never said to be regenerated."""

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepfold.engine.core.decide import decide
from stepfold.engine.runtime.replay import replay
from stepfold.engine.studies.imports.importing import Imported, ImportFailed, import_file
from stepfold.engine.studies.judge import judge
from stepfold.events.integrity import check
from stepfold.events.journal import read_log
from stepfold.events.store import Store
from stepfold.events.vocabulary import Observed
from stepfold.projections.outcome import outcome
from stepfold.projections.run import fold
from stepfold.projections.sql.relations import open_relations

TRACES = Path(__file__).parent / "traces"
OPENHANDS = TRACES / "openhands/pr_review_events.jsonl"
REACT = TRACES / "react_text/hotpotqa_base_trial1_tail.txt"
TOOLBENCH = TRACES / "toolbench/G1_69_ChatGPT_DFS.json"
SWEAGENT = TRACES / "sweagent/django__django-13670.traj"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as opened:
        yield opened


def imported(store: Store, file: Path) -> list[Imported]:
    return list(import_file(store, file, "auto"))


def findings(run: Imported) -> dict[str, int]:
    return {found.what: found.count for found in run.ended.findings}


def test_a_file_that_is_imported_twice_is_there_once_and_told_so(store: Store) -> None:
    first = imported(store, REACT)
    before = {run.trace: Path(run.trace).read_bytes() for run in first}

    second = imported(store, REACT)

    assert not any(run.again for run in first)
    assert all(run.again for run in second)
    assert [run.run_id for run in second] == [run.run_id for run in first] == sorted_by_number(store)
    assert {run.trace: Path(run.trace).read_bytes() for run in second} == before
    assert [run.as_json()["turns"] for run in second] == [run.as_json()["turns"] for run in first]


def sorted_by_number(store: Store) -> list[str]:
    return sorted(store.run_ids(), key=lambda run_id: int((*run_id.split("-"), "1")[2]))


def test_two_stores_get_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with Store(tmp_path / name) as store:
            imported(store, SWEAGENT)
    a, b = (next((tmp_path / name / "runs").iterdir()) for name in ("a", "b"))

    assert a.name == b.name
    assert a.read_bytes() == b.read_bytes()


def test_an_import_that_was_cut_short_is_done_anew(store: Store) -> None:
    (run,) = imported(store, SWEAGENT)
    whole = Path(run.trace).read_bytes()
    Path(run.trace).write_bytes(b"".join(whole.splitlines(keepends=True)[:5]))

    (again,) = imported(store, SWEAGENT)

    assert not again.again
    assert Path(run.trace).read_bytes() == whole
    assert check(Path(run.trace), store.kept(run.run_id)).verdict == "whole"


def test_no_event_is_decided_and_nothing_follows(store: Store) -> None:
    (run,) = imported(store, TOOLBENCH)
    records = read_log(Path(run.trace)).records

    assert all(isinstance(record.event, Observed) for record in records)
    assert decide(fold(record.event for record in records)) is None


def test_a_replay_says_that_it_was_imported_and_regenerates_nothing(store: Store) -> None:
    (run,) = imported(store, TOOLBENCH)

    verdict = replay(run.trace)

    assert (verdict.verdict, verdict.imported) == ("unreadable", "toolbench")
    assert "nothing to regenerate" in verdict.why
    assert verdict.as_json()["imported"] == "toolbench"


def test_an_imported_log_that_was_changed_is_damaged_first_of_all(store: Store) -> None:
    (run,) = imported(store, TOOLBENCH)
    trace = Path(run.trace)
    trace.write_bytes(trace.read_bytes().replace(b"authenticate", b"authentikate", 1))

    verdict = replay(trace)

    assert verdict.damaged is not None
    assert "changed after it was written" in verdict.why


def test_a_result_without_its_call_stays_and_is_a_finding(store: Store) -> None:
    (run,) = imported(store, OPENHANDS)

    folded = fold(record.event for record in read_log(Path(run.trace)).records)

    assert findings(run)["result_without_call"] == 1
    assert [turn.role for turn in folded.history.turns].count("tool") == 3
    assert {turn.tool_call_id for turn in folded.history.turns if turn.role == "tool"} >= {
        "chatcmpl-tool-9051d3d10f914188"
    }


def test_lines_that_are_torn_or_fused_are_findings_and_the_others_are_read(
    store: Store, tmp_path: Path
) -> None:
    lines = OPENHANDS.read_bytes().split(b"\n")
    broken = tmp_path / "events.jsonl"
    broken.write_bytes(b"\n".join([lines[0] + lines[1], *lines[2:-1], lines[-1][:40] or b'{"id": "x']))

    (run,) = imported(store, broken)

    assert findings(run)["fused_line"] == 1
    assert findings(run)["torn_line"] == 1
    assert run.counts.turns == 2


def test_a_document_that_breaks_off_gives_what_it_has(store: Store, tmp_path: Path) -> None:
    broken = tmp_path / "broken.traj"
    broken.write_bytes(SWEAGENT.read_bytes()[:40_000])

    (run,) = imported(store, broken)

    assert 0 < run.counts.turns < 16
    assert findings(run)["broken_document"] == 1
    assert run.ended.status == ""


def test_json_that_only_python_reads_is_read_and_noticed(store: Store, tmp_path: Path) -> None:
    loose = tmp_path / "log.json"
    loose.write_text(
        (TRACES / "inspect/popularity_cancelled.json").read_text().replace("0.33333333333333337", "NaN")
    )

    runs = imported(store, loose)

    assert [run.counts.turns for run in runs] == [1, 1, 1]
    assert "loose_json" in findings(runs[0])


def test_a_file_of_no_format_says_so_in_one_line(store: Store, tmp_path: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear Sir,\nno trace here.\n")

    with pytest.raises(ImportFailed, match="none of the known formats") as caught:
        imported(store, letter)

    assert "\n" not in str(caught.value)
    assert store.run_ids() == []


def test_what_a_file_gives_no_time_for_has_none_in_sql(store: Store, tmp_path: Path) -> None:
    imported(store, SWEAGENT)
    relations = open_relations(tmp_path / "store")

    rows = list(relations.query("SELECT started, ended, finish, loop, actions FROM runs").rows)
    seconds = relations.query("SELECT count(*), count(started), count(seconds) FROM tool_calls").rows

    assert rows == [(None, None, "completed", "imported", 16)]
    assert list(seconds) == [(16, 0, 0)]


def test_the_views_say_what_a_fold_of_an_imported_run_says(store: Store, tmp_path: Path) -> None:
    wanted: dict[str, dict[str, Any]] = {}
    for file in (
        OPENHANDS,
        TOOLBENCH,
        TRACES / "pi/large-session.jsonl",
        TRACES / "burr/chat-6-errors.log.jsonl",
    ):
        for run in imported(store, file):
            folded = fold(record.event for record in read_log(Path(run.trace)).records)
            wanted[run.run_id] = {
                "turns": run.counts.turns,
                "calls": outcome(folded).actions,
                "rejected": run.counts.rejected,
                "open": len(folded.due),
                "tokens": folded.usage.total_tokens,
                "messages": len(folded.history.turns),
            }
    relations = open_relations(tmp_path / "store")

    rows = relations.query(
        """SELECT run_id, (SELECT count(*) FROM model_calls WHERE model_calls.run_id = runs.run_id), actions,
            rejected, (SELECT count(*) FROM tool_calls WHERE outcome = 'unfinished' AND
                tool_calls.run_id = runs.run_id), input_tokens + output_tokens,
            (SELECT count(*) FROM messages WHERE messages.run_id = runs.run_id)
        FROM runs"""
    ).rows

    found = {run_id: dict(zip(next(iter(wanted.values())), row, strict=True)) for run_id, *row in rows}
    # A call that no reply holds is a turn of the history, and no message that anybody sent.
    (burr,) = (run_id for run_id in wanted if run_id.startswith("burr-"))
    assert found[burr].pop("messages") < wanted[burr].pop("messages")
    assert found == wanted


def test_a_guard_that_would_have_ended_a_run_is_found_with_its_step(store: Store) -> None:
    runs = {run.name: run for run in imported(store, REACT)}
    repeating = tuple(read_log(Path(runs["question 20"].trace)).records)

    in_a_circle = judge(repeating, ["guards.cycle=2"])
    failing = judge(repeating, ["guards.failure=3"])
    capped = judge(repeating, ["loop.max_steps=2"])
    as_it_was = judge(repeating, ["loop.max_steps=6"])

    assert (in_a_circle.would.finish, in_a_circle.would.step, in_a_circle.would.guard) == (
        "failed",
        5,
        "cycle_repeats",
    )
    assert (failing.would.step, failing.would.guard) == (4, "failure_repeats")
    assert (capped.would.finish, capped.would.step) == ("missing_evidence", 2)
    assert not as_it_was.changed


def test_paging_is_no_circle_although_the_calls_are_the_same(store: Store) -> None:
    (run,) = imported(store, SWEAGENT)

    judged = judge(tuple(read_log(Path(run.trace)).records), ["guards.cycle=2"])

    assert run.counts.longest_repeat == 3
    assert not judged.changed


def grown_lines(file: Path, size: int) -> None:
    session, *others = (TRACES / "pi/large-session.jsonl").read_bytes().split(b"\n")
    with file.open("wb") as out:
        out.write(session + b"\n")
        while out.tell() < size:
            out.write(b"\n".join(line for line in others if line) + b"\n")


def grown_document(file: Path, size: int) -> None:
    trace = json.loads(SWEAGENT.read_text())
    steps = trace["trajectory"]
    times = size // len(json.dumps(steps)) + 1
    file.write_text(json.dumps({**trace, "history": [], "trajectory": steps * times}))


@pytest.mark.parametrize("grown", [grown_lines, grown_document])
def test_the_memory_of_an_import_does_not_grow_with_its_file(tmp_path: Path, grown: Any) -> None:
    peaks = []
    for size in (400_000, 1_600_000):
        file = tmp_path / f"{size}.trace"
        grown(file, size)
        with Store(tmp_path / f"store-{size}", synchronous="OFF") as store:
            tracemalloc.start()
            imported(store, file)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

    assert peaks[1] < 1.5 * peaks[0]
    assert peaks[1] < 8_000_000
