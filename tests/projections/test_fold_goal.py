"""What the fold of a goal run keeps between its events: what is due, what the next step is told, what can
be taken back. Over all stories where it holds of every run, and over a few events where it doesn't."""

from typing import Any

import pytest
from msgspec import Raw

from stepfold.events.configuration import Guards
from stepfold.events.vocabulary import (
    BLANK,
    AnyEvent,
    ApprovalAsked,
    CallUndone,
    ChildUsage,
    ConstraintProbed,
    ContextBuilt,
    ObservationRecorded,
    RunResumed,
    RunStarted,
    ToolCompleted,
    ToolFailed,
    ToolRejected,
    ToolReturned,
    UserAnswered,
    WorkerSpent,
)
from stepfold.projections.effects import AskApproval, Listen
from stepfold.projections.fold_goal import section_inputs
from stepfold.projections.run import evolve, fold
from stepfold.projections.state import Run
from stepfold.projections.usage import Usage
from tests.engine.core.stories import CHANGE, RETURNED, RM, STORIES
from tests.house import ASKING, CHAT, FINISH, LOAD, PROSE, WORKER, WORKERS, Story, config, load, prefixes

DUE_IN = {"approval:": {"approving"}, "check:": {"verifying", "escalating"}, "user": {"awaiting_user"}}
"""The states in which effects of these kinds may be due."""

HEAD = (1, "story", 0, 0, "2026-01-01T00:00:00.000000Z", "row", "")


def told(*landings: Any, **changes: Any) -> Story:
    story = Story(config(**changes))
    for landing in landings:
        story.lands(landing)
    return story


def begun(*events: AnyEvent, **changes: Any) -> Run:
    """A run whose log was written by somebody else: these events right after its start."""
    return fold([RunStarted(*BLANK, config=config(**changes), engine="test"), *events])


@pytest.mark.parametrize("name", STORIES)
def test_what_is_due_is_what_the_run_waits_for(name: str) -> None:
    for run in prefixes(STORIES[name]()):
        for key in run.due:
            for kind, states in DUE_IN.items():
                assert not key.startswith(kind) or run.state in states, key
        unanswered = {slot.key for slot in (*run.slots, *run.goal.workers) if slot.landed is None}
        assert {key for key in run.due if key.startswith("tool:")} <= unanswered
        assert run.status in ("", "step_cap") or list(run.due.values()) in ([], [Listen("user")])


@pytest.mark.parametrize("name", STORIES)
def test_a_call_is_of_the_step_or_of_a_worker_and_gone_when_it_has_ended(name: str) -> None:
    ended: set[str] = set()
    events = STORIES[name]()
    for event, run in zip(events, prefixes(events), strict=True):
        if isinstance(event, ToolCompleted | ToolFailed):
            ended.add(event.key)
        assert not {slot.key for slot in run.slots} & {slot.key for slot in run.goal.workers}
        assert not ended & {*run.due, *(slot.key for slot in run.goal.workers)}


@pytest.mark.parametrize("name", STORIES)
def test_the_framing_is_told_only_when_what_it_depends_on_changed(name: str) -> None:
    events = STORIES[name]()
    for event, run in zip(events, prefixes(events), strict=True):
        if isinstance(event, ContextBuilt) and event.sections:
            assert run.goal.section_inputs == section_inputs(run.goal)


def test_a_call_that_changes_something_can_be_taken_back_and_is_then_no_change_any_more() -> None:
    story = told(LOAD, CHANGE, RETURNED, CHANGE, RETURNED, FINISH, **CHAT)
    assert story.run.goal.changes == [("tool:2.0", "change"), ("tool:3.0", "change")]

    story.lands(CallUndone(*BLANK, call="tool:2.0", name="change", path="a.py", what="restored"))

    assert story.run.goal.changes == [("tool:3.0", "change")]


def test_a_worker_counts_as_a_change() -> None:
    story = told(WORKER, RETURNED, **WORKERS)

    assert story.run.goal.changes == [("tool:1.0", "worker_dispatch")]


def test_a_call_that_waits_for_a_yes_shows_what_the_model_wrote_or_what_the_gate_made_of_it() -> None:
    run = told(load("shell.run"), RM, **ASKING).run
    effect = next(iter(run.due.values()))
    assert isinstance(effect, AskApproval)
    assert effect.arguments == b'{"command":"rm a.py"}'

    evolve(run, ApprovalAsked(*HEAD, call_id="call_1", name="shell.run", rule="rm", key="approval:2.0"))

    assert run.due["approval:2.0"] == AskApproval("approval:2.0", "shell.run", "rm", b'{"cmd": "rm a.py"}')


def test_a_log_by_somebody_else_is_folded_where_a_call_a_question_or_an_answer_is_missing() -> None:
    asked = begun(ApprovalAsked(*HEAD, call_id="call_1", name="nine", rule="rm", key="approval:1.0"))
    as_made = begun(
        ApprovalAsked(
            *HEAD, call_id="call_1", name="nine", rule="rm", key="approval:1.0", arguments=Raw(b"[]")
        )
    )
    refused = begun(
        ToolRejected(*HEAD, call_id="call_1", name="nine", hop="registry", reason="there is none")
    )
    observed = begun(ObservationRecorded(*HEAD, call_id="call_1"))
    resumed = begun(RunResumed(*HEAD))

    assert asked.due["approval:1.0"] == AskApproval("approval:1.0", "nine", "rm", b"{}")
    assert as_made.due["approval:1.0"] == AskApproval("approval:1.0", "nine", "rm", b"[]")
    assert refused.goal.transcript == ["nine rejected (registry): there is none"]
    assert [turn.content for turn in observed.history.turns] == ["mend the parser"]
    assert [turn.content for turn in resumed.history.turns] == ["mend the parser", ""]


def test_the_end_of_a_call_that_nobody_made_changes_nothing() -> None:
    ended = ToolCompleted(*HEAD, call_id="call_1", key="tool:9.0")

    run = begun(ended)

    assert (run.goal.transcript, run.goal.mutations, run.usage) == ([], 0, Usage())


def test_a_worker_costs_what_it_says_at_its_end_and_nothing_twice() -> None:
    story = told(WORKER, **WORKERS)
    (key,) = [slot.key for slot in story.run.goal.workers]
    before = story.run.usage
    story.lands(WorkerSpent(*BLANK, worker=key, child=ChildUsage(1, 10, 2, 0.5)))
    assert story.run.usage == before.plus_child(ChildUsage(1, 10, 2, 0.5))

    story.lands(ToolReturned(*BLANK, content="3", child=ChildUsage(2, 25, 6, 0.75), key=key))

    assert story.run.usage == before.plus_child(ChildUsage(2, 25, 6, 0.75))


def test_requests_carry_the_form_that_the_server_was_found_to_keep_to() -> None:
    run = begun(ConstraintProbed(*BLANK, form="union"), ConstraintProbed(*BLANK, form="gbnf"))

    assert run.goal.form == "gbnf"


def test_a_guard_that_stopped_a_turn_counts_anew_when_the_person_says_to_go_on() -> None:
    again = UserAnswered(*BLANK, text="go on")
    story = told(PROSE, PROSE, **CHAT, guards=Guards(rejection=2, cycle=2, failure=2))
    assert (story.run.state, story.run.fault) == ("awaiting_user", "rejection_repeats")

    assert "ModelStarted" in story.lands(again)
    assert "GuardTripped" not in story.lands(PROSE)
    assert "GuardTripped" in story.lands(PROSE)
