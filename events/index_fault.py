"""What is wrong with a `store.sqlite`, asked without making or changing it."""

import sqlite3
from contextlib import closing
from pathlib import Path

from stepfold.events.index import is_spoiled

WAIT_SECONDS = 0.5


def fault_of(database: Path) -> str:
    """What keeps a store's index from being used, and what to do; empty where nothing does."""
    if not database.exists():
        return ""
    try:
        where = f"{database.resolve().as_uri()}?mode=rw"
        with closing(sqlite3.connect(where, uri=True, timeout=WAIT_SECONDS, isolation_level=None)) as opened:
            opened.execute("SELECT count(*) FROM sqlite_master").fetchone()
            opened.execute("BEGIN IMMEDIATE")
            opened.execute("ROLLBACK")
    except sqlite3.Error as error:
        if is_spoiled(database, error):
            return f"{database.name}: {error}; move it away, and it is made anew from runs/*.jsonl"
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return (
                f"{database.name} is locked by another program; runs go on, and are caught up when it is free"
            )
    return ""
