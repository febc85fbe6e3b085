"""Guards of the goal table on runs made by hand: their thresholds to the unit."""

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.core.framing import CHARACTERS_A_TOKEN
from stepfold.engine.core.goal_sees import Acting
from stepfold.engine.core.guards import (
    action_repeats,
    cycle_repeats,
    failure_repeats,
    no_worker_free,
    over_window,
    rejection_repeats,
    turns_to_drop,
    worker_refusal,
)
from stepfold.events.configuration import Guards
from stepfold.events.vocabulary import Message
from stepfold.projections.state import Action, Run, Slot
from tests.house import config

SEED = Message(role="user", content="begin")


def run_of(turns: list[Message], *, window: int, system: int = 0) -> Run:
    run = Run()
    run.config = config(context_window=window)
    run.goal.system = "s" * system
    for turn in turns:
        run.history.append(turn)
    return run


def pairs(*sizes: int) -> list[Message]:
    """A seed turn, then an assistant turn and a tool turn for each size, which is that of the latter."""
    told = [SEED]
    for size in sizes:
        told += [Message(role="assistant", content="a"), Message(role="tool", content="t" * size)]
    return told


@pytest.mark.parametrize(("system", "over"), [(399, False), (400, False), (403, False), (404, True)])
def test_a_request_as_large_as_the_window_still_fits(system: int, over: bool) -> None:
    turns = pairs(10, 10, 10)
    told = sum(len(turn.content) for turn in turns)

    assert over_window(run_of(turns, window=100, system=system - told), None) is over


def test_what_is_too_large_without_a_turn_that_can_go_is_not_compacted_for_ever() -> None:
    assert not over_window(run_of(pairs(1000), window=10), None)
    assert over_window(run_of(pairs(1000, 1), window=10), None)


def test_compaction_brings_a_request_to_half_a_window() -> None:
    # Half of 150 tokens of four characters is 300, of which the system turn takes its part.
    turns = pairs(99, 99, 99, 99)

    assert turns_to_drop(run_of(turns, window=150, system=100)) == 6
    assert turns_to_drop(run_of(turns, window=150, system=95)) == 4
    assert turns_to_drop(run_of(turns, window=150, system=96)) == 6
    assert turns_to_drop(run_of(turns, window=1000, system=100)) == 0


def test_a_single_turn_may_go_and_its_answer_goes_with_it() -> None:
    alone = [SEED, *(Message(role="assistant", content="a" * size) for size in (1000, 1, 1))]
    answered = pairs(1, 1)
    answered[1] = Message(role="assistant", content="a" * 1000)

    assert over_window(run_of(alone, window=100), None)
    assert turns_to_drop(run_of(alone, window=100)) == 1
    assert turns_to_drop(run_of(answered, window=100)) == 2


@given(
    st.lists(st.tuples(st.sampled_from(["assistant", "tool"]), st.integers(0, 60)), max_size=12),
    st.integers(1, 60),
    st.integers(0, 200),
)
def test_the_oldest_turns_go_until_there_is_room_and_no_answer_stays_without_its_call(
    drawn: list[tuple[str, int]], window: int, system: int
) -> None:
    turns = [SEED, *(Message(role=role, content="x" * size) for role, size in drawn)]
    run = run_of(turns, window=window, system=system)
    room = window * CHARACTERS_A_TOKEN // 2 - system
    sizes = [len(turn.content) for turn in turns]
    left = [sum(sizes) - gone for gone in accumulate(sizes[1:], initial=0)]

    dropped = turns_to_drop(run)

    may_go = max(0, len(turns) - 3)
    needed = next((count for count in range(may_go + 1) if left[count] <= room), may_go)
    kept = turns[1 + dropped :]
    between = turns[1 + needed : 1 + dropped]
    assert dropped >= needed
    assert all(turn.role == "tool" for turn in between), "only answers go beyond what is needed"
    assert dropped == 0 or len(kept) == 0 or kept[0].role != "tool"
    assert needed > 0 or dropped == 0


READ = Action("capability_call", '{"a":1,"b":2}')


@pytest.mark.parametrize(
    ("now", "before", "repeats"),
    [
        (READ, READ, True),
        (READ, Action("capability_call", '{"b":2,"a":1}'), True),
        (READ, Action("capability_call", '{"a":1,"b":3}'), False),
        (READ, Action("verify", '{"a":1,"b":2}'), False),
        (READ, None, False),
        (None, READ, False),
    ],
)
def test_an_action_repeats_the_last_one_whatever_the_order_of_its_keys(
    now: Action | None, before: Action | None, repeats: bool
) -> None:
    run = Run()
    run.goal.action, run.goal.previous_action = now, before

    assert action_repeats(run, None) is repeats


GOES_NOWHERE = (cycle_repeats, rejection_repeats, failure_repeats)


def stuck(times: int, threshold: int) -> Run:
    """So many rounds, rejections and failures, counted under guards with this threshold."""
    run = Run()
    run.config = config(guards=Guards(cycle=threshold, rejection=threshold, failure=threshold))
    run.goal.cycle_runs = (0, 2 * (times - 1))
    run.goal.rejections = times
    run.goal.failures = {"call": ("failure", times)}
    return run


@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_a_guard_trips_at_its_threshold(threshold: int) -> None:
    for times in range(1, 5):
        tripped = {guard(stuck(times, threshold), None) for guard in GOES_NOWHERE}
        assert tripped == {times >= threshold}


def test_a_guard_that_a_fork_turned_off_heeds_nothing_that_was_counted_before() -> None:
    assert not any(guard(stuck(9, 0), None) for guard in GOES_NOWHERE)


@pytest.mark.parametrize(
    ("changes", "at_work", "refusal"),
    [
        ({"worker_slots": 0, "worker_depth": 1}, 0, "no worker slot is free (worker_slots = 0)"),
        ({"worker_slots": 1, "worker_depth": 0}, 0, "no worker slot is free (worker_slots = 0)"),
        ({"worker_slots": 1, "worker_depth": 1, "depth": 1}, 0, "this run is a worker itself"),
        ({"worker_slots": 1, "worker_depth": 2, "depth": 1}, 0, ""),
        ({"worker_slots": 2, "worker_depth": 1}, 1, ""),
        ({"worker_slots": 2, "worker_depth": 1}, 2, "all 2 worker slots are taken"),
    ],
)
def test_a_worker_is_had_while_a_slot_is_free_and_the_run_not_too_deep(
    changes: dict[str, Any], at_work: int, refusal: str
) -> None:
    run = Run()
    run.config = config(**changes)
    run.goal.workers = [Slot(f"call_{n}", "worker_dispatch", b"{}", f"tool:{n}.0") for n in range(at_work)]
    given = Acting("call_9", {"task": "count"})

    assert no_worker_free(run, given) is bool(refusal)
    assert worker_refusal(run, given).startswith(refusal)


@pytest.mark.parametrize(("profile", "had"), [("", True), ("coding", True), ("nine", False)])
def test_a_worker_is_of_a_profile_that_exists_or_of_none(profile: str, had: bool) -> None:
    run = Run()
    run.config = config(worker_slots=1, worker_depth=1)

    assert no_worker_free(run, Acting("call_9", {"task": "count", "profile": profile})) is not had
