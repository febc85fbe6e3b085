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
from stepfold.projections.fold_repeats import (
    call_ended,
    count_anew,
    imported_call_ended,
    rejected,
    rounds_of,
    step_ended,
)
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
    assert len(run.goal.last_steps) == len(run.goal.cycle_runs) == 6
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


def ends(run: Run, name: str, *, error: str = "", argument: bytes = b"1") -> None:
    """A call ends, as one of the engine's own."""
    slot = Slot("call", name, argument, "tool:1.0")
    slot.landed = ToolReturned(*BLANK, content="said", error=error)
    call_ended(run, slot, ToolCompleted(1, "", 0, 0, "", "row", call_id="call", error=error))


def failed_times(run: Run) -> list[int]:
    return [times for _, times in run.goal.failures.values()]


@pytest.mark.parametrize(
    ("name", "counted"), [("look", [2, 1]), ("change", [1]), ("worker_dispatch", [1]), ("nine", [1])]
)
def test_failures_are_forgotten_when_a_call_went_well_that_may_have_helped(
    name: str, counted: list[int]
) -> None:
    run = run_with(failure=3)
    ends(run, "look", error="E")
    ends(run, "look", error="E")

    ends(run, name, argument=b"2")
    ends(run, "look", error="E", argument=b"3")

    assert failed_times(run) == counted


def test_a_call_that_went_well_has_failed_no_more() -> None:
    run = run_with(failure=3)
    ends(run, "look", error="E")
    ends(run, "look")
    assert failed_times(run) == []

    ends(run, "look", error="E")

    assert failed_times(run) == [1]


def test_a_guard_that_is_off_counts_nothing() -> None:
    run = run_with()
    ends(run, "look", error="E")
    imported_call_ended(run, Slot("call", "look", b"1", "tool:1.0"), "E", "said")
    rejected(run, "NotJson")
    run.goal.action = Action("verify", "{}")
    step_ended(run, "observed")

    goal = run.goal
    assert (goal.failures, goal.rejection, goal.rejections, goal.last_steps, goal.cycle_runs) == (
        *({}, "", 0),
        *((), ()),
    )


def test_of_an_imported_run_only_the_same_call_clears_a_failure_for_nobody_knows_what_its_tools_change() -> (
    None
):
    run = run_with(failure=2)
    one, other = (Slot("call", "edit", argument, "tool:1.0") for argument in (b"1", b"2"))
    imported_call_ended(run, one, "E", "said")
    imported_call_ended(run, other, "", "said")
    imported_call_ended(run, one, "E", "said")
    assert failed_times(run) == [2]

    imported_call_ended(run, one, "", "said")

    assert failed_times(run) == []


@pytest.mark.parametrize("period", range(1, 8))
def test_a_cycle_of_up_to_six_steps_is_counted_from_its_first_round_on(period: int) -> None:
    run = run_with(cycle=2)
    counted = []
    for step in range(3 * period):
        step_ended(run, f"step {step % period}")
        counted.append(rounds_of(run.goal))

    # One step over and over is a cycle of two equal ones; of seven steps no cycle is looked for.
    rounds = {1: [1, 1, 1], 7: [1] * 21}.get(period, [1] * (2 * period - 1) + [2] * period + [3])
    assert counted == rounds


def test_what_is_counted_anew_is_counted_as_in_a_run_that_begins() -> None:
    run = run_with(cycle=2, rejection=2, failure=2)
    rejected(run, "NotJson")
    step_ended(run, "observed")
    step_ended(run, "observed")
    rejected(run, "NotJson")
    ends(run, "look", error="E")

    count_anew(run.goal)

    goal, begun = run.goal, Run().goal
    assert (goal.rejection, goal.last_rejection, goal.rejections) == (
        begun.rejection,
        begun.last_rejection,
        begun.rejections,
    )
    assert (goal.last_steps, goal.cycle_runs, goal.failures) == (
        begun.last_steps,
        begun.cycle_runs,
        begun.failures,
    )
