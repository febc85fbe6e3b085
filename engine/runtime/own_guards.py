"""Finding the guards that a run names: given in Python, or installed as a `stepfold.guards` entry point."""

from collections.abc import Iterable, Sequence
from importlib.metadata import entry_points

from stepfold.engine.core.own_guards import OwnGuard, is_known, provide
from stepfold.events.configuration import Config, GoalConfig

GROUP = "stepfold.guards"


def provided(guards: Iterable[OwnGuard]) -> tuple[str, ...]:
    """Make functions known as guards under their own names, which are returned. Raises GuardClash."""
    names = []
    for guard in guards:
        provide(guard.__name__, guard)
        names.append(guard.__name__)
    return tuple(names)


def fetch(names: Sequence[str]) -> None:
    """Load those of these guards that are installed and not known yet. What stays missing, `decide` names."""
    wanted = {name for name in names if not is_known(name)}
    if not wanted:
        return
    for point in entry_points(group=GROUP):
        if point.name in wanted:
            provide(point.name, point.load())


def fetch_for(config: Config) -> None:
    """The same, for the guards that a recorded configuration names."""
    if isinstance(config, GoalConfig):
        fetch(config.guards.own)
