"""Ours beside other libraries, each in an environment of its own: `make bench-peers`, or with names of peers.

The adapters are `run_*.py`; what they need stands at their head and is installed once, below
`.bench/`. Rounds are interleaved, every run is a process of its own, and medians are compared.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tomllib
import venv
from collections import defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parents[2] / ".bench"
OURS = "stepfold"
BASE = f"{OURS} recorded"
VARIANTS = {
    OURS: ("memory", "recorded", "strict_recorded", "strict_full"),
    "langgraph": ("graph_memory", "graph_sqlite", "delta_sqlite", "agent_sqlite"),
    "burr": ("memory", "memory_small_state", "sqlite"),
    "eventsourcing": ("memory", "sqlite"),
    "pydantic_ai": ("memory",),
    "openai_agents": ("memory", "sqlite"),
    "smolagents": ("memory",),
    "inspect_ai": ("log",),
}
SECONDS_AT_MOST = 600


def adapter(peer: str) -> Path:
    """The program that runs it."""
    return HERE / f"run_{peer}.py"


def python_of(peer: str) -> Path:
    """An interpreter with what an adapter needs; ours is the one that runs this."""
    if peer == OURS:
        return Path(sys.executable)
    place = ENVIRONMENTS / peer
    python = place / "bin" / "python"
    if not (place / "installed").exists():
        print(f"installing {peer} into {place}", file=sys.stderr)
        venv.create(place, with_pip=True, clear=True)
        words = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*words, *needed(peer)], check=True)
        (place / "installed").touch()
    return python


def needed(peer: str) -> list[str]:
    """The dependencies at the head of an adapter, as PEP 723 writes them."""
    head = re.search(r"^# /// script\n(.*?)^# ///$", adapter(peer).read_text(), re.MULTILINE | re.DOTALL)
    assert head is not None, f"{adapter(peer)} does not say what it needs"
    lines = [line.removeprefix("# ") for line in head[1].splitlines()]
    found: list[str] = tomllib.loads("\n".join(lines))["dependencies"]
    return found


def run(peer: str, variant: str, steps: int) -> dict[str, float] | str:
    """What one process measures; why there is nothing when it fails."""
    words = [str(python_of(peer)), str(adapter(peer)), variant, str(steps)]
    try:
        ended = subprocess.run(words, capture_output=True, check=True, text=True, timeout=SECONDS_AT_MOST)
    except subprocess.TimeoutExpired:
        return f"not done in {SECONDS_AT_MOST} s"
    except subprocess.CalledProcessError as error:
        return (error.stderr.strip().splitlines() or ["failed"])[-1]
    measured: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return measured


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"of {', '.join(VARIANTS)} [all]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    chosen = [OURS, *(peer for peer in options.peers or VARIANTS if peer != OURS)]
    cases = [(peer, variant) for peer in chosen for variant in VARIANTS[peer]]
    taken: dict[str, list[dict[str, float]]] = defaultdict(list)
    for _ in range(options.rounds):
        for peer, variant in cases:
            measured = run(peer, variant, options.steps)
            if isinstance(measured, str):
                print(f"{peer} {variant}: {measured}", file=sys.stderr)
            else:
                taken[f"{peer} {variant}"].append(measured)
    show({name: median(rounds) for name, rounds in taken.items()})


def median(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure."""
    return {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}


def show(rows: dict[str, Any]) -> None:
    """The table, its ratios against the recorded run of ours."""
    base = rows[BASE]
    heads = ("what", "processor µs a step", "µs a step", "bytes a step", f"processor, times {BASE}", "bytes")
    print(f"| {' | '.join(heads)} |\n| --- {'| ---: ' * (len(heads) - 1)}|")
    for name, row in rows.items():
        print(
            f"| {name} | {row['cpu']:,.0f} | {row['wall']:,.0f} | {row['bytes']:,.0f} "
            f"| {row['cpu'] / base['cpu']:.1f} | {row['bytes'] / base['bytes']:.1f} |"
        )


if __name__ == "__main__":
    main()
