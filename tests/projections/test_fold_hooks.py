"""What middleware hooks change in a run: which call they are about, and what each may change of it."""

import json
from typing import Any

import pytest
from msgspec import Raw

from stepfold.events.configuration import HarnessConfig, MiddlewareSpec
from stepfold.events.vocabulary import (
    BLANK,
    HookReturned,
    Message,
    MiddlewareCompleted,
    MiddlewareStarted,
    ModelReplied,
    ToolCall,
)
from stepfold.projections.fold_hooks import hook_returned, middleware_completed, middleware_started
from stepfold.projections.state import Run
from tests.harness_house import slots_of

HOOKS = (
    "before_agent",
    "before_model",
    "after_model",
    "before_tool",
    "after_tool",
    "after_agent",
    "on_error",
)


def run_with(*calls: tuple[str, str]) -> Run:
    """A run with two middlewares that have every hook, and calls given as id and phase."""
    run = Run()
    run.config = HarnessConfig(middleware=tuple(MiddlewareSpec(name, hooks=HOOKS) for name in ("a", "b")))
    run.slots = slots_of(*calls)
    return run


def starts(run: Run, hook: str, call_id: str = "") -> None:
    middleware_started(run, MiddlewareStarted(*BLANK, "row", hook=hook, name="a", call_id=call_id))


def goes_through(run: Run, hook: str, change: Any = None, call_id: str = "", **landed: Any) -> None:
    """One hook from its start to its fold."""
    starts(run, hook, call_id)
    fields = landed if change is None else landed | {"change": Raw(json.dumps(change).encode())}
    hook_returned(run, HookReturned(*BLANK, **fields))
    middleware_completed(run, MiddlewareCompleted(*BLANK, "row", hook=hook, name="a", call_id=call_id))


@pytest.mark.parametrize(
    ("hook", "phases", "position"),
    [
        ("before_tool", [("c", "structured"), ("c", "asked")], 1),
        ("before_tool", [("other", "asked"), ("c", "asked")], 1),
        ("before_tool", [("c", "asked"), ("c", "asked")], 0),
        ("after_tool", [("c", "done"), ("c", "started")], 1),
        ("after_tool", [("other", "started"), ("c", "started")], 1),
        ("after_tool", [("c", "asked")], -1),
        ("after_model", [("c", "asked")], -1),
    ],
)
def test_a_tool_hook_is_about_the_first_call_of_its_id_that_waits_for_it(
    hook: str, phases: list[tuple[str, str]], position: int
) -> None:
    run = run_with(*phases)

    starts(run, hook, "c")

    assert run.harness.hook == (hook, "a", position)


def test_calls_of_one_id_get_their_hooks_one_after_the_other() -> None:
    run = run_with(("c", "asked"), ("c", "asked"))
    positions = []
    for _ in range(4):
        starts(run, "before_tool", "c")
        positions.append(run.harness.hook[2])
        middleware_completed(
            run, MiddlewareCompleted(*BLANK, "row", hook="before_tool", name="a", call_id="c")
        )

    assert positions == [0, 0, 1, 1]
    assert [slot.before_hooks for slot in run.slots] == [2, 2]
    assert run.harness.hooks_done == {}


def test_a_call_that_a_hook_has_refused_gets_no_other() -> None:
    run = run_with(("c", "asked"), ("c", "asked"))

    goes_through(run, "before_tool", {"name": "look", "arguments": "{}", "refusal": "no"}, "c")
    starts(run, "before_tool", "c")

    assert run.slots[0].refusal == "no"
    assert run.harness.hook[2] == 1


def test_the_hooks_of_calls_are_counted_by_call_and_the_others_by_name() -> None:
    run = run_with(("c", "started"))
    for hook in ("after_tool", "before_model", "before_model", "on_error"):
        goes_through(run, hook, call_id="c")

    assert (run.slots[0].before_hooks, run.slots[0].after_hooks) == (0, 1)
    assert run.harness.hooks_done == {"before_model": 2, "on_error": 1}
    assert run.due == {}


