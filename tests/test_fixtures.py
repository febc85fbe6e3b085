"""Every story in `replay_fixtures/` replays byte for byte, and folds to what lies beside it."""

import json
from pathlib import Path

import pytest

from stepfold.engine.runtime.replay import replay
from stepfold.engine.runtime.requests import recorded_request
from stepfold.events.journal import read_log
from stepfold.events.vocabulary import ActionRejected, ModelReplied, ModelStarted, ToolStarted
from stepfold.projections.outcome import outcome
from stepfold.projections.run import fold

FIXTURES = Path(__file__).parents[1] / "replay_fixtures"
STORIES = sorted(path.parent for path in FIXTURES.glob("*/log.jsonl"))


def test_there_are_at_least_eight_stories_and_some_derail():
    outcomes = [json.loads((story / "outcome.json").read_text()) for story in STORIES]
    statuses = [recorded["status"] for recorded in outcomes]
    assert len(STORIES) >= 8
    assert "completed" in statuses
    assert "step_cap" in statuses
    assert sum(recorded["rejected"] for recorded in outcomes) > 0


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_the_log_is_regenerated_byte_for_byte(story: Path):
    verdict = replay(story / "log.jsonl")
    assert verdict.verdict == "identical", verdict
    assert verdict.events == len((story / "log.jsonl").read_bytes().splitlines())


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_the_fold_gives_the_recorded_outcome_and_transcript(story: Path):
    result = outcome(fold(record.event for record in read_log(story / "log.jsonl").records))
    assert result.as_json() == json.loads((story / "outcome.json").read_text())
    assert f"{result.transcript}\n" == (story / "transcript.txt").read_text()


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_every_request_is_rebuilt_with_the_digest_that_was_recorded(story: Path):
    events = [record.event for record in read_log(story / "log.jsonl").records]
    steps = [event.step for event in events if isinstance(event, ModelStarted)]
    rebuilt = [recorded_request(events, step) for step in steps]
    assert steps
    assert all(request is not None and request.agrees for request in rebuilt)


def test_the_demo_plays_the_story_of_a_fixed_test():
    packaged = Path(__file__).parents[1] / "engine" / "demo" / "recording.jsonl"
    assert packaged.read_bytes() == (FIXTURES / "fixes_a_failing_test" / "log.jsonl").read_bytes()


def test_a_model_that_is_a_brace_short_is_refused_each_time():
    """The 0.5B model left out a brace of its second call, and said the same again after each repair."""
    events = [record.event for record in read_log(FIXTURES / "one_brace_short" / "log.jsonl").records]
    replies = {event.step: event for event in events if isinstance(event, ModelReplied)}
    short = [
        step
        for step, reply in replies.items()
        if reply.text.count("{") == reply.text.count("}") + 1 and reply.finish_reason == "stop"
    ]

    refused = {event.step: event.error for event in events if isinstance(event, ActionRejected)}

    assert short == [2, 3, 4, 5]
    assert [refused[step] for step in short] == ["NotJson"] * 4
    assert not any(isinstance(event, ToolStarted) for event in events)
