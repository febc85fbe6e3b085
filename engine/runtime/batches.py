"""Where a batch of landings ends, for live runs and for all that read one again: replay, forks, judge.

The log does not say which landings came together. A batch decides as one, so whoever reads the log has
to cut it where the live run did.
"""

from collections.abc import Sequence
from itertools import islice, takewhile

import msgspec

from stepfold.events.journal import Recorded
from stepfold.events.vocabulary import AnyEvent, Observed, Unknown, WaitEnded
from stepfold.projections.fold_shared import BACKOFF
from stepfold.projections.state import Run


def ends_batch(event: AnyEvent | Unknown) -> bool:
    """A backoff that ends makes the next attempt due and decides nothing, so it ends its batch.

    No decided event stands in the log between it and what lands next, and replay has to cut there too:
    with a deadline that passed in the same moment it would decide before the attempt's own landing.
    """
    return isinstance(event, WaitEnded) and event.key.startswith(BACKOFF)


class Batch:
    """The landings that answer together what is due in a run, taken one after the other."""

    def __init__(self, run: Run) -> None:
        self._due = run.due
        self._answered: set[str] = set()
        self._ended = False

    def takes(self, record: Recorded) -> bool:
        """Whether the next recorded event is of this batch. The first that is not ends it."""
        if self._ended or not self._joins(record):
            self._ended = True
            return False
        self._answered.add(getattr(record.event, "key", ""))
        self._ended = ends_batch(record.event)
        return True

    def _joins(self, record: Recorded) -> bool:
        event = record.event
        if isinstance(event, Observed):
            return not event.key or (event.key in self._due and event.key not in self._answered)
        return isinstance(event, Unknown) and not _was_decided(record)


def batch_at(records: Sequence[Recorded], position: int, run: Run) -> list[AnyEvent | Unknown]:
    """The recorded landings from `position` on that answer what is due in `run`, as one batch."""
    batch = Batch(run)
    return [record.event for record in takewhile(batch.takes, islice(records, position, None))]


def _was_decided(record: Recorded) -> bool:
    """Whether a line of an unknown kind stands for a decision: every one of those names its row."""
    return "row" in msgspec.json.decode(record.line)
