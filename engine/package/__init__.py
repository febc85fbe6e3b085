"""stepfold: agent loops you can trust. One strict action per step, one append-only log, one reducer.

The names below are the public library; each is imported when it is first asked for, so that the
command line starts fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepfold.engine.contract.envelope import parse_action as parse_action
    from stepfold.engine.runtime.agent_loop import AgentLoop as AgentLoop
    from stepfold.engine.runtime.replay import replay as replay
    from stepfold.events.store import open_store as open_store

_HOMES = {
    "AgentLoop": "stepfold.engine.runtime.agent_loop",
    "open_store": "stepfold.events.store",
    "parse_action": "stepfold.engine.contract.envelope",
    "replay": "stepfold.engine.runtime.replay",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'stepfold' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
