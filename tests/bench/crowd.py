"""Many runs at once on one store: throughput, fairness, nothing lost. `python tests/bench/crowd.py`.

Every run is a tool-calling run of a scripted model, recorded; 200 of them share one process, then as
many are spread over 8 processes that write to the same store. The floor is the same runs one by one.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from stepfold import AgentHarness, RunConfig, RunPolicy, open_store, tool
from stepfold.events.journal import read_log
from stepfold.events.run_store import RunStore
from stepfold.events.vocabulary import BLANK, ModelReplied, ToolCall
from tests.bench.rows import PAGE, put

RUNS = 200
PROCESSES = 8
STEPS = 20
PLACES = ("alone-normal", "together-normal", "alone-full", "together-full", "spread")


class Looks:
    """A model that looks once a step, and notes when it was asked."""

    name = "looks"

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self.moments: list[float] = []

    def reply(self, request: Any) -> ModelReplied:
        """At once: what is measured is the engine and its store."""
        self.moments.append(time.perf_counter())
        if request.call > self._steps:
            return ModelReplied(*BLANK, text="done")
        call = ToolCall(f"c{request.call}", "look", json.dumps({"line": request.call}))
        return ModelReplied(*BLANK, text="", tool_calls=(call,), input_tokens=1, output_tokens=1)


@tool(idempotency="pure")
async def look(line: int) -> str:
    """One line of a file."""
    return f"line {line} of a file"


class Crowd(NamedTuple):
    """What came of many runs: their steps a second, and how far the last one was when the first one ended."""

    steps_a_second: float
    fairness: float


async def side_by_side(
    store: RunStore, run_ids: Sequence[str], steps: int, durability: str
) -> list[list[float]]:
    """Run all of them at once; the moments at which each one's model was asked."""
    models = [Looks(steps) for _ in run_ids]
    policy = RunPolicy(max_model_calls=steps + 1, max_tool_calls=steps)
    await asyncio.gather(
        *(
            AgentHarness(model, [look], policy=policy, store=store, durability=durability).invoke(
                config=RunConfig(run_id=run_id), messages=["go"]
            )
            for model, run_id in zip(models, run_ids, strict=True)
        )
    )
    return [model.moments for model in models]


def in_one_process(
    address: str, run_ids: Sequence[str], steps: int, durability: str = "normal"
) -> list[list[float]]:
    """`side_by_side` on a store of this process's own opening."""
    with open_store(address) as store:
        return asyncio.run(side_by_side(store, run_ids, steps, durability))


def over_processes(address: str, run_ids: Sequence[str], steps: int, processes: int) -> list[list[float]]:
    """The runs dealt out to processes, which begin together."""
    parts = [(address, run_ids[number::processes], steps) for number in range(processes)]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        pool.map(_warm, range(processes), chunksize=1)
        return [moments for part in pool.starmap(in_one_process, parts, chunksize=1) for moments in part]


def _warm(_: int) -> None:
    time.sleep(0.2)


def judged(address: str, moments: list[list[float]], run_ids: Sequence[str], steps: int) -> Crowd:
    """Read every run back: all events are there, in their order, behind whole seals. Raises LogError."""
    with open_store(address) as store:
        found = [run_id for run_id in store.run_ids() if run_id in set(run_ids)]
        assert sorted(found) == sorted(run_ids), f"{len(run_ids) - len(found)} runs are lost"
        for run_id in run_ids:
            log = read_log(store.path_of(run_id))
            asked = sum(type(record.event).__name__ == "ModelStarted" for record in log.records)
            assert (asked, log.torn) == (steps + 1, b""), f"{run_id} lost events"
            kept = list(store.kept(run_id))
            assert kept == [record.written for record in log.records], f"{run_id}: {store.keeper} differs"
    first_end = min(one[-1] for one in moments)
    slowest = min(sum(moment <= first_end for moment in one) for one in moments)
    seconds = max(one[-1] for one in moments) - min(one[0] for one in moments)
    return Crowd(len(run_ids) * (steps + 1) / seconds, slowest / (steps + 1))


def measured(address: Callable[[str], str]) -> list[tuple[str, Crowd]]:
    """One by one and all at once at two levels of durability, then over processes: each on its own store."""
    ids = [f"run-{number:03}" for number in range(RUNS)]
    rows = []
    for level in ("normal", "full"):
        few = ids[: RUNS // 10]
        alone = [in_one_process(address(f"alone-{level}"), [one], STEPS, level)[0] for one in few]
        busy = sum(one[-1] - one[0] for one in alone)
        rows.append((f"one by one, {level} (floor)", Crowd(len(few) * (STEPS + 1) / busy, 1.0)))
        place = address(f"together-{level}")
        together = in_one_process(place, ids, STEPS, level)
        rows.append((f"{RUNS} in one process, {level}", judged(place, together, ids, STEPS)))
    spread = over_processes(address("spread"), ids, STEPS, PROCESSES)
    rows.append((f"{RUNS} over {PROCESSES} processes, normal", judged(address("spread"), spread, ids, STEPS)))
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL server of its own instead")
    parser.add_argument("--write", action="store_true", help="write the table into docs/performance.md too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        if options.postgres:
            from tests.postgres import new_database, server

            with server() as socket:
                made = {place: new_database(socket, place) for place in PLACES}
                rows = measured(made.__getitem__)
        else:
            rows = measured(lambda place: str(folder / place))
    lines = ["| runs | steps a second | fairness |", "| --- | ---: | ---: |"]
    lines += [f"| {what} | {crowd.steps_a_second:,.0f} | {crowd.fairness:.2f} |" for what, crowd in rows]
    print("\n".join(lines))
    if options.write:
        put(PAGE, "crowd", "\n".join(lines))


if __name__ == "__main__":
    main()
