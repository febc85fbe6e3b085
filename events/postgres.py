"""A store in PostgreSQL, for processes on many machines: the database is the truth, and total order of a run.

Two things keep a run in one order. Its writer holds a lock of the session, which ends with the connection.
And a batch is one statement that adds its lines only behind the line that the writer knows as the last:
whoever has lost the lock without noticing adds nothing.

What reads logs reads files, so a run that is asked for is copied into a folder of this machine, from the
line on that the copy lacks. A copy holds its large texts, which the database keeps once for all runs. The
copies may be deleted at any time. Needs `stepfold[postgres]`.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from stepfold.events.beside import forget_snapshot, make_room_for_snapshots
from stepfold.events.chain import unsealed
from stepfold.events.codec import LineError, decode
from stepfold.events.journal import RECORDED_ALREADY, Log, LogError, last_line, read_log
from stepfold.events.liveness import HELD, granted
from stepfold.events.reconcile import NOTHING, Repair
from stepfold.events.run_store import SUITES, StoreError, found_among, require_run_id
from stepfold.events.texts import LostText, aside, escaped, must_change, self_contained, unchanged

_TABLES = """
CREATE TABLE IF NOT EXISTS stepfold_runs(
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id TEXT COLLATE "C" NOT NULL UNIQUE,
    next_seq BIGINT NOT NULL DEFAULT 0,
    tail TEXT NOT NULL DEFAULT '',
    bytes BIGINT NOT NULL DEFAULT 0,
    synced BIGINT NOT NULL DEFAULT 0,
    changed TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE IF NOT EXISTS stepfold_lines(
    run BIGINT NOT NULL REFERENCES stepfold_runs ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    line BYTEA NOT NULL,
    PRIMARY KEY (run, seq)
);
CREATE TABLE IF NOT EXISTS stepfold_texts(
    digest TEXT COLLATE "C" PRIMARY KEY,
    text BYTEA NOT NULL
);
CREATE TABLE IF NOT EXISTS stepfold_summaries(
    run BIGINT PRIMARY KEY REFERENCES stepfold_runs ON DELETE CASCADE,
    bytes BIGINT NOT NULL,
    summary TEXT NOT NULL
);
"""

_APPEND = """
WITH held AS (
    UPDATE stepfold_runs
    SET next_seq = next_seq + cardinality(%(lines)s::bytea[]), tail = %(tail)s,
        bytes = bytes + %(bytes)s, changed = clock_timestamp()
    WHERE id = %(run)s AND next_seq = %(seq)s AND tail = %(before)s
    RETURNING id
)
INSERT INTO stepfold_lines(run, seq, line)
SELECT held.id, %(seq)s + batch.place - 1, batch.line
FROM held, unnest(%(lines)s::bytea[]) WITH ORDINALITY AS batch(line, place)
"""
# In the order of their digests, or two writers of the same texts could wait for each other.
_KEEP_TEXTS = """
INSERT INTO stepfold_texts(digest, text)
SELECT digest, text FROM unnest(%(digests)s::text[], %(texts)s::bytea[]) AS given(digest, text)
ORDER BY digest ON CONFLICT DO NOTHING
"""
_LOCK = "hashtextextended(current_schema() || '/' || %s, 0)"

# A commit need not wait for the disk of the server until `sync` asks for it, and a client that is gone
# without a word must not hold its runs for the two hours that a connection may be silent by default.
_SESSION = """
SET synchronous_commit = off; SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10;
SET tcp_keepalives_count = 3; SET client_min_messages = warning
"""

Result = TypeVar("Result")


class PostgresStore:
    """Runs in a PostgreSQL database. Close it, or use it as a context manager.

    `url` is `postgresql://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE`, or what else libpq takes; a password is
    better kept in `~/.pgpass` or PGPASSWORD, and is in no log, message or list. `folder` is where copies
    and what belongs to no run lie; None means one of this user's own.
    """

    keeper = "PostgreSQL"

    def __init__(self, url: str, folder: Path | None = None) -> None:
        """Connect, and make the tables where there are none. Raises StoreError."""
        self._database = _Database(url)
        self.name = self._database.name
        self.folder = folder or _own_folder(self.name)
        self._held: set[str] = set()
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self.folder / "runs").mkdir(exist_ok=True)
            make_room_for_snapshots(self.folder)
            self._database.ask(_make_tables)
        except OSError as error:
            raise _no_copies(self.folder, error) from error
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> "PostgresStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, which also releases every run that was still held."""
        self._database.close()

    def path_of(self, run_id: str) -> Path:
        """The copy of a run, brought up to date. Raises StoreError."""
        _require(run_id)
        path = self._copy_of(run_id)
        row = self._database.row("SELECT id, bytes FROM stepfold_runs WHERE run_id = %s", run_id)
        with self._copying():
            if row is None or not row[1]:
                path.unlink(missing_ok=True)
            else:
                self._bring_up_to_date(path, *row)
        return path

    def logs(self) -> Path:
        """The folder of the copies, all of them brought up to date."""
        rows = self._database.rows("SELECT run_id, id, bytes FROM stepfold_runs WHERE bytes > 0")
        rows = [row for row in rows if _is_run_id(row[0])]
        with self._copying():
            for run_id, run, size in rows:
                self._bring_up_to_date(self._copy_of(run_id), run, size)
            there = {f"{run_id}.jsonl" for run_id, _, _ in rows}
            for path in (self.folder / "runs").glob("*.jsonl"):
                if path.name not in there:
                    path.unlink(missing_ok=True)
        return self.folder

    def holds(self, run_id: str) -> bool:
        """Whether anything of this run is recorded."""
        _require(run_id)
        query = "SELECT 1 FROM stepfold_runs WHERE run_id = %s AND next_seq > 0"
        return self._database.row(query, run_id) is not None

    def run_ids(self) -> list[str]:
        """All runs, sorted."""
        query = "SELECT run_id FROM stepfold_runs WHERE next_seq > 0 ORDER BY run_id"
        return [run_id for (run_id,) in self._database.rows(query) if _is_run_id(run_id)]

    def find(self, text: str) -> str:
        """The run that `text` names: its id, an unambiguous start of it, or `last`. Raises StoreError."""
        return found_among(self.run_ids(), text, self._newest, self.name, self.folder / SUITES)

    def _newest(self, run_ids: Sequence[str]) -> str:
        query = (
            "SELECT run_id FROM stepfold_runs WHERE run_id = ANY(%s) "
            "ORDER BY changed DESC, run_id DESC LIMIT 1"
        )
        row = self._database.row(query, list(run_ids))
        return run_ids[-1] if row is None else str(row[0])

    def kept(self, run_id: str) -> Iterator[bytes]:
        """The run's lines as the database holds them."""
        row = self._database.row("SELECT id FROM stepfold_runs WHERE run_id = %s", run_id)
        return iter(()) if row is None else self._lines(row[0], 0)

    def is_being_written(self, run_id: str) -> bool:
        """Whether a session of the database, this one or another, holds the run."""
        if run_id in self._held:
            return True
        query = f"SELECT pg_try_advisory_lock_shared({_LOCK}) AND pg_advisory_unlock_shared({_LOCK})"
        row = self._database.row(query, run_id, run_id)
        return row is not None and not row[0]

    def writer(self, run_id: str) -> "PostgresWriter":
        """The append side of a run. Raises LogError when another writer holds it."""
        _require(run_id)
        path = self._copy_of(run_id)
        try:
            self._hold(run_id, path)
            query = "INSERT INTO stepfold_runs(run_id) VALUES (%s) ON CONFLICT DO NOTHING"
            self._database.run(query, run_id)
            row = self._database.row("SELECT id, next_seq, tail FROM stepfold_runs WHERE run_id = %s", run_id)
        except StoreError as error:
            raise LogError(path, str(error)) from None
        assert row is not None, "it was put there, and this session holds it"
        return PostgresWriter(self, self._database, run_id, *row)

    def remove(self, run_id: str) -> None:
        """Forget a run and its copy. Raises LogError when a writer holds it."""
        _require(run_id)
        path = self._copy_of(run_id)
        self._hold(run_id, path)
        try:
            self._database.run("DELETE FROM stepfold_runs WHERE run_id = %s", run_id)
            path.unlink(missing_ok=True)
            forget_snapshot(path)
        finally:
            self.release(run_id)

    def summary(self, run_id: str) -> str | None:
        """The summary that was kept of a run, if its log has not grown since."""
        query = (
            "SELECT summary FROM stepfold_summaries AS s JOIN stepfold_runs AS r ON s.run = r.id "
            "WHERE r.run_id = %s AND s.bytes = r.bytes"
        )
        row = self._database.row(query, run_id)
        return None if row is None else str(row[0])

    def keep_summary(self, run_id: str, summary: str) -> None:
        """Keep a summary of a run as it stands, if this user may write at all."""
        query = (
            "INSERT INTO stepfold_summaries(run, bytes, summary) "
            "SELECT id, bytes, %s FROM stepfold_runs WHERE run_id = %s "
            "ON CONFLICT (run) DO UPDATE SET bytes = excluded.bytes, summary = excluded.summary"
        )
        self._database.forget(query, summary, run_id)

    def release(self, run_id: str) -> None:
        """Let another writer have a run that a writer of this store held."""
        self._held.discard(run_id)
        self._database.forget(f"SELECT pg_advisory_unlock({_LOCK})", run_id)

    def _hold(self, run_id: str, path: Path) -> None:
        # A session gets a lock that it holds once more, so what this one holds is kept here as well.
        if run_id in self._held or not granted(lambda: self._locked(run_id)):
            raise LogError(path, HELD)
        self._held.add(run_id)

    def _locked(self, run_id: str) -> bool:
        row = self._database.row(f"SELECT pg_try_advisory_lock({_LOCK})", run_id)
        return row is not None and bool(row[0])

    def _copy_of(self, run_id: str) -> Path:
        return self.folder / "runs" / f"{run_id}.jsonl"

    @contextmanager
    def _copying(self) -> Iterator[None]:
        """While it is entered, no other process of this machine copies into the same folder."""
        try:
            with (self.folder / ".copying").open("a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise _no_copies(self.folder, error) from error

    def _bring_up_to_date(self, path: Path, run: int, size: int) -> None:
        known = self._ends_alike(path, run) if path.exists() else None
        if known is not None and path.stat().st_size == size:
            return
        first = 0 if known is None else known + 1
        with path.open("wb" if known is None else "ab") as file:
            file.writelines(line + b"\n" for line in self._lines(run, first))

    def _ends_alike(self, path: Path, run: int) -> int | None:
        """The seq of a copy's last line, if the database has the same line there."""
        last = last_line(path)
        try:
            seq = decode(unsealed(last)[0]).seq
        except LineError:
            return None
        query = "SELECT line FROM stepfold_lines WHERE run = %s AND seq = %s"
        row = self._database.row(query, run, seq)
        return seq if row is not None and self_contained(bytes(row[0]), self._text_of) == last else None

    def _text_of(self, digest: str) -> bytes:
        row = self._database.row("SELECT text FROM stepfold_texts WHERE digest = %s", digest)
        if row is None:
            raise LostText(f"its text {digest} is missing from {self.name}")
        return unchanged(digest, bytes(row[0]), self.name)

    def _lines(self, run: int, first: int) -> Iterator[bytes]:
        query = "SELECT line FROM stepfold_lines WHERE run = %s AND seq >= %s AND seq < %s ORDER BY seq"
        while rows := self._database.rows(query, run, first, first + _LINES_AT_A_TIME):
            yield from (self_contained(bytes(line), self._text_of) for (line,) in rows)
            first += _LINES_AT_A_TIME


_LINES_AT_A_TIME = 10_000
_GOES_ON = "what was recorded before is safe, and `stepfold resume` goes on"


class PostgresWriter:
    """See `run_store.RunWriter`."""

    def __init__(
        self, store: PostgresStore, database: "_Database", run_id: str, run: int, seq: int, tail: str
    ) -> None:
        self._store = store
        self._database = database
        self._run_id = run_id
        self._run = run
        self._seq = seq
        self._tail = tail
        self.path = store.folder / "runs" / f"{run_id}.jsonl"

    @property
    def synced_with(self) -> object:
        """A commit that waits for the server's disk waits for all before it."""
        return self._database

    def begin(self) -> None:
        """Refuse a run that is recorded already."""
        if self._seq:
            raise LogError(self.path, RECORDED_ALREADY)

    def recorded(self) -> tuple[Log, Repair]:
        """The log, read from its copy; a copy that does not end as the database does is made anew."""
        try:
            path = self._store.path_of(self._run_id)
            log = read_log(path)
            if log.torn or _tail_of(log.records[-1].written) != self._tail:
                path.unlink()
                log = read_log(self._store.path_of(self._run_id))
        except StoreError as error:
            raise LogError(self.path, str(error)) from None
        return log, NOTHING

    def append(self, lines: Sequence[bytes]) -> None:
        """One statement: all lines are there, behind the one that this writer knows as the last, or none."""
        after = _tail_of(lines[-1])
        written, texts = _put_aside(lines)
        batch = {
            "run": self._run,
            "seq": self._seq,
            "before": self._tail,
            "tail": after,
            # Of the copies, which hold their texts: a copy is as long as this when it is up to date.
            "bytes": sum(len(escaped(line)) + 1 for line in lines),
            "lines": written,
        }
        try:
            if texts:
                self._database.keep_texts(texts)
            count = self._database.append(batch)
        except StoreError as error:
            raise LogError(self.path, f"can't be written: {error}; {_GOES_ON}") from None
        if count != len(lines):
            raise LogError(
                self.path,
                "another process has gone on with this run; look at it with `stepfold show`",
            )
        self._seq += count
        self._tail = after

    def step_ended(self) -> None:
        """Nothing is done a step at a time."""

    def sync(self) -> None:
        """A commit that waits for the server's disk, and so for all before it."""
        try:
            self._database.sync(self._run)
        except StoreError as error:
            raise LogError(self.path, f"can't be made durable: {error}; {_GOES_ON}") from None

    def rest(self) -> None:
        """Nothing was put off but the wait for the disk."""
        self.sync()

    def close(self) -> None:
        """Release the run."""
        self._store.release(self._run_id)


_LOOK_AFTER_SERVER = "see that the server runs and lets this user in"


class _Database:
    """One connection, and what of its errors may be told."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg
            from psycopg.conninfo import conninfo_to_dict
        except ImportError as error:
            raise StoreError(
                "a store in PostgreSQL needs psycopg: run `pip install 'stepfold[postgres]'`"
            ) from error
        self._error: type[Exception] = psycopg.Error
        scheme, _, rest = url.partition(":")
        url = f"{scheme.lower()}:{rest}"
        try:
            parts = conninfo_to_dict(url) if _is_plain(rest) else {}
        except psycopg.Error:
            parts = {}
        if not parts:
            # What libpq says of a URL that it can't read has pieces of it, perhaps of the password.
            raise StoreError(
                "--store: no PostgreSQL URL that can be read: write postgresql://USER@HOST/DATABASE, "
                "with %-escapes for what is not a letter or digit"
            )
        self._secrets = [str(value) for key, value in parts.items() if "password" in key and value]
        self.name = _name_of(parts)
        try:
            self._connection = psycopg.connect(url, autocommit=True, connect_timeout=10)
            self._connection.execute(_SESSION)
        except psycopg.Error as error:
            raise StoreError(
                f"{self.name}: can't be reached: {self._told(error)}; {_LOOK_AFTER_SERVER}"
            ) from None

    def ask(self, work: Callable[[Any], Result]) -> Result:
        """Do something with the connection. Raises StoreError."""
        try:
            return work(self._connection)
        except (self._error, UnicodeError) as error:
            mending = _LOOK_AFTER_SERVER if self._connection.closed else "see to that in the database"
            raise StoreError(f"{self.name}: {self._told(error)}; {mending}") from None

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """All rows of a query. Raises StoreError."""
        return self.ask(lambda connection: connection.execute(query, parameters).fetchall())

    def row(self, query: str, *parameters: Any) -> tuple[Any, ...] | None:
        """The first row of a query. Raises StoreError."""
        rows = self.rows(query, *parameters)
        return rows[0] if rows else None

    def run(self, query: str, *parameters: Any) -> int:
        """Run a statement; how many rows it was about. Raises StoreError."""
        return self.ask(lambda connection: int(connection.execute(query, parameters).rowcount))

    def keep_texts(self, texts: dict[str, bytes]) -> None:
        """Keep large texts, none of which need be new. Raises StoreError."""
        given = {"digests": list(texts), "texts": list(texts.values())}
        self.ask(lambda connection: connection.execute(_KEEP_TEXTS, given))

    def append(self, batch: dict[str, Any]) -> int:
        """Add lines; how many were added. Raises StoreError."""
        return self.ask(lambda connection: int(connection.execute(_APPEND, batch, prepare=True).rowcount))

    def forget(self, query: str, *parameters: Any) -> None:
        """Run what needs not be done where it can't be."""
        with suppress(StoreError):
            self.ask(lambda connection: connection.execute(query, parameters))

    def sync(self, run: int) -> None:
        """Commit a change of a run, waiting for the disk. Raises StoreError."""
        statement = (
            "BEGIN; SET LOCAL synchronous_commit = on; "
            f"UPDATE stepfold_runs SET synced = next_seq WHERE id = {int(run)}; COMMIT"
        )
        self.ask(lambda connection: connection.execute(statement))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _told(self, error: Exception) -> str:
        said = " ".join(str(error).split()) or type(error).__name__
        for secret in self._secrets:
            said = said.replace(secret, "…")
        return said


def _is_plain(rest: str) -> bool:
    """Whether a URL after its scheme can be read in one way only.

    A password with an @ or a slash that is not escaped would be taken for a host, and told.
    """
    authority, _, path = rest.removeprefix("//").partition("/")
    return rest.startswith("//") and authority.count("@") <= 1 and "@" not in path.partition("?")[0]


def _make_tables(connection: Any) -> None:
    # Not made where they are: a user who may only read and write rows needs no more.
    if connection.execute("SELECT to_regclass('stepfold_summaries')").fetchone()[0] is not None:
        return
    with connection.transaction():
        # Two processes that make the tables at once would stumble over each other.
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('stepfold tables', 0))")
        connection.execute(_TABLES)


def _no_copies(folder: Path, error: OSError) -> StoreError:
    return StoreError(
        f"{folder}: can't hold the copies of runs: {error.strerror}; free some space or open it to this "
        "user, or name another with XDG_STATE_HOME"
    )


def _is_run_id(run_id: str) -> bool:
    """Whether an id of the database, where others write, may be the name of a file here."""
    try:
        _require(run_id)
    except StoreError:
        return False
    return True


def _require(run_id: str) -> None:
    require_run_id(run_id)
    try:
        run_id.encode()
    except UnicodeEncodeError as error:
        raise StoreError(f"{run_id!r} is no run id: it can't be written as UTF-8") from error


def _put_aside(lines: Sequence[bytes]) -> tuple[list[bytes], dict[str, bytes]]:
    """Lines as the database keeps them, and the texts that they name."""
    if not must_change(b"\n".join(lines)):
        return list(lines), {}
    kept = [aside(line) for line in lines]
    return [one.line for one in kept], {digest: text for one in kept for digest, text in one.texts.items()}


def _tail_of(line: bytes) -> str:
    """What tells a last line from any other: its seal, which stands for all before it."""
    return unsealed(line)[1] or blake2b(line, digest_size=8).hexdigest()


def _name_of(parts: dict[str, Any]) -> str:
    """The address without what is nobody's business."""
    user = f"{parts['user']}@" if parts.get("user") else ""
    host = str(parts.get("host") or parts.get("hostaddr") or "")
    port = f":{parts['port']}" if parts.get("port") else ""
    options = f" ({parts['options']})" if parts.get("options") else ""
    return f"postgresql://{user}{host}{port}/{parts.get('dbname') or ''}{options}"


def _own_folder(name: str) -> Path:
    """A folder of this user's for the store of that name."""
    state = os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return Path(state) / "stepfold" / digest
