"""Signals as landings: what would kill the process asks the run for its end instead."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from stepfold.engine.runtime.live import LiveEffects
from stepfold.events.vocabulary import BLANK, CancelRequested


@contextmanager
def interrupts(effects: LiveEffects) -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP become a cancel in the mailbox; a second one falls back to Python's own."""
    loop = asyncio.get_running_loop()

    def cancel(number: int) -> None:
        effects.push(CancelRequested(*BLANK, reason=signal.Signals(number).name))
        loop.remove_signal_handler(number)

    handled = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        try:
            loop.add_signal_handler(number, cancel, number)
            handled.append(number)
        except (ValueError, RuntimeError):
            # Not the main thread: whoever runs the loop there owns the signals.
            break
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
