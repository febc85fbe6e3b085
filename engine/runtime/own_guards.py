"""Finding the guards that a run names: given in Python, or installed as a `stepfold.guards` entry point."""

from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points

from stepfold.engine.core.own_guards import MissingGuard, OwnGuard, is_known, provide
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
    """Load those of these guards that are installed and not known yet. What stays missing, `decide` names.

    Raises MissingGuard for one that is installed and can't be loaded.
    """
    wanted = {name for name in names if not is_known(name)}
    if not wanted:
        return
    for point in entry_points(group=GROUP):
        if point.name in wanted:
            provide(point.name, _loaded(point))


def _loaded(point: EntryPoint) -> OwnGuard:
    # Importing somebody's package may fail in any way at all.
    try:
        guard: OwnGuard = point.load()
    except Exception as error:
        raise MissingGuard(
            f"the guard {point.name!r} can't be loaded from {point.value}: {type(error).__name__}: {error}"
        ) from error
    return guard


def fetch_for(config: Config) -> None:
    """The same, for the guards that a recorded configuration names."""
    if isinstance(config, GoalConfig):
        fetch(config.guards.own)
