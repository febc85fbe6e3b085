"""How cost grows with the length of a run: what docs/scaling.md shows, which `--write` writes.

Each length is a run that is recorded and then opened in every way there is, each by a process of its own.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from math import log10
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.workload import persisted

LENGTHS = (1_000, 10_000, 100_000, 337_351)
EVENTS_A_STEP = 9
ROUNDS = 2
DOCS = Path(__file__).parents[2] / "docs"
COMMAND = Path(sys.executable).with_name("stepfold")
WAYS = {
    "last page": ("log", "bench", "--last", "50"),
    "whole log": ("log", "bench"),
    "show": ("show", "bench"),
    "show again": ("show", "bench"),
    "replay": ("replay", "bench"),
    "first question": ("sql", "SELECT kind, count(*) FROM events GROUP BY kind"),
    "second question": ("sql", "SELECT kind, count(*) FROM events GROUP BY kind"),
}
"""In this order: the first look leaves the snapshot, the first question the copies, that the second reads."""

ONCE = ("show", "first question")


class Length(NamedTuple):
    """One run: its events, its bytes on disk, and the seconds of each way to open it."""

    events: int
    megabytes: float
    recorded: float
    ways: dict[str, float]


def measured(lengths: Sequence[int]) -> Iterator[Length]:
    """Record and open a run of each length."""
    for events in lengths:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            began = time.perf_counter()
            persisted(folder, -(-events // EVENTS_A_STEP))
            recorded = time.perf_counter() - began
            trace = folder / "runs" / "bench.jsonl"
            with trace.open("rb") as file:
                count = sum(1 for _ in file)
            yield Length(
                count,
                trace.stat().st_size / 1e6,
                recorded,
                {way: opened(words, folder, way) for way, words in WAYS.items()},
            )


def opened(words: Sequence[str], folder: Path, way: str) -> float:
    """The least seconds of a command; what is done for the first time is done once."""
    return min(once(words, folder) for _ in range(1 if way in ONCE else ROUNDS))


def once(words: Sequence[str], folder: Path) -> float:
    """The seconds of one process, from its start to its end."""
    began = time.perf_counter()
    subprocess.run([COMMAND, *words, "--store", folder], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def table(rows: Sequence[Length]) -> str:
    """For the page."""
    heads = ("events", "MB", "recorded", *WAYS)
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join('---:' for _ in heads)} |"]
    for row in rows:
        seconds = (row.recorded, *row.ways.values())
        told = (f"{row.events:,}", f"{row.megabytes:,.1f}", *(f"{one:.2f} s" for one in seconds))
        lines.append(f"| {' | '.join(told)} |")
    return "\n".join(lines)


WIDTH, HEIGHT, MARGIN, LEGEND = 640, 360, 48, 130
COLOURS = ("#0072b2", "#56b4e9", "#009e73", "#8a5a44", "#d55e00", "#cc79a7", "#e69f00")


def plot(rows: Sequence[Length]) -> str:
    """Events against seconds as SVG, a line for each way, both axes logarithmic."""
    powers = range(-1, 3)
    first, last = log10(rows[0].events), log10(rows[-1].events)

    def at(events: float, seconds: float) -> str:
        x = MARGIN + (WIDTH - MARGIN - LEGEND) * (log10(events) - first) / (last - first)
        span = powers[-1] - powers[0]
        y = HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (log10(seconds) - powers[0]) / span
        return f"{x:.1f},{y:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for power in powers:
        x, y = at(rows[0].events, 10.0**power).split(",")
        parts.append(f'<path d="M{x} {y}H{WIDTH - LEGEND}" stroke="#ddd"/>')
        parts.append(f'<text x="{MARGIN - 6}" y="{float(y) + 4}" text-anchor="end">{10.0**power:g} s</text>')
    for row in rows:
        x, _ = at(row.events, 1).split(",")
        parts.append(f'<text x="{x}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{row.events:,}</text>')
    for way, colour in zip(WAYS, COLOURS, strict=True):
        points = " ".join(at(row.events, row.ways[way]) for row in rows)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    ends = sorted((float(at(1_000, rows[-1].ways[way]).split(",")[1]), way) for way in WAYS)
    below = 0.0
    for y, way in ends:
        below = max(y, below + 14)
        colour = COLOURS[list(WAYS).index(way)]
        parts.append(f'<text x="{WIDTH - LEGEND + 6}" y="{below + 4:.1f}" fill="{colour}">{way}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Print the table; with --write put it and the plot into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table and the plot into docs/")
    parser.add_argument("events", nargs="*", type=int, default=LENGTHS, help="lengths of the runs")
    options = parser.parse_args()
    rows = list(measured(options.events))
    print(table(rows))
    if options.write:
        from tests.bench.rows import put

        put(DOCS / "scaling.md", "growth", table(rows))
        (DOCS / "scaling.svg").write_text(plot(rows))


if __name__ == "__main__":
    main()
