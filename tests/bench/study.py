"""Does the loop help a small model? The suite `study` by our loop and by a bare one, judged alike.

    python -m tests.bench.study http://127.0.0.1:8080/v1#NAME ... --store DIR [--page docs/study.md]

Each task is done by each loop with each model, in turn, so that whoever stops it early has a fair sample;
what was done is not done again. The table goes to the page, between its two marks, else to the terminal.
"""

import argparse
import asyncio
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stepfold.engine.capabilities.context import CallContext
from stepfold.engine.capabilities.sandbox import probe
from stepfold.engine.capabilities.workspace import Workspace
from stepfold.engine.models.resolve import resolve
from stepfold.engine.runtime.configured import chosen_model
from stepfold.engine.studies.evaluation import Evaluation
from stepfold.engine.studies.final_state import judged, lay_out
from stepfold.engine.studies.scores import Score
from stepfold.engine.studies.suite import Suite, Trial, read_suite, trials_of
from stepfold.events.journal import read_log
from stepfold.events.run_store import RunStore
from stepfold.events.store import open_store
from tests.bench import bare_loop
from tests.bench.rows import put

SUITE = Path(__file__).parents[2] / "engine" / "suites" / "study"
BARE, PLAIN, CONSTRAINED = "bare", "stepfold", "stepfold, constrained"
LOOPS = {"bare": BARE, "plain": PLAIN, "constrained": CONSTRAINED}
MODEL = {"temperature": 0.7, "max_tokens": 256}
"""The temperature is the one that the model's makers recommend."""

PRELOAD = ["fs.list", "fs.read", "fs.write", "fs.patch", "shell.run"]
"""What the tasks need. The bare loop has it from the start as well."""


FOR_SMALL_MODELS = {
    "unattended": True,
    "read_first": True,
    "verify_changes": True,
    "final_newline": True,
    "keep": ["test_*.py"],
}
"""What docs/running.md recommends beside the constraint."""


class Row(Struct, frozen=True, kw_only=True):
    """A run of either loop, as it is counted. `right`: every hidden check passes, whatever the run says."""

    task: str
    model: str
    loop: str
    done: bool
    right: bool
    ended: str
    replies: int
    valid: int
    tokens: int
    seconds: float

    @property
    def verdict(self) -> str:
        """`verified`, `false done`, or `not done`."""
        if not self.done:
            return "not done"
        return "verified" if self.right else "false done"


class BareRun(Struct, frozen=True):
    """A line of `bare.jsonl`: which trial, what was said, and how it is counted."""

    run_id: str
    texts: list[str]
    row: Row


