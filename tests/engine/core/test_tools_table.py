"""The tools table: every row fires, every guard answers with a real bool, every row that stays moves on."""

import asyncio
from collections import Counter
from functools import cache
from itertools import groupby
from typing import Any

import pytest
from msgspec import Raw

from stepfold.engine.core.diagram import mermaid
from stepfold.engine.core.tools_table import SEES, STATES, TOOLS
from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.response_cache import MemoryCache
from stepfold.engine.runtime.run_policy import RunConfig, RunPolicy
from stepfold.engine.runtime.steering import SteeringHandle
from stepfold.engine.runtime.sub_agents import sub_agent
from stepfold.events.configuration import HarnessConfig, Manifest, ModelSpec, Retry
from stepfold.events.vocabulary import (
    BLANK,
    CancelRequested,
    Command,
    EffectLost,
    RunReopened,
    SteeringReceived,
    ToolErred,
    WaitEnded,
)
from stepfold.projections.fold_tools import DEADLINE, STEERING
from tests.engine.runtime.test_harness_hooks import having
from tests.engine.runtime.test_harness_properties import World
from tests.harness_house import Counted, Scripted, VirtualClock, calls, erred, play, replay, text
from tests.house import Story, prefixes

WORLDS = range(500, 620)


def story(**settings: Any) -> Story:
    """A run of the tools loop by hand; `kid` is a sub-agent that, unlike real ones, may not run twice."""
    manifests = tuple(
        Manifest(name=name, description="", schema=Raw(b"{}"), child=name == "kid")
        for name in ("look", "kid")
    )
    config = HarnessConfig(**{"models": (ModelSpec(name="m"),), "manifests": manifests} | settings)
    return Story(config)  # type: ignore[arg-type]


def asking(name: str, **settings: Any) -> Story:
    """The same, with one call in flight."""
    told = story(**settings)
    told.lands(calls(("c1", name)))
    return told


def lost_calls() -> list[Any]:
    """On resume: calls that were in flight and may not run twice."""
    logs = []
    for name, policy in (("look", "fail"), ("look", "return_to_model"), ("kid", "fail")):
        told = asking(name, tool_errors=policy)
        told.lands(RunReopened(*BLANK), EffectLost(*BLANK))
        logs.append(told.events)
    return logs


def cut_off_children() -> list[Any]:
    """A child is given up with its parent: by a cancel, by the clock, by an error of its own."""
    cancelled, late, failed = asking("kid"), asking("kid", wall_clock=1.0), asking("kid")
    cancelled.lands(CancelRequested(*BLANK))
    late.moment += 2_000_000
    late.lands(WaitEnded(*BLANK, key=DEADLINE))
    failed.lands(ToolErred(*BLANK, error="Tool", detail="boom"))
    return [cancelled.events, late.events, failed.events]


def resting() -> Story:
    """A run that was told to pause while its model was asked."""
    told = story(steering=("pause",), tool_errors="return_to_model")
    told.lands(SteeringReceived(*BLANK, commands=(Command("pause", "wait"),)))
    told.lands(calls(("c1", "look")))
    told.lands(ToolErred(*BLANK, error="x", detail="y"))
    return told


def steering() -> list[Any]:
    """A pause, what is said to a paused run, and its cancel."""
    told = story(steering=("pause",))
    told.lands(SteeringReceived(*BLANK, commands=(Command("pause", "wait"), Command("inject", "no"))))
    told.lands(SteeringReceived(*BLANK, commands=(Command("pause", "wait"),)))
    told.lands(calls(("c1", "look")))
    told.lands(ToolErred(*BLANK, error="x", detail="y"))
    paused, resumed = resting(), resting()
    paused.lands(SteeringReceived(*BLANK, commands=(Command("cancel"),), key=STEERING))
    resumed.lands(SteeringReceived(*BLANK, commands=(Command("resume"),), key=STEERING))
    at_once = story()
    at_once.lands(calls(("c1", "look")), CancelRequested(*BLANK))
    return [told.events, paused.events, resumed.events, at_once.events]


