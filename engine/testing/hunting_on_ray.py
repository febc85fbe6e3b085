"""The hunt over a Ray cluster: the same batches from the same seeds, and so the same finds.

A batch is searched knowing the faults that were known when it was begun. Where one more was found since,
and this batch has found it as well, it is searched again here, as the hunt in one process would have.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import monotonic
from typing import NamedTuple

from stepfold.engine.studies.ray_cluster import Cluster
from stepfold.engine.testing.hunting import Batch, Find, batches, search
from stepfold.events.configuration import Manifest


class Searched(NamedTuple):
    """What came of it."""

    find: Find | None
    examples: int


def hunt_on_ray(
    targets: Sequence[str],
    *,
    tools: Sequence[Manifest] = (),
    seconds: float = float("inf"),
    examples: int | None = None,
    start: int = 0,
    counted: Callable[[str], None] = lambda target: None,
) -> Iterator[Find]:
    """As `hunting.hunt`. Raises SettingsError when there is no cluster."""
    until = monotonic() + seconds
    known: dict[str, set[str]] = {target: set() for target in targets}
    begun: list[Batch] = []

    def tasks() -> Iterator[Callable[[], Searched]]:
        for batch in batches(targets, examples, start):
            left = until - monotonic()
            if left <= 0:
                return
            begun.append(batch)
            yield partial(searched, batch, tuple(tools), frozenset(known[batch.target]), left)

    for number, came in enumerate(Cluster().in_order(tasks())):
        batch = begun[number]
        for _ in range(came.examples):
            counted(batch.target)
        find = came.find
        if find is not None and find.fault.rule in known[batch.target]:
            find = searched(batch, tools, frozenset(known[batch.target]), max(0.0, until - monotonic())).find
        if find is not None:
            known[batch.target].add(find.fault.rule)
            yield find


def searched(batch: Batch, tools: Sequence[Manifest], known: frozenset[str], seconds: float) -> Searched:
    """Search one batch, for so many seconds at most."""
    tried = 0

    def one_more() -> None:
        nonlocal tried
        tried += 1

    find = search(
        batch.target,
        examples=batch.examples,
        start=batch.start,
        tools=tools,
        known=known,
        until=monotonic() + seconds,
        counted=one_more,
    )
    return Searched(find, tried)
