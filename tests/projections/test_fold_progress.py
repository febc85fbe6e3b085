"""How a tool-calling run counts what it repeats: failures in a row, and turns that did the same."""

import pytest

from stepfold.events.vocabulary import BLANK, NoProgress
from stepfold.projections.fold_progress import (
    call_failed,
    call_succeeded,
    no_progress,
    turn_begins,
    turn_ended,
)
from stepfold.projections.state import Run, Slot


def slot(name: str = "look", arguments: bytes = b"{}") -> Slot:
    return Slot("call", name, arguments, "tool:1.0")


def turn(run: Run, *results: str) -> None:
    """A turn of the same call, once for each result; one that begins with `!` is an error."""
    turn_begins(run)
    for text in results:
        (call_failed if text.startswith("!") else call_succeeded)(run, slot(), text)
    turn_ended(run)


@pytest.mark.parametrize(
    ("turns", "same"),
    [
        ([["a"], ["a"], ["a"]], 3),
        ([["a"], ["b"]], 1),
        ([["a"], ["a"], ["b"], ["b"]], 2),
        ([["a"], ["a", "a"]], 1),
        ([["a"], ["a"], []], 0),
        ([[], []], 0),
        ([["a"], ["!no"], ["a"]], 1),
        ([["a"], ["!no", "a"]], 0),
    ],
)
def test_turns_are_the_same_when_all_their_calls_and_results_are(turns: list[list[str]], same: int) -> None:
    run = Run()

    for results in turns:
        turn(run, *results)

    assert run.harness.same_batches == same


def test_a_turn_that_was_given_up_counts_for_nothing() -> None:
    run = Run()
    turn(run, "a")
    turn_begins(run)
    call_succeeded(run, slot(), "b")

    turn(run, "a")

    assert run.harness.same_batches == 2


@pytest.mark.parametrize(
    ("results", "in_a_row", "alike"),
    [
        (["!no"], 1, 1),
        (["!no", "!no"], 2, 2),
        (["!no\nat line 3", "!no\nat line 4"], 2, 2),
        (["!no", "!other"], 2, 1),
        (["!no", "!no", "a"], 0, 0),
        (["!no", "a", "!no"], 1, 1),
    ],
)
def test_failures_are_counted_until_a_call_succeeds(results: list[str], in_a_row: int, alike: int) -> None:
    run = Run()

    turn(run, *results)

    assert (run.harness.failures, run.harness.same_failures) == (in_a_row, alike)


@pytest.mark.parametrize("other", [slot("find"), slot(arguments=b'{"path":"a"}')])
def test_another_call_fails_in_another_way(other: Slot) -> None:
    run = Run()
    call_failed(run, slot(), "no")

    call_failed(run, other, "no")

    assert (run.harness.failures, run.harness.same_failures) == (2, 1)


def test_a_nudge_is_a_turn_and_a_stop_is_a_limit() -> None:
    nudged, stopped = Run(), Run()
    nudged.harness.same_failures, nudged.harness.failures = 2, 3

    no_progress(nudged, NoProgress(*BLANK, "row", verdict="nudge", message="look elsewhere"))
    no_progress(stopped, NoProgress(*BLANK, "row", verdict="stop", message="it goes nowhere"))

    assert [turn.content for turn in nudged.history.turns] == ["look elsewhere"]
    assert (nudged.harness.nudged_at, nudged.harness.limit) == ((2, 3), "")
    assert [turn.content for turn in stopped.history.turns] == []
    assert (stopped.harness.limit, stopped.fault_detail) == ("no_progress", "it goes nowhere")