def harnesses() -> list[Any]:
    """Runs for what random ones seldom meet."""
    clock, stored = VirtualClock(), MemoryCache()
    once = RunPolicy(retry=Retry(attempts=1))
    mute = Scripted(text("no"), name="mute", supports_tools=False)
    backup = Scripted(text("ok"), name="backup")
    look = Counted("look", RuntimeError("no"))
    repeating = RunPolicy(no_progress=True, tool_errors="return_to_model")
    slow = having("before_tool", lambda *_: clock.sleep(2))
    refusing = having("before_tool", lambda context, call: call.refuse("no"))
    child = sub_agent(AgentHarness(Scripted(text("x"))), name="look", description="")
    handle = SteeringHandle(["inject"])
    handle.cancel()
    return [
        play(AgentHarness([])).events,
        play(AgentHarness([Scripted(erred()), mute, backup], [look.tool], policy=once)).events,
        *(play(AgentHarness(Scripted(text("kept")), cache=stored)).events for _ in range(2)),
        play(AgentHarness(Scripted(calls(("c", "look"))), [look.tool], policy=repeating)).events,
        play(
            AgentHarness(Scripted(calls(("c", "look"))), [look.tool], [slow], clock=clock),
            config=RunConfig(run_id="r", timeout=1.0),
        ).events,
        play(AgentHarness(Scripted(calls(("c", "look")), text("done")), [look.tool], [refusing])).events,
        play(AgentHarness(Scripted(calls(("c", "look", {"input": "x"})), text("done")), [child])).events,
        play(AgentHarness(Scripted(text("ok"))), config=RunConfig(run_id="r", steering=handle)).events,
    ]


async def worlds() -> list[Any]:
    return [(await World(number).play()).events for number in WORLDS]


@cache
def logs() -> list[Any]:
    """All of them."""
    return [
        *asyncio.run(worlds()),
        *harnesses(),
        *lost_calls(),
        *cut_off_children(),
        *steering(),
    ]


def test_every_row_that_emits_fires() -> None:
    fired = {event.row for log in logs() for event in log if hasattr(event, "row")}
    assert {row.name for row in TOOLS.rows if row.sort == "emits"} - fired == set()


def guards_asked(row: Any, run: Any, given: Any) -> set[str]:
    """The guards of a row up to the first that refuses, as the machine asks them."""
    asked = set()
    for guard, wanted in [(g, True) for g in row.when] + [(g, False) for g in row.unless]:
        answer = guard(run, given)
        assert type(answer) is bool, guard.__name__
        asked.add(guard.__name__)
        if answer is not wanted:
            break
    return asked


def test_every_row_is_chosen_somewhere_and_every_guard_answers_with_a_real_bool() -> None:
    chosen: Counter[str] = Counter()
    asked: set[str] = set()
    for log in logs():
        for run in prefixes(log):
            state = run.state
            for _ in range(20):
                word, given = SEES[state](run)
                for row in TOOLS.rows:
                    if state in row.sources and (word in row.on or row.on == ("any",)):
                        asked |= guards_asked(row, run, given)
                row = TOOLS.choose(state, word, run, given)
                chosen[row.name] += 1
                if row.sort != "silent":
                    break
                state = row.dest
    assert {row.name for row in TOOLS.rows} - set(chosen) == set()
    assert {g.__name__ for row in TOOLS.rows for g in (*row.when, *row.unless)} == asked


def test_a_row_that_stays_makes_its_own_guard_false() -> None:
    """Else it would emit until memory is gone. A turn has at most four calls here, a batch two commands."""
    staying = {row.name for row in TOOLS.rows if row.sort == "emits" and not row.dest}
    for log in logs():
        for row, group in groupby(log, key=lambda event: getattr(event, "row", "")):
            if row in staying:
                assert len(list(group)) <= 4, row


def test_every_log_replays() -> None:
    for log in logs():
        replay(log)


def test_every_state_is_reached_and_the_diagram_shows_every_row() -> None:
    drawn = mermaid(TOOLS)
    assert drawn.startswith("stateDiagram-v2\n    [*] --> opening\n")
    assert all(f": {row.name} on " in drawn for row in TOOLS.rows)
    assert all(f" --> {state}" in drawn or state == "opening" for state in STATES)
    assert "completed --> [*]" in drawn
    assert "failed --> [*]" not in drawn, "an error is told to on_error hooks yet"


@pytest.mark.parametrize("late", [True, False])
def test_a_cancel_in_the_batch_of_a_reply_starts_no_tool(late: bool) -> None:
    told = story()
    batch = [calls(("c1", "look")), CancelRequested(*BLANK)]
    assert "ToolStarted" not in told.lands(*(batch if late else batch[::-1]))
    assert told.run.status == "cancelled"


def test_a_result_in_the_batch_of_a_cancel_is_folded_and_not_lost() -> None:
    told = asking("look")
    kinds = told.lands(ToolErred(*BLANK, error="x", detail="y", fatal=True), CancelRequested(*BLANK))
    assert kinds[0] == "ToolFailed"
    assert told.run.status == "failed"


def test_a_landing_that_comes_too_late_changes_nothing() -> None:
    told = asking("look")
    told.lands(CancelRequested(*BLANK))
    before = told.run.history.chain
    assert told.lands(ToolErred(*BLANK, error="x", detail="y", key="tool:1.0")) == []
    assert told.run.history.chain == before
