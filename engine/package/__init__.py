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
    from stepfold.engine.runtime.harness import RunEnded as RunEnded
    from stepfold.engine.runtime.middleware import Middleware as Middleware
    from stepfold.engine.runtime.middleware import MiddlewareError as MiddlewareError
    from stepfold.engine.runtime.middleware import RunContext as RunContext
    from stepfold.engine.runtime.middlewares import AllowList as AllowList
    from stepfold.engine.runtime.middlewares import HumanApproval as HumanApproval
    from stepfold.engine.runtime.middlewares import RateLimit as RateLimit
    from stepfold.engine.runtime.middlewares import Redaction as Redaction
    from stepfold.engine.runtime.middlewares import UsageBudget as UsageBudget
    from stepfold.engine.runtime.middlewares_tracing import Tracing as Tracing
    from stepfold.engine.runtime.replay import replay as replay
    from stepfold.engine.runtime.response_cache import MemoryCache as MemoryCache
    from stepfold.engine.runtime.response_cache import SqliteCache as SqliteCache
    from stepfold.engine.runtime.run_policy import ResponseFormat as ResponseFormat
    from stepfold.engine.runtime.run_policy import RunConfig as RunConfig
    from stepfold.engine.runtime.run_policy import RunPolicy as RunPolicy
    from stepfold.engine.runtime.steering import CancellationToken as CancellationToken
    from stepfold.engine.runtime.steering import SteeringHandle as SteeringHandle
    from stepfold.engine.runtime.sub_agents import sub_agent as sub_agent
    from stepfold.engine.runtime.tools import ToolResult as ToolResult
    from stepfold.engine.runtime.tools import tool as tool
    from stepfold.events.store import open_store as open_store

_HOMES = {
    "AllowList": "stepfold.engine.runtime.middlewares",
    "HumanApproval": "stepfold.engine.runtime.middlewares",
    "MemoryCache": "stepfold.engine.runtime.response_cache",
    "MiddlewareError": "stepfold.engine.runtime.middleware",
    "RateLimit": "stepfold.engine.runtime.middlewares",
    "Redaction": "stepfold.engine.runtime.middlewares",
    "ResponseFormat": "stepfold.engine.runtime.run_policy",
    "RunEnded": "stepfold.engine.runtime.harness",
    "SqliteCache": "stepfold.engine.runtime.response_cache",
    "ToolResult": "stepfold.engine.runtime.tools",
    "Tracing": "stepfold.engine.runtime.middlewares_tracing",
    "UsageBudget": "stepfold.engine.runtime.middlewares",
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
