"""`stepfold export`: recorded runs in the formats of other tools."""

import json
from pathlib import Path

import click

from stepfold.engine.cli.output import note, say, store_folder


@click.command(epilog="Example: stepfold export --parquet runs-parquet")
@click.option(
    "--parquet",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="A folder a view, partitioned by date and loop.",
)
@click.option("--store", metavar="DIR", help="Where runs are kept [STEPFOLD_STORE, else .stepfold].")
@click.option("--json", "for_machines", is_flag=True, help="JSON on stdout.")
def export(parquet: Path, store: str | None, for_machines: bool) -> None:
    """All runs of a store as Parquet, for any engine that reads it. DIR is written whole or not at all."""
    from stepfold.projections.sql.export import export_parquet
    from stepfold.projections.sql.relations import QueryError

    folder = store_folder(store)
    if not folder.is_dir():
        raise click.UsageError(f"{folder}: no store here; name one with --store")
    try:
        done = export_parquet(folder, parquet)
    except QueryError as error:
        raise click.UsageError(str(error)) from error
    if done.torn or done.unreadable:
        note(f"{done.torn} broken lines and {len(done.unreadable)} unreadable files are left out")
    if for_machines:
        click.echo(json.dumps({"folder": str(parquet), "rows": done.rows, "torn": done.torn}))
        return
    say(f"wrote     {parquet}  {', '.join(f'{count} {name}' for name, count in done.rows.items())}")
