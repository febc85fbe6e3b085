"""Finding and reading a trace for people: what can be read is read, what is wrong goes to stderr."""

from collections.abc import Iterator
from pathlib import Path

from stepfold.engine.cli.output import note, store_folder
from stepfold.events.journal import NO_EVENT, LogError, Recorded, damaged_records_of
from stepfold.events.store import Store, StoreError
from stepfold.projections.run import fold
from stepfold.projections.state import Run


def existing_store(store: str | None) -> Store:
    """The store to read from. Raises StoreError when there is none: reading makes no folder."""
    folder = store_folder(store)
    if not folder.is_dir():
        raise StoreError(f"{folder}: no store here; name one with --store, or `cd` into the project")
    return Store(folder)


def located(run_id: str, store: str | None) -> tuple[Path, Path | None]:
    """The trace file of a run named by a path, an id, its start, or `last`, and the store it lies in."""
    path = Path(run_id)
    if path.suffix == ".jsonl" and path.is_file():
        return path, None
    with existing_store(store) as opened:
        return opened.path_of(opened.find(run_id)), opened.folder


def read_noting(trace: Path) -> Iterator[Recorded]:
    """Stream a trace. A torn end, and the first line that was changed after it was written, are noted.

    Raises LogError for what can't be read.
    """
    torn: list[bytes] = []
    damaged = False
    for record in damaged_records_of(trace, torn):
        if record.damage and not damaged:
            damaged = True
            note(f"{trace}:{record.event.seq + 1}: {record.damage}; see `stepfold log {trace} --verify`")
        yield record
    if torn:
        note(f"{trace}: the last line is torn ({len(torn[0])} bytes), as a crash leaves it; it is left out")


def fold_file(trace: Path) -> Run:
    """Fold a trace in memory that doesn't grow with it beyond what the run holds. Raises LogError."""
    return _folded(trace, damaged_records_of(trace, []))


def fold_noting(trace: Path) -> Run:
    """As `fold_file`, and what is wrong with the trace is noted."""
    return _folded(trace, read_noting(trace))


def _folded(trace: Path, records: Iterator[Recorded]) -> Run:
    run = fold(record.event for record in records)
    if not run.seq:
        raise LogError(trace, NO_EVENT)
    return run
