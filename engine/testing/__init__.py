"""What others test with: strategies, state machines, the fuzzer, given/when/then, and the pytest plugin.

Imported as `stepfold.testing`. The strategies need Hypothesis (`pip install 'stepfold[testing]'`); the
players, the invariants, replaying and given/when/then don't.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepfold.engine.testing.replies import KINDS as KINDS
    from stepfold.engine.testing.replies import Malformed as Malformed
    from stepfold.engine.testing.replies import Spoken as Spoken
    from stepfold.engine.testing.replies import actions as actions
    from stepfold.engine.testing.replies import malformed_replies as malformed_replies
    from stepfold.engine.testing.replies import replies as replies
    from stepfold.engine.testing.values import NoValue as NoValue
    from stepfold.engine.testing.values import arguments_for as arguments_for

_HOMES = {
    "KINDS": "replies",
    "Malformed": "replies",
    "NoValue": "values",
    "Spoken": "replies",
    "actions": "replies",
    "arguments_for": "values",
    "malformed_replies": "replies",
    "replies": "replies",
}

__all__ = sorted(_HOMES)


class MissingHypothesis(ImportError):
    """The part of the kit that was asked for is made of Hypothesis strategies, and there is none."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'stepfold.testing' has no attribute {name!r}")
    try:
        return getattr(import_module(f"stepfold.engine.testing.{_HOMES[name]}"), name)
    except ModuleNotFoundError as missing:
        if missing.name != "hypothesis":
            raise
        why = f"stepfold.testing.{name} needs Hypothesis: run `pip install 'stepfold[testing]'`"
        raise MissingHypothesis(why) from None


def __dir__() -> list[str]:
    return __all__
