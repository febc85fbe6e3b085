"""What the events that both loops share change in a run: its beginning, model calls, waits and landings."""

from typing import Any

import pytest
from msgspec import Raw

from stepfold.events import vocabulary as v
from stepfold.events.configuration import GoalConfig, HarnessConfig, ImportedConfig, Manifest, Retry
from stepfold.events.vocabulary import BLANK
from stepfold.projections import fold_shared
from stepfold.projections.effects import AskModel, CallTool, Wait
from stepfold.projections.run import evolve
from stepfold.projections.state import Run, Slot

ROW = (*BLANK, "row")
LOOK = Manifest(name="look", description="", schema=Raw(b"{}"))
OURS = Manifest(name="mcp.ours.find", description="", schema=Raw(b"{}"))
THEIRS = Manifest(name="mcp.theirs.find", description="", schema=Raw(b"{}"))
TOOLS = HarnessConfig(manifests=(LOOK,))
IMPORTED = ImportedConfig(format="x", name="n", file="f", digest="d")
MOMENT = "1970-01-01T00:00:02.000000Z"


def asked(model: str = "m", max_tokens: int | None = 9) -> Run:
    """A tool-calling run whose model is being asked."""
    run = Run()
    run.config = HarnessConfig(retry=Retry(sleep=True))
    started = v.ModelStarted(*ROW, call_id="model-1", model=model, digest="d", max_tokens=max_tokens)
    fold_shared.model_started(run, started)
    return run


@pytest.mark.parametrize(
    ("config", "loop", "manifests", "said"),
    [
        (GoalConfig(goal="mend it", manifests=(LOOK,)), "goal", ["look"], ["mend it"]),
        (TOOLS, "tools", ["look"], []),
        (IMPORTED, "imported", [], []),
    ],
)
def test_a_run_begins_with_what_its_first_event_says(
    config: Any, loop: str, manifests: list[str], said: list[str]
) -> None:
    run = Run()
    started = v.RunStarted(
        1, "r", 0, 0, MOMENT, config=config, engine="e", parent="p", source="s", source_seq=3
    )

    fold_shared.run_started(run, started)

    assert (run.run_id, run.parent, run.source, run.source_seq, run.engine) == ("r", "p", "s", 3, "e")
    assert (run.config, run.started_ts, run.state, run.loop) == (config, MOMENT, "opening", loop)
    assert (list(run.manifests), [turn.content for turn in run.history.turns]) == (manifests, said)
    assert (run.fork_seq, run.fork_config, run.fork_system) == (Run().fork_seq, None, "")


@pytest.mark.parametrize(
    ("forked", "system"), [(HarnessConfig(max_model_calls=1), ""), (None, "be brief"), (TOOLS, "be brief")]
)
def test_what_a_fork_changes_waits_for_the_end_of_what_it_shares(forked: Any, system: str) -> None:
    run = Run()
    started = v.RunStarted(
        *BLANK, config=TOOLS, engine="e", source="s", source_seq=3, forked=forked, forked_system=system
    )

    fold_shared.run_started(run, started)

    assert (run.fork_seq, run.fork_config, run.fork_system) == (3, forked, system)
    assert run.config == TOOLS


def test_a_fork_has_its_own_tools_and_those_of_its_servers() -> None:
    run = Run()
    run.config, run.manifests = TOOLS, {"look": LOOK, "mcp.ours.find": OURS}
    run.history.append(v.Message("system", "old"))
    run.history.append(v.Message("user", "go"))
    unchanged = Run()
    unchanged.config = TOOLS
    unchanged.manifests = {"look": LOOK}
    unchanged.history.append(v.Message("system", "old"))

    run.fork_config, run.fork_system = HarnessConfig(max_model_calls=1), "new"
    fold_shared.forked(run)
    fold_shared.forked(unchanged)

    assert (run.config, list(run.manifests)) == (run.fork_config, ["mcp.ours.find"])
    assert [turn.content for turn in run.history.turns] == ["new", "go"]
    assert (unchanged.config, list(unchanged.manifests)) == (TOOLS, ["look"])
    assert [turn.content for turn in unchanged.history.turns] == ["old"]


