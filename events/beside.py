"""What lies beside a log, where, and by what digest: found from the log's own path, so that no reader needs
its store.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

DIGEST_BYTES = 32
_LOGS = "runs"
_SNAPSHOTS = "folded"


def digest_beside(content: bytes) -> str:
    """Of what is kept apart from its log, as hex of BLAKE2b: it is whole where this is what it was."""
    return blake2b(content, digest_size=DIGEST_BYTES).hexdigest()


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file, to be read. Raises OSError, also for what is no ordinary file: a FIFO would be waited for, and
    a device read, without end.
    """
    # A FIFO that nobody writes into is only opened at once if one says so.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no ordinary file", str(path))
        yield file


def texts_of(log: Path) -> Path:
    """The folder of the large texts of a log, and of all others in its folder."""
    return log.with_name("texts")


def snapshot_of(log: Path) -> Path | None:
    """The file that keeps what was folded of a log of a store; None for a log that lies anywhere else."""
    if log.parent.name != _LOGS:
        return None
    return log.parent.with_name(_SNAPSHOTS) / f"{log.stem}.snapshot"


def make_room_for_snapshots(store: Path) -> None:
    """Let snapshots be kept in a folder of runs, whose owner says by this that it is a store."""
    with suppress(OSError):
        (store / _SNAPSHOTS).mkdir(0o755, exist_ok=True)


def forget_snapshot(log: Path) -> None:
    """Remove what was kept of a log that is gone: it holds the log's texts."""
    if (path := snapshot_of(log)) is not None:
        with suppress(OSError):
            path.unlink(missing_ok=True)
