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

from stepfold.engine.core.guards import cycle_repeats, failure_repeats, rejection_repeats
from stepfold.engine.runtime.batches import batch_at
from stepfold.engine.runtime.changes import changed
from stepfold.engine.runtime.drive import drive
from stepfold.engine.runtime.replay import run_to_end
from stepfold.events.codec import encode
from stepfold.events.configuration import ImportedConfig
from stepfold.events.journal import Recorded
from stepfold.events.vocabulary import AnyEvent, GuardTripped, LimitReached, ModelReplied, RunStarted, Unknown
from stepfold.projections.outcome import STATUSES
from stepfold.projections.run import evolve, fold
from stepfold.projections.state import Run

IMPORTED_GUARDS = (cycle_repeats, rejection_repeats, failure_repeats)
"""The guards that ask nothing but replies and results, so that they can be asked of any program's run."""


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


class _Unknown(Exception):
    """The run would wait for a landing that nobody recorded."""


class _LogEnds(Exception):
    """The log stops inside a batch, as a killed process leaves it: nothing differs up to there."""


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
        """The recorded landings, until something else was decided."""
        if self.seq >= 0:
            if not run.status:
                raise _Unknown
            return ()
        batch = [self._under_settings(event) for event in batch_at(self._records, self._at, run)]
        if not batch and self._at < len(self._records):
            # A decision is recorded where none is taken now: the run rests, and waits for what is due.
            self.seq = run.seq
            return await self.next(run)
        self._at += len(batch)
        self._handed_out = len(batch)
        return batch

    def _under_settings(self, event: AnyEvent | Unknown) -> AnyEvent | Unknown:
        if not isinstance(event, RunStarted):
            return event
        forked = None if event.forked is None else changed(event.forked, self._settings)
        return replace(event, config=changed(event.config, self._settings), forked=forked)

    def record(self, event: AnyEvent | Unknown) -> None:
        """Compare what is decided with what was, up to the first difference; note the guard that trips."""
        if self._handed_out:
            self._handed_out -= 1
            return
        if self.seq < 0:
            self._compare(event)
        if isinstance(event, GuardTripped):
            self.guard = event.guard
        elif isinstance(event, LimitReached):
            self.guard = event.limit

    def _compare(self, event: AnyEvent | Unknown) -> None:
        if self._at >= len(self._records):
            raise _LogEnds
        recorded = self._records[self._at].event
        if isinstance(recorded, Unknown) or encode(event) != encode(recorded):  # type: ignore[arg-type]
            self.seq = event.seq
            # What tripped earlier, both runs have lived through.
            self.guard = ""
        self._at += 1

    def flush(self) -> None:
        """Nothing is written."""


def judge(records: Sequence[Recorded], settings: Iterable[str]) -> Judgement:
    """How a recorded run would end under changed settings (`KEY=VALUE`). Raises ChangeError."""
    was = fold(record.event for record in records)
    recorded = Ending(_finish(was), was.step)
    if was.loop == "imported":
        return _judge_imported(records, tuple(settings), was.run_id, recorded)
    what_if = _WhatIf(records, settings)
    run = Run()
    try:
        run_to_end(drive(run, what_if, what_if))
    except _Unknown:
        return Judgement(was.run_id, recorded, Ending(None, run.step, what_if.guard), what_if.seq)
    except _LogEnds:
        pass
    if what_if.seq < 0:
        return Judgement(was.run_id, recorded, replace(recorded, guard=what_if.guard))
    return Judgement(was.run_id, recorded, Ending(_finish(run), run.step, what_if.guard), what_if.seq)


def _judge_imported(
    records: Sequence[Recorded], settings: tuple[str, ...], run_id: str, recorded: Ending
) -> Judgement:
    """The first place where a guard or the cap would have ended a run whose loop was another program's.

    What its own loop would have done under other settings can't be known, and is not asked.
    """
    run = Run()
    for record in records:
        event = record.event
        if isinstance(event, RunStarted):
            event = replace(event, config=changed(event.config, settings))
        cap = run.config.max_steps if isinstance(run.config, ImportedConfig) else None
        if cap and isinstance(event, ModelReplied) and run.step >= cap:
            would = Ending(STATUSES["step_cap"], run.step, "steps_spent")
            return Judgement(run_id, recorded, would, event.seq)
        evolve(run, event)
        tripped = next((guard.__name__ for guard in IMPORTED_GUARDS if guard(run, None)), "")
        if tripped:
            return Judgement(run_id, recorded, Ending(STATUSES["failed"], run.step, tripped), event.seq + 1)
    return Judgement(run_id, recorded, recorded)


def _finish(run: Run) -> str:
    return STATUSES.get(run.status or "unfinished", "failed")
