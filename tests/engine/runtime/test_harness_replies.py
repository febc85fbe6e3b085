"""Replies that say nothing, and replies that must have a shape."""

import json

import pytest

from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.run_policy import ResponseFormat, RunPolicy
from stepfold.engine.runtime.tools import ToolDeclarationError
from stepfold.events.configuration import Generation
from tests.harness_house import Counted, Scripted, calls, cut, play, text

CAPPED = Generation(mode="tools", max_tokens=2048)
ANSWER = ResponseFormat("answer", b'{"type":"object"}')
STRICT = ResponseFormat(
    "answer", b'{"type":"object","properties":{"value":{"type":"string"}},"required":["value"]}'
)


def sent(model: Scripted) -> list[int | None]:
    return [request.max_tokens for request in model.requests]


def test_tl_018_a_blank_reply_that_ran_out_of_tokens_is_asked_again_with_twice_the_room() -> None:
    for generation, expected in ((CAPPED, [2048, 4096]), (Generation(mode="tools"), [None, None])):
        model = Scripted(cut(), text("recovered"))
        played = play(AgentHarness(model, policy=RunPolicy(generation=generation)))
        assert (played.run.text, played.run.model_calls, sent(model)) == ("recovered", 2, expected)
        assert [r.attempt for r in played.of("RetryScheduled")] == [1]
        assert played.roles == ["user", "assistant"]


def test_the_room_grows_to_four_times_at_most() -> None:
    model = Scripted(cut(), cut(" "), cut(), text("at last"))
    policy = RunPolicy(generation=Generation(mode="tools", max_tokens=100), truncated_empty_retries=3)
    played = play(AgentHarness(model, policy=policy))
    assert (sent(model), played.run.text) == ([100, 200, 400, 400], "at last")


def test_tl_019_a_reply_that_stays_blank_is_an_error_only_if_the_policy_says_so() -> None:
    model = Scripted(cut(), cut())
    played = play(AgentHarness(model, policy=RunPolicy(generation=CAPPED)))
    assert (played.kind, played.run.text, played.run.model_calls) == ("", "", 2)
    model = Scripted(cut(), cut())
    played = play(AgentHarness(model, policy=RunPolicy(generation=CAPPED, error_on_empty_response=True)))
    assert (played.kind, model.asked, played.kinds[-1]) == ("EmptyResponse", 2, "RunFailed")


def test_blanks_of_white_space_use_up_the_same_retries() -> None:
    model = Scripted(cut("\n "))
    played = play(AgentHarness(model))
    assert (model.asked, played.kind) == (2, "")


def test_tl_020_without_retries_the_blank_reply_is_the_answer() -> None:
    played = play(AgentHarness(Scripted(cut()), policy=RunPolicy(truncated_empty_retries=0)))
    assert (played.run.model_calls, played.run.text) == (1, "")
    assert not played.of("RetryScheduled")


def test_tl_021_room_and_retries_are_those_of_one_turn() -> None:
    model = Scripted(cut(), calls(("c1", "look")), cut(), text("done"))
    played = play(AgentHarness(model, [Counted("look").tool], policy=RunPolicy(generation=CAPPED)))
    assert (played.run.text, played.run.model_calls) == ("done", 4)
    assert sent(model) == [2048, 4096, 2048, 4096]


# --- a shape -----------------------------------------------------------------------------------------


def test_tl_022_the_providers_structured_output_is_read_from_the_last_reply() -> None:
    wanted = {"value": "hi", "score": 42}
    policy = RunPolicy(response_format=ANSWER)
    model = Scripted(text(json.dumps(wanted)), supports_structured=True)
    assert play(AgentHarness(model, policy=policy)).run.structured == wanted
    assert bytes(model.requests[0].response_schema) == ANSWER.schema
    model = Scripted(calls(("c1", "look")), text(json.dumps(wanted)), supports_structured=True)
    played = play(AgentHarness(model, [Counted("look").tool], policy=policy))
    assert (played.run.structured, played.run.model_calls, played.run.tool_calls) == (wanted, 2, 1)


def test_tl_023_without_it_a_tool_of_that_name_is_forced() -> None:
    model = Scripted(calls(("c1", "answer", {"value": "viatool", "score": 7})))
    played = play(AgentHarness(model, policy=RunPolicy(response_format=ANSWER)))
    assert played.run.structured == {"value": "viatool", "score": 7}
    assert (played.run.model_calls, played.run.tool_calls) == (1, 0)
    (request,) = model.requests
    assert ([t.name for t in request.tools], request.tool_choice) == (["answer"], "answer")
    assert not played.of("ToolStarted")


def test_tl_024_beside_real_calls_the_answer_is_recorded_and_the_run_goes_on() -> None:
    search = Counted("search", "found")
    model = Scripted(
        calls(("c1", "search"), ("c2", "answer", {"answer": "42"})),
        calls(("c3", "answer", {"answer": "final"})),
    )
    played = play(AgentHarness(model, [search.tool], policy=RunPolicy(response_format=ANSWER)))
    assert model.requests[0].tool_choice == ""
    assert [t.name for t in model.requests[0].tools] == ["search", "answer"]
    assert search.runs == 1
    assert [c.control for c in played.of("ControlApplied")] == ["structured_with_tool_calls"]
    assert played.answers == [("c1", "found"), ("c2", "recorded"), ("c3", "recorded")]
    assert played.run.structured == {"answer": "final"}


def test_a_schema_named_like_a_tool_is_refused_at_the_start() -> None:
    with pytest.raises(ToolDeclarationError, match="'answer'"):
        AgentHarness(Scripted(text("x")), [Counted("answer").tool], policy=RunPolicy(response_format=ANSWER))


def test_an_answer_of_the_wrong_shape_is_told_to_the_model_when_it_came_as_a_call() -> None:
    model = Scripted(calls(("c1", "answer", {"value": 7})), calls(("c2", "answer", {"value": "ok"})))
    played = play(AgentHarness(model, policy=RunPolicy(response_format=STRICT)))
    assert played.run.structured == {"value": "ok"}
    assert played.answers[0][1].startswith("Error: ")
    model = Scripted(calls(("c1", "answer", {"value": 7})))
    policy = RunPolicy(response_format=STRICT, invalid_arguments="fail")
    assert play(AgentHarness(model, policy=policy)).kind == "Validation"


@pytest.mark.parametrize("structured", [True, False])
def test_an_answer_of_the_wrong_shape_is_an_error_when_it_came_as_text(structured: bool) -> None:
    model = Scripted(text('{"value": 7}'), supports_structured=structured)
    played = play(AgentHarness(model, policy=RunPolicy(response_format=STRICT)))
    assert (played.kind, "'answer'" in str(played.error)) == ("StructuredOutput", True)
