"""Driving inside a task that somebody may cancel: the run then ends cancelled, and its log is whole."""

import asyncio
from collections.abc import Callable

from stepfold.engine.runtime.drive import Effects, EventLog, drive
from stepfold.projections.state import Run


async def drive_to_the_end(run: Run, effects: Effects, log: EventLog, cancel: Callable[[str], None]) -> None:
    """Drive a run. When this task is cancelled, `cancel` asks the run for its end, which is awaited.

    Raises CancelledError then, once the run has ended.
    """
    driving = asyncio.create_task(drive(run, effects, log))
    try:
        await asyncio.shield(driving)
    except asyncio.CancelledError:
        if not driving.done():
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
