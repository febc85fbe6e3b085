"""stepfold: agent loops you can trust. One strict action per step, one append-only log, one reducer.

The names below are the public library; each is imported when it is first asked for, so that the
command line starts fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepfold.engine.contract.envelope import parse_action as parse_action
    from stepfold.engine.runtime.agent_loop import AgentLoop as AgentLoop
    from stepfold.engine.runtime.agent_run import HarnessError as HarnessError
    from stepfold.engine.runtime.harness import AgentHarness as AgentHarness
    from stepfold.engine.runtime.middleware import Middleware as Middleware
    from stepfold.engine.runtime.middleware import RunContext as RunContext
    from stepfold.engine.runtime.replay import replay as replay
    from stepfold.engine.runtime.run_policy import RunConfig as RunConfig
    from stepfold.engine.runtime.run_policy import RunPolicy as RunPolicy
    from stepfold.engine.runtime.steering import CancellationToken as CancellationToken
    from stepfold.engine.runtime.steering import SteeringHandle as SteeringHandle
    from stepfold.engine.runtime.sub_agents import sub_agent as sub_agent
    from stepfold.engine.runtime.tools import tool as tool
    from stepfold.events.store import open_store as open_store

_HOMES = {
    "AgentHarness": "stepfold.engine.runtime.harness",
    "CancellationToken": "stepfold.engine.runtime.steering",
    "HarnessError": "stepfold.engine.runtime.agent_run",
    "Middleware": "stepfold.engine.runtime.middleware",
    "RunConfig": "stepfold.engine.runtime.run_policy",
    "RunContext": "stepfold.engine.runtime.middleware",
    "RunPolicy": "stepfold.engine.runtime.run_policy",
    "SteeringHandle": "stepfold.engine.runtime.steering",
    "sub_agent": "stepfold.engine.runtime.sub_agents",
    "tool": "stepfold.engine.runtime.tools",
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
