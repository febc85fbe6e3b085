"""How the calls of a turn are admitted, landed and answered: one answer each, in call order."""

from typing import Any

import pytest
from msgspec import Raw

from stepfold.events.configuration import HarnessConfig, Manifest
from stepfold.events.vocabulary import (
    BLANK,
    ChildUsage,
    EffectLost,
    SubAgentCompleted,
    SubAgentFailed,
    SubAgentStarted,
    ToolArgumentsRejected,
    ToolCompleted,
    ToolErred,
    ToolFailed,
    ToolReturned,
    ToolSkipped,
    UnknownToolCalled,
)
from stepfold.projections import fold_calls
from stepfold.projections.effects import Wait
from stepfold.projections.state import Run
from tests.harness_house import slots_of

LOOK = Manifest(name="look", description="", schema=Raw(b"{}"))
KID = Manifest(name="kid", description="", schema=Raw(b"{}"), child=True)
LANDED = ToolReturned(*BLANK, content="seen")
FAILED = ToolErred(*BLANK, error="OSError", detail="gone")


def run_with(*calls: tuple[str, str], **settings: Any) -> Run:
    """A run with calls given as id and phase; those started have landed."""
    run = Run()
    run.run_id = "r"
    run.config = HarnessConfig(manifests=(LOOK, KID), **settings)
    run.manifests = {"look": LOOK, "kid": KID}
    run.slots = slots_of(*calls)
    for slot in run.slots:
        slot.landed = LANDED if slot.phase == "started" else None
    return run


def answers(run: Run) -> list[tuple[str, str]]:
    return [(turn.tool_call_id, turn.content) for turn in run.history.turns]


def completed(**fields: Any) -> ToolCompleted:
    return ToolCompleted(*BLANK, "row", call_id="x", **fields)


def test_an_answer_waits_for_those_of_the_calls_before_it() -> None:
    run = run_with(("a", "asked"), ("b", "asked"), ("c", "asked"))
    first, second, third = run.slots

    fold_calls.answer(run, second, "two")
    assert answers(run) == []
    fold_calls.answer(run, first, "one")
    assert answers(run) == [("a", "one"), ("b", "two")]
    fold_calls.answer(run, third, "three")

    assert answers(run) == [("a", "one"), ("b", "two"), ("c", "three")]
    assert [slot.row for slot in run.slots] == [None, None, None]


@pytest.mark.parametrize(
    ("landed", "policy", "text"),
    [
        (ToolReturned(*BLANK, content="seen"), "fail", "seen"),
        (ToolReturned(*BLANK, content="", error="odd"), "fail", "odd"),
        (FAILED, "return_to_model", "Error: gone"),
        (FAILED, "message:try again", "try again"),
        (
            EffectLost(*BLANK),
            "fail",
            "Error: the outcome of look is unknown: its process died, and it may not run twice",
        ),
    ],
)
def test_what_the_model_reads_of_a_result(landed: Any, policy: str, text: str) -> None:
    run = run_with(("a", "started"), tool_errors=policy)
    run.slots[0].landed = landed

    assert fold_calls.row_text(run, run.slots[0]) == text


def test_what_a_hook_made_of_a_result_is_read_in_its_place() -> None:
    run = run_with(("a", "started"))
    run.slots[0].patch = ToolReturned(*BLANK, content="better")

    fold_calls.tool_completed(run, completed())

    assert answers(run) == [("a", "better")]


def test_a_result_is_folded_into_the_first_call_that_waits_for_one() -> None:
    run = run_with(("a", "done"), ("b", "started"), ("c", "started"))

    fold_calls.tool_completed(run, completed())

    assert [slot.phase for slot in run.slots] == ["done", "done", "started"]
    assert run.harness.tool_calls == 1
    assert run.harness.same_batches == 0


def test_the_last_result_ends_the_turn() -> None:
    run = run_with(("a", "started"), ("b", "started"))

    fold_calls.tool_completed(run, completed())
    fold_calls.tool_completed(run, completed())

    assert (run.harness.tool_calls, run.harness.same_batches, run.harness.failures) == (2, 1, 0)


def test_a_result_that_is_an_error_is_a_failure() -> None:
    run = run_with(("a", "started"), tool_errors="return_to_model")
    run.slots[0].landed = FAILED

    fold_calls.tool_completed(run, completed(error="OSError"))

    assert (run.harness.tool_calls, run.harness.failures, answers(run)) == (1, 1, [("a", "Error: gone")])


