"""`stepfold fuzz`: whatever a model may say against the contract, the loops, and a user's own tools."""

import json
import random
import sys
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from stepfold.engine.cli.output import note, say
from stepfold.engine.cli.replay import ON
from stepfold.engine.studies.spread import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stepfold.engine.testing.hunting import Find

_EPILOG = """\b
Examples:
  stepfold fuzz --time 60
  stepfold fuzz --tools my_tools.json --loop goal --seed 7

\b
Exit codes: 0 nothing found, 1 a fault was found and saved, 2 the tools can't be read.
"""


@click.command(epilog=_EPILOG)
@click.option("--tools", "tools_file", metavar="FILE", help="JSON array of your tools: names and schemas.")
@click.option("--loop", type=click.Choice(["goal", "tools"]), help="One loop alone; else contract and both.")
@click.option("--time", "seconds", type=click.FloatRange(min=0), help="Seconds to search [30].")
@click.option("--examples", type=click.IntRange(min=1), help="Examples of each target, instead of a time.")
@click.option("--seed", type=int, help="Where the search begins; the same seed finds the same.")
@click.option("--out", type=click.Path(path_type=Path), help="Where faults are saved [.stepfold/fuzz].")
@ON
@click.option("--json", "for_machines", is_flag=True, help="One JSON object.")
def fuzz(
    tools_file: str | None,
    loop: str | None,
    seconds: float | None,
    examples: int | None,
    seed: int | None,
    out: Path | None,
    place: Place,
    for_machines: bool,
) -> int:
    """Search for a reply, a schema or a script of the world that breaks a rule, and save the smallest.

    Each fault is a file that fails until it is mended; the pytest plugin collects it.
    """
    from stepfold.engine.testing.fixtures import FOLDER, save
    from stepfold.engine.testing.tools_file import read_tools

    tools = read_tools(tools_file) if tools_file else ()
    start = random.randrange(2**32) if seed is None else seed
    progress = _Progress()
    found: list[dict[str, Any]] = []
    limit = (
        float("inf") if examples is not None and seconds is None else (30.0 if seconds is None else seconds)
    )
    targets = _targets(loop, bool(tools))
    try:
        for find in _hunter(place)(
            targets, tools=tools, seconds=limit, examples=examples, start=start, counted=progress.count
        ):
            path = save(out or Path(FOLDER), find.target, find.case, find.fault)
            told = {
                "target": find.target,
                "rule": find.fault.rule,
                "why": find.fault.why,
                "fixture": str(path),
            }
            found.append(told)
            progress.clear()
            if not for_machines:
                say(f"found  {find.target}: {find.fault.why}", fg="red")
                say(f"       {path}")
    except KeyboardInterrupt:
        note("stopped")
    progress.clear()
    _tell(found, progress, start, for_machines=for_machines)
    return 1 if found else 0


def _hunter(place: Place) -> "Callable[..., Iterator[Find]]":
    if place == "ray":
        from stepfold.engine.testing.hunting_on_ray import hunt_on_ray

        return hunt_on_ray
    from stepfold.engine.testing import hunt

    return hunt


def _targets(loop: str | None, has_tools: bool) -> list[str]:
    if loop is not None:
        return [{"goal": "goal", "tools": "harness"}[loop]]
    return ["tools", "contract", "goal"] if has_tools else ["contract", "codec", "goal", "harness"]


def _tell(found: list[dict[str, Any]], progress: "_Progress", start: int, *, for_machines: bool) -> None:
    if for_machines:
        counts = {"examples": dict(progress.counts), "seconds": round(progress.seconds, 3)}
        click.echo(json.dumps({"seed": start, **counts, "found": found}))
        return
    rates = ", ".join(f"{count} {target}" for target, count in progress.counts.items())
    say(f"{sum(progress.counts.values())} examples ({rates}), {progress.rate} a second, seed {start}")
    say(f"{len(found)} found" if found else "nothing found")


class _Progress:
    """Examples so far, and how many a second; shown on a terminal only."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._began = self._shown = monotonic()
        self._watched = sys.stderr.isatty()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return monotonic() - self._began

    @property
    def rate(self) -> int:
        """Examples a second."""
        return round(sum(self.counts.values()) / max(self.seconds, 0.001))

    def count(self, target: str) -> None:
        """One more example of a target."""
        self.counts[target] += 1
        if self._watched and monotonic() - self._shown > 0.2:
            self._shown = monotonic()
            line = f"{target}: {sum(self.counts.values())} examples, {self.rate} a second"
            click.echo(f"\r\x1b[K{line}", nl=False, err=True)

    def clear(self) -> None:
        """Take the line away before something is printed."""
        if self._watched:
            click.echo("\r\x1b[K", nl=False, err=True)
