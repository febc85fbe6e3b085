"""How a tool-calling run may go: the policy of a harness, the config of one run, and what both come to."""

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Raw, Struct, field
from msgspec.structs import replace

from stepfold.engine.runtime.steering import CancellationToken, SteeringHandle
from stepfold.events.configuration import (
    NULL,
    Generation,
    HarnessConfig,
    Manifest,
    MiddlewareSpec,
    ModelSpec,
    Retry,
)


class ResponseFormat(Struct, frozen=True):
    """A structured answer: its name, its JSON Schema, and how it is asked for.

    `auto` takes the provider's own structured output where the first model has it, else a tool of
    that name.
    """

    name: str
    schema: bytes
    strategy: Literal["auto", "provider", "tool"] = "auto"


class RunPolicy(Struct, frozen=True, kw_only=True):
    """What holds for every run of a harness. Durations in seconds.

    `unknown_tool` is `fail`, `return_tool_error` or `rewrite:NAME`; `tool_errors` is `fail`,
    `return_to_model` or `message:TEXT`. `retry.sleep` is off unless a provider needs a real backoff.
    """

    max_model_calls: int = 25
    max_tool_calls: int = 50
    wall_clock: float | None = None
    tool_timeout: float | None = None
    max_depth: int = 8
    retries_per_call: int = 3
    retry: Retry = Retry()
    generation: Generation = Generation(mode="tools")
    on_limit: Literal["error", "stop_with_partial"] = "error"
    unknown_tool: str = "fail"
    invalid_arguments: Literal["return_tool_error", "normalize", "fail"] = "return_tool_error"
    tool_errors: str = "fail"
    truncated_empty_retries: int = 1
    error_on_empty_response: bool = False
    no_progress: bool = False
    record_deltas: bool = False
    response_format: ResponseFormat | None = None
    namespace: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a policy that doesn't exist: no run may fail open on a slip."""
        if self.unknown_tool not in {"fail", "return_tool_error"} and not self.unknown_tool.startswith(
            "rewrite:"
        ):
            raise ValueError(f"unknown_tool={self.unknown_tool!r}: fail, return_tool_error or rewrite:NAME")
        if self.tool_errors not in {"fail", "return_to_model"} and not self.tool_errors.startswith(
            "message:"
        ):
            raise ValueError(f"tool_errors={self.tool_errors!r}: fail, return_to_model or message:TEXT")


class RunConfig(Struct, frozen=True, kw_only=True):
    """What holds for one run. An explicit cap and the policy's: the stricter wins.

    `model` names the model to ask first. `injected` are the host's values for arguments that tools
    declare hidden; they never enter the log.
    """

    run_id: str = ""
    max_model_calls: int | None = None
    max_tool_calls: int | None = None
    max_depth: int | None = None
    timeout: float | None = None
    model: str = ""
    depth: int = 0
    parent: str = ""
    parent_call: str = ""
    injected: Mapping[str, Any] = field(default_factory=dict)
    cancellation: CancellationToken | None = None
    steering: SteeringHandle | None = None


def stricter(explicit: float | None, policy: float | None) -> float | None:
    """The smaller of two caps; unset means the other alone."""
    caps = [cap for cap in (explicit, policy) if cap is not None]
    return min(caps) if caps else None


def resolved(
    policy: RunPolicy,
    config: RunConfig,
    models: Sequence[ModelSpec],
    manifests: Sequence[Manifest],
    middleware: Sequence[MiddlewareSpec],
    *,
    cache: bool,
    stream: bool,
) -> HarnessConfig:
    """What `RunStarted` records: one configuration, nothing left to resolve."""
    wanted = policy.response_format
    ordered = _ordered(models, config.model)
    return HarnessConfig(
        models=tuple(ordered),
        manifests=tuple(manifests),
        middleware=tuple(middleware),
        generation=policy.generation,
        retry=policy.retry,
        retries_per_call=policy.retries_per_call,
        max_model_calls=_whole(stricter(config.max_model_calls, policy.max_model_calls)),
        max_tool_calls=_whole(stricter(config.max_tool_calls, policy.max_tool_calls)),
        wall_clock=stricter(config.timeout, policy.wall_clock),
        tool_timeout=policy.tool_timeout,
        depth=config.depth,
        max_depth=_whole(stricter(config.max_depth, policy.max_depth)),
        on_limit=policy.on_limit,
        unknown_tool=policy.unknown_tool,
        invalid_arguments=policy.invalid_arguments,
        tool_errors=policy.tool_errors,
        truncated_empty_retries=policy.truncated_empty_retries,
        error_on_empty_response=policy.error_on_empty_response,
        steering=() if config.steering is None else tuple(sorted(config.steering.allowed)),
        cache=cache,
        stream=stream,
        record_deltas=policy.record_deltas,
        no_progress=policy.no_progress,
        response_schema=NULL if wanted is None else Raw(wanted.schema),
        response_name="" if wanted is None else wanted.name,
        response_strategy=_strategy(wanted, ordered),
        namespace=policy.namespace,
    )


def taken_over(recorded: HarnessConfig, own: HarnessConfig, config: RunConfig) -> HarnessConfig:
    """What holds of a recorded run once a harness goes on with a fork of it.

    The harness acts, so its models, tools, middlewares and cache take over. How far the run may go and
    what it answers in stay as recorded; an explicit cap of the fork's `config` only makes them stricter.
    """
    # A run may have been started with another model first, which is no change of models.
    same = not config.model and sorted(map(repr, own.models)) == sorted(map(repr, recorded.models))
    models = recorded.models if same else own.models
    strategy = recorded.response_strategy
    if strategy == "provider" and models != recorded.models and not (models and models[0].structured):
        strategy = "tool"
    return replace(
        recorded,
        models=models,
        manifests=own.manifests,
        middleware=own.middleware,
        cache=own.cache,
        max_model_calls=_whole(stricter(config.max_model_calls, recorded.max_model_calls)),
        max_tool_calls=_whole(stricter(config.max_tool_calls, recorded.max_tool_calls)),
        max_depth=_whole(stricter(config.max_depth, recorded.max_depth)),
        wall_clock=stricter(config.timeout, recorded.wall_clock),
        steering=recorded.steering if config.steering is None else own.steering,
        response_strategy=strategy,
    )


def _ordered(models: Sequence[ModelSpec], wanted: str) -> list[ModelSpec]:
    """The fallback list with the wanted model first; none at all when there is none of that name."""
    if not wanted:
        return list(models)
    if all(model.name != wanted for model in models):
        return []
    return sorted(models, key=lambda model: model.name != wanted)


def _whole(cap: float | None) -> int:
    return int(cap or 0)


def _strategy(
    wanted: ResponseFormat | None, models: Sequence[ModelSpec]
) -> Literal["none", "provider", "tool"]:
    if wanted is None:
        return "none"
    if wanted.strategy != "auto":
        return wanted.strategy
    return "provider" if models and models[0].structured else "tool"


def new_run_id() -> str:
    """An id that sorts by the time it was made."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
