"""Taking up a run where its log stops: what was lost, what runs again, what is asked anew."""

import msgspec
from msgspec import Struct

from stepfold.engine.runtime.drive import settle
from stepfold.engine.runtime.live import LiveEffects, runs_once
from stepfold.engine.runtime.run_log import RunLog
from stepfold.engine.runtime.snapshots import Folded
from stepfold.events.configuration import ImportedConfig
from stepfold.events.reconcile import NOTHING, Repair
from stepfold.events.vocabulary import BLANK, EffectLost, LogRepaired, RunReopened, UserAnswered
from stepfold.projections.effects import CallTool
from stepfold.projections.fold_goal import LISTEN
from stepfold.projections.state import Run


class CannotResume(Exception):
    """A run that can't be taken up: which, why, and what to do."""


class Reopened(Struct, frozen=True):
    """A folded run, the keys of the effects that may have been in flight when its process died, and what
    had to be mended of its log.
    """

    run: Run
    suspects: tuple[str, ...]
    repair: Repair = NOTHING


def reopen(folded: Folded, out: RunLog) -> Reopened:
    """From the fold of a log: decide what its process had not written any more.

    A batch is written before its effects start. So when the tail of a batch was lost, whatever that
    batch started never ran, and is not among the suspects.
    """
    run, in_flight = folded
    at_the_end = set(run.due)
    decided = settle(run, out)
    out.flush()
    suspects = at_the_end & in_flight if decided else at_the_end
    return Reopened(run, tuple(key for key in run.due if key in suspects), out.repair)


def refuse_ended(run: Run) -> None:
    """Raises CannotResume for a run that has ended, with what it ended in, or that is another program's."""
    if isinstance(run.config, ImportedConfig):
        raise CannotResume(
            f"run {run.run_id} was imported from {run.config.format}: its loop is another program's"
        )
    if run.status and not run.due:
        raise CannotResume(
            f"run {run.run_id} has ended ({run.status}): start a new one, or look with `stepfold show`"
        )


def rests(run: Run) -> bool:
    """Nothing goes on without an answer: the run has ended, or waits for a person."""
    return not run.due or LISTEN in run.due


def take_up(effects: LiveEffects, reopened: Reopened, answer: str | None) -> None:
    """Put into the mailbox what the new life begins with. Raises CannotResume for an answer to nothing."""
    run = reopened.run
    push_reopening(effects, reopened)
    if answer is None:
        return
    if LISTEN not in run.due:
        raise CannotResume(f"run {run.run_id} asks nothing: resume it without --answer")
    effects.push(UserAnswered(*BLANK, text=answer), LISTEN)


def push_reopening(effects: LiveEffects, reopened: Reopened) -> None:
    """What every later life begins with: that it is one, and which calls in doubt may not run twice.

    The other suspects simply run again.
    """
    effects.push(RunReopened(*BLANK))
    if reopened.repair != NOTHING:
        effects.push(LogRepaired(*BLANK, **msgspec.structs.asdict(reopened.repair)))
    run = reopened.run
    for key in reopened.suspects:
        call = run.due.get(key)
        if isinstance(call, CallTool) and runs_once(call, run):
            effects.push(EffectLost(*BLANK), key)
