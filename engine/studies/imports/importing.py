"""A file into the runs of a store: one log for each run in it, the same bytes whenever it is imported."""

from collections.abc import Iterator
from hashlib import blake2b, file_digest
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from stepfold.engine.runtime.run_log import RunLog
from stepfold.engine.studies.imports.formats import FORMATS, guessed
from stepfold.engine.studies.imports.reading import Source
from stepfold.engine.studies.imports.recorder import Counts, Recorder
from stepfold.engine.studies.imports.said import Began, Ended, Said
from stepfold.events.configuration import ImportedConfig
from stepfold.events.journal import last_line
from stepfold.events.run_store import RunStore
from stepfold.events.vocabulary import AnyEvent, TraceEnded
from stepfold.projections.ending import ends_run

BATCH = 256
"""Events that are written together. Nothing hangs on them: what was cut short is imported anew."""
_DIGEST_BYTES = 8


class ImportFailed(Exception):
    """A file that can't be imported: which, why, and what to do."""


class Imported(Struct, frozen=True):
    """One run that was imported. `again` says that it was there already, and nothing was written."""

    run_id: str
    format: str
    file: str
    name: str
    trace: str
    counts: Counts
    ended: TraceEnded
    again: bool = False

    def as_json(self) -> dict[str, Any]:
        """The shape that `stepfold import --json` prints."""
        ended = self.ended
        return {
            "run_id": self.run_id,
            "format": self.format,
            "file": self.file,
            "name": self.name,
            **msgspec.to_builtins(self.counts),
            "end_as_recorded": ended.end_as_recorded,
            "status": ended.status or "unfinished",
            "inferred": ended.inferred,
            "scores": {score.name: score.value for score in ended.scores},
            "findings": [msgspec.to_builtins(found) for found in ended.findings],
            "unmapped": {tally.what: tally.count for tally in ended.unmapped},
            "trace": self.trace,
            "again": self.again,
        }


def import_file(store: RunStore, path: Path, name: str) -> Iterator[Imported]:
    """Import every run of a file; `name` is a format, or `auto`. Raises ImportFailed and LogError."""
    try:
        digest = _digest(path)
        found = guessed(path) if name == "auto" else name
    except OSError as error:
        raise ImportFailed(f"{path}: can't be read: {error.strerror or error}") from error
    if not found:
        raise ImportFailed(f"{path}: none of the known formats ({', '.join(FORMATS)}); name one if it is")
    source = Source(path)
    count = 0
    for began, said in _by_run(FORMATS[found](source)):
        run_id = f"{found}-{digest}" if not count else f"{found}-{digest}-{count + 1}"
        count += 1
        config = ImportedConfig(
            format=found, file=path.name, digest=digest, name=began.name, goal=began.goal, model=began.model
        )
        yield _import_run(store, Recorder(run_id, config), config, said)
    if not count:
        why = next(
            (f"{one.what.replace('_', ' ')} {one.where}: {one.detail}" for one in source.noticed()),
            "there is no run in it",
        )
        raise ImportFailed(f"{path}: not read as {found}: {why}")


def _by_run(said: Iterator[Said]) -> Iterator[tuple[Began, Iterator[Said]]]:
    """Each run with what is said of it; what its reader leaves is skipped before the next one."""
    waiting = [one for one in islice(said, 1) if isinstance(one, Began)]

    def of_this_run() -> Iterator[Said]:
        for one in said:
            if isinstance(one, Began):
                waiting.append(one)
                return
            yield one

    while waiting:
        part = of_this_run()
        yield waiting.pop(), part
        for _ in part:
            pass


def _import_run(
    store: RunStore, recorder: Recorder, config: ImportedConfig, said: Iterator[Said]
) -> Imported:
    path = store.path_of(recorder.run_id)
    again = _is_whole(path)
    events = _events_of(recorder, said)
    if again:
        for _ in events:
            pass
    else:
        _write(store, recorder.run_id, events)
    assert recorder.ended is not None
    return Imported(
        recorder.run_id,
        config.format,
        config.file,
        config.name,
        str(path),
        recorder.counts,
        recorder.ended,
        again,
    )


def _events_of(recorder: Recorder, said: Iterator[Said]) -> Iterator[AnyEvent]:
    for one in said:
        yield from recorder.take(one)
    if recorder.ended is None:
        yield from recorder.take(Ended(recorded="none recorded"))


def _write(store: RunStore, run_id: str, events: Iterator[AnyEvent]) -> None:
    # What an import that was cut short has left is no run of anybody's.
    store.remove(run_id)
    try:
        with RunLog(store, run_id) as log:
            log.begin()
            for batch in iter(lambda: tuple(islice(events, BATCH)), ()):
                for event in batch:
                    log.record(event)
                log.flush()
    except BaseException:
        store.remove(run_id)
        raise


def _is_whole(path: Path) -> bool:
    """Whether the log of an import has its last event: without, it was cut short."""
    try:
        return ends_run(last_line(path))
    except (OSError, msgspec.DecodeError):
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, lambda: blake2b(digest_size=_DIGEST_BYTES)).hexdigest()
