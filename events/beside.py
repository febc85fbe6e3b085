"""What lies beside a log, where, and by what digest: found from the log's own path, so that no reader needs
its store.
"""

from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

DIGEST_BYTES = 32
_LOGS = "runs"


def digest_beside(content: bytes) -> str:
    """Of what is kept apart from its log, as hex of BLAKE2b: it is whole where this is what it was."""
    return blake2b(content, digest_size=DIGEST_BYTES).hexdigest()


def texts_of(log: Path) -> Path:
    """The folder of the large texts of a log, and of all others in its folder."""
    return log.with_name("texts")


def snapshot_of(log: Path) -> Path | None:
    """The file that keeps what was folded of a log of a store; None for a log that lies anywhere else."""
    if log.parent.name != _LOGS:
        return None
    return log.parent.with_name("folded") / f"{log.stem}.snapshot"


def forget_snapshot(log: Path) -> None:
    """Remove what was kept of a log that is gone: it holds the log's texts."""
    if (path := snapshot_of(log)) is not None:
        with suppress(OSError):
            path.unlink(missing_ok=True)
