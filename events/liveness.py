"""Whether a process is at work on a run: who writes a log holds a lock on it."""

import fcntl
from pathlib import Path


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
