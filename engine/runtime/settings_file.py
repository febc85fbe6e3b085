"""`stepfold.toml` as a file: read once, checked whole, and refused by name."""

import difflib
import math
import re
import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from stepfold.engine.capabilities.manifests import refuse_unknown
from stepfold.engine.capabilities.paths import refuse_pattern
from stepfold.engine.core.profile import PROFILES
from stepfold.engine.runtime.settings import (
    CheckSettings,
    ServerSettings,
    Settings,
    SettingsError,
)
from stepfold.events.configuration import is_allowance, is_threshold

FILE_NAME = "stepfold.toml"

Shape = TypeVar("Shape", bound=Struct)

SERVER_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")


def read_settings(project: Path) -> Settings:
    """Read `stepfold.toml` of a project; its absence means the defaults. Raises SettingsError."""
    path = project / FILE_NAME
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise SettingsError(f"{path}: can't be read: {error.strerror}") from error
    return parse_settings(text, str(path))


def parse_settings(text: bytes, where: str = FILE_NAME) -> Settings:
    """Read the text of a `stepfold.toml`. Raises SettingsError, naming the key and the nearest known one."""
    return settings_of(parse_toml(text, where), where)


def settings_of(tree: dict[str, Any], where: str) -> Settings:
    """The settings that a tree of tables holds. Raises SettingsError as `parse_settings` does."""
    settings = shaped(tree, Settings, where)
    _refuse_nonsense(settings, where)
    return settings


def parse_toml(text: bytes, where: str) -> dict[str, Any]:
    """The tables of a TOML file. Raises SettingsError."""
    try:
        return tomllib.loads(text.decode())
    except UnicodeDecodeError as error:
        raise SettingsError(f"{where}: not UTF-8 at byte {error.start}: save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{where}: not TOML: {error}") from error


def shaped(tree: dict[str, Any], shape: type[Shape], where: str) -> Shape:
    """A tree as a struct. Raises SettingsError for an unknown key, a wrong type, a number no log holds."""
    _refuse_unknown(tree, shape, "", where)
    _refuse_unwritable(tree, "", where)
    try:
        return msgspec.convert(tree, shape)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{where}: {_in_toml_terms(str(error))}") from error


def _refuse_unknown(tree: dict[str, Any], shape: type[Struct], prefix: str, where: str) -> None:
    fields = {item.name: item.type for item in msgspec.structs.fields(shape)}
    for key, value in tree.items():
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1, cutoff=0.5)
            known = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(fields) or 'none'}"
            place = f"in [{prefix}]" if prefix else "at the top level"
            raise SettingsError(f"{where}: unknown key {key!r} {place}; {known}")
        for inner, path in _tables(value, fields[key], f"{prefix}.{key}".lstrip(".")):
            _refuse_unknown(inner, _struct_in(fields[key]), path, where)


def _tables(value: Any, shape: Any, path: str) -> list[tuple[dict[str, Any], str]]:
    if _struct_in(shape) is Struct:
        return []
    if isinstance(value, list):
        return [(item, path) for item in value if isinstance(item, dict)]
    if isinstance(value, dict) and getattr(shape, "__origin__", None) is dict:
        return [(item, f"{path}.{name}") for name, item in value.items() if isinstance(item, dict)]
    return [(value, path)] if isinstance(value, dict) else []


def _struct_in(shape: Any) -> type[Struct]:
    for candidate in (shape, *getattr(shape, "__args__", ())):
        if isinstance(candidate, type) and issubclass(candidate, Struct):
            return candidate
    return Struct


def _in_toml_terms(problem: str) -> str:
    what, _, place = problem.partition(" - at `$.")
    return f"{place.rstrip('`')}: {what}" if place else what


LARGEST_INTEGER = 2**63 - 1
"""What a log line can hold."""


def _refuse_unwritable(tree: Any, path: str, where: str) -> None:
    """Numbers that a log could not hold: the settings of a run are its first line."""
    match tree:
        case dict():
            for name, value in tree.items():
                _refuse_unwritable(value, f"{path}.{name}".lstrip("."), where)
        case list():
            for value in tree:
                _refuse_unwritable(value, path, where)
        case float() if not math.isfinite(tree):
            raise SettingsError(f"{where}: {path} is {tree}; it must be finite")
        case int() if abs(tree) > LARGEST_INTEGER:
            raise SettingsError(f"{where}: {path} is {tree:.3g}; it must be at most {LARGEST_INTEGER}")
        case _:
            pass


