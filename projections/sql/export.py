"""Runs as hive-partitioned Parquet, for any engine that reads it: a folder a view, by date and loop.

The columns are those of the views (`stepfold sql --schema`), JSON as text. `date` (of the run's first
event, UTC) and `loop` are folders, as hive names them: `events/date=2026-12-02/loop=goal/data_0.parquet`.
"""

import os
import shutil
from pathlib import Path

from msgspec import Struct

from stepfold.projections.sql.relations import QueryError, Relations, open_unguarded
from stepfold.projections.sql.shared import View, quoted
from stepfold.projections.sql.views import VIEWS

MARK = "_stepfold"
"""The file that tells an export from any other folder; engines skip names that begin so."""


class Exported(Struct, frozen=True):
    """What was written: the rows of each view, and how many lines of the logs could not be read."""

    rows: dict[str, int]
    torn: int
    unreadable: tuple[str, ...]


def export_parquet(store: Path, folder: Path) -> Exported:
    """Write every view of a store below `folder`, whole or not at all; an earlier export is replaced.

    Raises QueryError for a folder that holds anything else, and OSError for one that can't be written.
    """
    if folder.exists() and not (folder / MARK).exists() and (folder.is_file() or any(folder.iterdir())):
        raise QueryError(f"{folder}: holds something that no export wrote; name an empty or a new folder")
    part = folder.with_name(f".{folder.name}.{os.getpid()}")
    relations = open_unguarded(store)
    try:
        part.mkdir(parents=True)
        rows = {view.name: _write(relations, view, part / view.name) for view in VIEWS}
        (part / MARK).write_text("written by `stepfold export --parquet`\n")
        _replace(folder, part)
    finally:
        relations.close()
        shutil.rmtree(part, ignore_errors=True)
    return Exported(rows, relations.torn, relations.unreadable)


def _write(relations: Relations, view: View, folder: Path) -> int:
    """One view. A view without rows is an empty folder: partitions are made of rows."""
    folder.mkdir()
    described = relations.query(f"DESCRIBE {view.name}").rows
    as_text = [name for name, kind, *_ in described if kind == "JSON"]
    plain = f"REPLACE ({', '.join(f'view.{name}::VARCHAR AS {name}' for name in as_text)})" if as_text else ""
    loop = "" if "loop" in view.columns else ", runs.loop AS loop"
    rows = (
        f"SELECT view.* {plain}, strftime(runs.started, '%Y-%m-%d') AS date{loop} "
        f"FROM {view.name} AS view JOIN runs ON view.run_id = runs.run_id"
    )
    target = f"TO {quoted(str(folder))} (FORMAT parquet, CODEC zstd, PARTITION_BY (date, loop))"
    ((count,),) = relations.query(f"COPY ({rows}) {target}").rows
    return int(count)


def _replace(folder: Path, part: Path) -> None:
    if not folder.exists():
        part.rename(folder)
        return
    old = part.with_name(f"{part.name}.old")
    folder.rename(old)
    part.rename(folder)
    shutil.rmtree(old)
