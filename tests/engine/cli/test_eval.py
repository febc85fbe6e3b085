"""`stepfold eval run`: suites run for real, judged by what the model can't see, killed and gone on with."""

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stepfold.engine.capabilities.sandbox import probe
from stepfold.engine.studies.final_state import judged, lay_out
from stepfold.engine.studies.scores import Score
from stepfold.engine.studies.suite import HiddenCheck, Suite, Trial, read_suite, trials_of
from stepfold.projections.outcome import LoopOutcome
from stepfold.projections.usage import Usage
from tests.engine.cli.projects import Command, Result, installed, read
from tests.engine.studies.suites import GREETING, TASK, WRONG, script, suite
from tests.house import ASK, PROSE, call, edited, load

SUITES = Path(__file__).parents[3] / "engine" / "suites"


class Evaluator:
    """A suite in a folder, and a store for it."""

    def __init__(self, folder: Path, stepfold: Command) -> None:
        self.folder = folder
        self.stepfold = stepfold
        self.store = folder / "store"

    def __call__(self, *options: object) -> Result:
        return self.stepfold("eval", "run", self.folder / "s", "--store", self.store, *options)

    def model(self, *replies: object, name: str = "model.jsonl") -> str:
        return script(self.folder / name, *replies)

    @property
    def logs(self) -> dict[str, bytes]:
        return {path.stem: path.read_bytes() for path in sorted((self.store / "runs").glob("*.jsonl"))}


@pytest.fixture
def evaluation(tmp_path: Path, stepfold: Command) -> Evaluator:
    suite(tmp_path / "s")
    return Evaluator(tmp_path, stepfold)


