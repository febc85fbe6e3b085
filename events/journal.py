"""The JSONL file of one run: the truth. Appended by one write a batch, read line by line, never rewritten."""

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from stepfold.events import chain, texts
from stepfold.events.codec import LineError, NewerVersion, decode
from stepfold.events.liveness import HELD, granted
from stepfold.events.vocabulary import AnyEvent, Unknown

NO_EVENT = "no whole event in it: not a trace, or a run that never began"


class LogError(Exception):
    """A log that can't be read or written: which file, which line (from 1), why, and what to do."""

    def __init__(self, path: Path, why: str, line: int = 0) -> None:
        self.path = path
        self.line = line
        self.why = why
        super().__init__(f"{path}{f':{line}' if line else ''}: {why}")


class NewerLog(LogError):
    """The log was written by a newer stepfold."""


class DamagedLog(LogError):
    """The log was changed after it was written."""


class Recorded(NamedTuple):
    """A line as recorded, without its seal and line feed, the event it holds, and the chain up to it.

    `damage` says how a line that can be read differs from what was once written; "" for one that doesn't.
    `short` is the line as it stands in the file, if it stands there otherwise (`stepfold.events.texts`).
    """

    line: bytes
    event: AnyEvent | Unknown
    chain: str = ""
    damage: str = ""
    short: bytes = b""

    @property
    def written(self) -> bytes:
        """The line as it was given to be written, without its line feed."""
        return chain.sealed(self.line, self.chain)

    @property
    def in_file(self) -> bytes:
        """The line as it stands in the file, without its line feed."""
        return self.short or self.written


class Log(NamedTuple):
    """A whole log in memory. `torn` is what a crash left of a last line: reported, never guessed at."""

    records: tuple[Recorded, ...]
    torn: bytes

    @property
    def chain(self) -> str:
        """What the next line is sealed upon: the chain of the last one."""
        return self.records[-1].chain

    @property
    def is_sealed(self) -> bool:
        """Whether its lines have seals; a log from before there were any goes on without."""
        return bool(self.records[0].chain)


def read_log(path: Path) -> Log:
    """Read a whole log. Raises LogError, naming the line, for anything but a torn end."""
    torn: list[bytes] = []
    return _whole(path, records_of(path, torn), torn)


def read_damaged_log(path: Path) -> Log:
    """As `read_log`, with the lines that were changed and can still be read among the others."""
    torn: list[bytes] = []
    return _whole(path, damaged_records_of(path, torn), torn)


def _whole(path: Path, streamed: Iterator[Recorded], torn: list[bytes]) -> Log:
    records = tuple(streamed)
    if not records:
        raise LogError(path, NO_EVENT)
    return Log(records, b"".join(torn))


def records_of(path: Path, torn: list[bytes]) -> Iterator[Recorded]:
    """Stream a log in bounded memory. What is torn at the end is put into `torn`.

    Raises LogError naming the line: no event, a gap or a duplicate of `seq`, another run's line, and
    DamagedLog for a line that is not what was written.
    """
    return refusing_damage(path, damaged_records_of(path, torn))


def refusing_damage(path: Path, records: Iterator[Recorded]) -> Iterator[Recorded]:
    """Records as they come. Raises DamagedLog at the first that is not what was written."""
    for record in records:
        if record.damage:
            raise DamagedLog(path, f"{record.damage}; {WHAT_TO_DO}", record.event.seq + 1)
        yield record


def damaged_records_of(path: Path, torn: list[bytes]) -> Iterator[Recorded]:
    """As `records_of`, but a line that was changed and can still be read is handed on, with its damage."""
    try:
        with path.open("rb") as file:
            # Iterating over a binary file splits at LF alone; str.splitlines would also split at U+2028.
            yield from damaged_records_in(path, file, torn)
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> LogError:
    """What a log is called that the system won't give."""
    return LogError(path, f"can't be read: {error.strerror or error}")


class Place(NamedTuple):
    """A place in a log behind a line that was whole: the byte, and what reading on from there has to know."""

    offset: int = 0
    seq: int = 0
    run_id: str = ""
    chain: str = chain.BEGINNING


THE_BEGINNING = Place()


def damaged_records_in(
    path: Path, lines: Iterable[bytes], torn: list[bytes], place: Place = THE_BEGINNING
) -> Iterator[Recorded]:
    """As `damaged_records_of`, from the lines (each with its line feed) that `path` holds behind a place."""
    run_id = place.run_id
    seal = _Seal(place)
    text_of = texts.TextFolder(path).text_of
    for expected, raw in enumerate(lines, start=place.seq):
        number = expected + 1
        written = in_file = raw.removesuffix(b"\n")
        lost = ""
        if texts.may_name_texts(written):
            written, lost = _restored(written, text_of)
        line, sealed_with = chain.unsealed(written)
        try:
            event = decode(line)
        except NewerVersion as error:
            raise NewerLog(path, str(error), number) from error
        except LineError as error:
            if in_file == raw:
                torn.append(raw)
                return
            raise LogError(path, str(error), number) from error
        if event.seq != expected:
            raise LogError(path, _order(event.seq, expected), number)
        if expected and event.run_id != run_id:
            raise LogError(path, f"seq {event.seq} belongs to run {event.run_id}, not {run_id}", number)
        run_id = event.run_id
        damage = seal.damage_of(line, sealed_with, expected)
        if damage is _SEAL_LOST_AT_THE_BEGINNING:
            raise DamagedLog(path, f"{_SEAL_LOST}; {WHAT_TO_DO}", number - 1)
        short = b"" if written is in_file else in_file
        yield Recorded(line, event, sealed_with, lost or damage, short)


