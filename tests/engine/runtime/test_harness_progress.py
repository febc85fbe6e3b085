"""A run that repeats itself is told so, and then stopped; off unless asked for."""

from typing import Any

import pytest

from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.run_policy import RunPolicy
from tests.harness_house import Counted, Played, Scripted, calls, play, text

POLICY = RunPolicy(no_progress=True, tool_errors="return_to_model", unknown_tool="return_tool_error")
FAIL = RuntimeError("no such file\nat line 7")


def run(*script: Any, policy: RunPolicy = POLICY) -> Played:
    tools = [Counted("flaky", FAIL).tool, Counted("look", "seen").tool]
    return play(AgentHarness(Scripted(*script), tools, policy=policy))


def verdicts(played: Played) -> list[str]:
    return [event.verdict for event in played.of("NoProgress")]


def test_tl_056_the_same_failure_is_told_at_two_and_stopped_at_three() -> None:
    played = run(calls(("c1", "flaky")))
    nudge, stop = played.of("NoProgress")
    assert (nudge.verdict, "since step 2" in nudge.message, nudge.step) == ("nudge", True, 2)
    assert (stop.verdict, "retried 3 times" in stop.message, stop.step) == ("stop", True, 3)
    assert (played.kind, played.run.model_calls) == ("NoProgress", 3)
    assert nudge.message in [m.content for m in played.run.messages]


def test_tl_056_a_success_in_between_resets() -> None:
    flaky, look = calls(("c1", "flaky")), calls(("c1", "look"))
    played = run(flaky, look, flaky, look, flaky, text("done"))
    assert (played.run.text, verdicts(played)) == ("done", [])


def test_different_failures_in_a_row_are_told_at_four_and_stopped_at_six() -> None:
    played = run(*(calls(("c1", "flaky", {"n": n})) for n in range(9)))
    assert verdicts(played) == ["nudge", "stop"]
    assert [event.step for event in played.of("NoProgress")] == [4, 6]


@pytest.mark.parametrize("again", [calls(("c1", "missing")), calls(("c1", "look", "[1]"))])
def test_calls_that_were_never_let_in_are_failures_too(again: Any) -> None:
    assert (run(again).kind, run(again).run.model_calls) == ("NoProgress", 3)


def test_the_same_turn_of_successes_is_stopped_at_three() -> None:
    played = run(calls(("c1", "look"), ("c2", "look", {"n": 1})))
    assert (played.kind, played.run.model_calls, verdicts(played)) == ("NoProgress", 3, ["stop"])


def test_a_turn_with_a_failure_in_it_is_like_no_other() -> None:
    mixed = [calls(("c1", "flaky", {"n": n}), ("c2", "look")) for n in range(5)]
    assert run(*mixed, text("done")).run.text == "done"


def test_a_partial_end_is_possible_here_too() -> None:
    from msgspec.structs import replace

    played = run(calls(("c1", "flaky")), policy=replace(POLICY, on_limit="stop_with_partial"))
    assert (played.status.status, played.run.stop_reason) == ("completed", "no_progress")


def test_without_being_asked_nothing_is_stopped() -> None:
    from msgspec.structs import replace

    played = run(*[calls(("c1", "flaky"))] * 7, text("done"), policy=replace(POLICY, no_progress=False))
    assert played.run.text == "done"
