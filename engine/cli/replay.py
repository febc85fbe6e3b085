"""`stepfold replay`: regenerate recorded runs without a model, and tell the first difference."""

import json
from pathlib import Path
from typing import Any

import click

from stepfold.engine.cli.output import note, say, store_folder
from stepfold.engine.runtime.replay import Replay
from stepfold.engine.runtime.replay import replay as replay_trace
from stepfold.events.store import Store

_EXIT = {"identical": 0, "unreadable": 2, "diverged": 3}
LONGEST_SHOWN = 200


@click.command(epilog="Example: stepfold replay replay_fixtures/*/log.jsonl")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE…")
@click.option("--store", metavar="DIR", help="Where runs are kept [STEPFOLD_STORE, else .stepfold].")
@click.option("--json", "for_machines", is_flag=True, help="One JSON object a trace.")
def replay(traces: tuple[str, ...], store: str | None, for_machines: bool) -> int:
    """Regenerate each TRACE (a file, a folder of them, or a run's id) and compare it byte for byte.

    Exit codes: 0 all identical, 3 one diverged, 2 one is unreadable.
    """
    worst = 0
    for trace in _files(traces, store):
        verdict = replay_trace(trace)
        worst = max(worst, _EXIT[verdict.verdict])
        if for_machines:
            click.echo(json.dumps(verdict.as_json()))
        else:
            _show(verdict)
    return worst


def _files(traces: tuple[str, ...], store: str | None) -> list[Path]:
    found: list[Path] = []
    for trace in traces:
        path = Path(trace)
        if path.is_dir():
            found.extend(sorted(path.rglob("*.jsonl")))
        elif path.exists() or path.suffix == ".jsonl" or not store_folder(store).is_dir():
            found.append(path)
        else:
            with Store(store_folder(store)) as opened:
                found.append(opened.path_of(opened.find(trace)))
    if not found:
        raise click.UsageError(f"no *.jsonl below {', '.join(traces)}")
    return found


def _show(verdict: Replay) -> None:
    match verdict.verdict:
        case "identical":
            say(f"identical   {verdict.trace}  {verdict.events} events", fg="green")
        case "diverged":
            say(
                f"diverged    {verdict.trace}  at seq {verdict.seq}, {verdict.kind}.{verdict.field}", fg="red"
            )
            say(f"  recorded  {_shown(verdict.recorded)}")
            say(f"  computed  {_shown(verdict.computed)}")
            say(f"  caused by {_shown(verdict.caused_by)}")
        case _:
            say(f"unreadable  {verdict.trace}  line {verdict.line}: {verdict.why}", fg="red")
    if verdict.torn_bytes:
        note(f"{verdict.trace}: the last line is torn ({verdict.torn_bytes} bytes) and was left out")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}… ({len(text)} characters)"
