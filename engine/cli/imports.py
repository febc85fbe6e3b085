"""`stepfold import`: other programs' traces into runs of the store."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from stepfold.engine.cli.output import note, say
from stepfold.engine.cli.reading import chosen_store
from stepfold.engine.studies.imports.formats import FORMATS
from stepfold.engine.studies.imports.importing import Imported, ImportFailed, import_file

UNREADABLE = 2


@click.command("import", epilog="Example: stepfold import auto session.jsonl")
@click.argument("name", metavar="FORMAT", type=click.Choice(["auto", *FORMATS]))
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--store", metavar="DIR", help="Where runs are kept [STEPFOLD_STORE, else .stepfold].")
@click.option("--json", "for_machines", is_flag=True, help="One JSON object a run.")
def import_traces(name: str, files: tuple[str, ...], store: str | None, for_machines: bool) -> int:
    """Take in the runs of each FILE as runs of the store. FORMAT `auto` tells it by what is in the file.

    A file that was imported before is not imported twice. The formats: sweagent, mini_swe_agent, inspect,
    openhands, pi, codex_tui, tau_bench, toolbench, react_text, who_when, burr.

    Exit codes: 0 all imported, 2 a file can't be read or is of no known format.
    """
    code = 0
    count = 0
    with chosen_store(store) as opened:
        for file in files:
            try:
                for imported in _with_progress(import_file(opened, Path(file), name), file):
                    count += 1
                    _show(imported, for_machines)
            except ImportFailed as error:
                note(f"stepfold: {error}")
                code = UNREADABLE
    if count > 1 and not for_machines:
        say(f"{count} runs: look at one with `stepfold show RUN`, at all with `stepfold sql`")
    return code


def _with_progress(runs: Iterator[Imported], file: str) -> Iterator[Imported]:
    if not sys.stderr.isatty():
        yield from runs
        return
    click.echo(f"reading {Path(file).name}", nl=False, err=True)
    try:
        first = next(runs, None)
    finally:
        # Cleared before a run, or what is wrong, is printed, so that the two never share a line.
        click.echo("\r\x1b[K", nl=False, err=True)
    if first is not None:
        yield first
        yield from runs


def _show(run: Imported, for_machines: bool) -> None:
    if for_machines:
        click.echo(json.dumps(run.as_json()))
        return
    counts, ended = run.counts, run.ended
    again = "  imported already" if run.again else ""
    say(f"{run.run_id}  {run.format}  {run.name}{again}", bold=True)
    say(
        f"  {counts.turns} turns, {counts.calls} calls, {counts.results} results, {counts.errors} errors, "
        f"{counts.rejected} rejected; {counts.events} events"
    )
    inferred = f" (inferred: {ended.inferred})" if ended.inferred else ""
    say(f"  ended: {ended.end_as_recorded} -> {ended.status or 'unfinished'}{inferred}")
    for found in ended.findings:
        where = f" at {', '.join(found.where)}" if found.where else ""
        more = ", …" if len(found.where) < found.count and found.where else ""
        say(
            f"  found: {found.count} × {found.what}{where}{more}{f': {found.detail}' if found.detail else ''}"
        )
    if ended.unmapped:
        say(f"  unmapped: {', '.join(f'{tally.count} × {tally.what}' for tally in ended.unmapped)}")
