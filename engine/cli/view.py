"""`stepfold view`: recorded runs as one page that opens from disk."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from stepfold.engine.cli.output import counted, note, say
from stepfold.engine.cli.reading import located, read_noting
from stepfold.engine.cli.run import as_it_stands
from stepfold.engine.studies.audit import Auditor, by_guard
from stepfold.engine.studies.difference import difference
from stepfold.engine.studies.page.document import document
from stepfold.engine.studies.page.told import RunTold
from stepfold.events.drafts import drafted
from stepfold.events.journal import NO_EVENT, LogError, damaged_records_of
from stepfold.events.vocabulary import AnyEvent, Unknown
from stepfold.projections.ending import why
from stepfold.projections.outcome import outcome

EVENTS_BETWEEN_NOTES = 20_000


@click.command(epilog="Example: stepfold view last -o page.html")
@click.argument("run_ids", nargs=-1, required=True, metavar="RUN…")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("page.html"),
    show_default=True,
    help="The file to write.",
)
@click.option("--store", metavar="DIR", help="Where runs are kept [STEPFOLD_STORE, else .stepfold].")
def view(run_ids: tuple[str, ...], output: Path, store: str | None) -> None:
    """Runs as one self-contained page: why each ended, its steps, what the model saw, its path.

    RUN is an id, its start, `last`, or a trace file; two of them are shown side by side. The page
    needs no network and loads nothing.
    """
    found = [located(name, store) for name in run_ids]
    traces = [one.trace for one in found]
    runs, auditor = [], Auditor()
    for trace, _, _, running in found:
        reading = RunTold()
        audit = auditor.audit(_read(trace, reading))
        if not reading.run.seq:
            raise LogError(trace, NO_EVENT)
        result = as_it_stands(outcome(reading.run), running)
        runs.append({**reading.data(result, why(result), trace.name), "audit": by_guard(audit)})
    parts = None
    if len(traces) == 2:
        a, b = ((record.event for record in damaged_records_of(trace, [])) for trace in traces)
        parts = difference(a, b).step
    page = document(runs, parts)
    _write(output, page)
    shown = counted(len(runs), "run", "runs")
    say(f"wrote     {output}  {shown}, {output.stat().st_size:,} bytes")


def _read(trace: Path, reading: RunTold) -> Iterator[AnyEvent | Unknown]:
    """The events of a trace, each told on its way: what is wrong with it is noted once."""
    watched = sys.stderr.isatty()
    for record in read_noting(trace):
        reading.take(record.event)
        if watched and record.event.seq and record.event.seq % EVENTS_BETWEEN_NOTES == 0:
            note(f"{trace.name}: {record.event.seq:,} events")
        yield record.event


def _write(output: Path, page: str) -> None:
    """Write the whole page or nothing. Raises ClickException."""
    try:
        with drafted(output) as draft:
            draft.write_text(page, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(
            f"{output}: can't be written: {error.strerror}; name another with -o"
        ) from error
