"""Files that are there whole or not at all: written beside their place, and then put into it.

Whoever writes a draft holds a lock on it. So any process can tell a draft that is being written from one
that a killed process has left, and may sweep the latter.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from stepfold.events.beside import opened

_ENDING = ".draft"


@contextmanager
def drafted(path: Path, mode: int = 0o644) -> Iterator[Path]:
    """Where to write what is to stand at `path`. It takes that place when the block ends, and nothing is left
    of it when the block fails. `mode` is its permissions, less what the umask takes. Raises OSError.
    """
    draft, lock = _begun(path, mode)
    try:
        yield draft
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink()
        os.close(lock)


def sweep(folder: Path) -> None:
    """Remove the drafts in a folder that nobody writes any more. What can't be removed stays."""
    with suppress(OSError), os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
        for name in names:
            if not (name.startswith(".") and name.endswith(_ENDING)):
                continue
            with suppress(OSError), opened(folder / name) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # No draft gets a name again, so this is the one that was locked.
                (folder / name).unlink()


def _begun(path: Path, mode: int) -> tuple[Path, int]:
    """A new draft, and the file that holds its lock as long as it is open."""
    while True:
        draft = path.with_name(f".{path.name}.{token_hex(8)}{_ENDING}")
        lock = os.open(draft, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        # Where there are no locks nobody can sweep either.
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:
            return draft, lock
        # Swept between the two, as if nobody wrote it.
        os.close(lock)
