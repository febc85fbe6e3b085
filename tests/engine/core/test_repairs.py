"""What a run makes of rejections in a row: by its wording, and harder when the same error comes again."""

import re

from stepfold.events.configuration import WORDING_OF_MENDS
from stepfold.events.vocabulary import ActionRejected
from tests.house import PROSE, SEARCH, VERIFY, Story, config


def test_the_same_error_again_escalates_and_an_action_in_between_starts_anew() -> None:
    story = Story(config(wording=WORDING_OF_MENDS))
    broken = VERIFY + "}"
    said = []
    for reply in (broken, broken, PROSE, broken, SEARCH, broken):
        story.lands(reply)
        if reply != SEARCH:
            said.append(next(e for e in reversed(story.events) if isinstance(e, ActionRejected)))

    escalated = [rejection.repair.text.startswith("The same error") for rejection in said]
    # A text that the log has already is not written again.
    assert escalated == [False, True, False, False, False]
    assert [bool(rejection.repair.text) for rejection in said] == [True, True, True, False, False]


def test_the_model_reads_how_often_it_made_the_same_error_in_a_row() -> None:
    story = Story(config(wording=WORDING_OF_MENDS, max_steps=20))
    broken = VERIFY + "}"
    read = []
    for reply in (broken, broken, broken, PROSE, PROSE, broken, SEARCH, broken, broken):
        story.lands(reply)
        if reply != SEARCH:
            rejection = next(e for e in reversed(story.events) if isinstance(e, ActionRejected))
            read.append(story.run.goal.texts[rejection.repair.digest])

    counted = [re.match(r"The same error for the (\w+) time\.", text) for text in read]
    counts = [found[1] if found else "" for found in counted]
    assert counts == ["", "second", "third", "", "second", "", "", "second"]


def test_runs_of_the_first_wording_read_as_they_did() -> None:
    story = Story(config())
    story.lands(VERIFY + "}")
    story.lands(VERIFY + "}")
    texts = [event.repair for event in story.events if isinstance(event, ActionRejected)]

    assert texts[0].digest == texts[1].digest
    assert "Send exactly this" not in texts[0].text
