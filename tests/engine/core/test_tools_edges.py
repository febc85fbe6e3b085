"""Where a tool-calling run is cut off: what a cancel, a deadline or a fault keeps from beginning any more."""

import pytest
from msgspec import Raw

from stepfold.events.configuration import HarnessConfig, MiddlewareSpec, ModelSpec
from stepfold.events.vocabulary import (
    BLANK,
    CancelRequested,
    Command,
    HookReturned,
    Observed,
    RunStarted,
    SteeringReceived,
    ToolErred,
    ToolReturned,
    WaitEnded,
)
from stepfold.projections.fold_tools import DEADLINE, STEERING
from tests.engine.core.test_tools_table import story
from tests.harness_house import calls, erred, text
from tests.house import Story

MODEL = ModelSpec(name="m")
TOO_LATE = WaitEnded(*BLANK, key=DEADLINE)
CANCEL = CancelRequested(*BLANK)
BROKEN = HookReturned(*BLANK, error="ValueError", detail="no")


def hooking(hook: str) -> tuple[MiddlewareSpec, MiddlewareSpec]:
    return MiddlewareSpec(name="outer", hooks=(hook,)), MiddlewareSpec(name="inner", hooks=(hook,))


def test_a_run_that_is_cancelled_at_once_asks_no_middleware() -> None:
    config = HarnessConfig(models=(MODEL,), middleware=hooking("before_agent"))
    told = Story(events=[RunStarted(*BLANK, config=config, engine="test")])

    assert told.lands(CANCEL) == ["RunFailed"]


@pytest.mark.parametrize("first", [CANCEL, None])
def test_a_reply_to_a_run_that_ends_goes_to_no_hook(first: Observed | None) -> None:
    told = story(middleware=hooking("after_model"))

    kinds = told.lands(text("ok"), *([] if first is None else [first]))

    assert ("MiddlewareStarted" in kinds) is (first is None)


def test_a_hook_that_fails_over_a_reply_is_the_last() -> None:
    told = story(middleware=hooking("after_model"))
    told.lands(text("ok"))

    kinds = told.lands(BROKEN)

    assert "MiddlewareStarted" not in kinds
    assert (told.run.status, told.run.fault) == ("failed", "ValueError")


@pytest.mark.parametrize("first", [CANCEL, None])
def test_a_result_in_a_run_that_ends_goes_to_no_hook(first: Observed | None) -> None:
    told = story(middleware=hooking("after_tool"))
    told.lands(calls(("c1", "look")))

    kinds = told.lands(ToolReturned(*BLANK, content="seen"), *([] if first is None else [first]))

    assert ("MiddlewareStarted" in kinds) is (first is None)


def test_a_result_after_a_fault_goes_to_no_hook() -> None:
    told = story(middleware=hooking("after_tool"))
    told.lands(calls(("c1", "look"), ("c2", "look")))
    told.lands(ToolErred(*BLANK, error="OSError", detail="gone", fatal=True, key="tool:1.0"))

    kinds = told.lands(ToolReturned(*BLANK, content="seen", key="tool:1.1"))

    assert "MiddlewareStarted" not in kinds
    assert told.run.status == "failed"


@pytest.mark.parametrize(("ending", "starts"), [(None, True), (CANCEL, False), (TOO_LATE, False)])
def test_calls_that_run_one_by_one_begin_no_more_when_the_run_ends(
    ending: Observed | None, starts: bool
) -> None:
    told = story(middleware=(MiddlewareSpec(name="wraps", wraps_tool=True),), wall_clock=1.0)
    told.lands(calls(("c1", "look"), ("c2", "look")))
    if ending is TOO_LATE:
        told.moment += 2_000_000

    kinds = told.lands(ToolReturned(*BLANK, content="seen"), *([] if ending is None else [ending]))

    assert ("ToolStarted" in kinds) is starts
    assert ("ToolSkipped" in kinds) is not starts


@pytest.mark.parametrize(("error", "skipped"), [("server", True), ("timeout", False), ("Middleware", False)])
def test_no_other_model_is_looked_at_after_a_timeout(error: str, skipped: bool) -> None:
    mute = ModelSpec(name="mute", tools=False)
    told = story(models=(MODEL, mute))

    kinds = told.lands(erred(error=error, retryable=False))

    assert ("FallbackSkipped" in kinds) is skipped


@pytest.mark.parametrize(("first", "asked"), [(CANCEL, False), (None, True)])
def test_a_run_that_is_cancelled_at_its_end_asks_no_middleware(first: Observed | None, asked: bool) -> None:
    told = story(middleware=hooking("after_agent"))

    kinds = told.lands(text("ok"), *([] if first is None else [first]))

    assert ("MiddlewareStarted" in kinds) is asked


def test_a_paused_run_that_goes_on_is_checked_anew() -> None:
    told = story(steering=("pause", "resume"), max_model_calls=1, tool_errors="return_to_model")
    told.lands(SteeringReceived(*BLANK, commands=(Command("pause", "wait"),)))
    told.lands(calls(("c1", "look")))
    told.lands(ToolReturned(*BLANK, content="seen"))
    assert told.run.state == "paused"

    kinds = told.lands(SteeringReceived(*BLANK, commands=(Command("resume"),), key=STEERING))

    assert kinds[-2:] == ["LimitReached", "RunFailed"]


def test_a_rejected_answer_is_asked_for_again_under_the_cap_of_model_calls() -> None:
    told = story(
        max_model_calls=1,
        response_schema=Raw(b'{"type":"object","required":["total"]}'),
        response_name="answer",
        response_strategy="tool",
    )

    kinds = told.lands(calls(("c1", "answer", {})))

    assert kinds[-3:] == ["ToolArgumentsRejected", "LimitReached", "RunFailed"]
