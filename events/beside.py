"""What lies beside a log, and where: found from the log's own path, so that no reader needs its store."""

from contextlib import suppress
from pathlib import Path

_LOGS = "runs"


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
