"""`--set KEY=VALUE`: changes to a recorded configuration, named as in `stepfold.toml`."""

import difflib
import tomllib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from stepfold.events.configuration import Config, GoalConfig, HarnessConfig, Rule


class ChangeError(ValueError):
    """A `--set` that changes nothing that a run has: what was written, and what would be right."""


def _field(name: str) -> Callable[[Any, Any], Any]:
    return lambda config, value: replace(config, **{name: value})


def _generation(name: str) -> Callable[[Any, Any], Any]:
    def change(config: Any, value: Any) -> Any:
        return replace(config, generation=replace(config.generation, **{name: value}))

    return change


def _rules(verdict: Any) -> Callable[[Any, Any], Any]:
    def change(config: Any, value: Any) -> Any:
        patterns = value if isinstance(value, list) else [value]
        others = tuple(rule for rule in config.policy if rule.verdict != verdict)
        made = tuple(Rule(verdict, str(pattern)) for pattern in patterns)
        return replace(config, policy=(*made, *others) if verdict == "deny" else (*others, *made))

    return change


GOAL_KEYS: dict[str, Callable[[Any, Any], Any]] = {
    "loop.max_steps": _field("max_steps"),
    "loop.context_window": _field("context_window"),
    "loop.model_request_timeout": _field("model_request_timeout"),
    "loop.worker_slots": _field("worker_slots"),
    "loop.profile": _field("profile"),
    "model.mode": _generation("mode"),
    "model.temperature": _generation("temperature"),
    "model.max_tokens": _generation("max_tokens"),
    "policy.shell.deny": _rules("deny"),
    "policy.shell.allow": _rules("allow"),
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


def changed(config: Config, settings: Iterable[str]) -> Config:
    """A configuration with `KEY=VALUE` settings applied, values in TOML. Raises ChangeError."""
    keys = GOAL_KEYS if isinstance(config, GoalConfig) else TOOLS_KEYS
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise ChangeError(f"--set {setting!r}: write KEY=VALUE")
        change = keys.get(key.strip())
        if change is None:
            near = difflib.get_close_matches(key, keys, n=1)
            meant = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(keys)}"
            raise ChangeError(f"--set {setting!r}: unknown key {key!r}; {meant}")
        config = _checked(change(config, _value(text)), setting)
    return config


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def _checked(config: Config, setting: str) -> Config:
    try:
        return msgspec.json.decode(msgspec.json.encode(config), type=GoalConfig | HarnessConfig)
    except msgspec.ValidationError as error:
        raise ChangeError(f"--set {setting!r}: {error}") from error