@pytest.mark.parametrize(
    ("keep", "said"), [(-1, ["a", "b", "more"]), (0, ["more"]), (1, ["a", "more"]), (2, ["a", "b", "more"])]
)
def test_the_input_is_cut_where_a_hook_says(keep: int, said: list[str]) -> None:
    run = run_with()
    for content in ("a", "b"):
        run.history.append(Message("user", content))

    goes_through(run, "before_agent", {"keep": keep, "append": [{"role": "user", "content": "more"}]})

    assert [turn.content for turn in run.history.turns] == said


def test_each_hook_changes_what_it_is_about() -> None:
    run = run_with(("c", "asked"), ("d", "started"))
    run.harness.reply = ModelReplied(*BLANK, text="said", finish_reason="stop")

    goes_through(run, "before_model", {"model": "large"})
    goes_through(
        run, "after_model", {"text": "better", "tool_calls": [{"id": "1", "name": "n", "arguments": "{}"}]}
    )
    goes_through(run, "before_tool", {"name": "find", "arguments": '{"a":1}'}, "c")
    goes_through(run, "after_tool", {"content": "seen", "error": "odd"}, "d")
    goes_through(run, "after_agent", {"text": "final"})

    asked, started = run.slots
    assert run.harness.request == b'{"model": "large"}'
    assert (run.harness.reply.text, run.harness.reply.finish_reason) == ("better", "stop")
    assert run.harness.reply.tool_calls == (ToolCall("1", "n", "{}"),)
    assert (asked.name, asked.arguments, asked.refusal) == ("find", b'{"a":1}', "")
    assert (started.patch.content, started.patch.error) == ("seen", "odd")
    assert run.harness.final == "final"


@pytest.mark.parametrize("hook", ["after_model", "before_tool", "after_tool"])
def test_a_change_of_what_is_not_there_changes_nothing(hook: str) -> None:
    run = run_with()

    goes_through(run, hook, {"text": "x", "name": "x", "content": "x"}, "gone")

    assert (run.harness.reply, run.slots, run.harness.final, run.harness.request) == (None, [], None, b"")


def test_a_change_that_does_not_fit_changes_nothing_and_never_raises() -> None:
    run = run_with()
    run.history.append(Message("user", "a"))

    goes_through(run, "before_agent", {"keep": "all"})

    assert [turn.content for turn in run.history.turns] == ["a"]


def test_a_hook_that_fails_ends_the_run_but_not_when_it_was_only_told_of_an_error() -> None:
    failed, told = run_with(), run_with()

    goes_through(failed, "before_model", {"model": "x"}, error="ValueError", detail="no")
    goes_through(told, "on_error", {"model": "x"}, error="ValueError", detail="no", control="interrupt")

    assert (failed.fault, failed.fault_detail, failed.harness.request) == ("ValueError", "no", b"")
    assert (told.fault, told.harness.control) == ("", ("", ""))


@pytest.mark.parametrize(
    ("controls", "kept"),
    [
        (["stop_with_final"], "stop_with_final"),
        (["stop_with_final", "interrupt"], "interrupt"),
        (["interrupt", "stop_with_final"], "interrupt"),
        (["interrupt", ""], "interrupt"),
        (["stop_with_final", ""], "stop_with_final"),
    ],
)
def test_an_interrupt_beats_a_stop(controls: list[str], kept: str) -> None:
    run = run_with()

    for control in controls:
        goes_through(run, "before_model", control=control, reason=control)

    assert run.harness.control == (kept, kept)


def test_what_a_hook_did_is_taken_once() -> None:
    run = run_with()
    goes_through(run, "after_agent", {"text": "final"})
    run.harness.final = "later"
    starts(run, "after_agent")

    middleware_completed(run, MiddlewareCompleted(*BLANK, "row", hook="after_agent", name="b"))

    assert run.harness.final == "later"