def main() -> None:
    """Run what is left of the study, and show the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.study")
    parser.add_argument("models", nargs="+", metavar="URL#NAME")
    parser.add_argument("--store", required=True, type=Path)
    parser.add_argument("--loops", default="bare,plain", help=f"some of {','.join(LOOPS)}, with commas")
    parser.add_argument("--tasks", type=int, default=30, help="the first so many")
    parser.add_argument("--after", type=int, default=0, help="but not the very first so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", type=Path, help="write the table into this page")
    parser.add_argument("--show", action="store_true", help="only what is recorded: ask no model")
    given = parser.parse_args()
    loops = [LOOPS[word] for word in given.loops.split(",")]
    rows = asyncio.run(
        studied(
            given.models,
            given.store,
            loops,
            slice(given.after, given.tasks),
            seed=given.seed,
            asks=not given.show,
        )
    )
    text = "\n".join(tables(rows))
    if given.page is None:
        print(text)
        return
    put(given.page, "study", text)


async def studied(
    models: Sequence[str], folder: Path, loops: Sequence[str], which: slice, *, seed: int, asks: bool
) -> list[Row]:
    """The rows of all runs, in the order of the tasks; what is not recorded is run, if that is wanted."""
    suites = {loop: suite_for(loop, seed) for loop in loops}
    tasks = [task.id for task in read_suite(SUITE).tasks[which]]
    rows: list[Row] = []
    folder.mkdir(parents=True, exist_ok=True)
    backend = probe("auto").backend
    with open_store(folder) as store, Evaluation(read_suite(SUITE), store) as evaluation:
        for task in tasks:
            for loop, suite in suites.items():
                for trial in trials_of(suite, models=models, tasks=[task]):
                    if loop == BARE:
                        row = await bare(trial, suite, folder / "bare.jsonl", backend, asks=asks)
                    else:
                        row = await ours(trial, loop, evaluation, store, asks=asks)
                    if row is not None:
                        rows.append(row)
                        tell(row)
    return rows


def suite_for(loop: str, seed: int) -> Suite:
    """The suite as it ships, with what is asked of the model."""
    suite = read_suite(SUITE)
    model = MODEL | ({"response_format": "actions"} if loop == CONSTRAINED else {})
    patient = {**suite.settings["loop"], "model_request_timeout": 600.0, "preload": PRELOAD}
    if loop == CONSTRAINED:
        patient |= FOR_SMALL_MODELS
    return replace(suite, settings={**suite.settings, "loop": patient, "model": model}, seeds=(seed,))


async def ours(trial: Trial, loop: str, evaluation: Evaluation, store: RunStore, *, asks: bool) -> Row | None:
    """A run of our loop: the evaluation knows whether it was run, and judges it."""
    known = evaluation.known(trial)
    if known is None and asks:
        (known,) = await evaluation.run([trial], model_of=chosen_model, jobs=1, told=lambda score: None)
    return None if known is None else row_of(known, loop, store.path_of(trial.run_id))


def row_of(score: Score, loop: str, log: Path) -> Row:
    """How a run of ours is counted."""
    ended = score.outcome
    assert ended is not None
    times = [datetime.fromisoformat(record.event.ts) for record in read_log(log).records]
    return Row(
        task=score.trial.task.id,
        model=score.trial.label,
        loop=loop,
        done=ended.finish == "completed",
        right=all(item.passed for item in score.hidden),
        ended=ended.status,
        replies=ended.steps,
        valid=ended.actions,
        tokens=ended.usage.total_tokens,
        seconds=(times[-1] - times[0]).total_seconds(),
    )


async def bare(trial: Trial, suite: Suite, file: Path, backend: str, *, asks: bool) -> Row | None:
    """A run of the bare loop, recorded as a line of its file."""
    lines = file.read_bytes().splitlines() if file.exists() else []
    known = {line.run_id: line for line in (msgspec.json.decode(line, type=BareRun) for line in lines)}
    if trial.run_id in known or not asks:
        return known[trial.run_id].row if trial.run_id in known else None
    scratch = Path(tempfile.mkdtemp(prefix="stepfold-study-"))
    try:
        project = scratch / trial.task.id
        lay_out(suite, trial.task, project)
        started = time.monotonic()
        settings = trial.settings
        model: Any = resolve(trial.model, timeout=settings.loop.model_request_timeout)
        context = CallContext(workspace=Workspace(project), sandbox=backend, limits=settings.sandbox.limits)
        said = await bare_loop.run(
            model, trial.task.goal, context, settings.generation(), settings.loop.max_steps
        )
        await model.close()
        seconds = time.monotonic() - started
        hidden = await judged(trial.task, project, "", backend, settings)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if said.ended not in ("done", "step_cap"):
        print(f"{trial.task.id}: no reply: {said.ended}", flush=True)
        return None
    row = Row(
        task=trial.task.id,
        model=trial.label,
        loop=BARE,
        done=said.ended == "done",
        right=all(item.passed for item in hidden),
        ended=said.ended,
        replies=len(said.texts),
        valid=said.valid,
        tokens=said.tokens,
        seconds=seconds,
    )
    with file.open("ab") as opened:
        opened.write(msgspec.json.encode(BareRun(trial.run_id, said.texts, row)) + b"\n")
    return row


def tell(row: Row) -> None:
    """A line for whoever watches."""
    print(
        f"{row.task:<22} {row.model:<18} {row.loop:<22} {row.verdict:<10} {row.ended:<18}"
        f" {row.valid}/{row.replies} replies  {row.seconds:.0f} s",
        flush=True,
    )


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """The table, then the tasks one by one."""
    groups = {
        key: list(found)
        for key, found in groupby(sorted(rows, key=_place), key=lambda row: (row.model, row.loop))
    }
    yield (
        '| model | loop | tasks | replies that are actions | verified | false "done" | right, not said '
        "| replies a run | tokens a run | seconds a run | ended |"
    )
    yield f"| --- | --- |{' ---: |' * 8} --- |"
    for (model, loop), found in groups.items():
        count, replies = len(found), sum(row.replies for row in found)
        verdicts = Counter(row.verdict for row in found)
        right = sum(row.right and not row.done for row in found)
        ended = ", ".join(
            f"{times} {word}" for word, times in Counter(row.ended for row in found).most_common()
        )
        yield (
            f"| {model} | {loop} | {count} | {100 * sum(row.valid for row in found) / max(replies, 1):.1f} % "
            f"| {verdicts['verified']} | {verdicts['false done']} | {right} | {replies / count:.1f} "
            f"| {sum(row.tokens for row in found) / count:.0f} "
            f"| {sum(row.seconds for row in found) / count:.0f} | {ended} |"
        )
    yield ""
    yield f"| task | {' | '.join(f'{model}, {loop}' for model, loop in groups)} |"
    yield f"| --- |{' --- |' * len(groups)}"
    verdicts_of = {(row.task, row.model, row.loop): row.verdict for row in rows}
    for task in sorted({row.task for row in rows}):
        cells = [verdicts_of.get((task, *key), "") for key in groups]
        yield f"| {task} | {' | '.join('' if cell == 'not done' else cell for cell in cells)} |"


def _place(row: Row) -> tuple[str, int]:
    return row.model, list(LOOPS.values()).index(row.loop)


if __name__ == "__main__":
    main()