def runs(result: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = result.json["runs"]
    return found


def verdicts(result: Result) -> list[str]:
    return [run["verdict"] for run in runs(result)]


# --- what is counted as what ------------------------------------------------------------------------


def test_a_run_that_does_the_task_passes(evaluation: Evaluator) -> None:
    result = evaluation("--json")

    assert result.code == 0
    assert result.json["suite"] == "s"
    (rate,) = result.json["models"].values()
    assert (rate["runs"], rate["passed"], rate["rate"], rate["interval"]) == (1, 1, 1.0, [0.2065, 1.0])
    (run,) = runs(result)
    assert (run["verdict"], run["finish"], run["hidden"]) == (
        "passed",
        "completed",
        [{"id": "says_hello", "passed": True}],
    )


def test_a_run_that_says_done_and_is_not_is_a_false_completion(evaluation: Evaluator) -> None:
    result = evaluation("--model", evaluation.model(*WRONG))

    assert result.code == 0
    assert "false completion" in result.text
    assert "hidden checks that fail: says_hello" in result.text


def test_the_model_is_shown_its_own_checks_and_not_the_hidden_ones(evaluation: Evaluator) -> None:
    evaluation()
    ((run_id, log),) = evaluation.logs.items()
    prompt = evaluation.stepfold("prompt", run_id, "--step", 4, "--store", evaluation.store).text

    assert "there: test -f hello.txt" in prompt
    assert b"says_hello" not in log
    assert b"expected.txt" not in log


def test_a_question_is_an_end_like_another_where_the_task_says_so(evaluation: Evaluator) -> None:
    text = TASK + 'ends = ["awaiting_user"]\n'
    suite(evaluation.folder / "s", text.replace("cmp hello.txt expected.txt", "test ! -e hello.txt"))

    assert verdicts(evaluation("--model", evaluation.model(ASK), "--json")) == ["passed"]
    assert verdicts(evaluation("--model", evaluation.model(*GREETING), "--json")) == ["false_completion"]


def test_models_are_told_apart_and_a_rate_can_be_asked_for(evaluation: Evaluator) -> None:
    good, bad = evaluation.model(*GREETING, name="good.jsonl"), evaluation.model(*WRONG, name="bad.jsonl")

    result = evaluation("--model", good, "--model", bad, "--repeats", 2, "--fail-under", 50, "--json")

    assert {label: rate["passed"] for label, rate in result.json["models"].items()} == {
        "script:good.jsonl": 2,
        "script:bad.jsonl": 0,
    }
    assert result.code == 1
    assert evaluation("--model", good, "--repeats", 2, "--fail-under", 100).code == 0


def test_what_a_run_left_behind_leads_no_hidden_file_astray(evaluation: Evaluator, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    replies = [
        load("shell.run", "fs.write"),
        call("shell.run", command=f"ln -s {outside}/precious expected.txt; mkfifo pipe; ln -s {outside} up"),
        *GREETING[1:],
    ]

    result = evaluation("--model", evaluation.model(*replies), "--json")

    assert verdicts(result) == ["passed"]
    assert (outside / "precious").read_text() == "mine"


# --- going on ---------------------------------------------------------------------------------------


def test_what_was_run_is_not_run_again(evaluation: Evaluator) -> None:
    first = evaluation("--repeats", 2, "--json")
    before = evaluation.logs

    again = evaluation("--repeats", 3, "--json")

    assert len(before) == 2
    assert {run_id: evaluation.logs[run_id] for run_id in before} == before
    assert len(evaluation.logs) == 3
    assert runs(again)[:2] == runs(first)


def test_a_changed_task_is_run_anew_and_the_old_run_no_longer_counts(evaluation: Evaluator) -> None:
    evaluation()
    suite(evaluation.folder / "s", TASK.replace("cmp hello.txt expected.txt", "false"))

    result = evaluation("--json")

    assert verdicts(result) == ["false_completion"]
    assert len(evaluation.logs) == 2


def test_an_evaluation_that_was_killed_goes_on_where_it_was(evaluation: Evaluator) -> None:
    folder = evaluation.folder / "s"
    suite(
        folder,
        "".join(TASK.replace("greets", name) for name in ("first", "second", "third")),
        'models = ["script:{task}.jsonl"]\n',
    )
    for name in ("first", "third"):
        script(folder / f"{name}.jsonl", *GREETING)
    waits = [*GREETING[:2], {"text": GREETING[2], "delay_ms": 1_500}, GREETING[3]]
    script(folder / "second.jsonl", *waits)
    with installed("eval", "run", folder, "--store", evaluation.store) as process:
        deadline = time.monotonic() + 30
        while not any(
            "second" in run_id and log.count(b'"ModelStarted"') == 3
            for run_id, log in evaluation.logs.items()
        ):
            assert time.monotonic() < deadline, "the second run never came so far"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = evaluation.logs

    result = evaluation("--json")

    assert verdicts(result) == ["passed", "passed", "passed"]
    first, second = sorted(before)
    assert evaluation.logs[first] == before[first], "what had ended was not touched"
    assert [event["kind"] for event in read(evaluation.store / "runs" / f"{second}.jsonl")].count(
        "RunReopened"
    ) == 0
    (cut,) = (evaluation.store / "evals" / "s" / "cut").iterdir()
    assert cut.read_bytes() == before[second], "what was cut off is put aside"
    assert evaluation("--replay").code == 0


def test_a_run_that_was_killed_before_it_was_judged_is_judged_and_not_run_again(
    evaluation: Evaluator,
) -> None:
    evaluation("--model", evaluation.model(*WRONG))
    before = evaluation.logs
    judgements = evaluation.store / "evals" / "s" / "hidden.jsonl"
    judgements.write_bytes(judgements.read_bytes()[:-20])

    result = evaluation("--model", evaluation.model(*WRONG), "--json")

    assert verdicts(result) == ["false_completion"]
    assert evaluation.logs == before
    assert evaluation("--model", evaluation.model(*WRONG), "--json").json == result.json


def test_a_run_that_nobody_answered_counts_apart_and_is_run_again(evaluation: Evaluator) -> None:
    silent = evaluation.model({"error": "unauthorized"})

    first = evaluation("--model", silent, "--json")
    again = evaluation("--model", silent, "--json")

    assert (first.code, verdicts(first)) == (1, ["no_reply"])
    assert (again.code, verdicts(again)) == (1, ["no_reply"])
    assert len(list((evaluation.store / "evals" / "s" / "cut").iterdir())) == 1


def test_two_evaluations_of_a_suite_do_not_mix(evaluation: Evaluator) -> None:
    slow = evaluation.model({"text": PROSE, "delay_ms": 60_000})
    with installed("eval", "run", evaluation.folder / "s", "--store", evaluation.store, "--model", slow):
        deadline = time.monotonic() + 30
        while not evaluation.logs:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        evaluation().is_refused("hidden.jsonl", "another process")


def test_side_by_side_is_the_same_as_one_after_the_other(evaluation: Evaluator, tmp_path: Path) -> None:
    text = "".join(TASK.replace("greets", f"task{number}") for number in range(5))
    suite(evaluation.folder / "s", text)
    beside = Evaluator(evaluation.folder, evaluation.stepfold)
    beside.store = tmp_path / "beside"

    assert runs(evaluation("--json")) == runs(beside("--jobs", 4, "--json"))


# --- replay -----------------------------------------------------------------------------------------


def test_replay_judges_what_was_recorded_without_model_or_project(evaluation: Evaluator) -> None:
    result = evaluation("--model", evaluation.model(*WRONG), "--json")

    replayed = evaluation("--model", evaluation.model(*WRONG), "--replay", "--json")

    assert replayed.code == 0
    assert replayed.json == result.json


def test_replay_fails_on_any_divergence(evaluation: Evaluator) -> None:
    evaluation("--repeats", 2)
    trace = min((evaluation.store / "runs").glob("*.jsonl"))
    trace.write_bytes(edited(trace.read_bytes().replace(b'"to":"completed"', b'"to":"cancelled"')))

    result = evaluation("--repeats", 2, "--replay")

    assert result.code == 3
    assert "diverged" in result.err
    assert trace.name in result.err


def test_replay_of_what_is_not_recorded_is_no_success(evaluation: Evaluator) -> None:
    evaluation("--replay").is_refused("no store")
    evaluation()

    result = evaluation("--repeats", 2, "--replay", "--json")

    assert (result.code, verdicts(result)) == (1, ["passed", "missing"])


# --- the suites that ship ---------------------------------------------------------------------------

SHIPPED = {name: read_suite(SUITES / name) for name in ("small", "study")}
TASKS = [(suite, trial) for suite in SHIPPED.values() for trial in trials_of(suite)]
WITH_WORK_TO_SHOW = [
    (suite, trial) for suite, trial in TASKS if trial.task.ends == ["completed"] and trial.task.checks
]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_suite_that_ships_runs_whole_without_a_model(
    name: str, stepfold: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = stepfold("eval", "run", name, "--jobs", 4, "--fail-under", 100, "--json")

    assert result.code == 0, json.dumps(result.json["runs"])
    assert verdicts(result) == ["passed"] * len(SHIPPED[name].tasks)
    assert not list((tmp_path / ".stepfold" / "evals" / name / "projects").iterdir())
    assert stepfold("eval", "run", name, "--replay", "--fail-under", 100).code == 0


@pytest.mark.parametrize(
    ("suite", "trial"), TASKS, ids=lambda one: one.task.id if isinstance(one, Trial) else ""
)
def test_who_does_nothing_and_says_done_fails_every_task(suite: Suite, trial: Trial, tmp_path: Path) -> None:
    lay_out(suite, trial.task, tmp_path / "project")

    hidden = asyncio.run(judged(trial.task, tmp_path / "project", "done", probe().backend, trial.settings))

    ended = LoopOutcome("r", "completed", "completed", 1, 1, 0, "done", (), (), "", Usage())
    assert Score(trial, ended, hidden).verdict == "false_completion"


@pytest.mark.parametrize(
    ("suite", "trial"), WITH_WORK_TO_SHOW, ids=lambda one: one.task.id if isinstance(one, Trial) else ""
)
def test_the_checks_that_are_shown_do_not_all_pass_before_the_work(
    suite: Suite, trial: Trial, tmp_path: Path
) -> None:
    """One asked for valid JSON of a file that was valid: a run could end as done with nothing done."""
    shown = [HiddenCheck(id=check.id, command=check.command) for check in trial.task.checks]
    task = replace(trial.task, hidden=shown, hidden_files={})
    lay_out(suite, task, tmp_path / "project")

    passed = asyncio.run(judged(task, tmp_path / "project", "", probe().backend, trial.settings))

    assert not all(check.passed for check in passed)


def test_last_is_the_newest_run_that_no_evaluation_made(evaluation: Evaluator, stepfold: Command) -> None:
    # It was one of the trials, which nobody had asked for by hand.
    project = evaluation.folder / "project"
    project.mkdir()
    there = ("--store", evaluation.store)
    model = evaluation.model(ASK)
    own = stepfold("run", "ask", "--project", project, "--model", model, "--json", *there).json["run_id"]
    (trial,) = runs(evaluation("--json"))

    assert stepfold("show", "last", "--json", *there).json["run_id"] == own
    assert stepfold("show", trial["run_id"], "--json", *there).json["run_id"] == trial["run_id"]
    (evaluation.store / "runs" / f"{own}.jsonl").unlink()
    assert stepfold("show", "last", "--json", *there).json["run_id"] == trial["run_id"]
