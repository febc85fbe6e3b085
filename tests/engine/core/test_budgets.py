"""Budgets of a goal run: tokens, money and the time in which it worked end it before the next call."""

from typing import Any

import pytest

from stepfold.engine.models.reply import bare_reply
from stepfold.engine.runtime.workers import worker_config
from stepfold.events.configuration import Budget
from stepfold.events.vocabulary import (
    BLANK,
    ApprovalAnswered,
    CallUndone,
    LimitReached,
    RunReopened,
    UserAnswered,
    UserLoaded,
)
from stepfold.projections.effects import CallTool
from stepfold.projections.fold_goal import run_reopened, worked
from stepfold.projections.outcome import outcome
from stepfold.projections.state import Run
from tests.house import (
    ASK,
    ASKING,
    CHAT,
    FINISH,
    PROSE,
    SEARCH,
    VERIFY,
    WORKER,
    WORKERS,
    Hands,
    Story,
    call,
    config,
    kinds,
    load,
    of_kind,
    play,
)

COSTLY = bare_reply(SEARCH, input_tokens=10, output_tokens=2, cost=0.4)


@pytest.mark.parametrize(
    ("budget", "reply", "limit", "calls", "says"),
    [
        (Budget(tokens=24), PROSE, "tokens", 2, "the budget of 24 tokens is used up"),
        (Budget(tokens=25), PROSE, "tokens", 3, "the budget of 25 tokens is used up"),
        (Budget(cost=0.8), COSTLY, "cost", 2, "the budget of 0.8 is spent"),
        (Budget(seconds=0.02), PROSE, "wall_clock", 4, "the 0.02 s of the budget are over"),
    ],
)
def test_a_budget_ends_a_run_before_its_next_call(
    budget: Budget, reply: Any, limit: str, calls: int, says: str
) -> None:
    run, events = play(config(budget=budget, max_steps=50), Hands([reply] * 50, exit_codes={"a": 1}))
    result = outcome(run)

    assert [event.limit for event in of_kind(events, "LimitReached")] == [limit]
    assert kinds(events)[-2:] == ["LimitReached", "RunFinished"]
    assert (result.finish, result.status, result.limit, result.summary) == (
        "missing_evidence", "missing_evidence", limit, says,
    )  # fmt: skip
    if limit != "wall_clock":
        assert len(of_kind(events, "ModelReplied")) == calls


def test_without_a_budget_nothing_is_counted() -> None:
    _, events = play(config(max_steps=3), Hands([PROSE] * 3))

    assert not of_kind(events, "LimitReached")


def test_what_is_verified_is_finished_whatever_it_cost() -> None:
    run, events = play(config(budget=Budget(tokens=24)), Hands([VERIFY, FINISH]))

    assert outcome(run).finish == "completed"
    assert not of_kind(events, "LimitReached")


def waits(story: Story, microseconds: int, *landings: Any) -> list[str]:
    """Time passes, and then these land."""
    story.moment += microseconds
    return story.lands(*landings)


def test_the_time_of_a_person_is_not_the_runs() -> None:
    story = Story(config(budget=Budget(seconds=1)))
    story.lands(ASK)
    waits(story, 3_600_000_000, UserAnswered(*BLANK, text="that one"))
    assert not isinstance(story.last, LimitReached)

    assert "LimitReached" in waits(story, 1_000_000, PROSE)


def test_an_approval_that_takes_long_is_not_the_runs_time_either() -> None:
    story = Story(config(**ASKING, budget=Budget(seconds=1)))
    story.lands(load("shell.run"))
    story.lands(call("shell.run", cmd="rm a.py"))
    assert "approval" in next(iter(story.run.due))

    assert "LimitReached" not in waits(story, 60_000_000, ApprovalAnswered(*BLANK, approved=False))


@pytest.mark.parametrize(
    "did",
    [
        UserLoaded(*BLANK, names=()),
        CallUndone(*BLANK, call="tool:1.0", name="fs.write", path="a.py", what="restored"),
        UserAnswered(*BLANK, text="go on"),
    ],
)
def test_what_a_person_does_in_a_chat_takes_none_of_the_runs_time(did: Any) -> None:
    story = Story(config(**CHAT, budget=Budget(seconds=1)))
    story.lands(ASK)
    before = worked(story.run)

    waits(story, 60_000_000, did)

    assert worked(story.run) == before


def test_a_budget_of_seconds_is_over_when_they_are() -> None:
    story = Story(config(budget=Budget(seconds=1)))
    begun = story.moment
    story.moment = begun + 999_000 - 1
    assert "LimitReached" not in story.lands(PROSE)
    assert worked(story.run) == 0.999999
    story.moment = begun + 999_000

    assert "LimitReached" in story.lands(PROSE)
    assert worked(story.run) == 1.0


def test_a_clock_that_went_back_gives_no_time() -> None:
    run = Run()
    run.ts = "1970-01-01T00:00:05.000000Z"

    for event in ("1970-01-01T00:00:03.000000Z", "1970-01-01T00:00:05.000000Z"):
        run_reopened(run, RunReopened(1, "r", 0, 0, event))

    assert run.goal.idle == 0


def test_the_time_between_two_lives_is_not_the_runs() -> None:
    story = Story(config(budget=Budget(seconds=1)))
    waits(story, 3_600_000_000, RunReopened(*BLANK))

    assert "LimitReached" not in story.lands(PROSE)


def test_a_worker_has_what_its_run_has_left() -> None:
    story = Story(config(**WORKERS, budget=Budget(tokens=100, cost=2.0, seconds=9)))
    story.lands(WORKER)
    (effect,) = [due for due in story.run.due.values() if isinstance(due, CallTool)]

    left = worker_config(story.run, effect).budget

    assert (left.tokens, left.cost) == (88, 2.0)
    assert left.seconds is not None
    assert 8.9 < left.seconds < 9
