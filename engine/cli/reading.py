"""Finding and reading a trace for people: what can be read is read, what is wrong goes to stderr."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from stepfold.engine.cli.output import note, store_address
from stepfold.engine.runtime.snapshots import folded
from stepfold.events.journal import NO_EVENT, LogError, Recorded, damaged_records_of
from stepfold.events.liveness import is_locked
from stepfold.events.run_store import RunStore, StoreError
from stepfold.events.store import open_store
from stepfold.projections.state import Run


def chosen_store(store: str | None, project: Path | None = None) -> RunStore:
    """The store to write to: `--store`, else STEPFOLD_STORE, else `.stepfold`. Raises StoreError."""
    return open_store(store_address(store, project))


def is_there(store: str | None, project: Path | None = None) -> bool:
    """Whether there is a store to read from: a folder in which runs lie, or a URL."""
    address = store_address(store, project)
    return isinstance(address, str) or (address / "runs").is_dir()


def existing_store(store: str | None, project: Path | None = None) -> RunStore:
    """The store in which a recorded run is looked for. Raises StoreError when there is none: who asks for a
    run that never was makes no folder.
    """
    if not is_there(store, project):
        folder = store_address(store, project)
        raise StoreError(f"{folder}: no store here; name one with --store, or `cd` into the project")
    return chosen_store(store, project)


def trace_file(name: str) -> Path | None:
    """The trace file that a person named by its path; None for the name of a run."""
    path = Path(name)
    return path if path.suffix == ".jsonl" and path.is_file() else None


class Located(NamedTuple):
    """A trace file, its run's id in a store, that store's name ("" for a file alone), and whether somebody
    writes it now.
    """

    trace: Path
    run_id: str
    store: str
    running: bool


def located(run_id: str, store: str | None) -> Located:
    """The trace file of a run named by a path, an id, its start, or `last`, and the store it lies in."""
    path = trace_file(run_id)
    if path is not None:
        return Located(path, "", "", is_locked(path))
    with existing_store(store) as opened:
        found = opened.find(run_id)
        return Located(opened.path_of(found), found, opened.name, opened.is_being_written(found))


def read_noting(trace: Path) -> Iterator[Recorded]:
    """Stream a trace. A torn end, and the first line that was changed after it was written, are noted.

    Raises LogError for what can't be read.
    """
    torn: list[bytes] = []
    yield from _noting_damage(trace, damaged_records_of(trace, torn))
    _note_torn(trace, torn)


def _noting_damage(trace: Path, records: Iterator[Recorded]) -> Iterator[Recorded]:
    damaged = False
    for record in records:
        if record.damage and not damaged:
            damaged = True
            note(f"{trace}:{record.event.seq + 1}: {record.damage}; see `stepfold log {trace} --verify`")
        yield record


def _note_torn(trace: Path, torn: list[bytes]) -> None:
    if torn:
        note(f"{trace}: the last line is torn ({len(torn[0])} bytes), as a crash leaves it; it is left out")


def fold_file(trace: Path) -> Run:
    """Fold a trace in memory that doesn't grow with it beyond what the run holds. Raises LogError."""
    return _never_empty(trace, folded(trace, []).run)


def fold_noting(trace: Path) -> Run:
    """As `fold_file`, and what is wrong with the trace is noted."""
    torn: list[bytes] = []
    run = folded(trace, torn, partial(_noting_damage, trace)).run
    _note_torn(trace, torn)
    return _never_empty(trace, run)


def _never_empty(trace: Path, run: Run) -> Run:
    if not run.seq:
        raise LogError(trace, NO_EVENT)
    return run
