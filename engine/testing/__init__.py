"""What others test with: strategies, state machines, the fuzzer, given/when/then, and the pytest plugin.

Imported as `stepfold.testing`. The strategies need Hypothesis (`pip install 'stepfold[testing]'`); the
players, the invariants, replaying and given/when/then don't.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepfold.engine.testing.event_strategies import events as events
    from stepfold.engine.testing.hunting import hunt as hunt
    from stepfold.engine.testing.hunting import search as search
    from stepfold.engine.testing.invariants import Broken as Broken
    from stepfold.engine.testing.machines import HarnessMachine as HarnessMachine
    from stepfold.engine.testing.machines import LoopMachine as LoopMachine
    from stepfold.engine.testing.moves import Move as Move
    from stepfold.engine.testing.moves import Script as Script
    from stepfold.engine.testing.player import GoalPlayer as GoalPlayer
    from stepfold.engine.testing.plays import play as play
    from stepfold.engine.testing.said import KINDS as KINDS
    from stepfold.engine.testing.said import Malformed as Malformed
    from stepfold.engine.testing.said import Spoken as Spoken
    from stepfold.engine.testing.said import actions as actions
    from stepfold.engine.testing.said import malformed_replies as malformed_replies
    from stepfold.engine.testing.said import replies as replies
    from stepfold.engine.testing.script_strategies import configs as configs
    from stepfold.engine.testing.script_strategies import event_logs as event_logs
    from stepfold.engine.testing.script_strategies import scripts as scripts
    from stepfold.engine.testing.store_laws import STORE_LAWS as STORE_LAWS
    from stepfold.engine.testing.stories import given as given
    from stepfold.engine.testing.tool_player import ToolPlayer as ToolPlayer
    from stepfold.engine.testing.values import NoValue as NoValue
    from stepfold.engine.testing.values import arguments_for as arguments_for

_HOMES = {
    "Broken": "invariants",
    "GoalPlayer": "player",
    "HarnessMachine": "machines",
    "KINDS": "said",
    "LoopMachine": "machines",
    "Malformed": "said",
    "Move": "moves",
    "NoValue": "values",
    "STORE_LAWS": "store_laws",
    "Script": "moves",
    "Spoken": "said",
    "ToolPlayer": "tool_player",
    "actions": "said",
    "arguments_for": "values",
    "configs": "script_strategies",
    "event_logs": "script_strategies",
    "events": "event_strategies",
    "given": "stories",
    "hunt": "hunting",
    "search": "hunting",
    "malformed_replies": "said",
    "play": "plays",
    "replies": "said",
    "scripts": "script_strategies",
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
