"""Notes that outlive a run: written by `memory_write`, recalled by `memory.recall` and at a run's start."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath

BUSY_SECONDS = 5.0
TERM_LIMIT = 32
NOTE_LIMIT = 64 * 1024

_TERM = re.compile(r"\w+")

_TABLES = """
CREATE VIRTUAL TABLE IF NOT EXISTS memory USING fts5(text, run_id UNINDEXED, tokenize = 'porter unicode61')
"""


class Memory:
    """The notes of one project, in a SQLite file of their own or in one that is there already.

    Each call opens the file and closes it again, so other processes may write in between. A file
    that can't be used never stops a run: nothing is recalled, and `fault` says why.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = fspath(path)
        self.fault = ""

    def write(self, text: str, run_id: str) -> bool:
        """Keep a note, cut at 64 Ki characters; False, with `fault` set, when it could not be kept."""
        note = text.encode("utf-8", "replace").decode()[:NOTE_LIMIT]
        try:
            with self._opened() as database:
                database.execute("INSERT INTO memory (text, run_id) VALUES (?, ?)", (note, run_id))
        except sqlite3.Error as reason:
            self._note_fault(reason)
            return False
        return True

    def recall(self, query: str, limit: int = 5) -> tuple[str, ...]:
        """The notes that share a word with `query`, best first; equals in the order they were written.

        The query is words, not FTS5 syntax: operators and quotes in it mean nothing.
        """
        terms = list(dict.fromkeys(term.lower() for term in _TERM.findall(query)))[:TERM_LIMIT]
        if not terms or limit < 1:
            return ()
        wanted = " OR ".join(f'"{term}"' for term in terms)
        try:
            with self._opened() as database:
                rows = database.execute(
                    "SELECT text FROM memory WHERE memory MATCH ? ORDER BY bm25(memory), rowid LIMIT ?",
                    (wanted.encode("utf-8", "replace").decode(), limit),
                ).fetchall()
        except sqlite3.Error as reason:
            self._note_fault(reason)
            return ()
        return tuple(str(text) for (text,) in rows)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self.path, timeout=BUSY_SECONDS)
        try:
            with database:
                database.execute(_TABLES)
                yield database
            self.fault = ""
        finally:
            database.close()

    def _note_fault(self, reason: sqlite3.Error) -> None:
        self.fault = f"memory {self.path}: {reason}: move the file away to start a new one"
