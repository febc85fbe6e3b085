"""A group-by over a store, from its logs and from their Parquet copies, against DuckDB's own readers."""

import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
from msgspec.structs import replace

from stepfold.events import chain
from stepfold.events.codec import encode
from stepfold.projections.sql.columns import columns
from stepfold.projections.sql.packs import FOLDER
from stepfold.projections.sql.relations import open_relations
from tests.house import LOAD, VERIFY, Hands, config, play

QUESTION = "SELECT kind, count(*) FROM {} GROUP BY kind ORDER BY kind"


def make_store(folder: Path, runs: int, steps: int) -> int:
    """A store of equal runs, ten events a step; how many events that are."""
    events = play(config(max_steps=steps), Hands([LOAD, VERIFY] * (steps // 2)))[1]
    (folder / "runs").mkdir(parents=True)
    for number in range(runs):
        name = f"run{number:05d}"
        lines = chain.sealed_anew(encode(replace(event, run_id=name)) for event in events)
        (folder / "runs" / f"{name}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    return runs * len(events)


def asked(store: Path) -> list[tuple[object, ...]]:
    """The question as `stepfold sql` answers it, from opening to closing."""
    relations = open_relations(store)
    rows = list(relations.query(QUESTION.format("events")).rows)
    relations.close()
    return rows


def first_asked(store: Path) -> list[tuple[object, ...]]:
    """The same where nothing was ever asked."""
    shutil.rmtree(store / FOLDER, ignore_errors=True)
    return asked(store)


def bare_json(store: Path) -> list[tuple[object, ...]]:
    """DuckDB's typed reader of JSON, with the same columns, into a table; then the question."""
    shape = "{" + ", ".join(f"\"{name}\": '{kind}'" for name, kind in columns().items()) + "}"
    with duckdb.connect() as connection:
        read = f"read_json('{store}/runs/*.jsonl', format = 'newline_delimited', columns = {shape})"
        connection.execute(f"CREATE TABLE events AS SELECT * FROM {read}")
        return connection.execute(QUESTION.format("events")).fetchall()


def on_packs(store: Path) -> tuple[Callable[[], object], Callable[[], object]]:
    """The question to opened relations, and to the same files by DuckDB alone."""
    relations, connection = open_relations(store), duckdb.connect()
    bare = QUESTION.format(f"read_parquet('{store}/{FOLDER}/*.parquet')")
    return (
        lambda: list(relations.query(QUESTION.format("events")).rows),
        lambda: connection.execute(bare).fetchall(),
    )
