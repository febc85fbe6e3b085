"""What-if over recorded runs: the recorded landings under other guards, caps or policies, without a model.

A run is regenerated under the changed configuration from what was observed. While the engine decides
as it did, the recorded landings serve. From the first other decision on, only what follows without a
new landing is known: a run that ends there would end there; one that would ask the model something
else, or go on where the recorded one ended, is unknown from that point, and said to be.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stepfold.engine.runtime.drive import drive
from stepfold.engine.runtime.replay import run_to_end
from stepfold.engine.runtime.changes import changed
from stepfold.events.codec import encode
from stepfold.events.journal import Recorded
from stepfold.events.vocabulary import AnyEvent, GuardTripped, LimitReached, Observed, RunStarted, Unknown
from stepfold.projections.outcome import STATUSES
from stepfold.projections.run import fold
from stepfold.projections.state import Run


class Ending(Struct, frozen=True):
    """How a run ends. `finish` is None where that can't be known without a model."""

    finish: str | None
    step: int
    guard: str = ""


class Judgement(Struct, frozen=True):
    """One run under changed settings. `seq` is where the first other decision stands, -1 for none."""

    run_id: str
    recorded: Ending
    would: Ending
    seq: int = -1

    @property
    def changed(self) -> bool:
        """Whether the run would end elsewhere, or can't be known to end where it did."""
        return self.seq >= 0 and (self.would.finish, self.would.step) != (
            self.recorded.finish,
            self.recorded.step,
        )

    def as_json(self) -> dict[str, Any]:
        """The shape that `stepfold judge --json` prints."""
        return {
            "run_id": self.run_id,
            "recorded": {"finish": self.recorded.finish, "step": self.recorded.step},
            "would": {
                "finish": self.would.finish,
                "step": self.would.step,
                "guard": self.would.guard or None,
                "known": self.would.finish is not None,
            },
            "changed": self.changed,
            "seq": self.seq if self.seq >= 0 else None,
        }


class _Diverged(Exception):
    """The run would wait for a landing that nobody recorded."""


class _WhatIf:
    """Effects and log of a run under changed settings, over the records of the run as it was."""

    def __init__(self, records: Sequence[Recorded], settings: Iterable[str]) -> None:
        self._records = records
        self._settings = tuple(settings)
        self._at = 0
        self._handed_out = 0
        self.seq = -1
        self.guard = ""

    async def next(self, run: Run) -> Sequence[AnyEvent | Unknown]:
        if self.seq >= 0:
            if run.due and not run.status:
                raise _Diverged
            return ()
        batch: list[AnyEvent | Unknown] = []
        while self._at < len(self._records):
            event = self._records[self._at].event
            if not isinstance(event, Observed | Unknown):
                break
            batch.append(self._under_settings(event))
            self._at += 1
        self._handed_out = len(batch)
        return batch

    def _under_settings(self, event: AnyEvent | Unknown) -> AnyEvent | Unknown:
        if isinstance(event, RunStarted):
            return replace(event, config=changed(event.config, self._settings))
        return event

    def record(self, event: AnyEvent | Unknown) -> None:
        if self._handed_out:
            self._handed_out -= 1
            return
        if isinstance(event, GuardTripped):
            self.guard = event.guard
        elif isinstance(event, LimitReached):
            self.guard = event.limit
        if self.seq >= 0:
            return
        recorded = self._records[self._at].event if self._at < len(self._records) else None
        if recorded is None or encode(event) != encode(recorded):  # type: ignore[arg-type]
            self.seq = event.seq
        self._at += 1

    def flush(self) -> None:
        """Nothing is written."""


def judge(records: Sequence[Recorded], settings: Iterable[str]) -> Judgement:
    """How a recorded run would end under changed settings (`KEY=VALUE`). Raises ChangeError."""
    was = fold(record.event for record in records)
    recorded = Ending(_finish(was), was.step)
    what_if = _WhatIf(records, settings)
    run = Run()
    try:
        run_to_end(drive(run, what_if, what_if))
    except _Diverged:
        return Judgement(was.run_id, recorded, Ending(None, run.step, what_if.guard), what_if.seq)
    if what_if.seq < 0:
        return Judgement(was.run_id, recorded, recorded)
    return Judgement(was.run_id, recorded, Ending(_finish(run), run.step, what_if.guard), what_if.seq)


def _finish(run: Run) -> str:
    return STATUSES.get(run.status or "unfinished", "failed")
