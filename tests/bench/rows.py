"""What a benchmark is made of: sides that take turns, rows that compare them, and the table of those rows."""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

SLACK = 1.3
"""What a ratio may be above its goal: noise explains that much."""

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"


class Row(NamedTuple):
    """One comparison: ours and the floor, in `unit`, and how many times the floor we want to take; a goal of
    0 is none. Where the goal is not reached yet, `held` is what may not get worse.
    """

    name: str
    floor_name: str
    ours: float
    floor: float
    goal: float
    unit: str = "µs"
    held: float = 0.0

    @property
    def ratio(self) -> float:
        """How many times the floor."""
        return self.ours / self.floor

    @property
    def over(self) -> bool:
        """Beyond what noise explains."""
        return self.goal > 0 and self.ratio > max(self.goal, self.held) * SLACK


def microseconds(
    work: Callable[[], object], times: int = 1, clock: Callable[[], float] = time.process_time
) -> float:
    """What one of `times` pieces of work takes of this process, or of the wall clock."""
    before = clock()
    work()
    return (clock() - before) * 1e6 / times


def elapsed(work: Callable[[], object], times: int = 1) -> float:
    """How long one of `times` pieces of work takes, whoever does it."""
    return microseconds(work, times, time.perf_counter)


def in_turn(rounds: int, *sides: Callable[[], float]) -> list[float]:
    """The median of each side, the sides taking turns."""
    taken = [[side() for side in sides] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*taken, strict=True)]


def shown(rows: list[Row]) -> str:
    """The table for people."""
    lines = [f"{'what':<38}{'ours':>14}  {'floor':<26}{'':>10}{'ratio':>8}{'goal':>7}"]
    lines += [
        f"{row.name:<38}{row.ours:>10.2f} {row.unit:<3}  {row.floor_name:<26}{row.floor:>10.2f}"
        f"{row.ratio:>8.2f}{row.goal or float('nan'):>7.2f}{'  over' if row.over else ''}"
        for row in rows
    ]
    return "\n".join(lines)


def as_markdown(rows: list[Row]) -> str:
    """The table for the documentation."""
    lines = ["| what | ours | floor | takes | ratio | goal |", "| --- | ---: | --- | ---: | ---: | ---: |"]
    lines += [
        f"| {row.name} | {row.ours:,.1f} {row.unit} | {row.floor_name} | {row.floor:,.1f} {row.unit} "
        f"| {row.ratio:.2f} | {f'{row.goal:.2f}' if row.goal else ''} |"
        for row in rows
    ]
    return "\n".join(lines)


def put(page: Path, mark: str, table: str) -> None:
    """Put a table into a page, between `<!-- MARK -->` and the next end."""
    before, begins, rest = page.read_text().partition(f"<!-- {mark} -->\n")
    _, ends, after = rest.partition("<!-- end")
    assert begins and ends, f"{page} has no marks for {mark!r}"
    page.write_text(f"{before}{begins}\n{table}\n\n{ends}{after}")


def as_json(rows: list[Row]) -> str:
    """The table for machines."""
    return json.dumps(
        [row._asdict() | {"ratio": round(row.ratio, 3), "over": row.over} for row in rows], indent=1
    )
