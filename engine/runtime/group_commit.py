"""Runs of one event loop reach the disk together: a disk takes many syncs at once for little more than one.

A run that has to be safe before its next effect waits here. Whoever comes while a round is on its way
goes with the next one, so that no run waits for more than two rounds, however many there are.
"""

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from weakref import WeakKeyDictionary

from stepfold.events.run_store import RunWriter

SYNCS_AT_ONCE = 16
"""Threads that wait for the disk; more of them gain nothing here (docs/performance.md)."""

_THREADS: list[ThreadPoolExecutor] = []
os.register_at_fork(after_in_child=_THREADS.clear)
"""A child has none of its parent's threads: what it handed to them would wait for ever."""

_BY_LOOP: "WeakKeyDictionary[asyncio.AbstractEventLoop, GroupCommit]" = WeakKeyDictionary()


def group_commit() -> "GroupCommit":
    """The one of the event loop that runs."""
    return _BY_LOOP.setdefault(asyncio.get_running_loop(), GroupCommit())


class GroupCommit:
    """Rounds of syncs, one after the other. Belongs to one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[RunWriter, asyncio.Future[None]] = {}
        self._round: asyncio.Task[None] | None = None

    @property
    def is_at_work(self) -> bool:
        """Whether somebody waits for the disk."""
        return self._round is not None

    async def synced(self, writer: RunWriter) -> None:
        """Return when all that was appended by now is safe from a lost machine. Raises LogError, OSError.

        A task that is cancelled here still waits: its writer may not be closed under the sync.
        """
        done = self._waiting.get(writer)
        if done is None:
            done = self._waiting[writer] = asyncio.get_running_loop().create_future()
        if self._round is None:
            self._round = asyncio.create_task(self._rounds())
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError:
            await asyncio.wait([done])
            done.exception()
            raise

    async def _rounds(self) -> None:
        # Whoever is about to write in this turn of the loop comes along.
        await asyncio.sleep(0)
        while self._waiting:
            waiting, self._waiting = self._waiting, {}
            # Where one sync is good for many writers (a database), it is asked for once.
            shared: dict[object, list[RunWriter]] = {}
            for writer in waiting:
                shared.setdefault(writer.synced_with, []).append(writer)
            ended = await _synced([writers[0] for writers in shared.values()])
            for writers, error in zip(shared.values(), ended, strict=True):
                for writer in writers:
                    if isinstance(error, BaseException):
                        waiting[writer].set_exception(error)
                    else:
                        waiting[writer].set_result(None)
        self._round = None


async def _synced(writers: Sequence[RunWriter]) -> Sequence[BaseException | None]:
    """Sync each of them, and give what it raised."""
    loop = asyncio.get_running_loop()
    syncs = [loop.run_in_executor(_threads(), writer.sync) for writer in writers]
    return await asyncio.gather(*syncs, return_exceptions=True)


def _threads() -> ThreadPoolExecutor:
    if not _THREADS:
        _THREADS.append(ThreadPoolExecutor(SYNCS_AT_ONCE, thread_name_prefix="sync"))
    return _THREADS[0]
