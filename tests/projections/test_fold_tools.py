"""What model calls, steering, controls and ends change in a tool-calling run."""

from typing import Any

import pytest

from stepfold.events import vocabulary as v
from stepfold.events.configuration import Generation, HarnessConfig
from stepfold.events.vocabulary import BLANK, Command, Message, ModelErred, ModelReplied, ToolCall
from stepfold.projections import fold_tools
from stepfold.projections.effects import AskModel, Listen, Wait
from stepfold.projections.fold_tools import DEADLINE, STEERING
from stepfold.projections.state import Batch, Run, Slot

ROW = (*BLANK, "row")
SECOND = 1_000_000
RING, HEAR = Wait(DEADLINE, 5 * SECOND), Listen(STEERING)


def at(second: int) -> tuple[Any, ...]:
    return (1, "r", 0, 0, f"1970-01-01T00:00:{second:02}.000000Z")


def run_with(**settings: Any) -> Run:
    run = Run()
    run.loop = "tools"
    run.config = HarnessConfig(**settings)
    return run


def ticking(deadline: int | None = 5, now: int = 2) -> Run:
    """A run that has a deadline in seconds since 1970, if it has one."""
    run = run_with(wall_clock=None if deadline is None else 5.0)
    run.ts = at(now)[-1]
    if deadline is not None:
        run.harness.deadline = deadline * SECOND
        run.due[DEADLINE] = Wait(DEADLINE, deadline * SECOND)
    return run


def said(run: Run) -> list[tuple[str, str]]:
    return [(turn.role, turn.content) for turn in run.history.turns]


@pytest.mark.parametrize(("wall_clock", "due"), [(None, {}), (4.0, {DEADLINE: Wait(DEADLINE, 5 * SECOND)})])
def test_a_run_begins_with_its_input_and_its_clock(wall_clock: float | None, due: dict[str, Any]) -> None:
    run = run_with(wall_clock=wall_clock)
    messages = (Message("system", "be brief"), Message("user", "go"))

    fold_tools.run_started(run, v.RunStarted(*at(1), config=run.config, engine="e", input=messages))

    assert said(run) == [("system", "be brief"), ("user", "go")]
    assert (run.due, run.harness.deadline) == (due, 5 * SECOND if due else None)


@pytest.mark.parametrize(
    ("reopened", "pause", "deadline"), [(4, "", 7), (4, "wait", 5), (1, "", 5), (2, "", 5)]
)
def test_the_time_between_two_lives_puts_the_deadline_off(reopened: int, pause: str, deadline: int) -> None:
    run = ticking()
    run.harness.partial, run.harness.pause = ["half"], pause

    fold_tools.run_reopened(run, v.RunReopened(*at(reopened)))

    assert run.harness.deadline == deadline * SECOND
    assert run.due == {DEADLINE: Wait(DEADLINE, deadline * SECOND)}
    assert run.harness.partial == []


def test_a_clock_that_has_rung_is_not_set_anew_and_none_is_not_made() -> None:
    rung, without = ticking(), ticking(None)
    rung.due.clear()

    for run in (rung, without):
        fold_tools.run_reopened(run, v.RunReopened(*at(4)))

    assert (rung.due, rung.harness.deadline) == ({}, 7 * SECOND)
    assert (without.due, without.harness.deadline) == ({}, None)


@pytest.mark.parametrize(
    ("was", "wall_clock", "status", "deadline", "rings"),
    [
        (5.0, 5.0, "", 9, True),
        (5.0, None, "", None, False),
        (5.0, 7.0, "", 11, True),
        (None, 7.0, "", 8, True),
        (5.0, 7.0, "completed", 11, False),
    ],
)
def test_a_fork_under_another_clock_counts_from_the_same_start(
    was: float | None, wall_clock: float | None, status: str, deadline: int | None, rings: bool
) -> None:
    run = ticking(None if was is None else 9)
    run.config, run.started_ts, run.status = HarnessConfig(wall_clock=wall_clock), at(1)[-1], status
    if status:
        run.due.clear()

    fold_tools.forked(run, was)

    assert run.harness.deadline == (None if deadline is None else deadline * SECOND)
    assert run.due == ({DEADLINE: Wait(DEADLINE, (deadline or 0) * SECOND)} if rings else {})


