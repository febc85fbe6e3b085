"""Brings the two sides of a run together after a crash: the journal, which is the truth, and SQLite.

SQLite follows the journal, so after a killed process it lacks lines. After a lost machine it may hold
lines that the journal has lost; those that continue the journal's chain are put back, the rest goes.
"""

import sqlite3
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from stepfold.events import chain
from stepfold.events.codec import LineError, decode
from stepfold.events.index import RunIndex
from stepfold.events.journal import Journal, Log, Recorded, read_log, records_of
from stepfold.events.texts import LostText, TextFolder, TextOf, restored


class Repair(Struct, frozen=True):
    """What had to be done: bytes of a torn line cut, lines put back, copied into SQLite, dropped from it."""

    torn_bytes: int = 0
    restored: int = 0
    indexed: int = 0
    dropped: int = 0


NOTHING = Repair()


class Reconciled(NamedTuple):
    """The log of a run that is taken up again, what that took, and why SQLite stayed behind, if it did."""

    log: Log
    repair: Repair
    behind: str = ""


def reconcile(journal: Journal, index: RunIndex) -> Reconciled:
    """Make both sides of an opened run whole and equal. A SQLite that can't be used now stays behind, and is
    for `catch_up`. Raises LogError.
    """
    log = read_log(journal.path)
    if log.torn:
        journal.cut(log.torn)
    journal.end_last_line()
    try:
        agrees = index.line_at(log.records[-1].event.seq) in {None, log.records[-1].in_file}
        text_of = TextFolder(journal.path).text_of
        put_back = tuple(_continuing(log, index, text_of)) if agrees and log.is_sealed else ()
    except sqlite3.Error as error:
        return Reconciled(log, Repair(len(log.torn)), index.why_behind(error))
    if put_back:
        journal.append(b"".join(record.in_file + b"\n" for record in put_back))
    whole = Log((*log.records, *put_back), log.torn)
    repair = Repair(len(log.torn), len(put_back))
    try:
        dropped = index.drop_from(len(whole.records) if agrees else 0)
        have = index.count()
        missing = [record.in_file for record in whole.records[have:]]
        if missing:
            index.add(have, missing)
    except sqlite3.Error as error:
        return Reconciled(whole, repair, index.why_behind(error))
    return Reconciled(whole, replace(repair, indexed=len(missing), dropped=dropped))


_BATCH = 1000


def catch_up(path: Path, index: RunIndex) -> None:
    """Make SQLite hold what the journal holds, in bounded memory. Raises LogError and sqlite3.Error."""
    have = index.count()
    lines = (record.in_file for record in records_of(path, []))
    if have and next(islice(lines, have - 1, None), None) != index.line_at(have - 1):
        index.drop_from(have := 0)
        lines = (record.in_file for record in records_of(path, []))
    while missing := list(islice(lines, _BATCH)):
        index.add(have, missing)
        have += len(missing)


def _continuing(log: Log, index: RunIndex, text_of: TextOf) -> Iterator[Recorded]:
    """The lines that SQLite holds beyond the journal's end, as long as they continue its chain."""
    so_far = log.chain
    for seq, in_file in enumerate(index.lines(len(log.records)), start=len(log.records)):
        try:
            written = restored(in_file, text_of)
        except LostText:
            return
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
        yield Recorded(line, event, sealed_with, short=in_file if in_file != written else b"")
