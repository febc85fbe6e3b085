"""Brings the two sides of a run together after a crash: the journal, which is the truth, and SQLite.

SQLite follows the journal, so after a killed process it lacks lines. After a lost machine it may hold
lines that the journal has lost; those that continue the journal's chain are put back, the rest goes.
"""

from collections.abc import Iterator

from msgspec import Struct

from stepfold.events import chain
from stepfold.events.codec import LineError, decode
from stepfold.events.journal import Journal, Log, Recorded, read_log
from stepfold.events.store import RunIndex


class Repair(Struct, frozen=True):
    """What had to be done: bytes of a torn line cut, lines put back, copied into SQLite, dropped from it."""

    torn_bytes: int = 0
    restored: int = 0
    indexed: int = 0
    dropped: int = 0


NOTHING = Repair()


def reconcile(journal: Journal, index: RunIndex) -> tuple[Log, Repair]:
    """Make both sides of an opened run whole and equal; its log, and what that took. Raises LogError."""
    log = read_log(journal.path)
    if log.torn:
        journal.cut(log.torn)
    journal.end_last_line()
    last = log.records[-1]
    agrees = index.line_at(last.event.seq) in {None, last.written}
    restored = tuple(_continuing(log, index)) if agrees and log.is_sealed else ()
    if restored:
        journal.append(b"".join(record.written + b"\n" for record in restored))
    whole = Log((*log.records, *restored), log.torn)
    first_wrong = len(whole.records) if agrees else 0
    dropped = index.drop_from(first_wrong)
    have = index.count()
    missing = [record.written for record in whole.records[have:]]
    if missing:
        index.add(have, missing)
    return whole, Repair(len(log.torn), len(restored), len(missing), dropped)


def _continuing(log: Log, index: RunIndex) -> Iterator[Recorded]:
    """The lines that SQLite holds beyond the journal's end, as long as they continue its chain."""
    so_far = log.chain
    for seq, written in enumerate(index.lines(len(log.records)), start=len(log.records)):
        line, sealed_with = chain.unsealed(written)
        so_far = chain.chained(so_far, line)
        if sealed_with != so_far:
            return
        try:
            event = decode(line)
        except LineError:
            return
        if event.seq != seq:
            return
        yield Recorded(line, event, sealed_with)
