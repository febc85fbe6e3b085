"""Many runs at once on one store, in one process and over several: nothing is lost, and they take turns."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepfold.engine.runtime.replay import replay
from stepfold.events.store import open_store
from tests.bench.crowd import in_one_process, judged, over_processes
from tests.postgres import new_database, server

STEPS = 6
IDS = [f"run-{number:02}" for number in range(24)]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with server() as socket:
        yield new_database(socket, "crowd")


@pytest.fixture(params=["folder", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return str(tmp_path / "store") if request.param == "folder" else request.getfixturevalue("database")


def test_runs_of_one_process_take_turns_and_lose_nothing(address: str) -> None:
    ids = [f"one-{run_id}" for run_id in IDS]

    crowd = judged(address, in_one_process(address, ids, STEPS), ids, STEPS)

    # They take turns: nobody ends while another one has not come to its last steps.
    assert crowd.fairness >= (STEPS - 1) / (STEPS + 1)
    with open_store(address) as store:
        assert {replay(store.path_of(run_id)).verdict for run_id in ids[:3]} == {"identical"}


def test_processes_that_share_a_store_lose_nothing_and_meet_no_lock(address: str) -> None:
    ids = [f"many-{run_id}" for run_id in IDS]

    judged(address, over_processes(address, ids, STEPS, processes=4), ids, STEPS)

    with open_store(address) as store:
        assert [run_id for run_id in store.run_ids() if run_id in ids] == ids
