"""`stepfold diff` and `stepfold judge`: questions asked of recorded runs, without a model."""

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import click

from stepfold.engine.cli.output import note, say
from stepfold.engine.cli.reading import located, read_noting
from stepfold.engine.cli.replay import ON, trace_files, with_progress
from stepfold.engine.studies.difference import Difference, difference
from stepfold.engine.studies.judge import Ending, Judgement
from stepfold.engine.studies.judge import judge as judge_run
from stepfold.engine.studies.spread import Place, over_traces
from stepfold.events.journal import LogError

_STORE = click.option("--store", metavar="DIR", help="Where runs are kept [STEPFOLD_STORE, else .stepfold].")
_JSON = click.option("--json", "for_machines", is_flag=True, help="JSON on stdout.")
LONGEST_SHOWN = 400
UNREADABLE = 2


@click.command(epilog="Example: stepfold diff 01JM last")
@click.argument("run_a", metavar="RUN")
@click.argument("run_b", metavar="RUN")
@_STORE
@_JSON
def diff(run_a: str, run_b: str, store: str | None, for_machines: bool) -> int:
    """Two runs side by side from their first difference, then the totals that differ.

    RUN is an id, its start, `last`, or a trace file. Ids, times and durations are not compared.
    Exit codes: 0 equal, 1 different, 2 unreadable.
    """
    traces = [located(name, store).trace for name in (run_a, run_b)]
    a, b = ([record.event for record in read_noting(trace)] for trace in traces)
    found = difference(a, b)
    if for_machines:
        click.echo(json.dumps({"a": a[0].run_id, "b": b[0].run_id, **found.as_json()}))
    else:
        _show_difference(a[0].run_id, b[0].run_id, found)
    return 0 if found.is_empty else 1


def _show_difference(a: str, b: str, found: Difference) -> None:
    if found.is_empty:
        say(f"equal     {a} and {b} did the same", fg="green")
        return
    say(f"a         {a}")
    say(f"b         {b}")
    if found.step is None:
        say("the steps are the same")
    elif found.what == "length":
        say(f"from step {found.step} on only one of them goes on: a has {found.a} steps, b has {found.b}")
    else:
        say(f"first difference at step {found.step}, {found.what}:", bold=True)
        for side, value in (("a", found.a), ("b", found.b)):
            say(f"  {side}  {_shown(value)}")
    if found.totals:
        say(f"{'total':<28} {'a':>16} {'b':>16}")
    for name, (left, right) in found.totals.items():
        say(f"{name:<28} {_cell(left):>16} {_cell(right):>16}")


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return "0" if value is None else str(value)


def _shown(value: Any) -> str:
    text = "\n     ".join("\n".join(value).splitlines()) if isinstance(value, tuple) else str(value)
    if len(text) > LONGEST_SHOWN:
        return f"{text[:LONGEST_SHOWN]}… ({len(text)} characters)"
    return text or "nothing"


@click.command(epilog="Example: stepfold judge .stepfold/runs --set loop.max_steps=8")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE…")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="As in stepfold.toml; repeatable."
)
@_STORE
@ON
@_JSON
def judge(
    traces: tuple[str, ...], settings: tuple[str, ...], store: str | None, place: Place, for_machines: bool
) -> int:
    """What if? The recorded replies under other caps, policies or options: which runs would end elsewhere.

    TRACE is a file, a folder of them, or a run's id. Where a run would go on with what nobody recorded,
    its end is unknown, and said to be. Exit codes: 0 judged, 2 unreadable or a setting that isn't one.
    """
    counts: Counter[str] = Counter()
    code = 0
    files = trace_files(traces, store)
    judged = over_traces(place, partial(_judged, settings=settings), files)
    for judgement in with_progress(judged, len(files)):
        if isinstance(judgement, str):
            note(judgement)
            code = UNREADABLE
            continue
        verdict = _verdict(judgement)
        counts[verdict] += 1
        if for_machines:
            click.echo(json.dumps(judgement.as_json()))
        else:
            _show_judgement(judgement, verdict)
    if not for_machines:
        told = {"other": "would end elsewhere", "unknown": "unknown", "same": "the same"}
        parts = ", ".join(f"{counts[verdict]} {words}" for verdict, words in told.items())
        say(f"{counts.total()} run{'s' if counts.total() != 1 else ''}: {parts}")
    return code


def _judged(path: Path, settings: tuple[str, ...]) -> Judgement | str:
    """One judgement, or why there is none."""
    try:
        return judge_run(tuple(read_noting(path)), settings)
    except LogError as error:
        return str(error)


_COLOURS = {"other": "yellow", "unknown": "magenta", "same": "green"}


def _verdict(judgement: Judgement) -> str:
    if not judgement.changed:
        return "same"
    return "unknown" if judgement.would.finish is None else "other"


def _show_judgement(judgement: Judgement, verdict: str) -> None:
    text = f"{verdict:<8}  {judgement.run_id}  {_ending(judgement.recorded)}"
    if verdict != "same":
        text += f" -> {_ending(judgement.would)}; first other decision at seq {judgement.seq}"
    say(text, fg=_COLOURS[verdict])


def _ending(ending: Ending) -> str:
    if ending.finish is None:
        return f"unknown from step {ending.step} on"
    return f"{ending.finish} at step {ending.step}{f' ({ending.guard})' if ending.guard else ''}"