def test_a_fork_under_the_same_clock_does_not_wind_it_up_again() -> None:
    run = ticking()
    run.due.clear()

    fold_tools.forked(run, 5.0)

    assert (run.due, run.harness.deadline) == ({}, 5 * SECOND)


def test_a_model_call_begins_without_the_last_reply() -> None:
    run = run_with()
    run.harness.reply, run.harness.partial = ModelReplied(*BLANK, text="old"), ["half"]
    run.harness.tried = ("x",)

    fold_tools.model_started(run, v.ModelStarted(*ROW, call_id="model-1", model="m", digest="d"))

    assert (run.harness.model_calls, run.harness.tried) == (1, ("m",))
    assert (run.harness.reply, run.harness.partial) == (None, [])
    assert list(run.due) == ["model:model-1:0"]


@pytest.mark.parametrize(
    ("streamed", "pieces", "text"),
    [(True, ("a", "b"), "ab"), (True, (), "whole"), (False, ("a", "b"), "whole")],
)
def test_a_streamed_reply_is_its_recorded_pieces(streamed: bool, pieces: tuple[str, ...], text: str) -> None:
    run = run_with()
    run.harness.usage_recorded = run.harness.miss_recorded = True
    for piece in pieces:
        fold_tools.model_delta(run, v.ModelDelta(*BLANK, text=piece))

    fold_tools.model_replied(
        run, ModelReplied(*BLANK, text="whole", streamed=streamed, input_tokens=3, output_tokens=1)
    )

    assert run.harness.reply is not None
    assert run.model_landed == run.harness.reply
    assert (run.harness.reply.text, run.harness.partial, run.usage.input_tokens) == (text, [], 3)
    assert (run.harness.usage_recorded, run.harness.miss_recorded) == (False, False)


def test_what_was_streamed_of_a_failed_attempt_is_void() -> None:
    run = run_with()
    fold_tools.model_delta(run, v.ModelDelta(*BLANK, text="half"))

    fold_tools.model_erred(run, ModelErred(*BLANK, error="server", detail="busy"))

    assert run.harness.partial == []
    assert isinstance(run.model_landed, ModelErred)


def test_another_model_is_asked_with_the_same_limit_and_no_name_twice() -> None:
    run = run_with()
    fold_tools.model_started(run, v.ModelStarted(*ROW, call_id="c", model="m", digest="d", max_tokens=9))
    run.attempt, run.model_landed = 2, ModelErred(*BLANK, error="server", detail="")

    fold_tools.fallback_skipped(run, v.FallbackSkipped(*ROW, call_id="c", model="mute", lacks="tools"))
    assert isinstance(run.model_landed, ModelErred)
    fold_tools.fallback_selected(run, v.FallbackSelected(*ROW, call_id="c", model="n"))

    assert (run.harness.tried, run.attempt, run.model_landed) == (("m", "mute", "n"), 0, None)
    assert run.due["model:c:1"] == AskModel("model:c:1", "c", 1, 1, "n", 9)


@pytest.mark.parametrize(
    ("limit", "wide", "widened"), [(None, None, None), (10, None, 20), (10, 20, 40), (10, 40, 40)]
)
def test_an_empty_reply_is_taken_back_and_has_more_room(
    limit: int | None, wide: int | None, widened: int | None
) -> None:
    run = run_with(generation=Generation(mode="tools", max_tokens=limit))
    run.harness.wide = wide
    run.history.append(Message("user", "go"))
    run.history.append(Message("assistant", ""))
    again = v.RetryScheduled(*ROW, call_id="c", attempt=1, delay=0.0, why="empty")

    fold_tools.retry_scheduled(run, again)

    assert (said(run), run.harness.empty_retries, run.harness.wide) == ([("user", "go")], 1, widened)
    assert run.due == {}
    fold_tools.retry_scheduled(run_with(), again)


