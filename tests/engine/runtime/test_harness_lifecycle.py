"""The tool-calling loop from start to end: the order of its events, its counters, its ids, its usage."""

from msgspec.structs import replace

from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.run_policy import RunConfig
from tests.harness_house import Counted, Scripted, calls, play, text


def test_tl_001_a_plain_reply_is_five_events() -> None:
    played = play(AgentHarness(Scripted(text("hello there"))), "hi")
    assert played.kinds == ["RunStarted", "ModelStarted", "UsageRecorded", "ModelCompleted", "RunCompleted"]
    assert (played.run.model_calls, played.run.tool_calls, played.run.steps) == (1, 0, 1)
    assert played.roles == ["user", "assistant"]
    assert played.run.text == "hello there"


def test_tl_002_without_a_model_the_run_fails_before_it_asks() -> None:
    played = play(AgentHarness([]))
    assert played.kind == "ModelNotFound"
    assert played.kinds == ["RunStarted", "RunFailed"]


def test_a_model_name_that_is_not_there_is_a_model_not_found() -> None:
    played = play(AgentHarness(Scripted(text("x"))), config=RunConfig(run_id="r1", model="other"))
    assert played.kind == "ModelNotFound"
    assert "ModelStarted" not in played.kinds


def test_tl_003_the_status_agrees_with_the_run() -> None:
    look = Counted("look")
    played = play(AgentHarness(Scripted(calls(("c1", "look")), text("done")), [look.tool]))
    status = played.status
    assert (status.status, status.phase, bool(status.ended)) == ("completed", "done", True)
    assert (
        (status.model_calls, status.tool_calls) == (2, 1) == (played.run.model_calls, played.run.tool_calls)
    )
    assert (status.in_flight, status.error) == ((), "")
    assert played.kinds[4:6] == ["ToolStarted", "ToolCompleted"]


def test_tl_054_the_same_run_has_the_same_ids() -> None:
    """Ours are `(run_id, seq)` for events and `model-N` for calls; the API may put the run's id before."""

    def run() -> list[object]:
        harness = AgentHarness(
            Scripted(calls(("call_abc", "look")), text("done")), [Counted("look", idempotency="pure").tool]
        )
        events = play(harness, config=RunConfig(run_id="run-42")).events
        return [replace(event, ts="") for event in events if not hasattr(event, "duration")]

    first, second = run(), run()
    assert first == second
    assert {event.run_id for event in first} == {"run-42"}  # type: ignore[attr-defined]
    started = [event for event in first if type(event).__name__ in {"ModelStarted", "ToolStarted"}]
    assert [event.call_id for event in started] == ["model-1", "call_abc", "model-2"]  # type: ignore[attr-defined]


def test_tl_055_usage_is_added_up_and_told_before_the_reply_is_taken() -> None:
    script = Scripted(calls(("c1", "look"), given=7, taken=3), text("done", 4, 2))
    played = play(AgentHarness(script, [Counted("look").tool]))
    usage = played.run.usage
    assert (usage.model_calls, usage.input_tokens, usage.output_tokens, usage.total_tokens) == (2, 11, 5, 16)
    about = [(type(e).__name__, e.call_id) for e in played.of("UsageRecorded", "ModelCompleted")]
    assert about == [
        ("UsageRecorded", "model-1"),
        ("ModelCompleted", "model-1"),
        ("UsageRecorded", "model-2"),
        ("ModelCompleted", "model-2"),
    ]


def test_messages_may_come_as_structs_texts_or_in_the_form_of_the_api() -> None:
    model = Scripted(text("ok"))
    given = [
        {"role": "system", "content": "be brief"},
        "hi",
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "function": {"name": "look", "arguments": '{"x":1}'}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "seen"},
    ]
    played = play(AgentHarness(model), *given)
    assert played.roles == ["system", "user", "assistant", "tool", "assistant"]
    assert model.requests[0].messages[2].tool_calls[0].arguments == '{"x":1}'
