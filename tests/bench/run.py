"""One table of ratios: what the engine takes beside the floor it stands on. `make bench` prints it.

Both sides of a row run in turn within one process, and their medians are compared, so that a busy
machine slows both; what happens in this process is counted in processor time. A ratio is held to its
goal; the exit code is 1 when one is over it by 30 %. `short` measures those rows that need no second,
for the test suite. `--write` puts the table into docs/performance.md.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2]))

from stepfold.engine.capabilities.files import read_file
from stepfold.engine.capabilities.sandbox import probe, run
from stepfold.engine.capabilities.workspace import Workspace
from stepfold.engine.contract.envelope import Action, parse_action
from stepfold.engine.core.goal_table import GOAL
from stepfold.engine.runtime.replay import verify
from stepfold.events.chain import unsealed
from stepfold.events.codec import decode
from stepfold.events.journal import Recorded
from stepfold.events.vocabulary import AnyEvent
from stepfold.projections.outcome import outcome
from stepfold.projections.run import evolve
from stepfold.projections.state import Run
from tests.bench.questions import asked, bare_json, first_asked, make_store, on_packs
from tests.bench.rows import PAGE, Row, as_json, as_markdown, elapsed, in_turn, microseconds, put, shown
from tests.bench.workload import CALL, bare, called, hands_of, persisted, steps_of, through

STEPS = 1_000
LONG = 20_000
DURABLE = 200
ONCE_MORE = 20_000
GATED = 100
LIFECYCLE_GOAL = 60.0
"""Microseconds that the whole lifecycle of a call in this process may take beyond its own work."""

SANDBOX_GOAL = 25_000.0
"""Microseconds that `true` may take in the sandbox."""


ARGUMENTS = {
    "type": "object",
    "properties": {"capability": {"type": "string"}, "arguments": {"type": "object"}},
    "required": ["capability"],
    "additionalProperties": False,
}


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
    return Row("persisted step", "bare writes and inserts", ours, least, 2.0, held=6.5)


def sized(folder: Path) -> Iterator[Row]:
    """What a run leaves on disk against the JSON of its events, and what it needs of memory."""
    if not (folder / "model").exists():
        persisted(folder / "model", STEPS)
    lines = lines_of(folder)
    events = sum(len(unsealed(line)[0]) for line in lines)
    disk = sum(path.stat().st_size for path in (folder / "model").rglob("*") if path.is_file())
    yield Row(f"bytes of {STEPS:,} steps", "JSON of the events", disk / 1024, events / 1024, 2.5, "KiB")
    grown = (memory_of(folder / "mem", steps) for steps in (STEPS, 10))
    ours, least = (one / 1024 for one in grown)
    yield Row(f"peak memory of {STEPS:,} steps", "of 10 steps", ours, least, (least + 10) / least, "MiB")


def memory_of(folder: Path, steps: int) -> float:
    """The most memory that a process with one run has had, in KiB."""
    source = (
        "import sys; from pathlib import Path; from tests.bench.workload import persisted\n"
        "persisted(Path(sys.argv[1]), int(sys.argv[2]))\n"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    )
    words = [sys.executable, "-c", source, str(folder / str(steps)), str(steps)]
    folder.mkdir(exist_ok=True)
    ended = subprocess.run(words, capture_output=True, check=True, cwd=Path(__file__).parents[2])
    return float(ended.stdout)


def durable(folder: Path, rounds: int) -> Iterator[Row]:
    """What a level of durability costs by the clock, against the same writes and syncs alone."""
    steps = steps_of(folder / "model" / "runs" / "bench.jsonl")[:DURABLE]
    fresh = (folder / f"durable{number}" for number in range(10_000))

    def floor(level: str) -> float:
        place = next(fresh)
        place.mkdir()
        return elapsed(lambda: bare(place, steps, synced=level), DURABLE)

    for level in ("normal", "step", "full"):
        ours, least = in_turn(
            rounds,
            lambda level=level: elapsed(lambda: persisted(next(fresh), DURABLE, level), DURABLE),
            lambda level=level: floor(level),
        )
        yield Row(f"step, durability {level}", "bare writes and syncs", ours, least, 0.0)


def judging(rounds: int) -> Row:
    """The gate of an action against the two libraries that one would take for it."""
    from jsonschema import Draft202012Validator

    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["capability_call"]}, "arguments": ARGUMENTS},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
    validator = Draft202012Validator(schema)
    text = CALL % (7, 7)

    def gate() -> None:
        for _ in range(GATED):
            assert isinstance(parse_action(text), Action)

    def libraries() -> None:
        for _ in range(GATED):
            validator.validate(json.loads(text))

    ours, least = in_turn(
        2 * rounds + 1, *(lambda work=work: microseconds(work, GATED) for work in (gate, libraries))
    )
    return Row("action gate", "json.loads and jsonschema", ours, least, 1 / 12, held=0.2)


def long_run(folder: Path) -> Row:
    """A step at the end of a very long run against one near its beginning."""
    moments = persisted(folder / "long", LONG).moments
    taken = [after - before for before, after in pairwise(moments)]
    early, late = (statistics.median(part) * 1e6 for part in (taken[80:480], taken[-400:]))
    return Row(f"step {LONG:,}", "step 100", late, early, 1.2)


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
    yield Row("event folded through all projections", "msgspec decode of a line", ours, least, 2.2, held=6.0)
    yield Row("event verified by replay", "msgspec decode of a line", replayed, least, 6.0, held=33.0)


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
        return microseconds(lambda: [through(run, hands) for run in runs], GATED)

    def work() -> None:
        for _ in range(GATED):
            read_file({"path": "notes.txt"}, workspace)

    ours, least = in_turn(2 * rounds + 1, lifecycle, lambda: microseconds(work, GATED))
    yield Row("lifecycle of a native", "the native itself", ours, least, (least + LIFECYCLE_GOAL) / least)
    found = probe()
    if not found.backend:
        return
    ours, least = in_turn(
        2 * rounds + 1,
        lambda: elapsed(lambda: asyncio.run(run("true", workspace=workspace, backend=found.backend))),
        lambda: elapsed(lambda: subprocess.run(["true"], check=True)),
    )
    yield Row(f"true in {found.backend}", "true", ours, least, SANDBOX_GOAL / least)


def starting(rounds: int) -> Iterator[Row]:
    """The command line against a bare interpreter."""
    command = Path(sys.executable).with_name("stepfold")
    if not command.exists():
        return

    def started(*arguments: str) -> float:
        return elapsed(lambda: subprocess.run(arguments, check=True, capture_output=True))

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
        lambda: elapsed(lambda: first_asked(store)),
        lambda: elapsed(lambda: bare_json(store)),
    )
    yield Row(f"first question to {runs:,} runs", "typed read_json, a table", first, bare, 1.1)
    second, _ = in_turn(2 * rounds + 1, lambda: elapsed(lambda: asked(store)), lambda: 0.0)
    yield Row("second question", "first question", second, first, 0.2)
    query, least = on_packs(store)
    ours, floor = in_turn(2 * rounds + 1, lambda: elapsed(query), lambda: elapsed(least))
    yield Row("group-by on opened relations", "the same on bare Parquet", ours, floor, 1.5)


def measured(rounds: int, runs: int) -> list[Row]:
    """All rows, in one run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [
            *short(folder, rounds),
            long_run(folder),
            *durable(folder, rounds),
            *gating(folder, rounds),
            *starting(2 * rounds + 1),
            *asking(folder, rounds, runs),
        ]


def short(folder: Path, rounds: int) -> list[Row]:
    """The rows that take no second and compare processor times or sizes alone."""
    return [
        flat(folder, rounds),
        on_disk(folder, rounds),
        *sized(folder),
        *folding(folder, rounds),
        triggering(rounds),
        judging(rounds),
    ]


def main() -> int:
    """Print the table; 1 when a ratio is over its goal by more than noise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--write", action="store_true", help="write the table into docs/performance.md too")
    parser.add_argument("--rounds", type=int, default=5, help="how often the sides take turns (default 5)")
    parser.add_argument("--runs", type=int, default=200, help="runs of the store that is asked (default 200)")
    options = parser.parse_args()
    rows = measured(options.rounds, options.runs)
    print(as_json(rows) if options.json else shown(rows))
    if options.write:
        put(PAGE, "make bench", as_markdown(rows))
    return int(any(row.over for row in rows))


if __name__ == "__main__":
    sys.exit(main())
