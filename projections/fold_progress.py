"""How a tool-calling run notices that it repeats itself."""

from stepfold.events.vocabulary import Message, NoProgress
from stepfold.projections.state import Run, Slot

_BROKEN = "\x1e"
"""In the place of a turn's calls: one of them failed, so that the turn is like no other."""


def turn_begins(run: Run) -> None:
    """A turn's calls are compared as a whole; one that was given up counts for nothing."""
    run.harness.batch = ""


def call_succeeded(run: Run, slot: Slot, text: str) -> None:
    """A success ends a row of failures, and is part of what the turn did."""
    harness = run.harness
    harness.failures = harness.same_failures = 0
    if harness.batch != _BROKEN:
        harness.batch = f"{harness.batch}\x1f{slot.name}\x1f{slot.arguments!r}\x1f{text}"


def call_failed(run: Run, slot: Slot, text: str) -> None:
    """Failures are alike when tool, arguments and the first line of the error are."""
    harness = run.harness
    failure = f"{slot.name}\x1f{slot.arguments!r}\x1f{text.partition(chr(10))[0]}"
    harness.failures += 1
    harness.same_failures = harness.same_failures + 1 if failure == harness.last_failure else 1
    harness.last_failure = failure
    harness.batch = _BROKEN


def turn_ended(run: Run) -> None:
    """Compare the turn's successful calls with those of the turn before."""
    harness = run.harness
    did = "" if harness.batch == _BROKEN else harness.batch
    if did and did == harness.last_batch:
        harness.same_batches += 1
    else:
        harness.same_batches = 1 if did else 0
    harness.last_batch = did


def no_progress(run: Run, event: NoProgress) -> None:
    """A nudge is one more user turn; a stop ends the run like a limit."""
    harness = run.harness
    if event.verdict == "stop":
        harness.limit = "no_progress"
        run.fault_detail = event.message
        return
    harness.nudged_at = (harness.same_failures, harness.failures)
    run.history.append(Message("user", event.message))
