"""Whether a process is at work on a run: who writes a log holds a lock on it."""

import fcntl
import time
from collections.abc import Callable
from pathlib import Path

HELD = "another process is writing this run; wait for it, or stop it first"
"""Why a run that somebody holds can't be written by another."""

_TRIES = 25
_PAUSE_SECONDS = 0.02


def granted(attempt: Callable[[], bool]) -> bool:
    """Whether a lock is got within half a second.

    A killed process's last child may hold it for the moment before it execs, and a server takes as long to
    see that a connection is gone.
    """
    for _ in range(_TRIES):
        if attempt():
            return True
        time.sleep(_PAUSE_SECONDS)
    return False


def is_locked(trace: Path) -> bool:
    """Whether some process holds the log of a run. A file that can't be asked counts as at rest."""
    try:
        with trace.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
