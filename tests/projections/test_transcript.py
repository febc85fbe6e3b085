"""The literal lines of the contract, and that everything the model did and saw stands in the transcript."""

import pytest

from stepfold.events.configuration import WORDING
from stepfold.events.vocabulary import Message
from stepfold.projections.run import fold
from stepfold.projections.transcript import finish_rejected_line, judged_lines
from tests.engine.core.stories import STORIES
from tests.house import LOAD, Hands, call, config, load, of_kind, play

LITERAL = {
    "repeats verify with nothing to verify": (
        "loop_guard=repeated verify without automatic verifier; stopping for user direction"
    ),
    "finishes with evidence": "capability_load_ack=look,change",
    "loads what is not there": (
        "capability_load_ack=look\n"
        "capability_load_failed=nine (unknown capability). Loadable capabilities: look, change"
    ),
}


def transcript(name: str) -> list[str]:
    return fold(STORIES[name]()).goal.transcript


@pytest.mark.parametrize("name", LITERAL)
def test_the_literal_lines_of_the_contract(name: str) -> None:
    assert LITERAL[name] in transcript(name)


def test_nothing_loaded_is_acknowledged_as_nothing() -> None:
    run, _ = play(config(max_steps=1), Hands([load("nine", "ten")]))

    assert (
        "capability_load_ack=\n"
        "capability_load_failed=nine,ten (unknown capability). Loadable capabilities: look, change"
    ) in run.goal.transcript


@pytest.mark.parametrize("name", STORIES)
def test_what_an_arm_adds_to_the_transcript_is_the_tool_turn_of_its_call(name: str) -> None:
    events = STORIES[name]()
    run = fold(events)
    calls = [event.call_id for event in of_kind(events, "ActionParsed", "ActionRejected")]

    if of_kind(events, "ContextCompacted"):
        return
    turns = [turn for turn in run.history.turns if turn.role == "tool"]
    answered = [event.call_id for event in of_kind(events, "ObservationRecorded")]
    assert [turn.tool_call_id for turn in turns] == answered == calls[: len(answered)]
    whole = "\n".join(run.goal.transcript)
    assert all(turn.content in whole for turn in turns)


def test_a_rejected_reply_is_kept_as_plain_text_beside_its_error() -> None:
    run = fold(STORIES["never speaks JSON"]())
    first, answer = run.history.turns[1:3]

    assert first == Message("assistant", "I think we should look first.", tool_call_id="call_1")
    assert answer.role == "tool"
    assert answer.tool_call_id == "call_1"
    assert "exactly one JSON object" in answer.content


def test_an_action_is_one_structured_call_and_its_answer() -> None:
    run = fold(STORIES["finishes with evidence"]())
    assistant = [turn for turn in run.history.turns if turn.role == "assistant"]

    assert [turn.tool_calls[0].id for turn in assistant] == [f"call_{n}" for n in range(1, 7)]
    assert [turn.tool_calls[0].name for turn in assistant][:3] == [
        "capability_search",
        "capability_load",
        "capability_call",
    ]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("tools err and raise", "look error (NotFound): no such file"),
        ("tools err and raise", "change failed (OSError): gone"),
        ("loses a call", "change: outcome unknown."),
        ("loses a check", "check a: was cut off"),
        ("checks fail", "check b: failed (exit code 1)\nout"),
        ("a check could not run", "check a: could not run\nout"),
        ("asks a person and is answered", "user: the small one"),
        ("is cancelled while a call flies", "change failed (cancelled)"),
        ("calls what is not loaded, and workers", "worker_dispatch rejected (dispatch)"),
    ],
)
def test_each_thing_that_happened_reads_as_what_it_was(name: str, line: str) -> None:
    assert any(line in said for said in transcript(name))


def test_a_result_is_in_the_transcript_whole() -> None:
    run, _ = play(config(max_steps=2), Hands([LOAD, call("look", x=1)]))

    assert run.goal.transcript[-1] == "look result:\nlook did it"


@pytest.mark.parametrize("wording", [1, 2])
def test_what_older_runs_were_told_of_unmet_checks_stays_as_it_was(wording: int) -> None:
    old = judged_lines(["a"], [], ["a", "b"], wording)

    assert old.startswith("unmet checks: a. They will not pass until a file is changed.")
    assert "old: a text that stands there now" in old
    assert finish_rejected_line(["a"], wording).endswith(old.removeprefix("unmet checks: a. "))


def test_new_runs_are_told_it_without_an_example() -> None:
    """Models patched with the very words of the example, in a file of that name."""
    told = judged_lines(["a"], [], ["a", "b"], WORDING)

    assert "old:" not in told
    assert "fs.write" in told


def test_a_refused_finish_does_not_say_that_a_stale_check_would_fail() -> None:
    assert finish_rejected_line(["a"], WORDING) == (
        "finish rejected; unmet checks: a. They have not passed with the files as they are now: "
        "call verify, and mend what fails."
    )
