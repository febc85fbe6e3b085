"""The runs of a store as DuckDB relations: loaded from the JSONL files, then shut off from all else."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from stepfold.events import texts
from stepfold.events.texts import self_contained_lines
from stepfold.events.vocabulary import NO_TIME
from stepfold.projections.sql import packs
from stepfold.projections.sql.columns import column_name, columns
from stepfold.projections.sql.repair import Broken, repaired
from stepfold.projections.sql.shared import RELATIONS, View, quoted
from stepfold.projections.sql.views import VIEWS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of a line that DuckDB reads at once; files with longer lines are read again with more room."""

BROKEN_LINES = View(
    "torn_lines",
    "One row a line (or a file) that could not be read as an event, and is in no other view.",
    {
        "file": "The file.",
        "line": "The line, from 1; NULL when the whole file could not be read.",
        "why": "What is wrong with it.",
    },
    "SELECT file, line, why FROM recorded.broken",
)

GUARD_AUDIT = View(
    "guard_audit",
    "One row a run, row of the table and guard: how often it was asked, and said yes. Filled when asked for.",
    {
        "run_id": "The run.",
        "loop": "goal or tools.",
        "row_name": "The row of the table that the guard belongs to.",
        "guard": "The guard's name.",
        "evaluated": "How often it was asked while the run's decisions were taken again.",
        "held": "How often it said yes.",
    },
    "SELECT run_id, loop, row_name, guard, evaluated, held FROM recorded.guards_asked",
)

NO_EVENT = "kind IS NULL OR run_id IS NULL OR seq IS NULL"
"""What DuckDB makes of a line that is no event, as `repair` judges it."""

DOCUMENTED = (*VIEWS, GUARD_AUDIT, BROKEN_LINES)
"""Every view that a query may rely on."""


class QueryError(ValueError):
    """A query that DuckDB refused, in one line."""


class Table(Struct, frozen=True):
    """A result: the names and DuckDB types of its columns, and its rows as they are fetched."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


class Relations:
    """The views over one store. `torn` counts broken lines, `unreadable` names files that gave nothing."""

    def __init__(
        self,
        connection: "DuckDBPyConnection",
        store: Path,
        broken: tuple[Broken, ...],
        packs: tuple[Path, ...] = (),
    ) -> None:
        self.connection = connection
        self.packs = packs
        self.store = store
        self.torn = sum(1 for one in broken if one.line is not None)
        self.unreadable = tuple(f"{one.file}: {one.why}" for one in broken if one.line is None)

    def query(self, sql: str, parameters: tuple[Any, ...] = ()) -> Table:
        """Run one query. Raises QueryError, at once or while rows are fetched."""
        import duckdb

        try:
            cursor = self.connection.execute(sql, parameters or None)
        except (duckdb.Error, RuntimeError, ValueError) as error:
            raise QueryError(one_line(error)) from None
        if cursor is None:
            raise QueryError("there is no query in this")
        described = cursor.description or []
        names = tuple(str(column[0]) for column in described)
        return Table(names, tuple(str(column[1]) for column in described), _rows(cursor))

    def write_parquet(self, sql: str, path: Path) -> None:
        """Write the result of one SELECT to the file that `open_relations` was told of. Raises QueryError."""
        import duckdb

        try:
            self.connection.sql(sql).write_parquet(str(path))
        except AttributeError:
            raise QueryError("this query has no result to write") from None
        except (duckdb.Error, RuntimeError, ValueError) as error:
            raise QueryError(one_line(error)) from None

    def fill_guard_audit(self, rows: Sequence[tuple[str, str, str, str, int, int]]) -> None:
        """What `guard_audit` shows from now on: it takes deciding anew, which is not this layer's to do."""
        self.connection.execute("DELETE FROM recorded.guards_asked")
        if rows:
            columns = [list(column) for column in zip(*rows, strict=True)]
            unnested = ", ".join("unnest(?)" for _ in columns)
            self.connection.execute(f"INSERT INTO recorded.guards_asked SELECT {unnested}", columns)

    def close(self) -> None:
        """Drop the relations from memory."""
        self.connection.close()


def open_relations(store: Path, *, output: Path | None = None) -> Relations:
    """Load all runs of a store folder. Queries reach nothing but the views, and write nothing but `output`.

    An empty or missing folder gives empty views. A torn line is left out and counted.
    """
    relations = open_unguarded(store)
    allowed = [*relations.packs, *([] if output is None else [output])]
    if allowed:
        listed = ", ".join(quoted(str(path)) for path in allowed)
        relations.connection.execute(f"SET allowed_paths = [{listed}]")
    relations.connection.execute("SET enable_external_access = false")
    relations.connection.execute("SET lock_configuration = true")
    return relations


def open_unguarded(store: Path) -> Relations:
    """Like `open_relations`, but queries may read and write any file that this process may."""
    import duckdb

    connection = duckdb.connect(":memory:")
    # A name in a query never means a variable of this program, nor an extension off the network.
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET preserve_insertion_order = false")
    connection.execute("SET autoinstall_known_extensions = false")
    connection.execute("CREATE SCHEMA recorded")
    connection.execute(_empty_log())
    connection.execute("CREATE TABLE recorded.broken (file VARCHAR, line BIGINT, why VARCHAR)")
    connection.execute(
        "CREATE TABLE recorded.guards_asked "
        "(run_id VARCHAR, loop VARCHAR, row_name VARCHAR, guard VARCHAR, evaluated BIGINT, held BIGINT)"
    )
    logs = sorted((store / "runs").glob("*.jsonl"))
    copied = packs.packed(store, logs)
    fresh = [log for log in logs if log not in copied.logs]
    ended = packs.stamped(fresh)
    broken = _load(connection, fresh)
    odd = {one.file for one in broken}
    whole = {log: stamp for log, stamp in ended.items() if str(log) not in odd}
    files = packs.keep(connection, store, whole, copied)
    connection.execute(f"CREATE VIEW recorded.log AS {_log(())}")
    if broken:
        rows = [(one.file, one.line, one.why) for one in broken]
        connection.executemany("INSERT INTO recorded.broken VALUES (?, ?, ?)", rows)
    for name, query in RELATIONS:
        connection.execute(f"CREATE VIEW recorded.{name} AS {query}")
    for view in DOCUMENTED:
        _create(connection, view)
    if files:
        # Not before: each view that is created would read what the packs hold, to know their columns.
        connection.execute(f"CREATE OR REPLACE VIEW recorded.log AS {_log(files)}")
    return Relations(connection, store, broken, files)


