"""How often guards are asked: counted by deciding anew, and equal to what the log says where it says it."""

from typing import Any

import pytest

from stepfold.engine.core.decide import LOOPS
from stepfold.engine.studies.audit import Auditor, by_guard, never_true, total
from stepfold.events import vocabulary as v
from stepfold.events.journal import read_log
from tests.house import FINISH, LOAD, VERIFY, Hands, config, play
from tests.test_fixtures import FIXTURES


def events_of(fixture: str) -> list[Any]:
    return [record.event for record in read_log(FIXTURES / fixture / "log.jsonl").records]


@pytest.mark.parametrize("fixture", sorted(p.name for p in FIXTURES.iterdir() if (p / "log.jsonl").exists()))
def test_every_recorded_decision_is_a_row_that_fired(fixture: str) -> None:
    events = events_of(fixture)

    audit = Auditor().audit(events)

    recorded = [event.row for event in events if isinstance(event, v.Decided)]
    emitting = {row.name for row in LOOPS["goal"].table.rows if row.sort == "emits"}
    assert audit.differs_at == -1
    assert {row: n for row, n in audit.fired.items() if row in emitting} == {
        row: recorded.count(row) for row in set(recorded)
    }


def test_a_row_fires_at_most_as_often_as_its_guard_holds() -> None:
    audit = Auditor().audit(events_of("hits_the_cap"))

    for (row, guard), held in audit.held.items():
        assert audit.fired[row] <= held <= audit.evaluated[row, guard]
    assert audit.held["exhaust", "steps_spent"] == 1
    assert "steps_spent" not in never_true(audit)
    assert "cycle_repeats" in never_true(audit)


def test_runs_add_up_and_do_not_count_into_each_other() -> None:
    auditor = Auditor()
    stories = ([LOAD, VERIFY, FINISH], ["prose", "prose"])
    runs = [play(config(max_steps=3), Hands(replies))[1] for replies in stories]
    alone = [Auditor().audit(run) for run in runs]

    together = [auditor.audit(run) for run in runs]

    assert [audit.rows() for audit in together] == [audit.rows() for audit in alone]
    whole = {guard: (asked, held) for guard, asked, held in by_guard(total(together, "goal"))}
    for guard, (asked, held) in whole.items():
        parts = [{g: (a, h) for g, a, h in by_guard(audit)}[guard] for audit in alone]
        assert (asked, held) == tuple(map(sum, zip(*parts, strict=True)))


def test_a_run_that_decided_otherwise_counts_up_to_there() -> None:
    from msgspec.structs import replace

    events = events_of("fixes_a_failing_test")
    place = next(n for n, event in enumerate(events) if isinstance(event, v.ChecksJudged))
    events[place] = replace(events[place], row="another_row")

    audit = Auditor().audit(events)

    assert audit.differs_at == place
    assert audit.fired["judge"] == 1
