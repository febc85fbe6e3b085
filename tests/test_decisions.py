"""What the engine decides in some two hundred runs of both tables is what it decided before.

A change of a rule shows here in every run that it touches, also where no test of its own asks.
`python -m tests.test_decisions` records anew; look at the difference, for it is what users' runs will
do differently.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stepfold.engine.runtime.agent_run import agent_run
from stepfold.events.codec import encode
from stepfold.events.vocabulary import RunStarted
from stepfold.projections.digest import digest_of
from stepfold.projections.outcome import outcome
from stepfold.projections.run import fold
from tests.engine.core.stories import STORIES
from tests.engine.core.test_tools_table import cut_off_children, lost_calls, steering, worlds

GOAL_RESULT = (
    *("finish", "status", "steps", "actions", "rejected", "summary", "unmet", "transcript", "error"),
    *("detail", "guard", "evidence", "mutations", "usage"),
)
TOOLS_RESULT = ("status", "messages", "text", "model_calls", "tool_calls", "steps", "stop_reason", "error")
RECORDED = Path(__file__).parent / "data" / "decisions.json"


def goal_runs() -> Iterator[tuple[str, Sequence[Any]]]:
    """The stories of the goal table."""
    return ((f"goal: {name}", tell()) for name, tell in STORIES.items())


def tools_runs() -> Iterator[tuple[str, Sequence[Any]]]:
    """Random worlds of the tools table, and stories; none that asks a real clock."""
    logs = (*asyncio.run(worlds()), *lost_calls(), *cut_off_children(), *steering())
    return ((f"tools: {number}", events) for number, events in enumerate(logs))


def summary_of(events: Sequence[Any]) -> str:
    """The rows that fired, and a digest of all that was recorded and of what it folds to."""
    start, *others = events
    assert isinstance(start, RunStarted)
    # A release changes no decision.
    lines = [encode(event) for event in (replace(start, engine=""), *others)]
    run = fold(events)
    result, names = (agent_run(run), TOOLS_RESULT) if run.loop == "tools" else (outcome(run), GOAL_RESULT)
    folded = [getattr(result, name) for name in names]
    rows = " ".join(event.row for event in events if hasattr(event, "row"))
    whole = b"\n".join((*lines, msgspec.json.encode(folded)))
    return f"{digest_of(whole)} {rows}"


@cache
def recorded() -> dict[str, str]:
    found: dict[str, str] = json.loads(RECORDED.read_text())
    return found


@pytest.mark.parametrize("loop", ["goal", "tools"])
def test_every_run_decides_as_it_did(loop: str) -> None:
    runs = {"goal": goal_runs, "tools": tools_runs}[loop]()
    was = {name: line for name, line in recorded().items() if name.startswith(loop)}

    now = {name: summary_of(events) for name, events in runs}

    assert now == was, "if that is meant: python -m tests.test_decisions"


if __name__ == "__main__":
    told = {name: summary_of(events) for name, events in (*goal_runs(), *tools_runs())}
    RECORDED.write_text(json.dumps(told, indent=0) + "\n")
