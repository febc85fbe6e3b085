"""What the benchmarks run: one long scripted goal run, each step a model call and a capability call."""

import asyncio
import json
import os
import sqlite3
import time
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Raw
from msgspec.structs import replace

from stepfold.engine.capabilities.boxes import DEFAULT_LIMITS
from stepfold.engine.capabilities.manifests import NATIVE
from stepfold.engine.capabilities.servers import Servers
from stepfold.engine.capabilities.workspace import Workspace
from stepfold.engine.core.decide import decide
from stepfold.engine.models.scripted import Script
from stepfold.engine.runtime.drive import drive
from stepfold.engine.runtime.goal_effects import GoalEffects
from stepfold.engine.runtime.live import LiveEffects
from stepfold.engine.runtime.run_log import RunLog
from stepfold.engine.runtime.undo import Undo
from stepfold.events.configuration import GoalConfig, Manifest
from stepfold.events.store import Store
from stepfold.events.vocabulary import BLANK, ModelReplied, Observed, RunStarted, ToolReturned
from stepfold.projections.effects import AskModel
from stepfold.projections.run import evolve
from stepfold.projections.state import Run

LOOK = Manifest(
    name="look",
    description="looks",
    schema=Raw(b'{"type":"object","properties":{"path":{"type":"string"},"line":{"type":"integer"}}}'),
    idempotency="pure",
)
CALL = (
    '{"name": "capability_call", "arguments": {"capability": "look", '
    '"arguments": {"path": "src/module_%d.py", "line": %d}}}'
)
LOAD = '{"name": "capability_load", "arguments": {"names": ["look"]}}'


def config(steps: int) -> GoalConfig:
    """No check and no memory: nothing but the loop itself is measured."""
    return GoalConfig(goal="read every file", max_steps=steps, manifests=(LOOK,), memory=False)


class Timed:
    """Hands that answer at once, and note the processor time at which each model call came."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def perform(self, effect: Any, run: Run) -> Observed:
        """One line of a file a step."""
        if not isinstance(effect, AskModel):
            return ToolReturned(
                *BLANK, content="the quick brown fox jumps over the lazy dog, a line of a file"
            )
        self.moments.append(time.process_time())
        if effect.call == 1:
            return ModelReplied(*BLANK, text=LOAD, input_tokens=10, output_tokens=2)
        arguments = {
            "capability": "look",
            "arguments": {"path": f"src/module_{effect.call}.py", "line": effect.call},
        }
        text = json.dumps({"name": "capability_call", "arguments": arguments})
        return ModelReplied(*BLANK, text=text, input_tokens=10 * effect.call, output_tokens=20)


def persisted(folder: Path, steps: int, durability: str = "normal") -> Timed:
    """A whole run, on disk."""
    hands = Timed()
    with Store(folder) as store, RunLog(store, "bench", durability=durability) as log:
        effects = LiveEffects(hands.perform, run_id="bench", log=log)
        effects.push(RunStarted(*BLANK, config=config(steps), engine="bench"))
        asyncio.run(drive(Run(), effects, log))
    return hands


class Step(NamedTuple):
    """What one step puts on disk: its batches for the file, its lines for SQLite."""

    batches: list[bytes]
    lines: list[bytes]


def steps_of(path: Path) -> list[Step]:
    """The bytes of a recorded run, cut as the engine writes them."""
    steps: list[Step] = []
    batch: list[bytes] = []
    number = 0
    for line in path.read_bytes().splitlines(keepends=True):
        event = json.loads(line)
        if "row" not in event and batch:
            lines_of_batch = b"".join(batch)
            if not steps:
                steps.append(Step([], []))
            steps[-1].batches.append(lines_of_batch)
            batch = []
        if event["step"] != number:
            number = event["step"]
            steps.append(Step([], []))
        batch.append(line)
        if not steps:
            steps.append(Step([], []))
        steps[-1].lines.append(line.rstrip(b"\n"))
    steps[-1].batches.append(b"".join(batch))
    return steps


def bare(folder: Path, steps: list[Step], *, synced: str = "normal") -> None:
    """The floor of a persisted run: the same writes, inserts and syncs, and nothing else."""
    file = os.open(folder / "bare.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    database = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute("CREATE TABLE lines(id INTEGER PRIMARY KEY, line BLOB NOT NULL)")
    number = 1 << 32
    for step in steps:
        for batch in step.batches:
            os.write(file, batch)
            if synced == "full":
                os.fdatasync(file)
        if synced == "step":
            os.fdatasync(file)
        database.execute("BEGIN IMMEDIATE")
        database.executemany(
            "INSERT OR REPLACE INTO lines(id, line) VALUES (?, ?)", enumerate(step.lines, number)
        )
        database.execute("COMMIT")
        number += len(step.lines)
    os.fdatasync(file)
    os.close(file)
    database.close()


def called(name: str, arguments: dict[str, Any]) -> Run:
    """A run that is about to call a native: its action is taken, and the gates have not been asked."""
    settings = GoalConfig(goal="look", manifests=NATIVE, memory=False)
    load = json.dumps({"name": "capability_load", "arguments": {"names": [name]}})
    call = json.dumps({"name": "capability_call", "arguments": {"capability": name, "arguments": arguments}})
    run, replies = evolve(Run(), RunStarted(*BLANK, config=settings, engine="bench")), [call, load]
    while run.state != "acting" or replies:
        event = decide(run)
        if event is None:
            key = next(iter(run.due))
            evolve(run, ModelReplied(1, "", run.seq, run.step, run.ts, key, text=replies.pop()))
        else:
            evolve(run, event)
    return run


def hands_of(folder: Path) -> GoalEffects:
    """The hands of a run in a folder, where no model, worker, person or server is asked."""

    def unasked(*_: Any) -> Any:
        raise RuntimeError("a benchmark of the gates asks nobody")

    workspace = Workspace(folder)
    return GoalEffects(
        Script.parse(b""),
        folder,
        None,
        DEFAULT_LIMITS,
        dispatch=unasked,
        approve=unasked,
        undo=Undo(folder / "undo", workspace),
        store=folder,
        tell=unasked,
        servers=Servers((), workspace=workspace),
    )


def through(run: Run, hands: GoalEffects) -> None:
    """The whole lifecycle of that call: its gates, its intent, its work, its landing, its fold."""
    while run.state != "framing":
        event = decide(run)
        if event is None:
            ((key, effect),) = run.due.items()
            landing: Any = hands.perform(effect, run)
            event = replace(landing, seq=run.seq, step=run.step, ts=run.ts, key=key)
        evolve(run, event)
