"""Is a log what was written? Its lines against their chain, and against SQLite; and sealing it anew."""

import os
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stepfold.events.chain import sealed_anew
from stepfold.events.codec import encode
from stepfold.events.drafts import drafted
from stepfold.events.journal import (
    NO_EVENT,
    Journal,
    Log,
    LogError,
    NewerLog,
    Recorded,
    damaged_records_of,
    read_damaged_log,
)
from stepfold.events.run_store import StoreError
from stepfold.events.texts import TextFolder
from stepfold.events.vocabulary import Reseal, RunStarted

SHOWN_AT_MOST = 100
"""So many findings are told one by one; a whole log that was rewritten has one a line."""


class Finding(Struct, frozen=True):
    """A line that is not what was written: its `seq`, its number in the file (from 1), and why."""

    seq: int
    line: int
    why: str


class Integrity(Struct, frozen=True):
    """What a look at a log found. `verdict` is `whole`, `unsealed` (from before there were seals), `damaged`
    or `newer`; `store` says how SQLite agrees, and is empty for a file outside of a store.
    """

    trace: str
    verdict: str
    events: int
    sealed: int
    torn_bytes: int
    findings: tuple[Finding, ...]
    store: str

    def as_json(self) -> dict[str, object]:
        """As `stepfold log RUN --verify --json` prints it."""
        tree: dict[str, object] = msgspec.to_builtins(self)
        return tree


def check(path: Path, kept: Iterable[bytes] | None) -> Integrity:
    """Look at every line of a log, in bounded memory; `kept` are the lines that its store holds beside it.

    Never raises on what is in the file.
    """
    torn: list[bytes] = []
    findings: list[Finding] = []
    events = sealed = 0
    verdict = ""
    try:
        for record in damaged_records_of(path, torn):
            events += 1
            sealed += bool(record.chain)
            if record.damage and len(findings) < SHOWN_AT_MOST:
                findings.append(Finding(record.event.seq, record.event.seq + 1, record.damage))
    except NewerLog as error:
        verdict = "newer"
        findings.append(Finding(error.line - 1, error.line, error.why))
    except LogError as error:
        findings.append(Finding(max(error.line - 1, 0), error.line, error.why))
    if not events and not findings:
        findings.append(Finding(0, 0, NO_EVENT))
    if not verdict:
        verdict = "damaged" if findings else "whole" if sealed else "unsealed"
    store = "" if kept is None else _agreement_if_asked(path, kept)
    if verdict in {"whole", "unsealed"} and store.startswith("differs"):
        verdict = "damaged"
    return Integrity(str(path), verdict, events, sealed, sum(map(len, torn)), tuple(findings), store)


def _agreement_if_asked(path: Path, kept: Iterable[bytes]) -> str:
    # That SQLite can't be opened, as in a folder that may only be read, says nothing against the log.
    try:
        return _agreement(path, kept)
    except StoreError as error:
        return f"can't be asked: {error}"


def _agreement(path: Path, kept: Iterable[bytes]) -> str:
    """How the two sides of a run stand to each other. A run in progress is ahead of SQLite by its step."""
    with path.open("rb") as file:
        whole = (line.rstrip(b"\n") for line in file if line.endswith(b"\n"))
        pairs = zip_longest(whole, kept)
        for seq, (written, indexed) in enumerate(pairs):
            if indexed is None:
                return f"lacks the lines from seq {seq} on; it catches up when this run or another ends"
            if written is None:
                return f"differs: it also holds lines from seq {seq} on; resume puts them back"
            if written != indexed:
                return f"differs at seq {seq}: it holds another line there than the journal"
    return "agrees"


def reseal(path: Path, why: str) -> Reseal | None:
    """Seal a log anew that was edited by hand, and say so in its first event. None when it is whole already.

    Raises LogError for a log that can't be read, and one that another process writes.
    """
    journal = Journal(path)
    try:
        log = read_damaged_log(path)
        first = next((record.event.seq for record in log.records if record.damage or not record.chain), None)
        if first is None:
            return None
        said = Reseal(first, why)
        _rewrite(path, log, said)
        return said
    finally:
        journal.close()


def _rewrite(path: Path, log: Log, said: Reseal) -> None:
    lines = sealed_anew(_said_in(record, said) for record in log.records)
    try:
        with drafted(path, path.stat().st_mode & 0o777) as draft, draft.open("wb") as file:
            file.writelines(line + b"\n" for line in TextFolder(path).put_aside(lines))
            file.write(log.torn)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise LogError(path, f"can't be rewritten: {error.strerror}; it is as it was") from error


def _said_in(record: Recorded, said: Reseal) -> bytes:
    event = record.event
    if isinstance(event, RunStarted):
        return encode(replace(event, resealed=(*event.resealed, said)))
    return record.line