@pytest.mark.parametrize("fold", [fold_calls.tool_completed, fold_calls.tool_failed])
def test_a_result_of_no_call_changes_nothing(fold: Any) -> None:
    run = run_with(("a", "asked"), ("b", "done"))

    fold(
        run,
        completed(error="x")
        if fold is fold_calls.tool_completed
        else ToolFailed(*BLANK, "row", call_id="x", error="x"),
    )

    assert (run.harness.tool_calls, run.fault, answers(run)) == (0, "", [])


@pytest.mark.parametrize("failed", [False, True])
def test_the_tokens_of_a_sub_agent_are_its_parents_too(failed: bool) -> None:
    used = ChildUsage(input_tokens=7, output_tokens=3)
    run = run_with(("a", "started"))
    run.slots[0].landed = ToolReturned(*BLANK, content="", error="x" if failed else "", child=used)

    if failed:
        fold_calls.tool_failed(run, ToolFailed(*BLANK, "row", call_id="x", error="x"))
    else:
        fold_calls.tool_completed(run, completed())

    assert (run.usage.input_tokens, run.usage.output_tokens) == (7, 3)


def test_a_failed_call_is_the_fault_of_the_run_and_the_first_one_stays_it() -> None:
    run = run_with(("a", "started"), ("b", "started"))
    for slot in run.slots:
        slot.landed = FAILED
        run.due[slot.key] = Wait(slot.key, 1)

    fold_calls.tool_failed(run, ToolFailed(*BLANK, "row", call_id="x", error="Tool"))
    fold_calls.tool_failed(run, ToolFailed(*BLANK, "row", call_id="x", error="Other"))

    assert (run.fault, run.fault_detail) == ("Tool", "gone")
    assert (run.harness.tool_calls, run.due) == (2, {})
    assert answers(run) == [("a", "Error: gone"), ("b", "Error: gone")]


def test_a_call_that_failed_by_its_result_says_what_the_model_would_read() -> None:
    run = run_with(("a", "started"))

    fold_calls.tool_failed(run, ToolFailed(*BLANK, "row", call_id="x", error="Tool"))

    assert (run.fault, run.fault_detail) == ("Tool", "seen")


def test_a_call_that_was_given_up_is_no_fault() -> None:
    run = run_with(("a", "started"))
    run.slots[0].landed = None

    fold_calls.tool_failed(run, ToolFailed(*BLANK, "row", call_id="x", error="Cancelled"))

    assert (run.fault, answers(run)) == ("", [("a", "Error: Cancelled")])


def test_a_call_that_never_ran_says_why() -> None:
    run = run_with(("a", "started"), ("b", "asked"))
    run.slots[0].phase = "done"

    fold_calls.tool_skipped(run, ToolSkipped(*BLANK, "row", call_id="b", why="cancelled"))

    assert (answers(run), run.harness.tool_calls) == ([("b", "not run: cancelled")], 0)


def test_a_refused_call_has_the_hooks_answer_and_is_a_failure() -> None:
    run = run_with(("a", "asked"), ("b", "asked"), ("c", "started"))
    run.slots[0].phase, run.slots[1].refusal, run.slots[2].refusal = "done", "no", "never"
    skipped = ToolSkipped(*BLANK, "row", call_id="b", why="refused")

    fold_calls.tool_skipped(run, skipped)
    assert (answers(run), run.harness.failures) == ([("b", "no")], 1)
    fold_calls.tool_skipped(run, skipped)

    assert (answers(run), run.harness.failures) == ([("b", "no")], 1)


@pytest.mark.parametrize(
    ("recovery", "fault", "name", "answered"),
    [
        ("fail", "ToolNotFound", "nine", []),
        ("rewrite:look", "", "look", []),
        (
            "return_tool_error",
            "",
            "nine",
            [("a", "Error: there is no tool 'nine'; the tools are: look, kid")],
        ),
    ],
)
def test_an_unknown_tool_fails_is_rewritten_or_is_answered(
    recovery: str, fault: str, name: str, answered: list[tuple[str, str]]
) -> None:
    run = run_with(("a", "done"), ("a", "asked"))
    run.slots[1].name = "nine"

    fold_calls.unknown_tool(
        run, UnknownToolCalled(*BLANK, "row", call_id="a", name="nine", recovery=recovery)
    )

    assert (run.fault, run.fault_detail) == (fault, "nine" if fault else "")
    assert (run.slots[0].name, run.slots[1].name) == ("look", name)
    assert answers(run) == answered
    assert (run.harness.tool_calls, run.harness.failures) == ((1, 1) if answered else (0, 0))


def test_an_unknown_tool_where_there_is_none() -> None:
    run = run_with(("a", "asked"))
    run.manifests = {}

    fold_calls.unknown_tool(run, UnknownToolCalled(*BLANK, "row", call_id="a", name="look", recovery="say"))

    assert answers(run) == [("a", "Error: there is no tool 'look'; the tools are: none")]


