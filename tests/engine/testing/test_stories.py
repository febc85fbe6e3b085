"""Given, when, then over a real table."""

import pytest

from stepfold.events import vocabulary as v
from stepfold.events.configuration import GoalConfig
from stepfold.testing import given

NOTHING_TO_VERIFY = GoalConfig(goal="mend it", memory=False)
VERIFY = '{"name": "verify", "arguments": {}}'


def test_the_second_verify_with_nothing_to_verify_hands_the_run_back() -> None:
    story = given(NOTHING_TO_VERIFY).when(VERIFY)

    story.when(VERIFY).then(
        "ModelCompleted", "ActionParsed", v.GuardTripped, "ObservationRecorded", v.RunFinished
    )


def test_a_story_goes_on_from_recorded_events() -> None:
    past = given(NOTHING_TO_VERIFY).when(VERIFY).events

    assert given(*past).when(VERIFY).run.status == "missing_evidence"


def test_what_was_decided_instead_is_told() -> None:
    story = given(NOTHING_TO_VERIFY).when(VERIFY)

    with pytest.raises(AssertionError, match=r"decided  .*ChecksJudged"):
        story.then("RunFinished")
