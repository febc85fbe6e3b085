"""`stepfold diff` and `judge` from the command line: names, shapes, exit codes."""

import json
import shutil
from pathlib import Path

import pytest

from stepfold.engine.cli.main import main
from tests.engine.studies.logs import FIXTURES, LOGS

MENDED, FAILS = FIXTURES["fixes_a_failing_test"], FIXTURES["half_a_billion_fails"]
Capture = pytest.CaptureFixture[str]


def code_of(*arguments: object) -> int:
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.fixture
def store(tmp_path: Path) -> Path:
    runs = tmp_path / "store" / "runs"
    runs.mkdir(parents=True)
    for path in (MENDED, FAILS):
        shutil.copy(path, runs / f"{path.parent.name}.jsonl")
    return runs.parent


def test_a_run_is_equal_to_itself_by_id_by_its_start_and_by_file(store: Path, capsys: Capture) -> None:
    for a, b in [("fixes_a_failing_test", "fixes"), (MENDED, "fixes"), ("last", "last")]:
        assert code_of("diff", a, b, "--store", store) == 0
        assert capsys.readouterr().out.startswith("equal")


def test_two_runs_differ_with_1_and_both_sides(store: Path, capsys: Capture) -> None:
    assert code_of("diff", "fixes", "half", "--store", store) == 1
    out = capsys.readouterr().out
    assert "first difference at step 1, replies:" in out
    assert "guards.steps_spent" in out

    assert code_of("diff", "fixes", "half", "--store", store, "--json") == 1
    tree = json.loads(capsys.readouterr().out)
    assert (tree["a"], tree["b"], tree["equal"]) == (
        "fixes_a_failing_test",
        LOGS[FAILS.parent.name][0].event.run_id,
        False,
    )
    assert tree["totals"]["status"] == {"a": "completed", "b": "step_cap"}


def test_a_run_that_is_not_there_is_2_in_one_line(store: Path, capsys: Capture) -> None:
    assert code_of("diff", "fixes", "nine", "--store", store) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_judge_gives_an_object_a_run(capsys: Capture) -> None:
    assert code_of("judge", MENDED, FAILS, "--set", "loop.max_steps=4", "--json") == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())

    assert first == {
        "run_id": "fixes_a_failing_test",
        "recorded": {"finish": "completed", "step": 8},
        "would": {"finish": "missing_evidence", "step": 4, "guard": "steps_spent", "known": True},
        "changed": True,
        "seq": first["seq"],
    }
    assert second["would"]["step"] == 4


def test_judge_sums_up_for_people(store: Path, capsys: Capture) -> None:
    assert code_of("judge", store / "runs", "--set", "loop.max_steps=9") == 0
    out = capsys.readouterr().out.splitlines()

    assert out[0].startswith("same      fixes_a_failing_test  completed at step 8")
    assert "unknown from step 9 on" in out[1]
    assert out[-1] == "2 runs: 0 would end elsewhere, 1 unknown, 1 the same"


def test_a_bad_setting_is_2_with_the_nearest_key_in_one_line(capsys: Capture) -> None:
    assert code_of("judge", MENDED, "--set", "loop.max_stepz=4") == 2
    error = capsys.readouterr().err
    assert "did you mean 'loop.max_steps'?" in error
    assert error.count("\n") == 1


def test_an_unreadable_trace_is_told_and_the_others_are_judged(tmp_path: Path, capsys: Capture) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(b"nothing\n")

    assert code_of("judge", bad, MENDED, "--json") == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["changed"] is False
    assert str(bad) in said.err