def test_a_failed_attempt_is_tried_again_and_takes_nothing_back() -> None:
    run = run_with()
    run.history.append(Message("user", "go"))

    fold_tools.retry_scheduled(run, v.RetryScheduled(*ROW, call_id="c", attempt=1, delay=0.0, why="server"))

    assert (said(run), run.harness.empty_retries, len(run.due)) == ([("user", "go")], 0, 1)


def test_what_was_told_of_a_reply_is_told_once() -> None:
    run = run_with()

    fold_tools.cache_missed(run, v.CacheMissed(*ROW, call_id="c"))
    assert (run.harness.miss_recorded, run.harness.usage_recorded) == (True, False)
    fold_tools.usage_recorded(run, v.UsageRecorded(*ROW, call_id="c"))

    assert run.harness.usage_recorded is True


def taken(reply: ModelReplied | None, **settings: Any) -> Run:
    """A run that has completed a model call with this reply."""
    run = run_with(**settings)
    harness = run.harness
    harness.request, harness.structured, harness.mixed, harness.batch = b"{}", b"{}", True, "given up"
    harness.empty_retries, harness.wide, harness.reply = 1, 20, reply
    harness.hooks_done = {"before_agent": 1, "before_model": 2, "after_model": 2}
    run.step, run.slots = 3, [Slot("old", "look", b"{}", "tool:2.0")]
    run.model_landed = reply
    fold_tools.model_completed(run, v.ModelCompleted(*ROW, call_id="c"))
    return run


def test_a_reply_becomes_a_turn_and_its_calls_slots() -> None:
    calls = (ToolCall("c1", "look", '{"a": 1}'), ToolCall("c1", "answer", "\ud800"))

    run = taken(ModelReplied(*BLANK, text="", tool_calls=calls), response_name="answer")

    assert run.history.turns == [Message("assistant", "", calls)]
    slots = [(slot.call_id, slot.name, slot.arguments, slot.key, slot.phase) for slot in run.slots]
    assert slots == [
        ("c1", "look", b'{"a": 1}', "tool:3.0", "asked"),
        ("c1", "answer", b"\xed\xa0\x80", "tool:3.1", "asked"),
    ]
    harness = run.harness
    assert (harness.request, harness.structured, harness.mixed, harness.batch) == (b"", b"", False, "")
    assert (harness.empty_retries, harness.wide, harness.hooks_done) == (0, None, {"before_agent": 1})


def test_the_structured_answer_is_no_call() -> None:
    calls = (ToolCall("c1", "look", "{}"), ToolCall("c2", "answer", '{"total":3}'))

    run = taken(
        ModelReplied(*BLANK, text="", tool_calls=calls), response_strategy="tool", response_name="answer"
    )

    assert [slot.phase for slot in run.slots] == ["asked", "structured"]
    assert run.harness.structured == b'{"total":3}'


@pytest.mark.parametrize(("text", "retries", "wide"), [(" \n", 1, 20), ("said", 0, None)])
def test_only_a_reply_that_says_something_ends_the_row_of_empty_ones(
    text: str, retries: int, wide: int | None
) -> None:
    run = taken(ModelReplied(*BLANK, text=text))

    assert (run.harness.empty_retries, run.harness.wide) == (retries, wide)
    assert (run.reply, run.model_landed) == (text, None)


def test_a_call_without_a_reply_leaves_no_turn() -> None:
    run = taken(None)

    assert (said(run), [slot.call_id for slot in run.slots], run.harness.request) == ([], ["old"], b"{}")


@pytest.mark.parametrize(
    ("landed", "error", "fault"),
    [
        ("server", "server", "Model"),
        ("timeout", "timeout", "Timeout"),
        ("Middleware", "Middleware", "Middleware"),
        ("Interrupted", "Interrupted", "Interrupted"),
        ("Cancelled", "Cancelled", "Cancelled"),
        ("server", "Timeout", ""),
        (None, "Cancelled", ""),
    ],
)
def test_a_failed_call_is_a_fault_unless_the_run_itself_cut_it_off(
    landed: str | None, error: str, fault: str
) -> None:
    run = run_with()
    run.model_landed = None if landed is None else ModelErred(*BLANK, error=landed, detail="busy")

    fold_tools.model_failed(run, v.ModelFailed(*ROW, call_id="c", error=error))

    assert (run.fault, run.fault_detail) == (fault, "" if landed is None else "busy")


