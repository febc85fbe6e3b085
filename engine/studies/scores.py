"""What an evaluation came to: each trial judged, and pass rates with the intervals they are known to."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import sqrt
from typing import Any, Literal

from msgspec import Struct

from stepfold.engine.studies.suite import Trial
from stepfold.projections.fold_repeats import GUARDS
from stepfold.projections.outcome import LoopOutcome

Verdict = Literal["passed", "failed", "false_completion", "no_reply", "missing"]

NORMAL_95 = 1.959963984540054
"""The standard normal distribution holds 95 % within so many deviations."""


class HiddenResult(Struct, frozen=True, omit_defaults=True):
    """What a hidden check said. `exit_code` is None where it did not end by itself, or judged a summary."""

    id: str
    passed: bool
    exit_code: int | None = None
    output: str = ""


class Score(Struct, frozen=True):
    """One trial judged. `outcome` is None for a trial that nobody has run yet."""

    trial: Trial
    outcome: LoopOutcome | None
    hidden: tuple[HiddenResult, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """What came of it.

        A false completion is a run that said it was done, and was not: the worst that an agent can do,
        so it is counted apart. `no_reply` is a fault of the model's server and not of the model, and
        passes as little.
        """
        if self.outcome is None:
            return "missing"
        holds = self.outcome.finish in self.trial.task.ends and all(item.passed for item in self.hidden)
        if holds:
            return "passed"
        if self.outcome.finish == "completed":
            return "false_completion"
        return "no_reply" if got_no_reply(self.outcome) else "failed"

    def as_json(self) -> dict[str, Any]:
        """The shape that `stepfold eval run --json` prints a run in."""
        trial, ended = self.trial, self.outcome
        return {
            "run_id": trial.run_id,
            "task": trial.task.id,
            "model": trial.label,
            "seed": trial.seed,
            "repeat": trial.repeat,
            "verdict": self.verdict,
            "finish": ended.finish if ended else None,
            "status": ended.status if ended else None,
            "steps": ended.steps if ended else None,
            "tokens": ended.usage.total_tokens if ended else None,
            "hidden": [{"id": item.id, "passed": item.passed} for item in self.hidden],
        }


class Rate(Struct, frozen=True):
    """How many of some runs passed, and the rest by what came of them. The interval is Wilson's, 95 %."""

    runs: int
    passed: int
    false_completions: int
    no_reply: int
    interval: tuple[float, float]
    steps: float
    tokens: float

    def as_json(self) -> dict[str, Any]:
        """The shape that `stepfold eval run --json` prints."""
        low, high = self.interval
        return {
            "runs": self.runs,
            "passed": self.passed,
            "rate": round(self.passed / self.runs, 4),
            "interval": [round(low, 4), round(high, 4)],
            "false_completions": self.false_completions,
            "no_reply": self.no_reply,
            "steps": round(self.steps, 2),
            "tokens": round(self.tokens, 1),
        }


def got_no_reply(outcome: LoopOutcome) -> bool:
    """Whether a run failed because nobody answered: a server that is down, and no guard, ended it."""
    return outcome.status == "failed" and outcome.error not in GUARDS


def rate_of(scores: Sequence[Score]) -> Rate:
    """The rate of the trials that were run; there has to be one."""
    counts = Counter(score.verdict for score in scores)
    ended = [score.outcome for score in scores if score.outcome is not None]
    runs = len(ended)
    return Rate(
        runs=runs,
        passed=counts["passed"],
        false_completions=counts["false_completion"],
        no_reply=counts["no_reply"],
        interval=wilson(counts["passed"], runs),
        steps=sum(outcome.steps for outcome in ended) / runs,
        tokens=sum(outcome.usage.total_tokens for outcome in ended) / runs,
    )


def rates_by_model(scores: Iterable[Score]) -> dict[str, Rate]:
    """One rate a model, in the order of the trials."""
    groups: dict[str, list[Score]] = {}
    for score in scores:
        if score.outcome is not None:
            groups.setdefault(score.trial.label, []).append(score)
    return {label: rate_of(group) for label, group in groups.items()}


def wilson(passed: int, runs: int) -> tuple[float, float]:
    """Wilson's score interval, 95 %, for a share of `runs` runs: right for few runs, and for none or all.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", 1927.
    """
    if not runs:
        return 0.0, 1.0
    squared, share = NORMAL_95**2, passed / runs
    middle = share + squared / (2 * runs)
    half = NORMAL_95 * sqrt(share * (1 - share) / runs + squared / (4 * runs * runs))
    scale = 1 + squared / runs
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)
