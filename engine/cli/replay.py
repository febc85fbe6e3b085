"""`stepfold replay`: regenerate recorded runs without a model, and tell the first difference."""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from stepfold.engine.cli.output import note, say
from stepfold.engine.cli.reading import chosen_store, is_there
from stepfold.engine.runtime.replay import Replay
from stepfold.engine.runtime.replay import replay as replay_trace
from stepfold.engine.studies.spread import ALONE_AT_MOST, PLACES, Place, over_traces

EXIT_CODES = {"identical": 0, "unreadable": 2, "diverged": 3}
Verdict = TypeVar("Verdict")
LONGEST_SHOWN = 200

ON = click.option(
    "--on",
    "place",
    type=click.Choice(PLACES),
    default="cores",
    help="Where the work is done: this machine's cores, or a Ray cluster [cores].",
)
"""Of every command that works on many things."""


@click.command(epilog="Example: stepfold replay replay_fixtures/*/log.jsonl")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE…")
@click.option("--store", metavar="DIR", help="Where runs are kept [STEPFOLD_STORE, else .stepfold].")
@ON
@click.option("--json", "for_machines", is_flag=True, help="One JSON object a trace.")
def replay(traces: tuple[str, ...], store: str | None, place: Place, for_machines: bool) -> int:
    """Regenerate each TRACE (a file, a folder of them, or a run's id) and compare it byte for byte.

    Exit codes: 0 all identical, 3 one diverged, 2 one is unreadable and none diverged.
    """
    files = trace_files(traces, store)
    counts: Counter[str] = Counter()
    for verdict in with_progress(over_traces(place, replay_trace, files), len(files)):
        counts[verdict.verdict] += 1
        if for_machines:
            click.echo(json.dumps(verdict.as_json()))
        else:
            _show(verdict)
    if len(files) > 1 and not for_machines:
        say(f"{len(files)} traces: {', '.join(f'{counts[verdict]} {verdict}' for verdict in EXIT_CODES)}")
    return max(EXIT_CODES[verdict] for verdict in counts)


def with_progress(verdicts: Iterable[Verdict], count: int) -> Iterator[Verdict]:
    """Hand on what is told of each trace; on a terminal, stderr says how many of many are done."""
    watched = count > ALONE_AT_MOST and sys.stderr.isatty()
    for done, verdict in enumerate(verdicts, start=1):
        # Cleared before the verdict is printed, so that the two never share a line.
        if watched:
            click.echo("\r\x1b[K", nl=False, err=True)
        yield verdict
        if watched and done < count:
            click.echo(f"\r{done} of {count} traces", nl=False, err=True)


def trace_files(traces: Sequence[str], store: str | None) -> list[Path]:
    """The files named by path, by folder, or by a run's id. Raises UsageError when there is none."""
    found: list[Path] = []
    for trace in traces:
        path = Path(trace)
        if path.is_dir():
            found.extend(_below(path))
        elif path.exists() or path.suffix == ".jsonl" or not is_there(store):
            found.append(path)
        else:
            with chosen_store(store) as opened:
                found.append(opened.path_of(opened.find(trace)))
    if not found:
        raise click.UsageError(f"no *.jsonl below {', '.join(traces)}")
    return found


def _below(folder: Path) -> list[Path]:
    """The traces in a folder, however deep. What may not be looked into, or is gone again, is passed over."""
    return sorted(
        path
        for where, _, names in os.walk(folder)
        for name in names
        if name.endswith(".jsonl") and (path := Path(where, name)).is_file()
    )


def _show(verdict: Replay) -> None:
    match verdict.verdict:
        case "identical":
            say(f"identical   {verdict.trace}  {verdict.events} events", fg="green")
        case "diverged":
            if verdict.damaged is not None:
                say(
                    f"damaged     {verdict.trace}  line {verdict.damaged['line']}: {verdict.damaged['why']}",
                    fg="red",
                )
            say(
                f"diverged    {verdict.trace}  at seq {verdict.seq}, {verdict.kind}.{verdict.field}", fg="red"
            )
            say(f"  recorded  {_shown(verdict.recorded)}")
            say(f"  computed  {_shown(verdict.computed)}")
            if verdict.row is not None:
                was, now = (verdict.row[side] or "none" for side in ("recorded", "computed"))
                say(f"  row       recorded {was}, computed {now}")
            say(f"  caused by {_shown(verdict.caused_by)}")
            if verdict.engine is not None:
                say(f"  engine    recorded by {verdict.engine['recorded']}, this is {verdict.engine['this']}")
        case _ if verdict.imported and verdict.damaged is None:
            say(f"imported    {verdict.trace}  {verdict.why}", fg="yellow")
        case _:
            say(f"unreadable  {verdict.trace}  line {verdict.line}: {verdict.why}", fg="red")
    if verdict.torn_bytes:
        note(f"{verdict.trace}: the last line is torn ({verdict.torn_bytes} bytes) and was left out")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}… ({len(text)} characters)"