def one_line(error: Exception) -> str:
    """What DuckDB says, without its picture of the query."""
    said = str(error).split("\n\nLINE ")[0]
    return " ".join(said.split())


def _load(connection: "DuckDBPyConnection", files: list[Path]) -> tuple[Broken, ...]:
    import duckdb

    unreadable = {file: why for file in files if (why := _why_unreadable(file))}
    broken = [Broken(str(file), None, why) for file, why in unreadable.items()]
    readable = [file for file in files if file not in unreadable]
    naming = {file for file in readable if _names_texts(file)}
    plain = [file for file in readable if file not in naming]
    try:
        doubtful = _insert(connection, plain, LONGEST_LINE) | naming
    except duckdb.Error:
        # One file that can't be read fails the whole statement, so each is looked at by itself.
        doubtful = set(readable)
    for file in readable:
        if file in doubtful:
            broken += _insert_repaired(connection, file)
    return tuple(broken)


def _insert(connection: "DuckDBPyConnection", files: list[Path], longest: int) -> set[Path]:
    """Insert the events of whole files; give back those with a line that DuckDB makes nothing of."""
    if not files:
        return set()
    connection.execute(f"INSERT INTO recorded.fresh {_reading(files, longest)}")
    found = connection.execute(f"SELECT DISTINCT file FROM recorded.fresh WHERE {NO_EVENT}").fetchall()
    doubtful = [name for (name,) in found]
    if doubtful:
        connection.execute("DELETE FROM recorded.fresh WHERE list_contains(?, file)", [doubtful])
    return {Path(name) for name in doubtful}


def _insert_repaired(connection: "DuckDBPyConnection", file: Path) -> list[Broken]:
    from tempfile import TemporaryDirectory

    content, broken = repaired(self_contained_lines(file), str(file))
    if not content:
        return broken
    with TemporaryDirectory() as folder:
        clean = Path(folder) / "clean.jsonl"
        clean.write_bytes(content)
        longest = max(map(len, content.split(b"\n"))) + 2
        connection.execute(
            f"INSERT INTO recorded.fresh SELECT * REPLACE ({quoted(str(file))} AS file) "
            f"FROM ({_reading([clean], max(longest, LONGEST_LINE))}) WHERE NOT ({NO_EVENT})"
        )
    return broken


def _reading(files: list[Path], longest: int) -> str:
    listed = ", ".join(quoted(str(file)) for file in files)
    shape = "{" + ", ".join(f'"{field}":"{kind}"' for field, kind in columns().items()) + "}"
    fields = ", ".join(
        f"nullif(try_cast(event.ts AS TIMESTAMP), TIMESTAMP '{NO_TIME}') AS ts"
        if field == "ts"
        else f'event."{field}"'
        for field in columns()
    )
    return (
        f"SELECT filename AS file, line, {fields} FROM (SELECT filename, json AS line, "
        f"json_transform(json, '{shape}') AS event FROM read_json_objects([{listed}], "
        f"format = 'newline_delimited', ignore_errors = true, filename = true, "
        f"maximum_object_size = {longest}))"
    )


def _empty_log() -> str:
    typed = (
        f'"{column_name(field)}" {"TIMESTAMP" if field == "ts" else kind}'
        for field, kind in columns().items()
    )
    return f"CREATE TABLE recorded.fresh (file VARCHAR, line JSON, {', '.join(typed)})"


def _log(files: tuple[Path, ...]) -> str:
    """The rows of all runs: those just read, and those in Parquet, of which a query reads what it needs."""
    fresh = "SELECT * FROM recorded.fresh"
    return f"{fresh} UNION ALL BY NAME {packs.reading(files)}" if files else fresh


def _create(connection: "DuckDBPyConnection", view: View) -> None:
    named = ", ".join(f'"{column}"' for column in view.columns)
    # Named inside the view: releases of DuckDB differ in whether a comment finds names given outside.
    connection.execute(f"CREATE VIEW {view.name} AS SELECT * FROM ({view.query}) AS view ({named})")
    connection.execute(f"COMMENT ON VIEW {view.name} IS {quoted(view.comment)}")
    for column, comment in view.columns.items():
        connection.execute(f'COMMENT ON COLUMN {view.name}."{column}" IS {quoted(comment)}')


def _names_texts(file: Path) -> bool:
    """Whether a log has texts that lie beside it. Where nothing lies there, no log is read for this."""
    if not texts.TextFolder(file).folder.is_dir():
        return False
    with file.open("rb") as lines:
        return any(texts.may_name_texts(line) for line in lines)


def _why_unreadable(file: Path) -> str:
    try:
        with file.open("rb"):
            return ""
    except OSError as error:
        return error.strerror or "can't be opened"


def _rows(cursor: Any) -> Iterator[tuple[Any, ...]]:
    import duckdb

    try:
        while rows := cursor.fetchmany(1000):
            yield from rows
    except (duckdb.Error, RuntimeError, ValueError) as error:
        raise QueryError(one_line(error)) from None
