"""What holds for every row and every guard of the goal table, shown on scripted runs that fire them all."""

import ast
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from stepfold.engine.core import guards
from stepfold.engine.core.decide import SILENT_ROWS_AT_MOST, decide
from stepfold.engine.core.goal_table import GOAL, SEES
from stepfold.engine.core.machine import Row
from stepfold.events.configuration import Guards
from stepfold.events.vocabulary import AnyEvent, Decided
from stepfold.projections.run import evolve
from stepfold.projections.state import Run
from tests.engine.core.stories import STORIES
from tests.house import Story, config, prefixes

LOGS: dict[str, list[AnyEvent]] = {}


def log_of(name: str) -> list[AnyEvent]:
    if name not in LOGS:
        LOGS[name] = STORIES[name]()
    return LOGS[name]


def walked(run: Run) -> Iterator[tuple[str, str, Any, Row]]:
    """Each (state, word, given, row) that the next decision of this run passes through."""
    state = run.state
    for _ in range(SILENT_ROWS_AT_MOST):
        word, given = SEES[state](run)
        row = GOAL.choose(state, word, run, given)
        yield state, word, given, row
        if row.sort != "silent":
            return
        state = row.dest


EVERY_STORY = pytest.mark.parametrize("name", STORIES)


def test_every_row_is_fired_by_some_story() -> None:
    fired = {row.name for name in STORIES for run in prefixes(log_of(name)) for *_, row in walked(run)}

    assert fired == {row.name for row in GOAL.rows}


def test_every_state_is_reached_by_some_story() -> None:
    reached = {run.state for name in STORIES for run in prefixes(log_of(name))}

    assert reached == set(GOAL.states)
    assert set(SEES) == set(GOAL.states)


@EVERY_STORY
def test_every_guard_gives_a_real_bool(name: str) -> None:
    for run in prefixes(log_of(name)):
        for state, word, given, _ in walked(run):
            rows = [
                row for row in GOAL.rows if state in row.sources and (word in row.on or row.on == ("any",))
            ]
            answers = [guard(run, given) for row in rows for guard in (*row.when, *row.unless)]
            assert {type(answer) for answer in answers} <= {bool}


@EVERY_STORY
def test_a_row_that_stays_does_not_fire_again_on_its_own_event(name: str) -> None:
    run = Run()
    for event in log_of(name):
        evolve(run, event)
        if isinstance(event, Decided) and not event.to:
            *_, (_, _, _, row) = walked(run)
            assert row.name != event.row


@EVERY_STORY
def test_every_decided_event_names_the_row_that_made_it(name: str) -> None:
    run = Run()
    for event in log_of(name):
        if isinstance(event, Decided):
            *_, (state, _, _, row) = walked(run)
            assert (event.row, type(event).__name__) == (row.name, row.event)
            assert event.to == ((row.dest or state) if (row.dest or state) != run.state else "")
        evolve(run, event)


@EVERY_STORY
def test_deciding_reads_and_changes_nothing(name: str) -> None:
    for run in prefixes(log_of(name)):
        assert decide(run) == decide(run) == decide(run.clone())


def test_every_guard_says_in_its_docstring_what_it_means() -> None:
    names = {guard.__name__ for row in GOAL.rows for guard in (*row.when, *row.unless)}

    assert names
    for name in names:
        assert inspect.getdoc(getattr(guards, name)), name


def test_every_state_that_starts_something_has_a_cancel_above_it() -> None:
    starts = {"ModelStarted", "ToolStarted", "CheckStarted", "RetryScheduled"}
    for state in GOAL.states:
        rows = [row for row in GOAL.rows if state in row.sources]
        for row in rows:
            if row.event not in starts:
                continue
            above = rows[: rows.index(row)]
            for word in row.on:
                assert any(
                    guards.cancel_requested in other.when
                    and len(other.when) == 1
                    and (word in other.on or other.on == ("any",))
                    for other in above
                ), (state, row.name)


def test_the_pure_core_reads_no_clock_and_no_chance() -> None:
    source = ast.parse(inspect.getsource(guards))
    imported = {
        alias.name for node in ast.walk(source) if isinstance(node, ast.Import) for alias in node.names
    }

    assert imported <= {"msgspec"}


@pytest.mark.parametrize(
    ("guards", "row"),
    [
        (Guards(cycle=2), "circle"),
        (Guards(rejection=2), "same_rejection"),
        (Guards(failure=2), "same_failure"),
    ],
)
def test_a_guard_that_a_fork_turned_on_inside_a_step_waits_for_the_end_of_that_step(
    guards: Guards, row: str
) -> None:
    before_asking, after_building = Run(), Run()
    for event in log_of("finishes with evidence")[:3]:
        evolve(after_building, event)
    for event in log_of("finishes with evidence")[:2]:
        evolve(before_asking, event)
    for run in (before_asking, after_building):
        run.config = config(guards=guards)
        run.goal.cycle_runs, run.goal.rejections, run.goal.failures = (0, 9), 9, {"call": ("failure", 9)}

    trips, goes_on = decide(before_asking), decide(after_building)

    assert trips is not None and trips.row == row
    assert goes_on is not None and goes_on.row == "ask"


def test_an_unknown_loop_decides_nothing() -> None:
    assert decide(Run()) is None


def test_the_step_is_raised_by_the_context_alone() -> None:
    for name in STORIES:
        step = 0
        for event in log_of(name):
            expected = step + 1 if type(event).__name__ == "ContextBuilt" else step
            assert event.step == expected
            step = event.step


def test_a_story_told_by_hand_is_the_one_that_the_loop_would_write() -> None:
    story = Story().replies("nonsense")

    assert [type(event).__name__ for event in story.events] == [
        "RunStarted", "ProfileInferred", "ContextBuilt", "ModelStarted", "ModelReplied", "ModelCompleted",
        "ActionRejected", "ObservationRecorded", "ContextBuilt", "ModelStarted",
    ]  # fmt: skip
