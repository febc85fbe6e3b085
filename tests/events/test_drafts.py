"""A file is there whole or not at all, and what a killed process left of one is swept by another."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from stepfold.events.drafts import drafted, sweep

CONTENT = b"whole" * 20_000


def in_processes(count: int, work: Callable[[], object]) -> list[int | None]:
    """Do the same in so many processes at once; how each ended."""
    begun = [multiprocessing.get_context("fork").Process(target=work) for _ in range(count)]
    for process in begun:
        process.start()
    for process in begun:
        process.join()
    return [process.exitcode for process in begun]


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    def dies() -> None:
        with drafted(tmp_path / "file") as draft:
            draft.write_bytes(CONTENT)
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_processes(1, dies) == [-signal.SIGKILL]
    assert len(list(tmp_path.iterdir())) == 1

    sweep(tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_what_is_being_written_is_not_swept(tmp_path: Path) -> None:
    with drafted(tmp_path / "file") as draft:
        draft.write_bytes(CONTENT)
        assert in_processes(1, lambda: sweep(tmp_path)) == [0]
        sweep(tmp_path)

    assert (tmp_path / "file").read_bytes() == CONTENT


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"before")

    with pytest.raises(RuntimeError), drafted(tmp_path / "file") as draft:
        draft.write_bytes(CONTENT)
        raise RuntimeError

    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"before"]


def test_writers_and_sweepers_of_one_folder_do_not_meet(tmp_path: Path) -> None:
    def works() -> None:
        for _ in range(200):
            sweep(tmp_path)
            with drafted(tmp_path / "file") as draft:
                draft.write_bytes(CONTENT)

    assert in_processes(6, works) == [0] * 6
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [CONTENT]


def test_only_drafts_are_swept(tmp_path: Path) -> None:
    for name in ("0" * 64, ".hidden", "a.draft"):
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / ".pipe.draft")
    (tmp_path / ".folder.draft").mkdir()
    before = sorted(tmp_path.iterdir())

    sweep(tmp_path)
    sweep(tmp_path / "not there")

    assert sorted(tmp_path.iterdir()) == before
