"""`stepfold runs`, `show` and `prompt`: looking at what is recorded."""

import json
import math
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from stepfold.engine.cli.output import counted, note, raw, say, visible_line
from stepfold.engine.cli.reading import existing_store, fold_file, fold_noting, located, read_noting
from stepfold.engine.cli.run import OPEN, as_it_stands, open_status, outcome_json, show_outcome
from stepfold.engine.models.protocol import body
from stepfold.engine.runtime.requests import recorded_request
from stepfold.events.journal import LogError
from stepfold.events.run_store import RunStore
from stepfold.projections.outcome import LoopOutcome, goal_of, outcome

_STORE = click.option("--store", metavar="DIR", help="Where runs are kept [STEPFOLD_STORE, else .stepfold].")
_JSON = click.option("--json", "for_machines", is_flag=True, help="JSON on stdout.")


@click.command(epilog="Example: stepfold runs --json")
@_STORE
@_JSON
def runs(store: str | None, for_machines: bool) -> None:
    """List the runs of the store, oldest first."""
    with existing_store(store) as opened:
        rows = [_as_it_stands(opened, summary_of(opened, run_id)) for run_id in opened.run_ids()]
    if for_machines:
        click.echo(json.dumps(rows))
        return
    if not rows:
        say('no runs yet: `stepfold run "GOAL"` makes one, `stepfold demo` shows one')
        return
    for line in _table(rows, _columns()):
        say(line)


def _columns() -> int | None:
    """How wide the terminal is; None for an output that is none, where nothing has to be cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


_LONGEST_GOAL = 60
_GOAL_AT_LEAST = 12


def _table(rows: Sequence[dict[str, Any]], width: int | None) -> Iterator[str]:
    """The rows below their heads, as wide as what stands in them. An id is never cut, for it is what a person
    copies: the goal is, and what counts less than it is left out where there is no room.
    """
    counts = ["steps", "actions", "rejected"]
    words = [row["status"] if row["status"] in OPEN else row["finish"] for row in rows]
    id_width = max(len("run"), *(len(visible_line(row["run_id"])) for row in rows))
    word_width = max(len("finish"), *map(len, words))

    def left() -> float:
        taken = id_width + word_width + sum(len(name) + 1 for name in counts) + 3
        return (math.inf if width is None else width) - taken

    while left() < _GOAL_AT_LEAST and counts:
        counts.pop()
    room = None if width is None else max(int(left()), _GOAL_AT_LEAST)
    heads = " ".join(["finish".ljust(word_width), *counts])
    yield f"{'run':<{id_width}} {heads}  goal"
    for row, word in zip(rows, words, strict=True):
        cells = " ".join([word.ljust(word_width), *(f"{row[name]:>{len(name)}}" for name in counts)])
        goal = f"{_origin(row)}{visible_line(row['goal'])[:_LONGEST_GOAL]}"[:room]
        yield f"{visible_line(row['run_id']):<{id_width}} {cells}  {goal}".rstrip()


def _origin(row: dict[str, Any]) -> str:
    """Where a run comes from that nobody started by itself."""
    if row.get("parent"):
        return f"[worker of {row['parent']}] "
    return f"[fork of {row['source']} at {row['source_seq']}] " if row.get("source") else ""


def _as_it_stands(store: RunStore, row: dict[str, Any]) -> dict[str, Any]:
    if row["status"] != "unfinished":
        return row
    return {**row, "status": open_status(store.is_being_written(row["run_id"]))}


@click.command(epilog="Example: stepfold show last")
@click.argument("run_id", metavar="RUN")
@_STORE
@_JSON
def show(run_id: str, store: str | None, for_machines: bool) -> None:
    """Why did RUN end? Its outcome and its transcript. RUN is an id, its start, `last`, or a trace file."""
    found = located(run_id, store)
    result = as_it_stands(outcome(fold_noting(found.trace)), found.running)
    if for_machines:
        click.echo(json.dumps(outcome_json(result, found.trace, found.store)))
        return
    show_outcome(result)
    say(f"log       {found.trace}")
    say()
    say(result.transcript)


@click.command(epilog="Example: stepfold prompt last --step 3")
@click.argument("run_id", metavar="RUN")
@click.option("--step", type=click.IntRange(1), metavar="N", help="Which step, from 1.")
@_STORE
@_JSON
def prompt(run_id: str, step: int | None, store: str | None, for_machines: bool) -> None:
    """Exactly what the model was sent at step N of RUN, rebuilt from the log alone.

    The digest of what is rebuilt is compared with the one recorded. Exit code 3 when they differ.
    """
    trace = located(run_id, store).trace
    if step is None:
        raise click.UsageError(f"which step? {_steps_of(trace)}: name one with --step N")
    rebuilt = recorded_request((record.event for record in read_noting(trace)), step)
    if rebuilt is None:
        raise click.UsageError(f"{trace}: the model was asked nothing at step {step}; {_steps_of(trace)}")
    tree = body(rebuilt.request)
    if for_machines:
        head = {"run_id": rebuilt.run_id, "step": step, "digest": rebuilt.digest, "agrees": rebuilt.agrees}
        click.echo(json.dumps({**head, "request": tree}))
    elif rebuilt.request.generation.mode == "text":
        raw(rebuilt.request.messages[0].content.encode("utf-8", "backslashreplace"))
    else:
        click.echo(json.dumps(tree, indent=2))
    if not rebuilt.agrees:
        note(f"the rebuilt request has another digest than the recorded {rebuilt.digest}")
        raise SystemExit(3)


def _steps_of(trace: Path) -> str:
    return f"the run has {counted(fold_file(trace).step, 'step', 'steps')}"


def summary_of(store: RunStore, run_id: str) -> dict[str, Any]:
    """One row of `stepfold runs`: cached, or folded and cached if the log has grown since."""
    cached = store.summary(run_id)
    if cached is not None:
        row: dict[str, Any] = json.loads(cached)
        return row
    try:
        run = fold_file(store.path_of(run_id))
    except LogError as error:
        return _row(run_id, "unreadable", error.why)
    result: LoopOutcome = outcome(run)
    row = {
        **_row(run_id, result.finish, goal_of(run)),
        "loop": run.loop,
        "parent": run.parent,
        "source": run.source,
        "source_seq": run.source_seq,
        "status": result.status,
        "steps": result.steps,
        "actions": result.actions,
        "rejected": result.rejected,
        "started": run.started_ts,
        "ended": run.ts,
    }
    store.keep_summary(run_id, json.dumps(row))
    return row


def _row(run_id: str, finish: str, goal: str) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "loop": "",
        "parent": "",
        "source": "",
        "source_seq": 0,
        "goal": goal,
        "finish": finish,
        "status": finish,
        "steps": 0,
        "actions": 0,
        "rejected": 0,
        "started": "",
        "ended": "",
    }
