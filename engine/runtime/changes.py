"""`--set KEY=VALUE`: changes to a recorded configuration, named as in `stepfold.toml`."""

import difflib
import math
import tomllib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from stepfold.engine.capabilities.manifests import refuse_unknown
from stepfold.engine.capabilities.paths import refuse_pattern
from stepfold.engine.core.own_guards import GuardClash, MissingGuard, require
from stepfold.engine.core.profile import PROFILES
from stepfold.engine.runtime.own_guards import fetch
from stepfold.events.configuration import (
    NO_BUDGET,
    NO_GUARDS,
    Config,
    GoalConfig,
    ImportedConfig,
    Rule,
    config_from_json,
    is_allowance,
    is_threshold,
)


class ChangeError(ValueError):
    """A `--set` that changes nothing that a run has: what was written, and what would be right."""


def _field(name: str) -> Callable[[Any, Any], Any]:
    return lambda config, value: replace(config, **{name: value})


def _of(part: str, name: str) -> Callable[[Any, Any], Any]:
    """A field of a part of the configuration."""

    def change(config: Any, value: Any) -> Any:
        return replace(config, **{part: replace(getattr(config, part), **{name: value})})

    return change


def _own_guards(config: Any, value: Any) -> Any:
    names = value if isinstance(value, list) else str(value).split(",")
    own = tuple(dict.fromkeys(name for name in (str(name).strip() for name in names) if name))
    fetch(own)
    for name in own:
        require(name)
    return replace(config, guards=replace(config.guards, own=own))


def _rules(verdict: Any) -> Callable[[Any, Any], Any]:
    def change(config: Any, value: Any) -> Any:
        others = tuple(rule for rule in config.policy if rule.verdict != verdict)
        made = tuple(Rule(verdict, str(pattern)) for pattern in _several(value))
        order = ("deny", "ask", "allow")
        policy = sorted((*others, *made), key=lambda rule: order.index(rule.verdict))
        return replace(config, policy=tuple(policy))

    return change


def _preload(config: Any, value: Any) -> Any:
    names = tuple(str(name) for name in _several(value))
    refuse_unknown(names)
    return replace(config, preload=names)


def _keep(config: Any, value: Any) -> Any:
    patterns = tuple(str(pattern) for pattern in _several(value))
    for pattern in patterns:
        refuse_pattern(pattern)
    return replace(config, keep=patterns)


def _several(value: Any) -> list[Any]:
    """What may be one or a list."""
    return value if isinstance(value, list) else [value]


GOAL_KEYS: dict[str, Callable[[Any, Any], Any]] = {
    "loop.max_steps": _field("max_steps"),
    "loop.context_window": _field("context_window"),
    "loop.model_request_timeout": _field("model_request_timeout"),
    "loop.worker_slots": _field("worker_slots"),
    "loop.worker_depth": _field("worker_depth"),
    "loop.profile": _field("profile"),
    "loop.preload": _preload,
    "loop.keep": _keep,
    "loop.unattended": _field("unattended"),
    "loop.final_newline": _field("final_newline"),
    "loop.read_first": _field("read_first"),
    "loop.verify_changes": _field("verify_changes"),
    "model.mode": _of("generation", "mode"),
    "model.temperature": _of("generation", "temperature"),
    "model.max_tokens": _of("generation", "max_tokens"),
    "policy.shell.deny": _rules("deny"),
    "policy.shell.ask": _rules("ask"),
    "policy.shell.allow": _rules("allow"),
    "guards.cycle": _of("guards", "cycle"),
    "guards.rejection": _of("guards", "rejection"),
    "guards.failure": _of("guards", "failure"),
    "guards.own": _own_guards,
    "budget.tokens": _of("budget", "tokens"),
    "budget.cost": _of("budget", "cost"),
    "budget.seconds": _of("budget", "seconds"),
    "sandbox.network": _field("network"),
    "verification": _field("verification"),
}
"""What a goal run's configuration may be changed in."""

TOOLS_KEYS: dict[str, Callable[[Any, Any], Any]] = {
    name: _field(name)
    for name in (
        "max_model_calls",
        "max_tool_calls",
        "wall_clock",
        "on_limit",
        "unknown_tool",
        "invalid_arguments",
        "tool_errors",
        "truncated_empty_retries",
        "error_on_empty_response",
        "no_progress",
    )
}
"""What a tool-calling run's configuration may be changed in."""

IMPORTED_KEYS = {
    name: GOAL_KEYS[name] for name in ("loop.max_steps", "guards.cycle", "guards.rejection", "guards.failure")
}
"""What can be asked of an imported run: its replies and results are known, and nothing else of its loop."""


POSITIVE = ("max_steps", "context_window", "model_request_timeout", "max_model_calls", "wall_clock")
"""Fields that make no sense at 0 or below."""


def changed(config: Config, settings: Iterable[str]) -> Config:
    """A configuration with `KEY=VALUE` settings applied, values in TOML. Raises ChangeError."""
    loop, keys = _keys_of(config)
    for setting in settings:
        key, equals, text = (part.strip() for part in setting.partition("="))
        if not equals:
            raise ChangeError(f"--set {setting!r}: write KEY=VALUE")
        change = keys.get(key)
        if change is None:
            raise ChangeError(f"--set {setting!r}: unknown key {key!r}; {_meant(key, loop, keys)}")
        try:
            wanted = change(config, _value(text))
        except (MissingGuard, GuardClash, ValueError) as error:
            raise ChangeError(f"--set {setting!r}: {error}") from error
        config = _checked(wanted, setting)
    return config


def _keys_of(config: Config) -> tuple[str, dict[str, Callable[[Any, Any], Any]]]:
    """What kind of run it is, and what may be changed in it."""
    match config:
        case GoalConfig():
            return "a goal", GOAL_KEYS
        case ImportedConfig():
            return "an imported", IMPORTED_KEYS
        case _:
            return "a tool-calling", TOOLS_KEYS


def _meant(key: str, loop: str, keys: dict[str, Callable[[Any, Any], Any]]) -> str:
    if key in GOAL_KEYS or key in TOOLS_KEYS:
        return f"this is {loop} run, which knows: {', '.join(keys)}"
    # `max_steps` is near to `loop.max_steps`, although only half of the letters agree.
    near = [known for known in keys if known.rpartition(".")[2] == key] or difflib.get_close_matches(
        key, keys, n=1, cutoff=0.5
    )
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(keys)}"


def _value(text: str) -> Any:
    try:
        values = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return values["value"] if len(values) == 1 else text


def _checked(config: Config, setting: str) -> Config:
    try:
        read = config_from_json(msgspec.json.encode(config))
    except (msgspec.ValidationError, OverflowError, TypeError, UnicodeEncodeError) as error:
        raise ChangeError(f"--set {setting!r}: {error}") from error
    for name in POSITIVE:
        value = getattr(read, name, None)
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise ChangeError(f"--set {setting!r}: must be more than 0")
    budget = read.budget if isinstance(read, GoalConfig) else NO_BUDGET
    if not all(map(is_allowance, msgspec.structs.astuple(budget))):
        raise ChangeError(f"--set {setting!r}: must be more than 0")
    guards = read.guards if isinstance(read, GoalConfig | ImportedConfig) else NO_GUARDS
    if not all(map(is_threshold, guards.thresholds.values())):
        raise ChangeError(f"--set {setting!r}: must be 2 or more, or 0 to turn it off")
    profile = getattr(read, "profile", "")
    if profile and profile not in PROFILES:
        raise ChangeError(f"--set {setting!r}: is one of {', '.join(PROFILES)}")
    return read
