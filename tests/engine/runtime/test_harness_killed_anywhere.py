"""A tool-calling run killed before, inside and after any of its writes is resumed, several tools a turn.

No call has two results, what was pure or idempotent runs again, and what may run once is never run twice:
where nobody can tell whether it ran, the model reads that.
"""

import asyncio
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stepfold.engine.models.protocol import Request
from stepfold.engine.runtime.agent_run import AgentRun
from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.middleware import RunContext
from stepfold.engine.runtime.replay import replay
from stepfold.engine.runtime.run_policy import RunConfig, RunPolicy
from stepfold.engine.runtime.tools import Tool, tool
from stepfold.events import vocabulary as v
from stepfold.events.integrity import check
from stepfold.events.journal import read_log
from stepfold.events.store import Store
from tests.engine.runtime.deaths import killed
from tests.harness_house import assert_answered, unpaired

TURNS = 3
SORTS = ("pure", "idempotent", "once")
EVENTS = 30
"""At least so many events are written by the run, and so many deaths are died."""
UNKNOWN = "Error: the outcome of once is unknown: its process died, and it may not run twice"


class Asking:
    """Asks for one tool of each sort in every turn, and then says that it is done."""

    name = "asking"
    reads_messages = False

    async def reply(self, request: Request) -> v.ModelReplied:
        """What it says to this call."""
        if request.call > TURNS:
            return v.ModelReplied(*v.BLANK, text="done")
        asked = tuple(v.ToolCall(f"{sort}-{request.call}", sort, "{}") for sort in SORTS)
        return v.ModelReplied(*v.BLANK, text="", tool_calls=asked)


def counting(sort: Any, folder: Path) -> Tool:
    """A tool that writes down that it ran, before it does anything else."""

    async def run(context: RunContext) -> str:
        with (folder / "ran").open("a") as file:
            file.write(f"{context.call_id}\n")
        await asyncio.sleep(0)
        return f"{sort} ran"

    return tool(run, name=sort, idempotency=sort, schema={"type": "object"})


def harness_in(folder: Path) -> AgentHarness:
    policy = RunPolicy(tool_errors="return_to_model")
    return AgentHarness(
        Asking(), [counting(sort, folder) for sort in SORTS], policy=policy, store=folder / "s"
    )


def begin(folder: Path) -> AgentRun:
    return harness_in(folder).invoke_sync(config=RunConfig(run_id="r"), messages=["go"])


@pytest.mark.parametrize("torn", [0.0, 0.5], ids=["at its boundary", "half way"])
def test_a_harness_run_killed_at_any_event_is_resumed_whole(tmp_path: Path, torn: float) -> None:
    folder = tmp_path / "life"
    path = folder / "s" / "runs" / "r.jsonl"
    events, lost, again = 1, 0, 0
    folder.mkdir()
    while killed(lambda: begin(folder), events, torn):
        recorded = path.read_bytes()
        whole = recorded[: recorded.rfind(b"\n") + 1]

        run = harness_in(folder).resume_sync("r").run

        assert (run.status, run.text) == ("completed", "done")
        assert path.read_bytes().startswith(whole)
        of_this = _assert_sound(path, folder)
        lost, again = lost + of_this[0], again + of_this[1]
        shutil.rmtree(folder)
        folder.mkdir()
        events += 1
    assert events >= EVENTS
    # Deaths fell between the intent and the result of calls of each sort, or the test shows nothing.
    assert lost >= TURNS
    assert again >= TURNS


def _assert_sound(path: Path, folder: Path) -> tuple[int, int]:
    """How many calls were lost, and how often one ran again."""
    events = [record.event for record in read_log(path).records]
    results = Counter(e.key for e in events if isinstance(e, v.ToolReturned | v.ToolErred | v.EffectLost))
    assert sorted(results.values()) == [1] * TURNS * len(SORTS)
    assert not unpaired(events)
    assert_answered(events)
    ran = Counter((folder / "ran").read_text().split())
    named = {event.key: event.name for event in events if isinstance(event, v.ToolStarted)}
    lost = [event.key for event in events if isinstance(event, v.EffectLost)]
    assert {named[key] for key in lost} <= {"once"}
    once = {name: count for name, count in ran.items() if name.startswith("once")}
    assert max(once.values(), default=0) <= 1
    assert len(once) + len(lost) >= TURNS
    told = [m.content for m in harness_in(folder).resume_sync("r").run.messages if m.role == "tool"]
    assert told.count(UNKNOWN) == len(lost)
    assert sum("ran" in content for content in told) == TURNS * len(SORTS) - len(lost)
    assert replay(path).verdict == "identical"
    with Store(folder / "s") as store:
        assert check(path, store.index("r").lines()).verdict == "whole"
    return len(lost), sum(count - 1 for count in ran.values())
