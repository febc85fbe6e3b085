"""`stepfold sql`: questions to all runs of a store."""

import csv
import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from stepfold.engine.cli.output import store_address, visible_line
from stepfold.engine.cli.reading import is_there
from stepfold.events.store import open_store

if TYPE_CHECKING:
    from stepfold.projections.sql.relations import Relations, Table

WIDEST_CELL = 60
"""Characters of a table's cell; the other formats never cut."""

MOST_ROWS = 1000
"""Rows of a table, which is for reading; the other formats give all."""

PROMPT_HELP = "a query ends with ; or a blank line · @RECIPE · .recipes · .schema · .quit"


@click.command(
    "sql", epilog='Example: stepfold sql "SELECT run_id, status, steps FROM runs ORDER BY started"'
)
@click.argument("query", required=False)
@click.option("--store", metavar="DIR", help="Where runs are kept [STEPFOLD_STORE, else .stepfold].")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json", "parquet"]),
    default="table",
    show_default=True,
)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="The file to write to.")
@click.option("--recipes", is_flag=True, help="List the named queries.")
@click.option("--schema", is_flag=True, help="List the views and what their columns mean.")
@click.option("--open-files", is_flag=True, help="Let queries read and write other files.")
def sql(
    query: str | None,
    store: str | None,
    form: str,
    output: Path | None,
    recipes: bool,
    schema: bool,
    open_files: bool,
) -> None:
    """Ask all runs of a store in SQL (DuckDB), or by the name of a recipe: @RECIPE.

    Without QUERY: a prompt on a terminal, else the query is read from standard input. A query sees
    the views and no file, unless --open-files says so.
    """
    if recipes:
        return _list_recipes()
    if schema:
        return _list_views()
    if form == "parquet" and output is None:
        raise _usage("--format parquet needs --output FILE")
    prompting = query is None and sys.stdin.isatty()
    asked = None if prompting else _meant(sys.stdin.read() if query is None else query)
    relations = _opened(store, output, open_files)
    if asked is None:
        return _prompt(relations)
    return _answer(relations, asked, form, output)


def _opened(store: str | None, output: Path | None, open_files: bool) -> "Relations":
    if not is_there(store):
        raise _usage(f"{store_address(store)}: no store here; name one with --store, or start a run first")
    from stepfold.projections.sql.relations import open_relations, open_unguarded

    address = store_address(store)
    logs = address if isinstance(address, Path) else _copied(address)
    relations = open_unguarded(logs) if open_files else open_relations(logs, output=output)
    for file in relations.unreadable:
        click.echo(f"left out: {visible_line(file)}", err=True)
    if relations.torn:
        note = "left out; see them with: SELECT * FROM torn_lines"
        click.echo(f"{relations.torn} broken line(s) {note}", err=True)
    return relations


def _copied(address: str) -> Path:
    with open_store(address) as opened:
        return opened.logs()


def _meant(query: str) -> str:
    """The SQL of what was asked: a recipe's, or the text itself."""
    asked = query.strip()
    if not asked:
        raise _usage("no query; give one, a recipe (see --recipes), or run on a terminal for a prompt")
    if not asked.startswith("@"):
        return asked
    from stepfold.projections.sql.recipes import BY_NAME

    name = asked[1:].rstrip("; \n")
    if name in BY_NAME:
        return BY_NAME[name].query
    near = get_close_matches(name, BY_NAME, 1)
    hint = f"did you mean @{near[0]}?" if near else "see --recipes"
    raise _usage(f"@{visible_line(name)}: no such recipe; {hint}")


def _answer(relations: "Relations", query: str, form: str, output: Path | None) -> None:
    from stepfold.projections.sql.relations import QueryError

    try:
        if "guard_audit" in query.lower():
            relations.fill_guard_audit(_guards_of(relations.store))
        if form == "parquet" and output is not None:
            return relations.write_parquet(query.rstrip("; \n"), output)
        table = relations.query(query)
        if output is None:
            return _write(table, form, sys.stdout)
        with output.open("w", encoding="utf-8", newline="") as file:
            return _write(table, form, file)
    except QueryError as error:
        raise _usage(visible_line(str(error))) from None
    except OSError as error:
        raise _usage(f"{output}: can't write ({error.strerror})") from None


def _guards_of(store: Path) -> list[tuple[str, str, str, str, int, int]]:
    """Every run of the store, decided again."""
    from stepfold.engine.cli.audit import audits_of

    return [row for audit in audits_of(sorted((store / "runs").glob("*.jsonl"))) for row in audit.rows()]


