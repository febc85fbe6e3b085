"""`--on ray`: the same results as on this machine's cores, also when one of the machines dies on the way.

Ray is some 300 MB, so it is no part of the development tools: `make test-ray` installs it and runs this.
"""

import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stepfold.engine.runtime.settings import SettingsError
from stepfold.engine.studies.ray_cluster import Cluster
from stepfold.engine.testing.targets import Fault
from tests.engine.cli.projects import Command
from tests.engine.studies.suites import GREETING, WRONG, script, suite

ray = pytest.importorskip("ray", reason="Ray is not installed: `make test-ray`")

FIXTURES = sorted(Path("replay_fixtures").resolve().glob("*/log.jsonl"))[:12]


@pytest.fixture(scope="module")
def machines() -> Iterator[Any]:
    """A cluster of two machines, the first of which only answers for it."""
    from ray.cluster_utils import Cluster as Machines

    found = Machines(initialize_head=True, head_node_args={"num_cpus": 1})
    found.add_node(num_cpus=2)
    ray.init(address=found.address, log_to_driver=True, logging_level="error")
    yield found
    ray.shutdown()
    found.shutdown()


def told(result: Any) -> Any:
    return (result.code, [json.loads(line) for line in result.out.splitlines()])


def test_traces_are_replayed_and_judged_there_as_here(
    machines: Any, stepfold: Command, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(FIXTURES[0].read_bytes().replace(b'"step":1', b'"step":7', 1))
    traces = [*FIXTURES, broken, tmp_path / "missing.jsonl"]

    for command in (["replay"], ["judge", "--set", "loop.max_steps=2"]):
        here = stepfold(*command, *traces, "--json")
        there = stepfold(*command, *traces, "--json", "--on", "ray")
        assert told(there) == told(here)


def kept_projects(store: Path) -> dict[str, bytes]:
    """The files of the projects that were kept, by where they lie."""
    files = [path for path in store.glob("evals/*/projects/**/*") if path.is_file()]
    assert files
    return {str(path.relative_to(store)): path.read_bytes() for path in files}


def test_a_suite_is_run_there_and_its_logs_are_here(machines: Any, stepfold: Command, tmp_path: Path) -> None:
    folder = suite(tmp_path / "s")
    wrong = script(tmp_path / "wrong.jsonl", *WRONG)
    words = ["eval", "run", folder, "--model", wrong, "--model", script(tmp_path / "right.jsonl", *GREETING)]

    def run(store: str, *options: str) -> Any:
        return stepfold(*words, "--repeats", 3, "--store", tmp_path / store, "--json", *options)

    here, there = run("here"), run("there", "--on", "ray")

    assert (there.code, there.json["models"]) == (here.code, here.json["models"])
    shown = [[(one["run_id"], one["verdict"]) for one in result.json["runs"]] for result in (here, there)]
    assert shown[0] == shown[1]
    assert kept_projects(tmp_path / "there") == kept_projects(tmp_path / "here")
    logs = sorted((tmp_path / "there" / "runs").glob("*.jsonl"))
    assert [log.stem for log in logs] == sorted(run_id for run_id, _ in shown[0])
    assert stepfold("replay", *logs).code == 0
    assert run("there", "--on", "ray").json["runs"] == there.json["runs"]
    assert run("there", "--replay", "--on", "ray").code == 0


def test_the_fuzzer_finds_there_what_it_finds_here(machines: Any, stepfold: Command, tmp_path: Path) -> None:
    words = ["fuzz", "--examples", 12, "--seed", 3, "--json"]

    here = stepfold(*words, "--out", tmp_path / "here")
    there = stepfold(*words, "--out", tmp_path / "there", "--on", "ray")

    assert there.code == here.code == 0
    assert there.json["found"] == here.json["found"] == []
    assert there.json["examples"] == here.json["examples"]


def sleeps(number: int, began: Path) -> int:
    """Note where it was begun, and take so long that it is still at work when that machine dies."""
    with (began / ray.get_runtime_context().get_node_id()).open("a") as file:
        file.write(f"{number} ")
    time.sleep(1.5)
    return number


def test_tasks_of_a_machine_that_dies_are_begun_anew_on_another(machines: Any, tmp_path: Path) -> None:
    dying = machines.add_node(num_cpus=2)
    machines.wait_for_nodes()

    def kill_at_work() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and not (tmp_path / dying.node_id).exists():
            time.sleep(0.05)
        machines.remove_node(dying, allow_graceful=False)

    killer = threading.Thread(target=kill_at_work)
    killer.start()
    results = list(Cluster().in_order(partial(sleeps, number, tmp_path) for number in range(16)))
    killer.join()

    assert results == list(range(16))
    begun = " ".join(path.read_text() for path in tmp_path.iterdir()).split()
    assert (tmp_path / dying.node_id).exists()
    assert len(begun) > 16
    assert set(begun) == {str(number) for number in range(16)}


def fails() -> None:
    raise SettingsError("nothing there")


def test_what_a_task_raises_is_raised_here(machines: Any) -> None:
    with pytest.raises(SettingsError, match=r"^nothing there$"):
        list(Cluster().in_order([fails]))


def dies() -> None:
    import os

    os.kill(os.getpid(), 9)


def test_a_task_that_kills_its_machine_each_time_is_told_in_one_line(
    machines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepfold.engine.studies.ray_cluster.TRIES_AGAIN", 1)

    with pytest.raises(SettingsError, match="begun 2 times, and its machine died each time"):
        list(Cluster().in_order([dies]))


def test_a_fault_that_two_batches_find_is_told_once(machines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from stepfold.engine.testing import hunting_on_ray
    from stepfold.engine.testing.hunting import Find

    twice = hunting_on_ray.Searched(Find("goal", {}, Fault("rule", "why"), 1), 1)
    monkeypatch.setattr(hunting_on_ray, "searched", lambda *batch: twice)

    class Here:
        def in_order(self, tasks: Any) -> Iterator[Any]:
            return (task() for task in tasks)

    monkeypatch.setattr(hunting_on_ray, "Cluster", Here)
    found = list(hunting_on_ray.hunt_on_ray(["goal"], examples=600))

    assert len(found) == 1 or {find.fault.rule for find in found} == {"rule"}
