"""Driving inside a task that somebody may cancel: the run then ends cancelled, and its log is whole."""

import asyncio
from collections.abc import Callable

from stepfold.engine.runtime.drive import Effects, EventLog, drive
from stepfold.projections.state import Run


def _always() -> bool:
    return True


async def drive_to_the_end(
    run: Run,
    effects: Effects,
    log: EventLog,
    cancel: Callable[[str], None],
    given_up: Callable[[], bool] = _always,
) -> None:
    """Drive a run. When this task is cancelled, `cancel` asks the run for its end, which is awaited.

    Where `given_up` says no, only this process's part of the run is over: its log is left open, to be
    resumed. Raises CancelledError then, once nothing of the run goes on.
    """
    driving = asyncio.create_task(drive(run, effects, log))
    try:
        await asyncio.shield(driving)
    except asyncio.CancelledError:
        if not given_up():
            driving.cancel()
        elif not driving.done():
            cancel("the task was cancelled")
        await _patiently(driving)
        raise


async def _patiently(driving: "asyncio.Task[Run]") -> None:
    """Wait for the end although this task may be cancelled once more: event loops do that on closing."""
    while not driving.done():
        try:
            await asyncio.shield(driving)
        except asyncio.CancelledError:
            continue
