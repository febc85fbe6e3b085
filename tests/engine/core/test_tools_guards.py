"""Guards of the tools table on runs made by hand: what no run of a harness shows by itself."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from stepfold.engine.core.tools_guards import (
    after_tool_left,
    cache_missed,
    calls_answered,
    control_pending,
    empty_is_error,
    error_is_result,
    from_cache,
    hook_is,
    needs_nudge,
    no_model,
    structured_mixed,
    structured_text_invalid,
    truncated_empty,
    unknown_rewrites,
)
from stepfold.engine.core.tools_sees import NOTHING_OPEN, Folding, Turn
from stepfold.events.configuration import HarnessConfig, MiddlewareSpec, ModelSpec
from stepfold.events.vocabulary import BLANK, EffectLost, ModelReplied, ToolCall, ToolErred, ToolReturned
from stepfold.projections.state import Run, Slot
from tests.harness_house import slots_of
from tests.house import LOOK


def run_of(config: HarnessConfig) -> Run:
    run = Run()
    run.config = config
    run.manifests = {manifest.name: manifest for manifest in config.manifests}
    return run


def slots_in(*phases: str) -> list[Slot]:
    return slots_of(*(("call", phase) for phase in phases))


@pytest.mark.parametrize(
    ("policy", "rewrites"), [("rewrite:look", True), ("rewrite:nine", False), ("look", False), ("", False)]
)
def test_an_unknown_call_goes_to_a_tool_only_by_a_policy_that_says_so(policy: str, rewrites: bool) -> None:
    run = run_of(HarnessConfig(manifests=(LOOK,), unknown_tool=policy))

    assert unknown_rewrites(run, None) is rewrites


@pytest.mark.parametrize(
    ("phases", "answered"),
    [((), False), (("done",), True), (("done", "done"), True), (("done", "asked"), False)],
)
def test_a_reply_without_calls_has_none_that_are_answered(phases: tuple[str, ...], answered: bool) -> None:
    run = Run()
    run.slots = slots_in(*phases)

    assert calls_answered(run, None) is answered


@pytest.mark.parametrize(("text", "is_error"), [(None, False), (" \n", True), ("said", False)])
def test_no_reply_is_no_blank_one(text: str | None, is_error: bool) -> None:
    run = run_of(HarnessConfig(error_on_empty_response=True))
    run.harness.reply = None if text is None else ModelReplied(*BLANK, text=text)

    assert empty_is_error(run, None) is is_error


@pytest.mark.parametrize(
    ("landed", "is_result"),
    [
        (None, False),
        (ToolReturned(*BLANK, content="said"), False),
        (ToolErred(*BLANK, error="OSError", detail="gone"), True),
        (ToolErred(*BLANK, error="OSError", detail="gone", fatal=True), False),
        (EffectLost(*BLANK), True),
    ],
)
def test_only_what_went_wrong_is_an_error_that_the_model_may_react_to(
    landed: ToolReturned | ToolErred | EffectLost | None, is_result: bool
) -> None:
    run = run_of(HarnessConfig(tool_errors="result"))
    run.slots = slots_in("started")
    run.slots[0].landed = landed

    assert error_is_result(run, None) is is_result


def test_a_hook_after_a_tool_waits_for_a_call() -> None:
    run = run_of(HarnessConfig(middleware=(MiddlewareSpec("redacts", hooks=("after_tool",)),)))

    assert after_tool_left(run, NOTHING_OPEN) is False
    (slot,) = slots_in("started")
    slot.landed = ToolReturned(*BLANK, content="said")
    assert after_tool_left(run, Folding(slot, False, None)) is True


def test_a_final_answer_without_words_is_a_control_all_the_same() -> None:
    run = Run()
    assert control_pending(run, None) is False

    run.harness.control = ("stop_with_final", "")

    assert control_pending(run, None) is True


@pytest.mark.parametrize(
    ("models", "request_change", "lacks"),
    [
        ((), b"", True),
        ((), b"{}", True),
        (("small",), b"", False),
        (("small",), b"{}", False),
        (("small",), b'{"model":"small"}', False),
        (("small",), b'{"model":"large"}', True),
    ],
)
def test_a_call_needs_a_model_of_the_name_it_asks_for(
    models: tuple[str, ...], request_change: bytes, lacks: bool
) -> None:
    run = run_of(HarnessConfig(models=tuple(ModelSpec(name=name) for name in models)))
    run.harness.request = request_change

    assert no_model(run, None) is lacks


@pytest.mark.parametrize(
    ("text", "finish_reason", "spent"),
    [(" \n", "length", True), (" \n", "stop", False), ("said", "length", False)],
)
def test_a_reply_has_spent_its_budget_on_nothing_if_it_was_cut_off_there(
    text: str, finish_reason: str, spent: bool
) -> None:
    run = Run()
    run.harness.reply = ModelReplied(*BLANK, text=text, finish_reason=finish_reason)
    assert truncated_empty(run, None) is spent

    run.harness.reply = replace(run.harness.reply, tool_calls=(ToolCall("1", "look", "{}"),))
    assert truncated_empty(run, None) is False


@pytest.mark.parametrize("guard", [truncated_empty, from_cache, cache_missed])
def test_nothing_is_told_of_a_reply_before_there_is_one(guard: Callable[[Run, None], bool]) -> None:
    assert guard(Run(), None) is False


@pytest.mark.parametrize(
    ("strategy", "phases", "recorded", "mixed"),
    [
        ("tool", ("structured", "asked"), False, True),
        ("tool", ("structured", "asked"), True, False),
        ("tool", ("structured",), False, False),
        ("native", ("structured", "asked"), False, False),
    ],
)
def test_a_structured_answer_beside_calls_is_told_once_where_it_is_a_call(
    strategy: str, phases: tuple[str, ...], recorded: bool, mixed: bool
) -> None:
    run = run_of(HarnessConfig(response_strategy=strategy))
    run.slots = slots_in(*phases)
    run.harness.mixed = recorded

    assert structured_mixed(run, Turn()) is mixed


def test_a_problem_of_a_call_is_none_of_the_text() -> None:
    (slot,) = slots_in("structured")

    assert structured_text_invalid(Run(), Turn(structured_problem="no object")) is True
    assert structured_text_invalid(Run(), Turn(structured_slot=slot, structured_problem="no object")) is False


@pytest.mark.parametrize(
    ("asked", "nudged_at", "nudges"), [(True, (0, 0), True), (True, (2, 2), False), (False, (0, 0), False)]
)
def test_a_failure_that_repeats_is_told_once_and_only_where_that_is_wanted(
    asked: bool, nudged_at: tuple[int, int], nudges: bool
) -> None:
    run = run_of(HarnessConfig(no_progress=asked))
    run.harness.same_failures, run.harness.failures, run.harness.nudged_at = 2, 2, nudged_at

    assert needs_nudge(run, None) is nudges


def test_the_guard_of_a_hook_is_named_for_it() -> None:
    guard = hook_is("after_tool")

    assert (guard.__name__, guard.__doc__) == ("hook_is_after_tool", "The hook in flight is `after_tool`.")
