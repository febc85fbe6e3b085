"""The clock of live runs: the only place that reads the time."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Time as live effects see it, in microseconds since 1970."""

    def now(self) -> int:
        """The time now."""
        ...

    async def sleep_until(self, moment: int) -> None:
        """Return at `moment`, at once if it is past."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        """The time now, in microseconds since 1970."""
        return time.time_ns() // 1000

    async def sleep_until(self, moment: int) -> None:
        """Sleep until `moment`."""
        await asyncio.sleep(max(0.0, (moment - self.now()) / 1_000_000))


class Timestamps:
    """Microseconds as the log writes them, never going back even when the machine's clock does."""

    def __init__(self) -> None:
        self._last = 0
        self._second = -1
        self._prefix = ""

    def stamp(self, moment: int) -> str:
        """RFC 3339 in UTC with microseconds."""
        self._last = moment = max(self._last, moment)
        second, rest = divmod(moment, 1_000_000)
        if second != self._second:
            self._second = second
            self._prefix = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._prefix}.{rest:06d}Z"

    def not_before(self, moment: int) -> None:
        """Later stamps are at least this."""
        self._last = max(self._last, moment)
