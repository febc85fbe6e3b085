"""Evidence counts while nothing has changed the workspace since, and only exit code 0 is a pass."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.events.configuration import CheckSpec
from stepfold.events.vocabulary import (
    BLANK,
    CheckReturned,
    CheckStarted,
    EvidenceRecorded,
    RunStarted,
    ToolErred,
    ToolReturned,
)
from stepfold.projections.evidence import Evidence, listed, unmet
from stepfold.projections.fold_goal import checks_of
from stepfold.projections.run import fold
from tests.engine.core.stories import LOST, PASSED
from tests.house import FINISH, LOAD, VERIFY, Hands, Story, call, config, of_kind, play

CHECKS = [CheckSpec("a", "true"), CheckSpec("b", "true"), CheckSpec("c", "true")]
RESULTS = st.builds(
    lambda check, code, mutations: Evidence(check, "true", code, "", 1, mutations),
    st.sampled_from("abcd"),
    st.sampled_from([0, 1, -9, None]),
    st.integers(0, 3),
)


@given(st.lists(RESULTS, max_size=6), st.integers(0, 3))
def test_a_check_is_met_by_a_fresh_pass_and_by_nothing_else(results: list[Evidence], mutations: int) -> None:
    evidence = {result.check_id: result for result in results}

    still = unmet(CHECKS, evidence, mutations)

    met = {
        result.check_id
        for result in evidence.values()
        if result.exit_code == 0 and result.mutations == mutations
    }
    assert still == tuple(check.id for check in CHECKS if check.id not in met)


@pytest.mark.parametrize(("code", "passed"), [(0, True), (1, False), (-9, False), (None, False)])
def test_only_exit_code_0_passes(code: int | None, passed: bool) -> None:
    assert Evidence("a", "true", code, "", 1, 0).passed is passed


def stale_after(*replies: str, landing: object = None) -> tuple[str, ...]:
    tools = {"change": lambda arguments: landing} if landing else {}
    run, _ = play(config(max_steps=len(replies)), Hands(replies, tools))  # type: ignore[arg-type]
    return unmet(checks_of(run), run.goal.evidence, run.goal.mutations)


def test_a_call_that_changes_nothing_leaves_evidence_fresh() -> None:
    assert stale_after(LOAD, VERIFY, call("look", x=1)) == ()


@pytest.mark.parametrize(
    "landing",
    [None, ToolReturned(*BLANK, content="", error="Failed"), ToolErred(*BLANK, error="OSError")],
    ids=["returns", "returns an error", "raises"],
)
def test_a_call_that_may_have_changed_the_workspace_makes_all_evidence_stale(landing: object) -> None:
    assert stale_after(LOAD, VERIFY, call("change", x=1), landing=landing) == ("a", "b")


def test_a_refused_call_changes_nothing() -> None:
    assert stale_after(VERIFY, call("change", x=1)) == ()


def test_a_lost_call_makes_evidence_stale_because_nobody_knows() -> None:
    story = Story(config())
    for landing in (LOAD, VERIFY, PASSED, PASSED, call("change", x=1), LOST, FINISH):
        story.lands(landing)

    assert of_kind(story.events, "FinishRejected")[0].unmet == ("a", "b")


def test_the_last_result_of_a_check_is_the_one_that_counts() -> None:
    story = Story(config())
    for code in (0, 1):
        story.lands(VERIFY)
        story.lands(CheckReturned(*BLANK, exit_code=code, digest=f"digest{code}"))
        story.lands(CheckReturned(*BLANK, exit_code=0))

    assert unmet(checks_of(story.run), story.run.goal.evidence, 0) == ("a",)
    assert [item["digest"] for item in listed(story.run.goal.evidence.values(), 0)] == ["digest1", ""]


def test_manual_verification_has_no_checks() -> None:
    run, events = play(config(verification="manual"), Hands([FINISH]))

    assert checks_of(run) == ()
    assert of_kind(events, "FinishAccepted")


def test_a_check_that_changes_the_files_counts_as_one_change_and_makes_the_checks_before_it_stale() -> None:
    def event(kind: type, seq: int, **fields: object) -> object:
        return kind(1, "r", seq, 1, "t", **fields)

    settings = config(checks=(CHECKS[0], CHECKS[1]))
    events: list[Any] = [
        event(RunStarted, 0, config=settings, engine="e"),
        event(CheckStarted, 1, row="verify", check_id="a", key="check:a"),
        event(CheckReturned, 2, key="check:a", exit_code=0, workspace="before"),
        event(EvidenceRecorded, 3, row="record", check_id="a", passed=True),
        event(CheckStarted, 4, row="next_check", check_id="b", key="check:b"),
        event(CheckReturned, 5, key="check:b", exit_code=0, workspace="after"),
        event(EvidenceRecorded, 6, row="record", check_id="b", passed=True),
    ]

    run = fold(events)

    assert run.goal.mutations == 1
    assert unmet(checks_of(run), run.goal.evidence, run.goal.mutations) == ("a",)
