"""`stepfold export`: runs in other people's formats."""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from stepfold.engine.cli.output import note, raw, say
from stepfold.engine.cli.reading import existing_store, located, read_noting
from stepfold.engine.studies.exports.atif import trajectory
from stepfold.engine.studies.exports.openai_messages import messages
from stepfold.engine.studies.exports.otel import spans
from stepfold.events.vocabulary import AnyEvent, Unknown

Events = Iterable[AnyEvent | Unknown]
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
SECONDS = 30


@click.command(epilog="Example: stepfold export last --openai messages.json")
@click.argument("runs", nargs=-1, metavar="[RUN…]")
@click.option("--atif", metavar="FILE", help="An ATIF 1.7 trajectory; with several runs an array of them.")
@click.option("--otel", metavar="FILE|URL", help="OpenTelemetry GenAI spans, as OTLP JSON.")
@click.option("--openai", metavar="FILE", help="OpenAI's chat messages; with several runs an array of lists.")
@click.option(
    "--parquet",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="All runs of the store, a folder a view, partitioned by date and loop.",
)
@click.option("--store", metavar="DIR", help="Where runs are kept [STEPFOLD_STORE, else .stepfold].")
@click.option("--json", "for_machines", is_flag=True, help="With --parquet: JSON on stdout.")
def export(
    runs: tuple[str, ...],
    atif: str | None,
    otel: str | None,
    openai: str | None,
    parquet: Path | None,
    store: str | None,
    for_machines: bool,
) -> int:
    """Write each RUN in another format. RUN is an id, its start, `last`, or a trace file. FILE - is stdout.

    --parquet takes the whole store, for any engine that reads it; DIR is written whole or not at all.

    Spans hold times, tokens and names, and no texts. An endpoint is that of OTLP over HTTP; its headers are
    read from OTEL_EXPORTER_OTLP_HEADERS.
    """
    if not (atif or otel or openai or parquet):
        raise click.UsageError("say what to write: --atif FILE, --otel FILE, --openai FILE or --parquet DIR")
    if parquet is not None:
        _write_parquet(parquet, store, runs, for_machines)
    if not (atif or otel or openai):
        return 0
    if not runs:
        raise click.UsageError("name the runs: an id, its start, `last`, or a trace file")
    logs = [_events(located(run, store).trace) for run in runs]
    if atif:
        _write(atif, _each(logs, trajectory))
    if openai:
        _write(openai, _each(logs, messages))
    if otel:
        made = [spans(events) for events in logs]
        whole = {"resourceSpans": [one for each in made for one in each["resourceSpans"]]}
        if urlsplit(otel).scheme in {"http", "https"}:
            _send(otel, whole)
        else:
            _write(otel, whole)
    return 0


def _write_parquet(parquet: Path, store: str | None, runs: tuple[str, ...], for_machines: bool) -> None:
    from stepfold.projections.sql.export import export_parquet
    from stepfold.projections.sql.relations import QueryError

    if runs:
        raise click.UsageError("--parquet takes all runs of a store: name none")
    try:
        with existing_store(store) as opened:
            done = export_parquet(opened.logs(), parquet)
    except QueryError as error:
        raise click.UsageError(str(error)) from error
    if done.torn or done.unreadable:
        note(f"{done.torn} broken lines and {len(done.unreadable)} unreadable files are left out")
    if for_machines:
        click.echo(json.dumps({"folder": str(parquet), "rows": done.rows, "torn": done.torn}))
        return
    say(f"wrote     {parquet}  {', '.join(f'{count} {name}' for name, count in done.rows.items())}")


def _events(trace: Path) -> Events:
    """Read once, for all formats: what is wrong with a trace is noted once."""
    return tuple(record.event for record in read_noting(trace))


def _each(logs: list[Events], made: Callable[[Events], Any]) -> Any:
    try:
        found = [made(events) for events in logs]
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return found if len(found) > 1 else found[0]


def _write(name: str, tree: Any) -> None:
    data = _json(tree, 1) + b"\n"
    if name == "-":
        raw(data)
        return
    Path(name).write_bytes(data)
    note(f"written   {name}")


def _json(tree: Any, indent: int | None) -> bytes:
    """As UTF-8. Half a surrogate pair, which that can't hold, becomes a question mark."""
    return json.dumps(tree, indent=indent, ensure_ascii=False).encode("utf-8", "replace")


def _send(url: str, tree: Any) -> None:
    from urllib.request import Request, urlopen

    target = url if urlsplit(url).path.strip("/") else url.rstrip("/") + "/v1/traces"
    pairs = (pair.partition("=") for pair in os.environ.get(HEADERS, "").split(",") if "=" in pair)
    headers = {name.strip(): value.strip() for name, _, value in pairs}
    request = Request(
        target, _json(tree, None), {"Content-Type": "application/json", **headers}, method="POST"
    )
    try:
        with urlopen(request, timeout=SECONDS) as answer:
            note(f"sent      {target} ({answer.status})")
    except OSError as error:
        raise click.UsageError(f"{target}: took no spans: {getattr(error, 'reason', error)}") from error
