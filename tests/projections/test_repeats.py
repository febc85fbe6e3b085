"""What the optional guards count, against counting it again from the whole history."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.core.guards import cycle_repeats, failure_repeats, rejection_repeats
from stepfold.events.configuration import Guards
from stepfold.events.vocabulary import BLANK, ToolCompleted, ToolReturned
from stepfold.projections.fold_repeats import call_ended, rejected, step_ended
from stepfold.projections.outcome import outcome
from stepfold.projections.state import Action, Run, Slot
from tests.house import LOAD, PROSE, Hands, call, config, load, of_kind, play

RECORDED = Path(__file__).parents[1] / "data" / "paging_with_scroll_down.json"
THRESHOLDS = st.integers(2, 4)


def run_with(**guards: int) -> Run:
    run = Run()
    run.config = config(guards=Guards(**guards))
    run.manifests = {manifest.name: manifest for manifest in run.config.manifests}
    return run


def goes_round(steps: list[Any], times: int) -> bool:
    """Whether the last steps are so many rounds of two to six."""
    return any(
        len(steps) >= period * times and steps[-period * times :] == steps[-period:] * times
        for period in range(2, 7)
    )


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), max_size=40), THRESHOLDS)
def test_a_cycle_is_found_when_the_history_shows_one(steps: list[tuple[str, str]], times: int) -> None:
    run = run_with(cycle=times)
    for place, (action, result) in enumerate(steps, 1):
        run.goal.action = Action("capability_search", action)
        step_ended(run, result)
        assert cycle_repeats(run, None) is goes_round(steps[:place], times)


@given(st.lists(st.sampled_from(["NotJson", "Empty", ""]), max_size=30), THRESHOLDS)
def test_a_rejection_counts_while_it_stays_the_same(steps: list[str], times: int) -> None:
    run = run_with(rejection=times)
    for place, reason in enumerate(steps, 1):
        if reason:
            rejected(run, reason, "detail")
        step_ended(run, "observed")
        last = steps[max(0, place - times) : place]
        assert rejection_repeats(run, None) is (len(last) == times and reason != "" and len({*last}) == 1)


@given(
    st.lists(
        st.tuples(st.sampled_from(["look", "change"]), st.integers(0, 3), st.sampled_from(["", "E", "F"]))
    ),
    THRESHOLDS,
)
def test_a_failure_counts_until_something_went_well(calls: list[tuple[str, int, str]], times: int) -> None:
    run = run_with(failure=times)
    counted: dict[tuple[str, int], list[str]] = {}
    for name, argument, error in calls:
        slot = Slot("call", name, b"%d" % argument, "tool:1.0")
        slot.landed = ToolReturned(*BLANK, content="said", error=error)
        run.slots = [slot]
        call_ended(run, run.slots[0], ToolCompleted(1, "", 0, 0, "", "row", call_id="call", error=error))
        if error:
            same = counted.setdefault((name, argument), [])
            same[:] = [*same, error] if error in same[-1:] else [error]
        elif name == "change":
            counted.clear()
        else:
            counted.pop((name, argument), None)
        assert failure_repeats(run, None) is any(len(same) >= times for same in counted.values())


def test_what_is_counted_stays_small() -> None:
    run = run_with(cycle=3, rejection=3, failure=3)
    for number in range(1_000):
        run.slots = [Slot("call", "look", b"%d" % number, "tool:1.0")]
        call_ended(run, run.slots[0], ToolCompleted(1, "", 0, 0, "", "row", call_id="call", error="E"))
        step_ended(run, str(number))
    assert len(run.goal.last_steps) == 6
    assert len(run.goal.failures) == 8


def test_paging_through_a_file_trips_nothing() -> None:
    pairs = json.loads(RECORDED.read_text())
    results = iter(pairs)
    hands = Hands(
        [LOAD, *(call("look", did=action) for action, _ in pairs)],
        {"look": lambda arguments: ToolReturned(*BLANK, content=next(results)[1])},
    )

    _, events = play(config(guards=Guards(cycle=3, rejection=3, failure=3), max_steps=len(pairs) + 1), hands)

    assert [event.guard for event in of_kind(events, "GuardTripped")] == ["steps_spent"]


@pytest.mark.parametrize("guards", [Guards(), Guards(failure=3), Guards(rejection=3)])
def test_a_guard_that_is_off_lets_a_cycle_be(guards: Guards) -> None:
    hands = Hands([LOAD, *[call("look", path="a"), call("change", path="a")] * 10])

    _, events = play(config(guards=guards, max_steps=20), hands)

    assert [event.guard for event in of_kind(events, "GuardTripped")] == ["steps_spent"]


def test_a_check_that_only_takes_another_time_gives_the_same_result() -> None:
    clock = count()
    hands = Hands(
        [load("look", "change"), *[call("change", path="a"), call("look", path="a")] * 10],
        {"look": lambda arguments: ToolReturned(*BLANK, content=f"1 failed in 0.{next(clock):02}s")},
    )

    run, events = play(config(guards=Guards(cycle=3), max_steps=30), hands)

    assert [event.guard for event in of_kind(events, "GuardTripped")] == ["cycle_repeats"]
    assert run.step == 7
    assert (outcome(run).finish, outcome(run).error) == ("failed", "cycle_repeats")


def test_the_same_rejection_three_times_fails_the_run_and_says_so() -> None:
    run, _ = play(config(guards=Guards(rejection=3)), Hands([PROSE] * 9))

    assert (outcome(run).finish, outcome(run).steps, outcome(run).error) == ("failed", 3, "rejection_repeats")


def test_a_change_that_went_well_makes_trying_again_worth_it() -> None:
    fails = {"look": lambda arguments: ToolReturned(*BLANK, content="1 failed", error="NonZeroExit")}
    hands = Hands([load("look", "change"), *[call("look", path="a"), call("change", path="a")] * 5], fails)

    _, events = play(config(guards=Guards(failure=3), max_steps=10), hands)

    assert [event.guard for event in of_kind(events, "GuardTripped")] == ["steps_spent"]