def _write(table: "Table", form: str, out: IO[str]) -> None:
    match form:
        case "csv":
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(table.names)
            writer.writerows(table.rows)
        case "json":
            _write_json(table, out)
        case _:
            for line in table_lines(table):
                print(line, file=out)


def _write_json(table: "Table", out: IO[str]) -> None:
    names = _distinct(table.names)
    before = "["
    for row in table.rows:
        values = [_json_value(value, kind) for value, kind in zip(row, table.types, strict=True)]
        item = dict(zip(names, values, strict=True))
        out.write(before + "\n" + json.dumps(item, ensure_ascii=False, default=str))
        before = ","
    out.write("[]\n" if before == "[" else "\n]\n")


def _distinct(names: Sequence[str]) -> list[str]:
    """The names of columns as keys of an object: a later one of the same name is numbered, as DuckDB does."""
    found: list[str] = []
    for name in names:
        number, key = 0, name
        while key in found:
            number += 1
            key = f"{name}_{number}"
        found.append(key)
    return found


def _json_value(value: Any, kind: str = "") -> Any:
    match value:
        case str() if kind == "JSON":
            return json.loads(value)
        case float() | Decimal():
            # JSON has no word for what is not finite.
            return float(value) if math.isfinite(value) else None
        case list() | tuple():
            return [_json_value(item) for item in value]
        case dict():
            return {str(key): _json_value(item) for key, item in value.items()}
        case bytes():
            return value.hex()
        case _ if hasattr(value, "isoformat"):
            return value.isoformat()
        case _:
            return value


def table_lines(table: "Table") -> Iterator[str]:
    """A result for a terminal: one line a row, control characters visible, long cells cut."""
    rows: list[list[str]] = []
    more = False
    for row in table.rows:
        if len(rows) == MOST_ROWS:
            more = True
            break
        rows.append([_cell(value) for value in row])
    # A name may come from the data (a pivot), so it is no safer than a cell.
    names = [_cell(name) for name in table.names]
    widths = [max(map(_width, column)) for column in zip(names, *rows, strict=True)]
    for line in (names, ["-" * width for width in widths], *rows):
        yield "  ".join(
            cell + " " * (w - _width(cell)) for cell, w in zip(line, widths, strict=True)
        ).rstrip()
    if more:
        yield f"… more than {MOST_ROWS} rows: add a LIMIT, or take --format csv"


def _cell(value: Any) -> str:
    text = visible_line("" if value is None else str(value))
    return text if len(text) <= WIDEST_CELL else f"{text[: WIDEST_CELL - 1]}…"


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _list_recipes() -> None:
    from stepfold.projections.sql.recipes import RECIPES

    for recipe in RECIPES:
        click.echo(f"@{recipe.name}\n    {recipe.answers}\n    {recipe.example}")


def _list_views() -> None:
    from stepfold.projections.sql.relations import DOCUMENTED

    for view in DOCUMENTED:
        click.echo(f"{view.name}: {view.comment}")
        for column, comment in view.columns.items():
            click.echo(f"    {column:<16} {comment}")


def _prompt(relations: "Relations") -> None:
    """Query after query until the end of input. An error is told and the prompt goes on."""
    with suppress(ImportError):
        # Importing it is what gives `input` its history.
        import readline  # noqa: F401
    click.echo(PROMPT_HELP, err=True)
    while (query := _read_query()) is not None:
        match query.rstrip("; \n"):
            case "":
                continue
            case ".quit" | ".exit":
                return
            case ".recipes":
                _list_recipes()
            case ".schema":
                _list_views()
            case _:
                try:
                    _answer(relations, _meant(query), "table", None)
                except click.ClickException as error:
                    error.show()


def _read_query() -> str | None:
    lines: list[str] = []
    while True:
        try:
            line = input("   ... " if lines else "stepfold> ")
        except EOFError:
            click.echo()
            return "\n".join(lines) if lines else None
        except KeyboardInterrupt:
            click.echo()
            return ""
        lines.append(line)
        whole = not line.strip() or line.rstrip().endswith(";") or line.startswith(("@", "."))
        if whole:
            return "\n".join(lines)


class _Refused(click.ClickException):
    """One line on stderr, exit code 2."""

    exit_code = 2


def _usage(message: str) -> click.ClickException:
    return _Refused(message)