def _refuse_nonsense(settings: Settings, where: str) -> None:
    loop, model = settings.loop, settings.model
    limits = msgspec.structs.asdict(settings.sandbox.limits)
    at_least_1 = {
        "loop.max_steps": loop.max_steps,
        "loop.context_window": loop.context_window,
        "web.bytes_limit": settings.web.bytes_limit,
        **({} if model.max_tokens is None else {"model.max_tokens": model.max_tokens}),
        **{f"sandbox.limits.{name}": value for name, value in limits.items()},
    }
    for name, value in at_least_1.items():
        if value < 1:
            raise SettingsError(f"{where}: {name} is {value}; it must be at least 1")
    for name in ("worker_slots", "worker_depth"):
        if getattr(loop, name) < 0:
            raise SettingsError(f"{where}: loop.{name} is {getattr(loop, name)}; it must be 0 or more")
    if loop.model_request_timeout <= 0:
        raise SettingsError(f"{where}: loop.model_request_timeout must be more than 0 seconds")
    if loop.profile and loop.profile not in PROFILES:
        raise SettingsError(f"{where}: loop.profile is {loop.profile!r}; it is one of {', '.join(PROFILES)}")
    try:
        refuse_unknown(loop.preload)
        for pattern in loop.keep:
            refuse_pattern(pattern)
    except ValueError as error:
        raise SettingsError(f"{where}: {error}") from error
    for name, threshold in settings.guards.thresholds.items():
        if not is_threshold(threshold):
            raise SettingsError(
                f"{where}: guards.{name} is {threshold}; it must be 2 or more, or 0 to turn it off"
            )
    for name, amount in msgspec.structs.asdict(settings.budget).items():
        if not is_allowance(amount):
            raise SettingsError(f"{where}: budget.{name} is {amount}; it must be more than 0")
    for model_name, price in settings.prices.items():
        if min(price.input, price.output, price.cached or 0.0) < 0:
            raise SettingsError(f"{where}: prices.{model_name} holds a price below 0")
    if settings.web.seconds <= 0:
        raise SettingsError(f"{where}: web.seconds must be more than 0 seconds")
    for folder in settings.readable():
        if not Path(folder).is_absolute():
            raise SettingsError(
                f"{where}: sandbox.readable names {folder!r}; write the whole path, from / or ~"
            )
    for name, server in settings.mcp.servers.items():
        _refuse_broken_server(name, server, where)
    _refuse_broken_checks(settings.checks, where)


def _refuse_broken_server(name: str, server: ServerSettings, where: str) -> None:
    place = f"{where}: mcp.servers.{name}"
    if not SERVER_NAME.fullmatch(name):
        raise SettingsError(
            f"{place}: a server's name is 1 to 32 letters, digits, - or _, for tools carry it"
        )
    if bool(server.command) == bool(server.url):
        what = "both a command and a url" if server.command else "neither a command nor a url"
        raise SettingsError(f"{place} has {what}; give it one of the two")
    if server.url and not server.url.startswith(("http://", "https://")):
        raise SettingsError(f"{place}.url is {server.url!r}; it starts with http:// or https://")
    if server.timeout <= 0:
        raise SettingsError(f"{place}.timeout must be more than 0 seconds")
    texts = (server.command, *server.args, *server.env, *server.env.values(), *server.headers.values())
    if any("\0" in text for text in texts) or any("=" in key or not key for key in server.env):
        raise SettingsError(
            f"{place} holds a NUL, or a variable without a name: no program can be given that"
        )


def _refuse_broken_checks(checks: list[CheckSettings], where: str) -> None:
    seen: set[str] = set()
    for check in checks:
        if not check.id.strip():
            raise SettingsError(f"{where}: a check has an empty id; name it, so that it can be asked for")
        if check.id in seen:
            raise SettingsError(f"{where}: the check id {check.id!r} stands twice")
        seen.add(check.id)
        if not check.command.strip():
            raise SettingsError(f"{where}: the check {check.id!r} has no command")
        if "\0" in check.command:
            raise SettingsError(
                f"{where}: the command of the check {check.id!r} holds a NUL, which no shell takes"
            )
        if check.timeout <= 0:
            raise SettingsError(f"{where}: the timeout of the check {check.id!r} must be more than 0 seconds")