def test_a_list_of_tools_takes_the_place_of_that_servers_earlier_one() -> None:
    run = Run()
    run.manifests = {"look": LOOK, "mcp.ours.find": OURS, "mcp.theirs.find": THEIRS}
    new = Manifest(name="mcp.ours.seek", description="", schema=Raw(b"{}"))
    stray = Manifest(name="look", description="other", schema=Raw(b"{}"))

    fold_shared.tools_listed(run, v.ToolsListed(*BLANK, server="ours", tools=(new, stray, THEIRS)))

    assert run.manifests == {"look": LOOK, "mcp.theirs.find": THEIRS, "mcp.ours.seek": new}
    assert run.goal.listings == 1


def test_small_facts_are_kept() -> None:
    run = Run()

    fold_shared.sandbox_probed(run, v.SandboxProbed(*BLANK, backend="bubblewrap"))
    fold_shared.cancel_requested(run, v.CancelRequested(*BLANK))
    fold_shared.model_erred(run, v.ModelErred(*BLANK, error="server", detail="busy"))

    assert (run.backend, run.cancel) == ("bubblewrap", True)
    assert isinstance(run.model_landed, v.ModelErred)


def test_a_model_call_makes_its_first_attempt_due_and_forgets_the_last_one() -> None:
    run = asked()
    run.attempt, run.tries, run.model_landed = 2, 5, v.ModelErred(*BLANK, error="x", detail="")

    fold_shared.model_started(
        run, v.ModelStarted(*ROW, call_id="model-2", model="n", digest="d", max_tokens=None)
    )

    assert run.due["model:model-2:0"] == AskModel("model:model-2:0", "model-2", 2, 0, "n", None)
    assert (run.call, run.call_id, run.attempt, run.tries) == (2, "model-2", 0, 1)
    assert (run.model_landed, run.asking) == (None, ("n", None))


def test_a_reply_is_paid_for_and_read() -> None:
    run = asked()
    reply = v.ModelReplied(*BLANK, text="said", input_tokens=3, output_tokens=2)

    fold_shared.model_replied(run, reply)
    assert (run.model_landed, run.usage.input_tokens, run.reply) == (reply, 3, "")
    fold_shared.model_completed(run, v.ModelCompleted(*ROW, call_id="model-1"))

    assert (run.reply, run.model_landed) == ("said", None)


def test_a_call_that_completes_without_a_reply_keeps_the_last_one() -> None:
    run = asked()
    run.reply, run.model_landed = "said", v.ModelErred(*BLANK, error="x", detail="")

    fold_shared.model_completed(run, v.ModelCompleted(*ROW, call_id="model-1"))

    assert (run.reply, run.model_landed) == ("said", None)


@pytest.mark.parametrize(("sleeps", "delay"), [(False, 3.0), (True, 0.0), (True, -1.0)])
def test_an_attempt_without_a_wait_is_due_at_once(sleeps: bool, delay: float) -> None:
    run = asked()
    run.config = HarnessConfig(retry=Retry(sleep=sleeps))
    run.model_landed = v.ModelErred(*BLANK, error="x", detail="")

    fold_shared.retry_scheduled(
        run, v.RetryScheduled(*ROW, call_id="model-1", attempt=1, delay=delay, why="server")
    )

    assert run.due["model:model-1:1"] == AskModel("model:model-1:1", "model-1", 1, 1, "m", 9)
    assert (run.attempt, run.tries, run.model_landed) == (1, 2, None)


def test_a_backoff_is_waited_for_and_then_the_attempt_is_due() -> None:
    run = asked()

    fold_shared.retry_scheduled(
        run,
        v.RetryScheduled(1, "r", 0, 0, MOMENT, "row", call_id="model-1", attempt=1, delay=0.5, why="server"),
    )
    assert list(run.due.values())[1:] == [Wait("wait:model-1:1", 2_500_000)]
    fold_shared.wait_ended(run, v.WaitEnded(*BLANK, key="clock"))
    assert len(run.due) == 2
    fold_shared.wait_ended(run, v.WaitEnded(*BLANK, key="wait:model-1:1"))

    assert "model:model-1:1" in run.due


