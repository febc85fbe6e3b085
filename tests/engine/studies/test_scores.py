"""A trial's verdict, and a rate with what it is known to."""

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.runtime.settings import Settings
from stepfold.engine.studies.scores import HiddenResult, Score, rates_by_model, wilson
from stepfold.engine.studies.suite import Task, Trial
from stepfold.projections.outcome import STATUSES, LoopOutcome
from stepfold.projections.usage import Usage

PASSES, FAILS = HiddenResult("a", True, 0), HiddenResult("b", False, 1)


def score(
    status: str, *hidden: HiddenResult, ends: str = "completed", error: str = "", label: str = "m"
) -> Score:
    task = Task(id="t", goal="g", ends=[ends])  # type: ignore[list-item]
    trial = Trial(
        run_id=f"{label}-{status}", task=task, model="", label=label, seed=None, repeat=1, settings=Settings()
    )
    ended = LoopOutcome("r", STATUSES[status], status, 4, 4, 0, "", (), (), "", Usage(), error=error)
    return Score(trial, ended, hidden)


@pytest.mark.parametrize(
    ("judged", "verdict"),
    [
        (score("completed", PASSES), "passed"),
        (score("completed"), "passed"),
        (score("completed", PASSES, FAILS), "false_completion"),
        (score("completed", ends="awaiting_user"), "false_completion"),
        (score("awaiting_user", PASSES, ends="awaiting_user"), "passed"),
        (score("awaiting_user", FAILS, ends="awaiting_user"), "failed"),
        (score("awaiting_user", PASSES), "failed"),
        (score("step_cap", PASSES), "failed"),
        (score("missing_evidence", ends="missing_evidence"), "passed"),
        (score("failed", error="cycle_repeats"), "failed"),
        (score("failed", error="unreachable"), "no_reply"),
        (Score(score("completed").trial, None), "missing"),
    ],
)
def test_what_came_of_a_trial(judged: Score, verdict: str) -> None:
    assert judged.verdict == verdict


def test_models_are_counted_apart_and_what_was_not_run_is_not_counted() -> None:
    scores = [
        score("completed", PASSES),
        score("completed", FAILS),
        score("failed", error="unreachable"),
        Score(score("completed").trial, None),
        score("completed", PASSES, label="other"),
    ]

    rates = rates_by_model(scores)

    assert list(rates) == ["m", "other"]
    assert (rates["m"].runs, rates["m"].passed, rates["m"].false_completions, rates["m"].no_reply) == (
        3,
        1,
        1,
        1,
    )
    assert rates["m"].steps == 4
    assert rates["other"].as_json()["rate"] == 1.0


@pytest.mark.parametrize(
    ("passed", "runs", "interval"),
    # The figures of R's prop.test(…, correct = FALSE).
    [(0, 10, (0.0, 0.2775)), (10, 10, (0.7225, 1.0)), (7, 10, (0.3968, 0.8922)), (50, 100, (0.4038, 0.5962))],
)
def test_the_interval_is_wilsons(passed: int, runs: int, interval: tuple[float, float]) -> None:
    assert wilson(passed, runs) == pytest.approx(interval, abs=5e-5)


@given(runs=st.integers(1, 60), share=st.floats(0.02, 0.98))
def test_the_interval_holds_the_true_rate_about_as_often_as_it_says(runs: int, share: float) -> None:
    def chance(passed: int) -> float:
        return comb(runs, passed) * share**passed * (1 - share) ** (runs - passed)

    covered = sum(chance(k) for k in range(runs + 1) if wilson(k, runs)[0] <= share <= wilson(k, runs)[1])

    # Its coverage is worst just below the interval's end for one hit: 0.793 of one run, 0.832 of five.
    assert covered > (0.83 if runs >= 5 else 0.79)


@given(runs=st.integers(0, 500), passed=st.integers(0, 500))
def test_an_interval_holds_the_share_that_was_seen(runs: int, passed: int) -> None:
    low, high = wilson(min(passed, runs), runs)

    assert 0 <= low <= high <= 1
    assert not runs or low - 1e-12 <= min(passed, runs) / runs <= high + 1e-12
