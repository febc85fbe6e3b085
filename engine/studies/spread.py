"""Where work over many things is done: in this process, over its cores, or over a Ray cluster.

The one place where that is chosen. Whatever the place, the results are the same and come in order.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from msgspec import Struct, structs

from stepfold.events.texts import self_contained_lines

Place = Literal["cores", "ray"]
PLACES: tuple[Place, ...] = ("cores", "ray")

ALONE_AT_MOST = 8
"""So many traces are worked on in this process: starting others would take longer than they do."""

Result = TypeVar("Result")


def over_traces(place: Place, work: Callable[[Path], Result], traces: Sequence[Path]) -> Iterator[Result]:
    """What the work says of each trace, in order. Raises SettingsError when the place can't be had."""
    if place == "ray":
        yield from _over_ray(work, traces)
        return
    workers = min(os.cpu_count() or 1, len(traces))
    if len(traces) <= ALONE_AT_MOST or workers < 2:
        yield from map(work, traces)
        return
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(work, traces, chunksize=max(1, len(traces) // (workers * 16)))


def _over_ray(work: Callable[[Path], Result], traces: Sequence[Path]) -> Iterator[Result]:
    """Another machine has none of these files, so each trace goes with its task."""
    from stepfold.engine.studies.ray_cluster import Cluster

    tasks = (partial(_worked_on_elsewhere, work, str(trace), _content_of(trace)) for trace in traces)
    yield from Cluster().in_order(tasks)


def _content_of(trace: Path) -> bytes | None:
    try:
        return b"".join(self_contained_lines(trace))
    except OSError:
        # The work itself says why: for it the file is missing there as well.
        return None


def _worked_on_elsewhere(work: Callable[[Path], Result], name: str, content: bytes | None) -> Result:
    from tempfile import TemporaryDirectory

    if content is None:
        return work(Path(name))
    with TemporaryDirectory(prefix="stepfold-") as folder:
        copy = Path(folder) / Path(name).name
        copy.write_bytes(content)
        return _as_said_of(work(copy), str(copy), name)


def _as_said_of(result: Result, there: str, here: str) -> Result:
    """A result that names the trace by its place here."""
    if isinstance(result, str):
        return result.replace(there, here)  # type: ignore[return-value]
    if isinstance(result, Struct):
        told = {name: getattr(result, name) for name in result.__struct_fields__}
        texts = {name: value.replace(there, here) for name, value in told.items() if isinstance(value, str)}
        return structs.replace(result, **texts)
    return result