@pytest.mark.parametrize(("landed", "detail"), [(True, "busy"), (False, "")])
def test_a_failed_call_gives_up_what_flies_for_it_and_nothing_else(landed: bool, detail: str) -> None:
    run = asked()
    run.due |= {key: Wait(key, 1) for key in ("wait:model-1:1", "clock", "tool:1.0")}
    run.model_landed = v.ModelErred(*BLANK, error="server", detail="busy") if landed else None

    fold_shared.model_failed(run, v.ModelFailed(*ROW, call_id="model-1", error="Model"))

    assert (run.fault, run.fault_detail, run.model_landed) == ("Model", detail, None)
    assert list(run.due) == ["clock", "tool:1.0"]


@pytest.mark.parametrize(("changed", "arguments"), [(None, b'{"a": 1}'), (b'{"a":1}', b'{"a":1}')])
def test_a_call_is_due_with_its_arguments(changed: bytes | None, arguments: bytes) -> None:
    run = Run()
    run.slots = [Slot("c0", "look", b"{}", "tool:1.0"), Slot("c1", "look", b'{"a": 1}', "tool:1.1")]
    fields: dict[str, Any] = {} if changed is None else {"arguments": Raw(changed)}

    fold_shared.tool_started(
        run,
        v.ToolStarted(1, "r", 0, 0, MOMENT, "row", call_id="c1", name="find", key="tool:1.1", **fields),
    )
    fold_shared.tool_started(run, v.ToolStarted(*ROW, call_id="c9", name="find", key="tool:9.9"))

    assert run.due == {"tool:1.1": CallTool("tool:1.1", "c1", "find", arguments)}
    assert (run.slots[1].name, run.slots[1].started_at) == ("find", MOMENT)
    assert (run.slots[0].name, run.slots[0].started_at) == ("look", "")


def test_a_result_waits_in_its_own_call_also_of_a_worker() -> None:
    run = Run()
    run.slots = [Slot("c0", "look", b"{}", "tool:2.0")]
    run.goal.workers = [Slot("w", "worker", b"{}", "tool:1.0")]
    result = v.ToolReturned(1, "r", 0, 0, MOMENT, content="seen", key="tool:1.0")

    fold_shared.tool_landed(run, result)
    fold_shared.tool_landed(run, v.ToolReturned(*BLANK, content="late", key="tool:7.0"))

    assert (run.goal.workers[0].landed, run.goal.workers[0].landed_at) == (result, MOMENT)
    assert run.slots[0].landed is None


def test_a_check_that_was_lost_is_no_result_of_a_call() -> None:
    run = Run()
    run.due["check:unit:1"] = Wait("check:unit:1", 1)
    run.goal.workers = [Slot("w", "worker", b"{}", "check:unit:1")]
    lost = v.EffectLost(*BLANK, key="check:unit:1")

    evolve(run, lost)

    assert (run.goal.check_landed, run.goal.workers[0].landed) == (lost, None)


@pytest.mark.parametrize("config", [TOOLS, IMPORTED])
def test_what_was_said_before_a_run_is_its_history(config: Any) -> None:
    run = Run()

    evolve(run, v.RunStarted(*BLANK, config=config, engine="e", input=(v.Message("user", "go"),)))

    assert [turn.content for turn in run.history.turns] == ["go"]


def test_what_lands_after_it_was_given_up_never_happened() -> None:
    run = asked()
    run.loop, run.seq = "tools", 4
    run.due.clear()

    late = v.ModelReplied(1, "r", 4, 2, MOMENT, key="model:model-1:0", text="late")
    evolve(run, late)

    assert (run.model_landed, run.ts, run.seq, run.step) == (None, "", 5, 2)


def test_an_event_of_no_loop_is_counted_and_changes_nothing_else() -> None:
    run = asked()
    run.loop = "tools"
    due = dict(run.due)

    evolve(run, v.UserAnswered(*BLANK, text="yes"))
    evolve(run, v.Unknown(1, "r", 1, 0, MOMENT, "Newer"))

    assert (run.unknown_kinds, run.due, run.ts) == (2, due, "")


def test_a_decided_event_moves_the_state_only_where_it_says_so() -> None:
    run = asked()
    run.loop, run.state = "tools", "asking"

    evolve(run, v.ModelCompleted(*BLANK, "row", call_id="model-1"))
    assert run.state == "asking"
    evolve(run, v.ModelCompleted(*BLANK, "row", "replied", call_id="model-1"))

    assert run.state == "replied"
