"""The loop that live runs, replay, resume and forks share, for both tables. Everything else is data."""

from collections.abc import Sequence
from typing import Protocol

from stepfold.engine.core.decide import decide
from stepfold.engine.core.own_guards import MissingGuard
from stepfold.engine.runtime.own_guards import fetch_for
from stepfold.events.vocabulary import AnyEvent, Decided, Unknown
from stepfold.projections.run import evolve
from stepfold.projections.state import Run

DECISIONS_AT_MOST = 10_000
"""What one batch may decide. A row whose event leaves its own guard true would never rest."""


class Effects(Protocol):
    """Where observed events come from."""

    async def next(self, run: Run) -> Sequence[AnyEvent | Unknown]:
        """Start what is new in `run.due`, cancel what is gone from it, and return what has landed.

        Events come stamped, in order, from `run.seq` on. Nothing means that nobody can go on.
        """
        ...


class EventLog(Protocol):
    """Where events go."""

    def record(self, event: AnyEvent | Unknown) -> None:
        """Take one event, in order."""
        ...

    def flush(self) -> None:
        """A batch is whole: make it durable before its effects start."""
        ...


class NeverRests(RuntimeError):
    """A table that decides for ever: a mistake in a row, named."""


async def drive(run: Run, effects: Effects, log: EventLog) -> Run:
    """Fold what lands, decide what follows, until nothing more can land. Returns the run."""
    while batch := await effects.next(run):
        for landing in batch:
            evolve(run, landing)
            log.record(landing)
        settle(run, log)
        log.flush()
    return run


def settle(run: Run, log: EventLog) -> int:
    """Decide until the run rests; how many events that took. Raises NeverRests."""
    for count in range(DECISIONS_AT_MOST):
        event = _decided(run)
        if event is None:
            return count
        evolve(run, event)
        log.record(event)  # type: ignore[arg-type]
    raise NeverRests(f"the {run.loop} table never rests in {run.state!r}: look at its last row")


def _decided(run: Run) -> Decided | None:
    try:
        return decide(run)
    except MissingGuard:
        # Once in a process: whoever made the log had the guard, and it may be installed here as well.
        fetch_for(run.config)
        return decide(run)
