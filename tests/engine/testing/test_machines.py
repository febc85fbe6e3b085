"""Both state machines run, and a script that is saved judges as it did."""

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings

from stepfold.engine.runtime.replay import verify
from stepfold.engine.testing.fixtures import judge, save
from stepfold.engine.testing.moves import as_json, script_from
from stepfold.engine.testing.targets import Fault
from stepfold.events.codec import encode
from stepfold.events.journal import Recorded
from stepfold.events.vocabulary import RunStarted
from stepfold.testing import HarnessMachine, LoopMachine, Script, event_logs, scripts

FEW = settings(max_examples=8, stateful_step_count=10, deadline=None, suppress_health_check=list(HealthCheck))

TestGoalLoop = LoopMachine.TestCase
TestGoalLoop.settings = FEW
TestToolLoop = HarnessMachine.TestCase
TestToolLoop.settings = FEW


@settings(FEW, max_examples=40)
@given(scripts("goal") | scripts("tools"))
def test_a_script_is_read_back_as_it_was(script: Script) -> None:
    assert script_from(json.loads(as_json(script))) == script


def test_the_same_case_found_twice_is_one_file(tmp_path: Path) -> None:
    case = {"raw": "prose", "expected": ["NotJson"]}

    paths = {save(tmp_path, "contract", case, Fault("rule", "why")) for _ in range(2)}

    assert len(paths) == len(list(tmp_path.iterdir())) == 1
    assert judge(paths.pop()) is None


@settings(FEW, max_examples=25)
@given(event_logs("goal") | event_logs("tools"))
def test_a_drawn_log_is_legal_wherever_it_is_cut(events: tuple[Any, ...]) -> None:
    holds_of_order(events)

    assert verify(Recorded(encode(event), event) for event in events)[1] == len(events)


def holds_of_order(events: tuple[Any, ...]) -> None:
    assert isinstance(events[0], RunStarted)
    assert [event.seq for event in events] == list(range(len(events)))