def steered(run: Run, *commands: Command, key: str = "", accepted: bool = True) -> None:
    fold_tools.steering_received(run, v.SteeringReceived(*BLANK, commands=commands, key=key))
    for command in commands:
        fold_tools.steered(run, v.Steered(*ROW, command=command.name, accepted=accepted))
        if not accepted:
            return


def test_a_batch_waits_and_one_that_says_nothing_listens_on() -> None:
    run = run_with()
    command = Command("pause", "wait")

    fold_tools.steering_received(run, v.SteeringReceived(*BLANK, commands=(command,)))
    fold_tools.steering_received(run, v.SteeringReceived(*BLANK, commands=(command,), key=STEERING))
    assert (run.harness.inbox, run.due) == ([Batch((command,)), Batch((command,), asked=True)], {})
    fold_tools.steering_received(run, v.SteeringReceived(*BLANK, commands=()))
    assert run.due == {}
    fold_tools.steering_received(run, v.SteeringReceived(*BLANK, commands=(), key=STEERING))

    assert (len(run.harness.inbox), run.due) == (2, {STEERING: HEAR})


def test_commands_of_a_batch_take_effect_one_by_one() -> None:
    run = run_with()
    commands = (
        Command("pause"),
        Command("pause", "later"),
        Command("inject", "hint"),
        Command("redirect", "left"),
    )
    fold_tools.steering_received(run, v.SteeringReceived(*BLANK, commands=commands, key=STEERING))

    fold_tools.steered(run, v.Steered(*ROW, command="pause", accepted=True))
    assert (run.harness.pause, run.harness.inbox) == ("paused", [Batch(commands[1:], asked=True)])
    for command in commands[1:]:
        fold_tools.steered(run, v.Steered(*ROW, command=command.name, accepted=True))

    assert (run.harness.pause, run.harness.inbox, run.cancel) == ("paused", [], False)
    assert said(run) == [("user", "hint"), ("system", "[steering:redirect] left")]
    fold_tools.steered(run, v.Steered(*ROW, command="cancel", accepted=True))
    assert run.cancel is False


def test_a_batch_is_obeyed_to_its_end_before_the_next_one() -> None:
    run = run_with()
    for said_first, said_last in (("a", "b"), ("c", "d")):
        commands = (Command("inject", said_first), Command("inject", said_last))
        fold_tools.steering_received(run, v.SteeringReceived(*BLANK, commands=commands))

    for _ in range(4):
        fold_tools.steered(run, v.Steered(*ROW, command="inject", accepted=True))

    assert [text for _, text in said(run)] == ["a", "b", "c", "d"]


def test_a_refused_batch_is_dropped_whole() -> None:
    run = run_with()

    steered(run, Command("cancel"), Command("inject", "hint"), accepted=False)

    assert (run.cancel, run.harness.inbox, said(run)) == (False, [], [])
    steered(run, Command("pause", "wait"), Command("cancel"))
    assert (run.cancel, run.harness.pause) == (True, "wait")


def paused(deadline: int | None = 5) -> Run:
    run = ticking(deadline)
    run.harness.pause = "wait"
    fold_tools.run_paused(run, v.RunPaused(*at(3), "row", checkpoint=1))
    return run


def test_a_paused_run_hears_steering_alone() -> None:
    run = paused()

    assert (run.status, run.harness.paused_at, run.due) == ("paused", 3 * SECOND, {STEERING: HEAR})