@pytest.mark.parametrize(("call_id", "name"), [("b", "look"), ("a", "kid")])
def test_an_unknown_call_of_another_id_or_name_is_not_meant(call_id: str, name: str) -> None:
    run = run_with(("a", "asked"))

    fold_calls.unknown_tool(
        run, UnknownToolCalled(*BLANK, "row", call_id=call_id, name=name, recovery="fail")
    )

    assert (run.fault, answers(run)) == ("", [])


@pytest.mark.parametrize("key", ["", "tool:1.1"])
def test_rejected_arguments_are_fatal_or_answered(key: str) -> None:
    fatal, told = (run_with(("z", "done"), ("a", "asked")) for _ in range(2))
    rejected = ToolArgumentsRejected(
        *BLANK, "row", call_id="a", name="look", reason="no path", key=key, fatal=True
    )

    fold_calls.arguments_rejected(fatal, rejected)
    fold_calls.arguments_rejected(
        told, type(rejected)(*BLANK, "row", call_id="a", name="look", reason="no path", key=key)
    )

    assert (fatal.fault, fatal.fault_detail, answers(fatal)) == ("Validation", "no path", [])
    assert (told.fault, answers(told)) == ("", [("a", "Error: no path")])
    assert (told.harness.tool_calls, told.harness.failures) == (1, 1)


@pytest.mark.parametrize("fatal", [True, False])
def test_rejected_arguments_of_no_call_change_nothing(fatal: bool) -> None:
    run = run_with(("a", "done"))

    fold_calls.arguments_rejected(
        run, ToolArgumentsRejected(*BLANK, "row", call_id="b", name="look", reason="no path", fatal=fatal)
    )

    assert (run.fault, answers(run), run.harness.tool_calls) == ("", [], 0)


def test_a_rejected_structured_answer_is_no_call() -> None:
    run = run_with(("a", "structured"))
    run.harness.structured = b"{}"

    fold_calls.arguments_rejected(
        run, ToolArgumentsRejected(*BLANK, "row", call_id="a", name="look", reason="no total")
    )

    assert (run.harness.structured, answers(run)) == (b"", [("a", "Error: no total")])
    assert (run.harness.tool_calls, run.harness.failures) == (0, 0)


def test_sub_agents_are_announced_and_closed_one_by_one() -> None:
    run = run_with(("a", "asked"), ("a", "started"), ("b", "started"))
    ids = [fold_calls.child_id(run, slot) for slot in run.slots]
    assert ids == ["r.1.0-a", "r.1.1-a", "r.1.2-b"]

    for child in ids:
        fold_calls.child_started(run, SubAgentStarted(*BLANK, "row", call_id="x", depth=1, child=child))
    assert [slot.announced for slot in run.slots] == [False, True, True]
    fold_calls.child_ended(run, SubAgentCompleted(*BLANK, "row", call_id="x", depth=1, child=ids[2]))
    assert [slot.child_closed for slot in run.slots] == [False, False, True]
    fold_calls.child_ended(run, SubAgentFailed(*BLANK, "row", call_id="x", depth=1, child=ids[0], error="e"))
    fold_calls.child_ended(run, SubAgentFailed(*BLANK, "row", call_id="x", depth=1, child=ids[1], error="e"))

    assert [slot.child_closed for slot in run.slots] == [False, True, True]


def test_the_id_of_a_sub_agent_is_the_name_of_a_file_whatever_the_call_is_called() -> None:
    run = run_with(("../é x", "started"), ("y" * 114, "started"), ("y" * 115, "started"))
    short, longest, shortened = (fold_calls.child_id(run, slot) for slot in run.slots)

    assert short == "r.1.0-_____x"
    assert longest == "r.1.1-" + "y" * 114
    assert (shortened.startswith("r-"), shortened.endswith(".1.2"), len(shortened)) == (True, True, 22)


def test_a_long_parent_is_cut_and_told_apart_by_a_digest() -> None:
    run, other = run_with(("c", "started")), run_with(("c", "started"))
    run.run_id, other.run_id = "p" * 150, "p" * 149 + "q"

    ids = {fold_calls.child_id(one, one.slots[0]) for one in (run, other)}

    assert len(ids) == 2
    assert all(len(child) == 60 + 1 + 16 + 4 and child.startswith("p" * 60 + "-") for child in ids)


@pytest.mark.parametrize(("name", "child"), [("look", False), ("kid", True), ("nine", False)])
def test_a_sub_agent_is_known_by_its_manifest(name: str, child: bool) -> None:
    run = run_with(("a", "asked"))
    run.slots[0].name = name

    assert fold_calls.is_child(run, run.slots[0]) is child
