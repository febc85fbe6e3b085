"""Two runs side by side: nothing between a run and itself, and a planted change at its step."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stepfold.engine.studies.difference import difference
from tests.engine.studies.logs import LOGS, tools_run

EVENTS: dict[str, list[Any]] = {
    name: [record.event for record in records] for name, records in (LOGS | {"tools": tools_run(3)}).items()
}


@pytest.mark.parametrize("name", EVENTS)
def test_nothing_is_between_a_run_and_itself_under_another_id(name: str) -> None:
    other = [replace(event, run_id="other", ts="2030-01-01T00:00:00.000000Z") for event in EVENTS[name]]

    found = difference(EVENTS[name], other)

    assert found.is_empty
    assert found.as_json() == {"equal": True, "first": None, "totals": {}}


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_planted_change_is_found_at_its_step(data: st.DataObject) -> None:
    events = EVENTS[data.draw(st.sampled_from(sorted(EVENTS)))]
    fields = {"ModelReplied": ("text", "replies"), "ToolReturned": ("content", "results")}
    event = data.draw(st.sampled_from([e for e in events if type(e).__name__ in fields]))
    field, what = fields[type(event).__name__]
    was = getattr(event, field)
    now = data.draw(st.text(max_size=20).filter(lambda text: text != was))
    other = [*events[: event.seq], replace(event, **{field: now}), *events[event.seq + 1 :]]

    found = difference(events, other)

    assert (found.step, found.what) == (event.step, what)
    assert found.a != found.b


def test_a_run_that_goes_on_is_found_where_the_other_stops() -> None:
    events = EVENTS["fixes_a_failing_test"]
    shorter = [event for event in events if event.step < 5]

    found = difference(shorter, events)

    assert (found.step, found.what) == (5, "length")
    assert found.totals["status"] == ("unfinished", "completed")
    assert found.totals["steps"] == (4, 8)


def test_totals_that_differ_are_told_with_both_sides() -> None:
    found = difference(EVENTS["half_a_billion_fails"], EVENTS["fixes_a_failing_test"])
    totals = found.totals

    assert found.step == 1
    assert found.what == "replies"
    assert {"status", "input_tokens", "output_tokens", "guards.steps_spent"} <= totals.keys()
    assert any(name.startswith("rejections.") for name in totals)
    assert any(name.startswith("tools.") for name in totals)
    assert all(a != b for a, b in totals.values())


def test_another_goal_is_a_difference_before_the_first_step() -> None:
    found = difference(EVENTS["hyphens_plain"], EVENTS["fixes_a_failing_test"])

    assert (found.step, found.what) == (0, "asked")
