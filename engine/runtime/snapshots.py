"""Folding a recorded run from where the last long fold of it stopped: a cache that no answer depends on.

Beside a store's logs lies, for each run whose fold was long, the folded `Run` and how much of the log went
into it. It is used when the log's first bytes are those that were folded, byte for byte by their digest, and
when the code that folds is the code that folded. Else it is passed over in silence, as one that is torn is,
and made anew. It may be deleted at any time.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
from msgspec import Struct

from stepfold import events, projections
from stepfold.events.beside import DIGEST_BYTES, digest_beside, opened, snapshot_of
from stepfold.events.drafts import drafted, sweep
from stepfold.events.journal import (
    THE_BEGINNING,
    Log,
    Place,
    Recorded,
    damaged_records_in,
    refusing_damage,
    unreadable,
)
from stepfold.events.texts import LostText, TextFolder, named
from stepfold.events.vocabulary import Observed
from stepfold.projections.run import evolve
from stepfold.projections.state import Run

LONG = 5_000
"""A fold of so many events is worth keeping: a tenth of a second, on a machine of 2024."""

_CHUNK_BYTES = 1 << 20
_LONGEST_HEAD = 16 << 20


class Head(Struct, frozen=True):
    """The first line of a snapshot: what it is a snapshot of. Digests are of blake2b, as hex.

    `code` stands for the engine: its folds, the shapes of what they hold, and how that is written. `log` is
    over the bytes before `place`, which name `texts`; `state` over the `size` bytes that follow this line.
    `in_flight` as in `Folded`.
    """

    projection: str
    code: str
    place: Place
    log: str
    state: str
    size: int
    in_flight: tuple[str, ...]
    texts: tuple[str, ...]


class Folded(NamedTuple):
    """A folded run, and the keys of what was due after its last observed event."""

    run: Run
    in_flight: frozenset[str]


Look = Callable[[Iterator[Recorded]], Iterator[Recorded]]
"""Whoever wants to see each record before it is folded: to refuse it, to tell of its damage."""


def folded(trace: Path, torn: list[bytes], look: Look = iter) -> Folded:
    """The run that a log makes. Of a snapshot only the records behind it are looked at: what it holds was
    whole. What is torn at the end is put into `torn`. Raises LogError as `damaged_records_of` does.
    """
    try:
        with trace.open("rb") as file:
            return _folded(trace, file, torn, look)
    except OSError as error:
        raise unreadable(trace, error) from error


def folded_undamaged(trace: Path) -> Run:
    """The run that a log makes. Raises DamagedLog too, as `records_of` does."""
    return folded(trace, [], partial(refusing_damage, trace)).run


def folded_from(log: Log, trace: Path) -> Folded:
    """The run that a log makes which was read from `trace`: only what a snapshot lacks is folded.

    The fold alone is spared, and not the reading. Who has such a log is about to write behind its last line:
    each line and seal was looked at for that, and SQLite was given what it lacks. A store does so without
    a snapshot, which is a cache of the engine above it that may be gone at any time.
    """
    try:
        with trace.open("rb") as file:
            before = _found(trace, _Lines(file))
    except OSError:
        before = None
    begun = before or _nothing()
    return _continued(begun.folded, log.records[begun.place.seq :])


def folded_records(records: Iterable[Recorded]) -> Folded:
    """The run that all records of a log make."""
    return _continued(_nothing().folded, records)


def _folded(trace: Path, file: BinaryIO, torn: list[bytes], look: Look) -> Folded:
    lines = _Lines(file)
    begun = _found(trace, lines)
    if begun is None:
        begun, lines = _nothing(), _Lines(file)
    seen = _Seen(begun.texts)
    result = _continued(begun.folded, seen.of(look(damaged_records_in(trace, lines, torn, begun.place))))
    run = result.run
    is_long = run.seq - begun.place.seq >= LONG
    if is_long and seen.whole and lines.end_whole and not torn:
        place = Place(lines.count, run.seq, run.run_id, seen.chain)
        _keep(trace, _Begun(result, place, seen.texts), lines.digest())
    return result


def _continued(before: Folded, records: Iterable[Recorded]) -> Folded:
    run, in_flight = before
    for record in records:
        evolve(run, record.event)
        if isinstance(record.event, Observed):
            in_flight = frozenset(run.due)
    return Folded(run, in_flight)


class _Begun(NamedTuple):
    """What is folded of a log, how far that is, and the large texts that are named so far."""

    folded: Folded
    place: Place
    texts: frozenset[str] = frozenset()


def _nothing() -> _Begun:
    return _Begun(Folded(Run(), frozenset()), THE_BEGINNING)


class _Seen:
    """Records on their way into a fold: where they end, what texts they name, and whether all of them are
    what was written.
    """

    def __init__(self, texts: frozenset[str]) -> None:
        self.chain = ""
        self.whole = True
        self.texts = texts

    def of(self, records: Iterator[Recorded]) -> Iterator[Recorded]:
        for record in records:
            self.whole = self.whole and not record.damage
            self.chain = record.chain
            if record.short:
                self.texts |= named(record.short)
            yield record


class _Lines:
    """The lines of an open log, with the digest of all that was read of it so far."""

    def __init__(self, file: BinaryIO) -> None:
        file.seek(0)
        self._file = file
        self._hash = blake2b(digest_size=DIGEST_BYTES)
        self.count = 0
        self.end_whole = True

    def __iter__(self) -> Iterator[bytes]:
        for line in self._file:
            self._hash.update(line)
            self.count += len(line)
            self.end_whole = line.endswith(b"\n")
            yield line

    def pass_over(self, count: int) -> str:
        """The digest of the next `count` bytes, or of what there is of them."""
        while self.count < count and (chunk := self._file.read(min(_CHUNK_BYTES, count - self.count))):
            self._hash.update(chunk)
            self.count += len(chunk)
        return self.digest()

    def digest(self) -> str:
        """Of all that was read."""
        return self._hash.hexdigest()


def _found(trace: Path, lines: _Lines) -> _Begun | None:
    """The snapshot of a log, its lines passed over, if all of it holds."""
    path = snapshot_of(trace)
    if path is None:
        return None
    try:
        with opened(path) as file:
            head = msgspec.json.decode(file.readline(_LONGEST_HEAD), type=Head)
            # What it was made of comes first: another engine's state is not even looked at.
            if (head.projection, head.code) != ("run", _code()) or not head.code:
                return None
            if os.fstat(file.fileno()).st_size != file.tell() + head.size:
                return None
            if head.state != digest_beside(state := file.read()):
                return None
        if lines.pass_over(head.place.offset) != head.log:
            return None
        for digest in head.texts:
            TextFolder(trace).text_of(digest)
        run = msgspec.json.decode(state, type=Run)
    except (OSError, ValueError, RecursionError, LostText):
        return None
    return _Begun(Folded(run, frozenset(head.in_flight)), head.place, frozenset(head.texts))


def _keep(trace: Path, begun: _Begun, log: str) -> None:
    """Write a snapshot, whole or not at all, where a store has made the folder for it: who reads a log that
    lies anywhere else finds nothing new beside it. A store that may only be read keeps none.
    """
    path = snapshot_of(trace)
    # Half a surrogate pair can't be written. A run in which one was said is folded as a whole each time.
    with suppress(OSError, UnicodeEncodeError):
        if path is None or not _code():
            return
        state = msgspec.json.encode(begun.folded.run)
        head = Head(
            projection="run",
            code=_code(),
            place=begun.place,
            log=log,
            state=digest_beside(state),
            size=len(state),
            in_flight=tuple(sorted(begun.folded.in_flight)),
            texts=tuple(sorted(begun.texts)),
        )
        sweep(path.parent)
        # It holds what the log holds, and is for the same eyes.
        with drafted(path, trace.stat().st_mode & 0o666) as draft:
            draft.write_bytes(msgspec.json.encode(head) + b"\n" + state)


@cache
def _code() -> str:
    """A digest over what folds and what is folded, as it stands: no version has to be raised by hand.

    Empty where the sources can't be read, as in an archive: what can't be told apart must not be trusted.
    """
    whole = blake2b(msgspec.__version__.encode(), digest_size=DIGEST_BYTES)
    for package in (events, projections):
        sources = sorted(Path(next(iter(package.__path__))).glob("*.py"))
        if not sources:
            return ""
        for source in sources:
            whole.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return whole.hexdigest()
