"""Runs that sync together: each is safe before it goes on, and a failure is told to the run that it is of."""

import asyncio
import multiprocessing
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stepfold import AgentHarness, RunConfig, tool
from stepfold.engine.models.scripted import Script
from stepfold.engine.runtime.group_commit import GroupCommit
from stepfold.events.folder_writer import FolderWriter
from stepfold.events.journal import LogError
from stepfold.events.store import Store


class Writer:
    """Notes its syncs, each of which waits until it may end."""

    def __init__(self, shared: object = None, error: Exception | None = None) -> None:
        self.synced_with = shared or self
        self.syncs = 0
        self.may_end = threading.Event()
        self.may_end.set()
        self._error = error

    def sync(self) -> None:
        assert self.may_end.wait(10)
        self.syncs += 1
        if self._error is not None:
            raise self._error


def together(commit: GroupCommit, writers: Sequence[Any]) -> Any:
    return asyncio.gather(*(commit.synced(writer) for writer in writers), return_exceptions=True)


def test_each_writer_is_synced_and_one_sync_serves_those_that_share_it() -> None:
    async def run() -> None:
        database = object()
        alone, one, other = Writer(), Writer(database), Writer(database)
        await together(GroupCommit(), [alone, one, other, alone])
        assert (alone.syncs, one.syncs + other.syncs) == (1, 1)

    asyncio.run(run())


def test_who_comes_during_a_round_is_in_the_next_one() -> None:
    async def run() -> None:
        commit, first, late = GroupCommit(), Writer(), Writer()
        first.may_end.clear()
        begun = asyncio.create_task(commit.synced(first))
        await asyncio.sleep(0.01)
        again = [asyncio.create_task(commit.synced(writer)) for writer in (late, first)]
        await asyncio.sleep(0.01)
        assert late.syncs == 0
        first.may_end.set()
        await asyncio.gather(begun, *again)
        assert (first.syncs, late.syncs) == (2, 1)

    asyncio.run(run())


def test_a_sync_that_fails_is_the_failure_of_its_run_alone() -> None:
    async def run() -> None:
        full, fine = Writer(error=LogError(Path("r"), "no space")), Writer()
        failed, done = await together(GroupCommit(), [full, fine])
        assert isinstance(failed, LogError)
        assert done is None

    asyncio.run(run())


def test_a_task_that_is_cancelled_leaves_once_its_sync_is_over() -> None:
    async def run() -> None:
        commit, writer = GroupCommit(), Writer()
        writer.may_end.clear()
        waiting = asyncio.create_task(commit.synced(writer))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.sleep(0.01)
        assert not waiting.done()
        writer.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert writer.syncs == 1

    asyncio.run(run())


def synced_once() -> int:
    writer = Writer()
    asyncio.run(asyncio.wait_for(GroupCommit().synced(writer), 10))
    return writer.syncs


def test_a_forked_child_has_threads_of_its_own() -> None:
    assert synced_once() == 1
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(synced_once) == 1


def test_an_effect_starts_when_its_intent_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    safe: dict[Path, int] = {}
    sync = FolderWriter.sync

    def noting(writer: FolderWriter) -> None:
        size = writer.path.stat().st_size
        sync(writer)
        safe[writer.path] = size

    monkeypatch.setattr(FolderWriter, "sync", noting)

    async def crowd(store: Store) -> None:
        async def one(run_id: str) -> None:
            @tool
            async def change() -> str:
                """Change something."""
                path = store.path_of(run_id)
                assert safe[path] == path.stat().st_size
                assert b"ToolStarted" in path.read_bytes()
                return "changed"

            function = '{"name": "change", "arguments": "{}"}'
            call = f'{{"message": {{"tool_calls": [{{"id": "c", "function": {function}}}]}}}}'
            model = Script.parse(f'{call}\n{{"text": "done"}}'.encode())
            harness = AgentHarness(model, [change], store=store)
            ended = await harness.invoke(config=RunConfig(run_id=run_id), messages=["go"])
            assert "changed" in [message.content for message in ended.messages]

        await asyncio.gather(*(one(f"run-{number}") for number in range(12)))

    with Store(tmp_path) as store:
        asyncio.run(crowd(store))
