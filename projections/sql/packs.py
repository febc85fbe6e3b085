"""Parquet copies of finished runs beside their store, so that a second question needs no JSON.

A pack holds the rows of up to RUNS_AT_MOST runs. It is named by the digest of what it was made from, and
beside it lies a list of its runs: the size, the time and the last seal of each log, the digest of its
bytes, and the digest of the pack itself. A pack is used only as long as all of that holds; else it is
deleted, and its runs are read from their logs, which are the truth.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from stepfold.events.chain import unsealed
from stepfold.events.drafts import drafted, sweep
from stepfold.events.journal import last_bytes, last_line
from stepfold.projections.digest import digest_of
from stepfold.projections.ending import ends_run
from stepfold.projections.sql.columns import columns
from stepfold.projections.sql.shared import quoted

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

FOLDER = "parquet"
RUNS_AT_MOST = 512
"""Runs of a pack: one that changed costs the reading of so many."""

SMALL_PACKS_AT_MOST = 8
"""So many packs that are not full may lie side by side before they are made into one."""

_SEAL = 128
"""Bytes of a log's end that are looked at for its last line, and for its seal alone."""


class Stamp(Struct, frozen=True, array_like=True):
    """What a log was when it was copied: bytes, time of its last change, its last seal, its digest."""

    size: int
    changed: int
    seal: str
    digest: str = ""


class Pack(Struct, frozen=True):
    """The list beside a pack: its columns, its digest, and its runs by file name."""

    shape: str
    digest: str
    runs: dict[str, Stamp]


class Packed(Struct, frozen=True):
    """The packs that may be used, and the logs that are in them."""

    files: tuple[Path, ...]
    logs: frozenset[Path]


def packed(store: Path, logs: Sequence[Path]) -> Packed:
    """The packs of a store that say of their runs what the logs say now; others are deleted."""
    folder = store / FOLDER
    there = {log.name: log for log in logs}
    used: list[Path] = []
    names: set[str] = set()
    for listed in sorted(folder.glob("*.json")):
        pack = _read(listed)
        file = listed.with_suffix(".parquet")
        if pack is None or names & pack.runs.keys() or not _holds(pack, file, there):
            _delete(listed, file)
            continue
        used.append(file)
        names |= pack.runs.keys()
    return Packed(tuple(used), frozenset(there[name] for name in names))


def stamped(logs: Iterable[Path]) -> dict[Path, Stamp]:
    """Those of the logs whose runs are over, as they are now.

    To be asked before the logs are loaded: a run that ended after it was loaded would be packed as it
    was in the middle, under the stamp of the whole log, and answered so ever after.
    """
    return {log: stamp for log in logs if (stamp := _stamp_of_ended(log)) is not None}


def keep(
    connection: "DuckDBPyConnection", store: Path, ended: dict[Path, Stamp], packs: Packed
) -> tuple[Path, ...]:
    """Copy what `recorded.fresh` holds of these logs, as they were when they were stamped. A store that
    can't be written stays as it is. Gives the packs that are to be read beside `recorded.fresh`.
    """
    import duckdb

    if not ended:
        return packs.files
    with suppress(OSError, duckdb.Error):
        (store / FOLDER).mkdir(exist_ok=True)
        sweep(store / FOLDER)
        found = list(ended.items())
        for start in range(0, len(found), RUNS_AT_MOST):
            _write(connection, store / FOLDER, dict(found[start : start + RUNS_AT_MOST]))
        return _united(connection, packs)
    return packs.files


def reading(files: Sequence[Path]) -> str:
    """The query that gives the rows of these packs, shaped as those of `recorded.fresh`."""
    listed = ", ".join(quoted(str(file)) for file in files)
    return f"SELECT * FROM read_parquet([{listed}])"


def _read(listed: Path) -> Pack | None:
    try:
        return msgspec.json.decode(listed.read_bytes(), type=Pack)
    except (OSError, msgspec.DecodeError, ValueError):
        return None


def _holds(pack: Pack, file: Path, there: dict[str, Path]) -> bool:
    """Whether a pack is whole, of this engine's columns, and all its runs are still what they were."""
    if pack.shape != _shape() or _name(pack.runs) != file.stem:
        return False
    try:
        if _digest_of(file) != pack.digest:
            return False
        return all(name in there and _is(there[name], stamp) for name, stamp in pack.runs.items())
    except OSError:
        return False


def _is(log: Path, stamp: Stamp) -> bool:
    """Whether a log is the one that was copied. Its bytes are read again only if it was touched since."""
    state = log.stat()
    if state.st_size != stamp.size:
        return False
    if state.st_mtime_ns == stamp.changed:
        return unsealed(last_bytes(log, _SEAL).removesuffix(b"\n"))[1] == stamp.seal
    return _digest_of(log) == stamp.digest


def _stamp_of_ended(log: Path) -> Stamp | None:
    try:
        state, last = log.stat(), last_line(log)
        if not ends_run(last):
            return None
        return Stamp(state.st_size, state.st_mtime_ns, unsealed(last)[1], _digest_of(log))
    except (OSError, msgspec.DecodeError):
        return None


def _digest_of(file: Path) -> str:
    with file.open("rb") as opened:
        return file_digest(opened, lambda: blake2b(digest_size=16)).hexdigest()


def _shape() -> str:
    return digest_of(json.dumps(columns()))


def _name(runs: dict[str, Stamp]) -> str:
    return digest_of(json.dumps(sorted((name, stamp.digest) for name, stamp in runs.items())))


def _write(connection: "DuckDBPyConnection", folder: Path, ended: dict[Path, Stamp]) -> None:
    names = ", ".join(quoted(str(log)) for log in ended)
    rows = f"SELECT * REPLACE (parse_filename(file) AS file) FROM recorded.fresh WHERE file IN ({names})"
    _write_rows(connection, folder, rows, {log.name: stamp for log, stamp in ended.items()})


def _united(connection: "DuckDBPyConnection", packs: Packed) -> tuple[Path, ...]:
    """The packs, those that are small made into one when there are too many of them."""
    read = {file: pack for file in packs.files if (pack := _read(file.with_suffix(".json"))) is not None}
    small = {file: pack for file, pack in read.items() if len(pack.runs) < RUNS_AT_MOST // 2}
    if len(small) < SMALL_PACKS_AT_MOST:
        return packs.files
    runs: dict[str, Stamp] = {}
    for pack in small.values():
        runs |= pack.runs
    folder = next(iter(small)).parent
    united = _write_rows(connection, folder, reading(list(small)), runs, instead_of=small)
    return (*(file for file in packs.files if file not in small), united)


def _write_rows(
    connection: Any, folder: Path, rows: str, runs: dict[str, Stamp], instead_of: Iterable[Path] = ()
) -> Path:
    """Write a pack whole, and its list last: without the list it does not count.

    The packs that it stands for go in between: two that count would be two copies of a run's rows.
    """
    file = folder / f"{_name(runs)}.parquet"
    with drafted(file.with_suffix(".json")) as listed:
        with drafted(file) as part:
            # Into the draft itself: a file that DuckDB made beside it would have no lock.
            how = "(FORMAT parquet, CODEC zstd, USE_TMP_FILE false)"
            connection.execute(f"COPY ({rows}) TO {quoted(str(part))} {how}")
            listed.write_bytes(msgspec.json.encode(Pack(_shape(), _digest_of(part), runs)))
        for old in instead_of:
            _delete(old.with_suffix(".json"), old)
    return file


def _delete(*files: Path) -> None:
    for file in files:
        with suppress(OSError):
            file.unlink()
