"""Middleware: the order of hooks, what they may change, what their controls and errors do."""

from typing import Any

import pytest

from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.middleware import Middleware, MiddlewareError
from stepfold.engine.runtime.run_policy import RunPolicy
from stepfold.events.configuration import Retry
from stepfold.events.vocabulary import Message
from tests.harness_house import Counted, Scripted, calls, play, text

CALL = calls(("c1", "look"))


class Noting(Middleware):
    """Writes down each hook that it gets."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes

    def before_model(self, context: Any, request: Any) -> None:
        self.notes.append(f"{self.name}:before")

    async def after_model(self, context: Any, reply: Any) -> None:
        self.notes.append(f"{self.name}:after")


def test_tl_040_hooks_go_in_and_come_out_in_order() -> None:
    notes: list[str] = []
    played = play(AgentHarness(Scripted(text("ok")), middleware=[Noting("a", notes), Noting("b", notes)]))
    assert notes == ["a:before", "b:before", "b:after", "a:after"]
    brackets = [
        (type(e).__name__, e.hook, e.name) for e in played.of("MiddlewareStarted", "MiddlewareCompleted")
    ]
    for start, end in zip(brackets[::2], brackets[1::2], strict=True):
        assert (start[0], end[0], start[1:]) == ("MiddlewareStarted", "MiddlewareCompleted", end[1:])
    assert [name for _, _, name in brackets[::2]] == ["a", "b", "b", "a"]


def having(hook: str, does: Any) -> Middleware:
    kind = type(f"Has_{hook}", (Middleware,), {hook: lambda self, *given: does(*given)})
    made: Middleware = kind()
    return made


def test_tl_041_a_hook_may_change_the_request() -> None:
    def inject(context: Any, request: Any) -> None:
        request.messages.append(Message("user", "injected"))

    echo = Scripted(lambda request: text(request.messages[-1].content))
    played = play(AgentHarness(echo, middleware=[having("before_model", inject)]), "original")
    assert played.run.text == "injected"
    assert played.roles == ["user", "assistant"]


def test_tl_042_a_hook_that_refuses_ends_the_run_and_gives_the_slot_back() -> None:
    look = Counted("look")

    def deny(context: Any, call: Any) -> None:
        raise MiddlewareError("approval denied")

    played = play(AgentHarness(Scripted(CALL), [look.tool], [having("before_tool", deny)]))
    assert (played.kind, look.runs, played.run.tool_calls) == ("Middleware", 0, 0)
    assert "approval denied" in str(played.error)
    assert not played.of("ToolStarted")


@pytest.mark.parametrize("order", [("stop", "interrupt"), ("interrupt", "stop")])
@pytest.mark.parametrize("together", [True, False])
def test_tl_043_interrupt_beats_stop_whichever_came_first(order: tuple[str, str], together: bool) -> None:
    def stop(context: Any, reply: Any) -> None:
        context.stop_with_final("enough")

    def interrupt(context: Any, reply: Any) -> None:
        context.interrupt("review: needs approval")

    hooks = [{"stop": stop, "interrupt": interrupt}[name] for name in order]

    def both(context: Any, reply: Any) -> None:
        for hook in hooks:
            hook(context, reply)

    middleware = [having("after_model", hook) for hook in ([both] if together else hooks)]
    played = play(AgentHarness(Scripted(text("ok")), middleware=middleware))
    assert (played.kind, played.error.detail) == ("Interrupted", "review: needs approval")  # type: ignore[union-attr]
    assert [c.control for c in played.of("ControlApplied")] == ["interrupt"]
    assert played.kinds[-1] == "RunFailed"


@pytest.mark.parametrize(
    "hook", ["before_agent", "before_model", "after_model", "before_tool", "after_tool", "after_agent"]
)
@pytest.mark.parametrize("control", ["stop_with_final", "interrupt"])
def test_a_control_is_applied_at_the_edge_where_it_was_raised(hook: str, control: str) -> None:
    raised = having(hook, lambda context, *_: getattr(context, control)("so be it"))
    look = Counted("look")
    played = play(AgentHarness(Scripted(CALL, text("done")), [look.tool], [raised]))
    assert [c.control for c in played.of("ControlApplied")] == [control]
    if control == "interrupt":
        assert (played.kind, played.error.detail) == ("Interrupted", "so be it")  # type: ignore[union-attr]
    else:
        assert (played.run.text, played.run.stop_reason) == ("so be it", "stop_with_final")
    asked = {"before_agent": 0, "before_model": 0, "after_agent": 2}.get(hook, 1)
    assert len(played.of("ModelStarted")) == asked
    assert look.runs == (1 if hook in {"after_tool", "after_agent"} else 0)


def test_under_a_wrap_a_control_keeps_the_next_call_from_starting() -> None:
    class Ending(Middleware):
        def after_tool(self, context: Any, call: Any, result: Any) -> None:
            context.stop_with_final("enough")

        async def wrap_tool(self, call: Any, call_next: Any) -> Any:
            return await call_next(call)

    look = Counted("look")
    played = play(AgentHarness(Scripted(calls(("c1", "look"), ("c2", "look"))), [look.tool], [Ending()]))
    assert (look.runs, played.run.text) == (1, "enough")
    assert played.answers == [("c1", "ok"), ("c2", "not run: stop_with_final")]


def test_hooks_may_change_the_input_the_reply_the_call_the_result_and_the_answer() -> None:
    def before_agent(context: Any, messages: list[Message]) -> None:
        messages[0] = Message("user", "hi, cleaned")
        messages.append(Message("system", "be brief"))

    def after_model(context: Any, reply: Any) -> None:
        reply.text = reply.text.upper()

    def before_tool(context: Any, call: Any) -> None:
        call.arguments = '{"n": 2}'

    def after_tool(context: Any, call: Any, result: Any) -> None:
        result.content += f" ({call.name} {call.arguments})"

    def after_agent(context: Any, answer: Any) -> None:
        answer.text += "!"

    hooks = [before_agent, after_model, before_tool, after_tool, after_agent]
    look = Counted("look")
    model = Scripted(CALL, text("done"))
    played = play(AgentHarness(model, [look.tool], [having(hook.__name__, hook) for hook in hooks]))
    assert [m.content for m in model.requests[0].messages] == ["hi, cleaned", "be brief"]
    assert look.seen == [{"n": 2}]
    assert played.answers == [("c1", 'ok (look {"n": 2})')]
    assert played.run.text == "DONE!"


def test_a_hook_may_answer_a_call_in_the_place_of_its_tool() -> None:
    def refuse(context: Any, call: Any) -> None:
        if call.name == "look":
            call.refuse("Error: not in this house")

    look, see = Counted("look"), Counted("see", "seen")
    model = Scripted(calls(("c1", "look"), ("c2", "see"), ("c3", "look")), text("done"))
    played = play(AgentHarness(model, [look.tool, see.tool], [having("before_tool", refuse)]))
    assert (look.runs, see.runs, played.run.tool_calls) == (0, 1, 1)
    assert played.answers == [
        ("c1", "Error: not in this house"),
        ("c2", "seen"),
        ("c3", "Error: not in this house"),
    ]


def test_an_error_result_passes_the_after_tool_hooks_too() -> None:
    def redact(context: Any, call: Any, result: Any) -> None:
        result.content = result.content.replace("s3cret", "…")

    flaky = Counted("look", RuntimeError("no s3cret for you"))
    policy = RunPolicy(tool_errors="return_to_model")
    harness = AgentHarness(
        Scripted(CALL, text("ok")), [flaky.tool], [having("after_tool", redact)], policy=policy
    )
    played = play(harness)
    assert played.answers == [("c1", "Error: no … for you")]
    assert played.of("ToolCompleted")[0].error == "RuntimeError"


def test_on_error_is_told_once_and_changes_nothing() -> None:
    told: list[tuple[str, str]] = []

    def hear(context: Any, kind: str, detail: str) -> None:
        told.append((kind, detail))
        raise RuntimeError("on_error fails too")

    middleware = [having("on_error", hear), having("on_error", hear)]
    played = play(AgentHarness([], middleware=middleware))
    assert played.kind == "ModelNotFound"
    assert told == [("ModelNotFound", "")] * 2
    assert played.kinds[1] == "RunFailed"


def test_an_on_error_hook_that_hangs_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    monkeypatch.setattr("stepfold.engine.runtime.harness_effects.ON_ERROR_SECONDS", 0.01)
    hanging = having("on_error", lambda *_: asyncio.Event().wait())
    assert play(AgentHarness([], middleware=[hanging])).kind == "ModelNotFound"


def test_a_wrap_goes_round_each_attempt_first_registered_outermost() -> None:
    order: list[str] = []

    class Around(Middleware):
        def __init__(self, name: str) -> None:
            self.name = name

        async def wrap_model(self, request: Any, call_next: Any) -> Any:
            order.append(f"{self.name}>")
            landed = await call_next(request)
            order.append(f"<{self.name}")
            return landed

    from tests.harness_house import erred

    play(AgentHarness(Scripted(erred(), text("ok")), middleware=[Around("a"), Around("b")]))
    assert order == ["a>", "b>", "<b", "<a"] * 2


def test_a_wrap_that_refuses_is_a_middleware_error_that_no_fallback_follows() -> None:
    class Refusing(Middleware):
        async def wrap_model(self, request: Any, call_next: Any) -> Any:
            raise MiddlewareError("over budget")

    backup = Scripted(text("no"), name="backup")
    models = [Scripted(text("no")), backup]
    policy = RunPolicy(retry=Retry(attempts=3))
    played = play(AgentHarness(models, middleware=[Refusing()], policy=policy))
    assert (played.kind, backup.asked) == ("Middleware", 0)
    assert not played.of("RetryScheduled")


def test_a_hook_may_choose_another_model_and_one_that_is_not_there_is_an_error() -> None:
    def choose(name: str) -> Middleware:
        return having("before_model", lambda context, request: setattr(request, "model", name))

    models = [Scripted(text("one"), name="one"), Scripted(text("two"), name="two")]
    assert play(AgentHarness(models, middleware=[choose("two")])).run.text == "two"
    played = play(AgentHarness(models, middleware=[choose("three")]))
    assert (played.kind, played.of("ModelStarted")) == ("ModelNotFound", [])


def test_middlewares_of_one_name_are_numbered_in_the_log() -> None:
    notes: list[str] = []
    played = play(AgentHarness(Scripted(text("ok")), middleware=[Noting("a", notes), Noting("a", notes)]))
    names = [m.name for m in played.events[0].config.middleware]
    assert names == ["a", "a-2"]
