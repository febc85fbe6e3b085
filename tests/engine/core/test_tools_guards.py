"""Guards of the tools table on runs made by hand: what no run of a harness shows by itself."""

import pytest

from stepfold.engine.core.tools_guards import (
    calls_answered,
    empty_is_error,
    error_is_result,
    unknown_rewrites,
)
from stepfold.events.configuration import HarnessConfig
from stepfold.events.vocabulary import BLANK, EffectLost, ModelReplied, ToolErred, ToolReturned
from stepfold.projections.state import Run, Slot
from tests.house import LOOK


def run_of(config: HarnessConfig) -> Run:
    run = Run()
    run.config = config
    run.manifests = {manifest.name: manifest for manifest in config.manifests}
    return run


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
    run.slots = [Slot("call", "look", b"{}", f"tool:1.{place}") for place in range(len(phases))]
    for slot, phase in zip(run.slots, phases, strict=True):
        slot.phase = phase

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
    slot = Slot("call", "look", b"{}", "tool:1.0")
    slot.phase, slot.landed = "started", landed
    run.slots = [slot]

    assert error_is_result(run, None) is is_result
