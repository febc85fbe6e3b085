"""How each run ended: one status, one finish, what is unmet, what it cost."""

from typing import get_args

import pytest

from stepfold.events.vocabulary import BLANK, ModelReplied
from stepfold.projections.outcome import EXIT_CODES, FINISHES, STATUSES, Finish, outcome
from stepfold.projections.run import fold
from stepfold.projections.usage import Usage
from tests.engine.core.stories import PASSED, RETURNED, STORIES
from tests.house import FINISH, LOAD, PROSE, VERIFY, Hands, Story, call, config, play

ENDS = {
    "finishes with evidence": ("completed", "completed", ()),
    "finishes without any check": ("completed", "completed", ()),
    "repeats a search and all passes": ("completed", "completed", ()),
    "checks fail": ("step_cap", "missing_evidence", ("b",)),
    "never speaks JSON": ("step_cap", "missing_evidence", ("a", "b")),
    "repeats verify with nothing to verify": ("missing_evidence", "missing_evidence", ()),
    "asks a person": ("awaiting_user", "awaiting_user", ("a", "b")),
    "asks a person and is answered": ("completed", "completed", ()),
    "is cancelled while the model is asked": ("cancelled", "cancelled", ("a", "b")),
    "gives up at once": ("failed", "failed", ("a", "b")),
}


@pytest.mark.parametrize("name", ENDS)
def test_each_end_has_its_status_its_finish_and_what_is_unmet(name: str) -> None:
    ended = outcome(fold(STORIES[name]()))

    assert (ended.status, ended.finish, ended.unmet) == ENDS[name]


def test_a_log_that_simply_stops_is_unfinished_at_every_event_before_its_end() -> None:
    events = STORIES["finishes with evidence"]()

    assert {outcome(fold(events[:cut])).status for cut in range(1, len(events))} == {"unfinished"}
    assert outcome(fold(events[:9])).finish == "failed"


def test_every_status_and_every_finish_is_reached() -> None:
    reached = {
        outcome(fold(events[:cut])).status
        for events in [make() for make in STORIES.values()]
        for cut in (3, None)
    }

    # Only the tool-calling loop pauses, and only who looks at the machine sees a process at work.
    assert reached | {"paused", "running", "interrupted"} == set(STATUSES)
    assert set(STATUSES.values()) == set(FINISHES) == set(get_args(Finish)) == set(EXIT_CODES)
    assert len(set(EXIT_CODES.values())) == len(EXIT_CODES)


def test_the_step_cap_is_told_by_the_absence_of_a_terminal_event() -> None:
    run, events = play(config(max_steps=3), Hands([PROSE] * 5))
    ended = outcome(run)

    assert not [event for event in events if type(event).__name__ == "RunFinished"]
    assert (ended.finish, ended.steps, ended.actions, ended.rejected) == ("missing_evidence", 3, 0, 3)


def test_steps_count_rejected_replies_and_actions_do_not() -> None:
    ended = outcome(play(config(), Hands([PROSE, VERIFY, PROSE, FINISH]))[0])

    assert (ended.steps, ended.actions, ended.rejected) == (4, 2, 2)
    assert ended.summary == "all done"


def test_a_question_is_the_summary_until_it_is_answered() -> None:
    assert outcome(fold(STORIES["asks a person"]())).summary == "which parser?"
    assert outcome(fold(STORIES["asks a person and is answered"]())).summary == "all done"


def test_the_outcome_as_json_shows_which_evidence_is_fresh() -> None:
    story = Story(config())
    for landing in (LOAD, VERIFY, PASSED, PASSED, call("change", x=1), RETURNED, VERIFY, PASSED):
        story.lands(landing)

    shown = outcome(story.run).as_json()

    assert shown["status"] == "unfinished"
    assert {item["check_id"]: item["fresh"] for item in shown["evidence"]} == {"a": True, "b": False}
    assert shown["unmet"] == ["b"]
    assert shown["usage"]["total_tokens"] == shown["usage"]["input_tokens"] + shown["usage"]["output_tokens"]


def reply(**fields: object) -> ModelReplied:
    return ModelReplied(*BLANK, text="", **fields)  # type: ignore[arg-type]


def test_usage_is_counted_as_replies_land_and_the_cache_is_not_billed() -> None:
    used = Usage()
    for landed in (
        reply(input_tokens=10, output_tokens=2),
        reply(input_tokens=5, output_tokens=1, estimated=True, cache="miss"),
        reply(input_tokens=99, output_tokens=99, cache="hit"),
    ):
        used = used.plus(landed)

    assert (used.model_calls, used.input_tokens, used.output_tokens, used.estimated) == (3, 15, 3, True)
    assert used.total_tokens == 18


def test_a_reply_that_lands_with_a_cancel_is_paid_for_and_a_failed_attempt_is_not() -> None:
    assert outcome(fold(STORIES["is cancelled as the model answers"]())).usage.model_calls == 1
    assert outcome(fold(STORIES["retries until it gives up"]())).usage.model_calls == 0


def test_nothing_at_all_has_an_outcome_too() -> None:
    ended = outcome(fold([]))

    assert (ended.status, ended.run_id, ended.steps, ended.transcript) == ("unfinished", "", 0, "")
    assert Story().run.usage == Usage()
