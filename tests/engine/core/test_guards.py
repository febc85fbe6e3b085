"""Guards of the goal table on runs made by hand: their thresholds to the unit."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.core.framing import CHARACTERS_A_TOKEN
from stepfold.engine.core.guards import action_repeats, over_window, turns_to_drop
from stepfold.events.vocabulary import Message
from stepfold.projections.state import Action, Run
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