def _restored(line: bytes, text_of: texts.TextOf) -> tuple[bytes, str]:
    """The line that was written, or what there is of it and what is lost."""
    try:
        return texts.restored(line, text_of), ""
    except texts.LostText as lost:
        return texts.bereft(line), str(lost)


WHAT_TO_DO = "take a copy that is whole, or accept the change with `stepfold log FILE --reseal`"
_CHANGED = "changed after it was written: its seal does not fit its bytes and the lines before"
_SEAL_LOST = "changed after it was written: it has lost its seal"
_SEAL_LOST_AT_THE_BEGINNING = "the lines before have lost their seal"


class _Seal:
    """Follows the chain along a log. A log from before there were seals has none in any line."""

    def __init__(self, place: Place) -> None:
        self._chain = place.chain
        self._lost = False
        self._unsealed_so_far = not place.chain

    def damage_of(self, line: bytes, sealed_with: str, seq: int) -> str:
        if not sealed_with:
            self._lost = not self._unsealed_so_far
            return _SEAL_LOST if self._lost else ""
        if self._unsealed_so_far and seq:
            return _SEAL_LOST_AT_THE_BEGINNING
        expected = chain.chained(self._chain, line)
        # What follows is judged by the chain as it was written, so that one change is found once.
        self._chain = sealed_with
        judged = not self._lost
        self._unsealed_so_far = self._lost = False
        return _CHANGED if judged and sealed_with != expected else ""


def _order(seq: int, expected: int) -> str:
    if seq > expected:
        return f"seq {expected} is missing: the line after seq {expected - 1} is seq {seq}"
    if seq == expected - 1:
        return f"seq {seq} stands twice"
    return f"seq {seq} stands where seq {expected} belongs"


_TAIL_BYTES = 64 * 1024


def last_bytes(path: Path, count: int) -> bytes:
    """The end of a file, at most so many bytes of it. Raises OSError."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - count))
        return file.read()


def last_line(path: Path) -> bytes:
    """The last line of a log, without its line feed, read from the end of the file. Raises OSError."""
    count = _TAIL_BYTES
    while True:
        tail = last_bytes(path, count)
        _, line_feed, line = tail.removesuffix(b"\n").rpartition(b"\n")
        if line_feed or len(tail) < count:
            return line
        count *= 8


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


RECORDED_ALREADY = "this run id is recorded already; take another, or resume that run"
"""Why a run can't be begun under an id."""

REMOVED = "this run was removed by another process in this moment; try again"


_MENDING = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some of your quota",
    errno.EFBIG: "raise the limit of a file's size (`ulimit -f`)",
    errno.EIO: "look after the disk",
}


class Journal:
    """The append side of one run's file, held by one process at a time.

    Each `append` is one unbuffered write, so that an intent is in the file before its effect starts
    and a landing as soon as it lands. A write that fails part way (a full disk) is taken back, so
    that what was recorded before stays whole.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises LogError when another process holds it or it can't be opened."""
        self.path = path
        self._file = _opened(path)
        if not granted(lambda: _locked(self._file)):
            os.close(self._file)
            raise LogError(path, HELD)
        # Whoever held it may have removed it: what is written into it then would be lost.
        if not os.fstat(self._file).st_nlink:
            os.close(self._file)
            raise LogError(path, REMOVED)
        self._size = os.fstat(self._file).st_size

    def begin(self) -> None:
        """Refuse a file that holds a run already: a second run under its id would break both."""
        if self._size:
            raise LogError(self.path, RECORDED_ALREADY)

    def append(self, lines: bytes) -> None:
        """Write a batch of whole lines, each with its line feed. Raises LogError; the file stays whole."""
        left = memoryview(lines)
        try:
            # A write that a full disk or a limit cuts short says why only when the rest is tried.
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise self.failed("can't be written", error) from error
        self._size += len(lines)

    def cut(self, torn: bytes) -> None:
        """Cut what a crash left of a last line."""
        self._size -= len(torn)
        os.ftruncate(self._file, self._size)

    def end_last_line(self) -> None:
        """Give a last line that is whole but for its line feed that line feed."""
        if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
            self.append(b"\n")

    def sync(self) -> None:
        """Force what was written onto the disk. Raises LogError."""
        try:
            os.fdatasync(self._file)
        except OSError as error:
            raise self.failed("can't be forced onto the disk", error) from error

    def failed(self, what: str, error: OSError) -> LogError:
        """What is raised when the system refuses to do something to the log, and what to do then."""
        mending = _MENDING.get(error.errno or 0, "mend that")
        so_far, again = ("all before it is safe", "`stepfold resume` it")
        if not self._size:
            so_far, again = ("nothing of it is recorded", "start it anew")
        return LogError(
            self.path, f"{what}: {error.strerror}; {so_far}. To go on, {mending}, and then {again}"
        )

    def close(self) -> None:
        """Release the file."""
        os.close(self._file)

    def close_written(self) -> None:
        """Release the file, and leave none that holds nothing: it would be listed as a run."""
        if not self._size:
            with suppress(OSError):
                self.path.unlink()
        self.close()


def _opened(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LogError(path, f"can't be written: {error.strerror}; choose another --store") from error