@pytest.mark.parametrize("deadline", [5, None])
def test_the_time_of_a_pause_puts_the_deadline_off(deadline: int | None) -> None:
    run = paused(deadline)
    run.ts = at(7)[-1]

    steered(run, Command("resume"), key=STEERING)

    assert (run.status, run.harness.pause, run.harness.paused_at) == ("", "", 0)
    assert run.harness.deadline == (None if deadline is None else 9 * SECOND)
    assert run.due == ({} if deadline is None else {DEADLINE: Wait(DEADLINE, 9 * SECOND)})


def test_a_resume_of_a_run_that_never_rested_moves_no_clock() -> None:
    run = ticking()
    run.harness.pause = "wait"

    steered(run, Command("resume"))

    assert (run.harness.pause, run.due, run.harness.deadline) == ("", {DEADLINE: RING}, 5 * SECOND)


def test_a_run_that_still_rests_listens_on_when_its_batch_is_over() -> None:
    run = paused()
    run.due.clear()
    commands = (Command("inject", "a"), Command("inject", "b"))
    fold_tools.steering_received(run, v.SteeringReceived(*BLANK, commands=commands, key=STEERING))

    fold_tools.steered(run, v.Steered(*ROW, command="inject", accepted=True))
    assert run.due == {}
    fold_tools.steered(run, v.Steered(*ROW, command="inject", accepted=True))

    assert run.due == {STEERING: HEAR}


def with_structured() -> Run:
    run = run_with()
    run.slots = [Slot("c1", "look", b"{}", "tool:1.0"), Slot("c2", "answer", b"{}", "tool:1.1")]
    run.slots[0].phase, run.slots[1].phase = "done", "structured"
    run.harness.control = ("interrupt", "why")
    run.due[DEADLINE] = RING
    return run


@pytest.mark.parametrize(
    ("control", "fault", "final", "left"),
    [
        ("interrupt", ("Interrupted", "why"), (None, ""), ("", "")),
        ("stop_with_final", ("", ""), ("why", "stop_with_final"), ("", "")),
        ("structured_with_tool_calls", ("", ""), (None, ""), ("interrupt", "why")),
        ("paused", ("", ""), (None, ""), ("interrupt", "why")),
    ],
)
def test_a_control_is_applied_once(
    control: str, fault: tuple[str, str], final: tuple[str | None, str], left: tuple[str, str]
) -> None:
    run = with_structured()

    fold_tools.control_applied(run, v.ControlApplied(*ROW, control=control))

    assert (run.fault, run.fault_detail) == fault
    assert (run.harness.final, run.harness.stop_reason) == final
    assert run.harness.control == left
    mixed = control == "structured_with_tool_calls"
    assert (run.harness.mixed, said(run)) == (mixed, [("tool", "recorded")] if mixed else [])


@pytest.mark.parametrize(
    ("final", "reply", "answer"), [(None, None, ""), (None, "said", "said"), ("", "said", "")]
)
def test_the_answer_is_what_was_made_of_it_or_the_last_reply(
    final: str | None, reply: str | None, answer: str
) -> None:
    run = run_with()
    run.harness.final = final
    run.harness.reply = None if reply is None else ModelReplied(*BLANK, text=reply)

    assert fold_tools.answer_of(run) == answer


@pytest.mark.parametrize(
    ("end", "status", "fault"),
    [
        (v.RunCompleted(*ROW, stop_reason="limit"), "completed", ""),
        (v.RunFailed(*ROW, error="Cancelled"), "cancelled", "Cancelled"),
        (v.RunFailed(*ROW, error="Timeout"), "failed", "Timeout"),
    ],
)
def test_an_end_answers_the_structured_call_and_gives_up_what_flies(
    end: Any, status: str, fault: str
) -> None:
    run = with_structured()

    if isinstance(end, v.RunCompleted):
        fold_tools.run_completed(run, end)
        assert run.harness.stop_reason == "limit"
    else:
        fold_tools.run_failed(run, end)

    assert (run.status, run.fault, run.due, said(run)) == (status, fault, {}, [("tool", "recorded")])


def test_a_limit_is_named() -> None:
    run = run_with()

    fold_tools.limit_reached(run, v.LimitReached(*ROW, limit="model_calls"))

    assert run.harness.limit == "model_calls"
