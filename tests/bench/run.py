"""One table of ratios: what the engine takes beside the floor it stands on. `python tests/bench/run.py`.

Both sides of a row run in turn within one process, and their medians are compared, so that a busy
machine slows both. A ratio is held to its goal; the exit code is 1 when one is over it by 30 %.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2]))

from stepfold.engine.capabilities.files import read_file
from stepfold.engine.capabilities.sandbox import probe, run
from stepfold.engine.capabilities.workspace import Workspace
from stepfold.engine.core.goal_table import GOAL
from stepfold.engine.runtime.replay import verify
from stepfold.events.codec import decode
from stepfold.events.journal import Recorded
from stepfold.events.vocabulary import AnyEvent
from stepfold.projections.outcome import outcome
from stepfold.projections.run import evolve
from stepfold.projections.state import Run
from tests.bench.questions import asked, bare_json, first_asked, make_store, on_packs
from tests.bench.workload import bare, called, hands_of, persisted, steps_of, through

STEPS = 1_000
SLACK = 1.3
ONCE_MORE = 20_000
GATED = 100
LIFECYCLE_GOAL = 60.0
"""Microseconds that the whole lifecycle of a call in this process may take beyond its own work."""

SANDBOX_GOAL = 25_000.0
"""Microseconds that `true` may take in the sandbox."""


class Row(NamedTuple):
    """One comparison: microseconds of ours and of the floor, and how many times the floor we may take."""

    name: str
    floor_name: str
    ours: float
    floor: float
    goal: float

    @property
    def ratio(self) -> float:
        """How many times the floor."""
        return self.ours / self.floor

    @property
    def over(self) -> bool:
        """Beyond what noise explains."""
        return self.ratio > self.goal * SLACK


def microseconds(work: Callable[[], object], times: int = 1) -> float:
    """How long one of `times` pieces of work takes."""
    before = time.perf_counter()
    work()
    return (time.perf_counter() - before) * 1e6 / times


def processor_microseconds(work: Callable[[], object], times: int) -> float:
    """The same in time of the processor: that others were let in between is no cost of ours."""
    before = time.process_time()
    work()
    return (time.process_time() - before) * 1e6 / times


def in_turn(rounds: int, *sides: Callable[[], float]) -> list[float]:
    """The median of each side, the sides taking turns."""
    taken = [[side() for side in sides] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*taken, strict=True)]


def flat(folder: Path, rounds: int) -> Row:
    """A step late in a run against one early in it, within the same runs."""
    early, late = [], []
    for number in range(rounds):
        moments = persisted(folder / f"flat{number}", STEPS).moments
        taken = [after - before for before, after in pairwise(moments)]
        early += taken[80:120]
        late += taken[-40:]
    return Row(
        f"step {STEPS:,}", "step 100", statistics.median(late) * 1e6, statistics.median(early) * 1e6, 1.1
    )


def on_disk(folder: Path, rounds: int) -> Row:
    """A persisted step against the bare writes and inserts of its bytes."""
    persisted(folder / "model", STEPS)
    steps = steps_of(folder / "model" / "runs" / "bench.jsonl")
    fresh = (folder / f"disk{number}" for number in range(10_000))

    def floor() -> float:
        place = next(fresh)
        place.mkdir()
        return microseconds(lambda: bare(place, steps), STEPS)

    ours, least = in_turn(rounds, lambda: microseconds(lambda: persisted(next(fresh), STEPS), STEPS), floor)
    return Row("persisted step", "bare writes and inserts", ours, least, 2.0)


def lines_of(folder: Path) -> list[bytes]:
    """The lines of a recorded run."""
    return (folder / "model" / "runs" / "bench.jsonl").read_bytes().splitlines()


def folding(folder: Path, rounds: int) -> Iterator[Row]:
    """Folding and verifying a log against decoding its lines, an event."""
    lines = lines_of(folder)
    bare_decode = msgspec.json.Decoder(AnyEvent).decode

    def decoded() -> None:
        for line in lines:
            bare_decode(line)

    def folded() -> None:
        run = Run()
        for line in lines:
            evolve(run, decode(line))
        outcome(run)

    def verified() -> None:
        verify(Recorded(line, decode(line)) for line in lines)

    ours, replayed, least = in_turn(
        rounds, *(lambda work=work: microseconds(work, len(lines)) for work in (folded, verified, decoded))
    )
    yield Row("event folded through all projections", "msgspec decode of a line", ours, least, 3.0)
    yield Row("event verified by replay", "msgspec decode of a line", replayed, least, 8.0)


def triggering(rounds: int) -> Row:
    """A trigger of the table against a dispatch written by hand, on the same guards."""
    trigger = GOAL.machine.events["ModelErred"].trigger
    by_hand: dict[tuple[str, str], list[Any]] = {}
    for row in GOAL.rows:
        for source in row.sources:
            for word in row.on:
                by_hand.setdefault((source, word), []).append((row.when, row.dest or source))
    run, model = Run(), SimpleNamespace(state="asking")

    def table() -> None:
        for _ in range(ONCE_MORE):
            model.state = "asking"
            trigger(model, run, None)

    def dispatch() -> None:
        for _ in range(ONCE_MORE):
            model.state = "asking"
            for guards, dest in by_hand[model.state, "ModelErred"]:
                for guard in guards:
                    if not guard(run, None):
                        break
                else:
                    model.state = dest
                    break

    ours, least = in_turn(
        rounds, *(lambda work=work: microseconds(work, ONCE_MORE) for work in (table, dispatch))
    )
    return Row("trigger of the table", "dispatch by a dict", ours, least, 3.5)


def gating(folder: Path, rounds: int) -> Iterator[Row]:
    """What the gates of a call take beside the work behind them, held to figures in microseconds."""
    (folder / "notes.txt").write_text("one line\n")
    workspace, ready = Workspace(folder), called("fs.read", {"path": "notes.txt"})
    hands = hands_of(folder)

    def lifecycle() -> float:
        runs = [ready.clone() for _ in range(GATED)]
        return processor_microseconds(lambda: [through(run, hands) for run in runs], GATED)

    def work() -> None:
        for _ in range(GATED):
            read_file({"path": "notes.txt"}, workspace)

    ours, least = in_turn(2 * rounds + 1, lifecycle, lambda: processor_microseconds(work, GATED))
    yield Row("lifecycle of a native", "the native itself", ours, least, (least + LIFECYCLE_GOAL) / least)
    found = probe()
    if not found.backend:
        return
    ours, least = in_turn(
        2 * rounds + 1,
        lambda: microseconds(lambda: asyncio.run(run("true", workspace=workspace, backend=found.backend))),
        lambda: microseconds(lambda: subprocess.run(["true"], check=True)),
    )
    yield Row(f"true in {found.backend}", "true", ours, least, SANDBOX_GOAL / least)


def starting(rounds: int) -> Iterator[Row]:
    """The command line against a bare interpreter."""
    command = Path(sys.executable).with_name("stepfold")
    if not command.exists():
        return

    def started(*arguments: str) -> float:
        return microseconds(lambda: subprocess.run(arguments, check=True, capture_output=True))

    ours, least = in_turn(
        rounds, lambda: started(str(command), "--help"), lambda: started(sys.executable, "-c", "pass")
    )
    yield Row("stepfold --help", "python -c pass", ours, least, 5.0)


def asking(folder: Path, rounds: int, runs: int) -> Iterator[Row]:
    """A group-by over a store: from its logs, from their Parquet copies, and the second question."""
    store = folder / "questions"
    make_store(store, runs, 50)
    first, bare = in_turn(
        rounds,
        lambda: microseconds(lambda: first_asked(store)),
        lambda: microseconds(lambda: bare_json(store)),
    )
    yield Row(f"first question to {runs:,} runs", "typed read_json, a table", first, bare, 1.1)
    second, _ = in_turn(2 * rounds + 1, lambda: microseconds(lambda: asked(store)), lambda: 0.0)
    yield Row("second question", "first question", second, first, 0.2)
    query, least = on_packs(store)
    ours, floor = in_turn(2 * rounds + 1, lambda: microseconds(query), lambda: microseconds(least))
    yield Row("group-by on opened relations", "the same on bare Parquet", ours, floor, 1.5)


def measured(rounds: int, runs: int) -> list[Row]:
    """All rows, in one run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [
            flat(folder, rounds),
            on_disk(folder, rounds),
            *folding(folder, rounds),
            triggering(rounds),
            *gating(folder, rounds),
            *starting(2 * rounds + 1),
            *asking(folder, rounds, runs),
        ]


def shown(rows: list[Row]) -> str:
    """The table for people."""
    lines = [f"{'what':<38}{'µs':>10}  {'floor':<26}{'µs':>10}{'ratio':>8}{'goal':>7}"]
    lines += [
        f"{row.name:<38}{row.ours:>10.2f}  {row.floor_name:<26}{row.floor:>10.2f}{row.ratio:>8.2f}"
        f"{row.goal:>7.1f}{'  over' if row.over else ''}"
        for row in rows
    ]
    return "\n".join(lines)


def as_json(rows: list[Row]) -> str:
    """The table for machines, in microseconds."""
    return json.dumps(
        [row._asdict() | {"ratio": round(row.ratio, 3), "over": row.over} for row in rows], indent=1
    )


def main() -> int:
    """Print the table; 1 when a ratio is over its goal by more than noise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--rounds", type=int, default=5, help="how often the sides take turns (default 5)")
    parser.add_argument("--runs", type=int, default=200, help="runs of the store that is asked (default 200)")
    options = parser.parse_args()
    rows = measured(options.rounds, options.runs)
    print(as_json(rows) if options.json else shown(rows))
    return int(any(row.over for row in rows))


if __name__ == "__main__":
    sys.exit(main())
