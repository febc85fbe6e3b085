"""The hops that a call passes before it may run, from its name to the network it needs.

Pure: it runs inside the decision, in live runs and when a log is verified. It never raises on what
a model said; a refusal says what would be right.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import Struct

from stepfold.engine.capabilities.paths import kept_by, kept_reason, path_fault, protected_entry
from stepfold.engine.capabilities.policy import ALLOWED, Verdict, judge, judge_name
from stepfold.engine.contract.schemas import compile_schema
from stepfold.events.configuration import Manifest, Rule

Hop = Literal[
    "name", "arguments", "gate", "schema", "dispatch", "paths", "policy", "approval", "sandbox", "network"
]

CONFINED = frozenset({"fs.list", "fs.read", "fs.search", "fs.write", "fs.patch", "git.diff"})
WRITING = frozenset({"fs.write", "fs.patch"})
WRAPPERS = ("arguments", "args", "parameters", "input")
NAME_LIMIT = 200

HOW_TO_SANDBOX = (
    "install bubblewrap (for instance `apt install bubblewrap`) and see `stepfold doctor`, "
    'or let the project waive it with backend = "none" under [sandbox] in stepfold.toml'
)

_PREFIX = re.compile(r"^(?:functions?|tools?)[.:/]")
_JOINT = re.compile(r"[\s_./:\-]+")


class Admitted(Struct, frozen=True):
    """A call that may run. `arguments` is the canonical JSON of what will run, `notes` what was changed.

    `asks` is the rule of the policy that wants a person's yes first; empty when none does.
    """

    name: str
    arguments: bytes
    changed: bool = False
    notes: tuple[str, ...] = ()
    asks: str = ""


class Refused(Struct, frozen=True):
    """A call that a hop turned down. `reason` is what the model reads."""

    name: str
    hop: Hop
    reason: str


def admit(
    name: str,
    arguments: dict[str, Any] | str,
    *,
    manifests: Mapping[str, Manifest],
    loaded: Collection[str],
    policy: Sequence[Rule],
    sandbox: str,
    sandbox_required: bool,
    network: bool,
    tool_policy: Sequence[Rule] = (),
    attended: bool = False,
    project: str = "",
    keep: Sequence[str] = (),
    final_newline: bool = False,
) -> Admitted | Refused:
    """Take one capability call through every hop; the first that objects decides.

    `manifests` are all loadable capabilities by name, `loaded` those the run has loaded, `sandbox`
    the backend this process found (empty when there is none), `network` whether the config lets
    calls reach the network, `attended` whether a person is there to approve, `project` what the project's
    folder is called, `keep` the patterns of files that no call may write, `final_newline` whether
    what `fs.write` writes ends in a line break.

    A name that nobody knows passes by the gate and the schema, and is refused by `dispatch`, which
    lists the names there are: to tell a model to load it would be a lie.
    """
    known = normal_name(name, manifests)
    if isinstance(known, Refused):
        return known
    manifest = manifests.get(known)
    if manifest is None:
        return Refused(
            known, "dispatch", f"there is no capability {known!r}; there are: {_listed(manifests)}"
        )
    taken = normal_arguments(known, arguments, manifest)
    if isinstance(taken, Refused):
        return taken
    values, notes = taken
    if final_newline and known == "fs.write":
        values, notes = _ended(values, notes)
    by_name = judge_name(known, tool_policy)
    refusal = (
        _gate(known, loaded)
        or _schema(known, values, manifest)
        or _paths(known, values, project, keep)
        or _policy(known, by_name, attended)
    )
    if refusal is not None:
        return refusal
    verdict = judge(values["command"], policy) if known == "shell.run" else ALLOWED
    refusal = (
        _policy(known, verdict, attended)
        or _sandbox(known, sandbox, sandbox_required)
        or network_refusal(manifest, network)
    )
    if refusal is not None:
        return refusal
    canonical = _canonical(values)
    if canonical is None:
        return Refused(known, "arguments", "the arguments hold a number or a character that JSON can't carry")
    if known != name:
        notes = (f"name {name!r} read as {known!r}", *notes)
    return Admitted(known, canonical, changed=bool(notes), notes=notes, asks=verdict.asks or by_name.asks)


def normal_name(name: str, manifests: Mapping[str, Manifest]) -> str | Refused:
    """The known name that `name` stands for, itself when none does, or a refusal when two do.

    Case, white space, a `functions.` prefix and the joints between words make no difference.
    """
    if name in manifests:
        return name
    bare = name.strip()
    if not bare or len(bare) > NAME_LIMIT or not bare.isprintable():
        return Refused(name[:NAME_LIMIT], "name", f"no name of a capability; there are: {_listed(manifests)}")
    key = _name_key(bare)
    fitting = [known for known in manifests if _name_key(known) == key]
    match fitting:
        case [only]:
            return only
        case []:
            return bare
        case _:
            return Refused(bare, "name", f"{bare!r} could be any of {', '.join(fitting)}: write one of them")


def normal_arguments(
    name: str, arguments: dict[str, Any] | str, manifest: Manifest
) -> tuple[dict[str, Any], tuple[str, ...]] | Refused:
    """The arguments under the keys of the schema, with a note for each change.

    Three things are put right, all of them form: the whole object written as a JSON string, the
    whole object wrapped under a key such as `arguments`, and the aliases of the manifest. Content
    is never guessed at, and a key that fits nothing is left for the schema to refuse.
    """
    properties = _properties(bytes(manifest.schema))
    opened = _opened(arguments, properties)
    if opened is None:
        return Refused(name, "arguments", f"{name} takes a JSON object with the keys {_keys(properties)}")
    values, notes = opened
    for hidden in manifest.hidden:
        if values.pop(hidden, None) is not None:
            notes.append(f"{hidden!r} left out: the host sets it")
    for alias, key in manifest.aliases:
        if alias not in values or alias in properties or key in values:
            continue
        values[key] = values.pop(alias)
        notes.append(f"{alias!r} read as {key!r}")
    return values, tuple(notes)


def _ended(values: dict[str, Any], notes: tuple[str, ...]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The content with the line break at its end that the project wants of its files, of the kind it has."""
    content = values.get("content")
    if not isinstance(content, str) or not content or content.endswith("\n"):
        return values, notes
    breaks = content.count("\n")
    end = "\r\n" if breaks and breaks == content.count("\r\n") else "\n"
    return {**values, "content": f"{content}{end}"}, (*notes, "a line break put at the end of 'content'")


def _gate(name: str, loaded: Collection[str]) -> Refused | None:
    if name in loaded:
        return None
    return Refused(
        name, "gate", f'{name} is not loaded: call capability_load with {{"names": ["{name}"]}} first'
    )


def _schema(name: str, values: dict[str, Any], manifest: Manifest) -> Refused | None:
    messages = compile_schema(bytes(manifest.schema)).validate(values)
    if not messages:
        return None
    properties = _properties(bytes(manifest.schema))
    return Refused(name, "schema", f"{'; '.join(messages)}. {name} takes {_keys(properties)}")


def _paths(name: str, values: Mapping[str, Any], project: str, keep: Sequence[str]) -> Refused | None:
    path = values.get("path")
    if name not in CONFINED or not isinstance(path, str):
        return None
    fault = path_fault(path, project)
    if fault:
        return Refused(name, "paths", fault)
    if name not in WRITING:
        return None
    guarded = protected_entry(path)
    if guarded:
        return Refused(name, "paths", f"{guarded} can be read and not written: put the file elsewhere")
    pattern = kept_by(path, keep)
    if pattern:
        return Refused(name, "paths", kept_reason(path, pattern))
    return None


def _policy(name: str, verdict: Verdict, attended: bool) -> Refused | None:
    if verdict.asks and not attended:
        reason = f"the rule {verdict.asks!r} leaves it to a person, and nobody is there: do it another way"
        return Refused(name, "approval", reason)
    return None if verdict.allowed else Refused(name, "policy", verdict.why)


def _sandbox(name: str, sandbox: str, sandbox_required: bool) -> Refused | None:
    if name != "shell.run":
        return None
    if sandbox == "" and sandbox_required:
        return Refused(name, "sandbox", f"there is no sandbox on this machine to run it in: {HOW_TO_SANDBOX}")
    return None


def network_refusal(manifest: Manifest, network: bool) -> Refused | None:
    """The refusal of whatever needs the network, in a run that has none."""
    if network or not manifest.network:
        return None
    return Refused(
        manifest.name,
        "network",
        f"{manifest.name} needs the network, which this run has not: work with what the project holds "
        "(network = true under [sandbox] in stepfold.toml would allow it)",
    )


@lru_cache(maxsize=1024)
def _name_key(name: str) -> str:
    return _JOINT.sub(".", _PREFIX.sub("", name.strip().lower()))


def _listed(manifests: Mapping[str, Manifest]) -> str:
    return ", ".join(manifests) or "none"


def _keys(properties: Collection[str]) -> str:
    return ", ".join(properties) if properties else "no arguments: {}"


@lru_cache(maxsize=512)
def _properties(schema: bytes) -> tuple[str, ...]:
    decoded = msgspec.json.decode(schema)
    found = decoded.get("properties") if isinstance(decoded, dict) else None
    return tuple(found) if isinstance(found, dict) else ()


def _opened(
    arguments: dict[str, Any] | str, properties: Collection[str]
) -> tuple[dict[str, Any], list[str]] | None:
    """The object that was meant, out of its string and its wrapper, and a note for each of the two."""
    notes: list[str] = []
    value: Any = arguments
    if isinstance(value, str):
        value = _object_in(value)
        notes.append("arguments read from a JSON string")
    wrapper = _wrapper(value, properties)
    if wrapper:
        value = value[wrapper]
        notes.append(f"arguments taken out of {wrapper!r}")
        value = _object_in(value) if isinstance(value, str) else value
    return (dict(value), notes) if isinstance(value, dict) else None


def _wrapper(value: object, properties: Collection[str]) -> str:
    """The one key that holds the whole object, when the schema doesn't know that key itself."""
    if not isinstance(value, dict) or len(value) != 1:
        return ""
    key = next(iter(value))
    if key not in WRAPPERS or key in properties:
        return ""
    inner = value[key]
    holds_object = isinstance(inner, dict) or (isinstance(inner, str) and _object_in(inner) is not None)
    return str(key) if holds_object else ""


def _object_in(text: str) -> dict[str, Any] | None:
    """The JSON object that a string holds, if it holds one, nothing else, and no key twice."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        decoded = json.loads(text, object_pairs_hook=_distinct, parse_constant=_not_json)
    except (ValueError, RecursionError):
        return None
    return decoded if isinstance(decoded, dict) else None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def _not_json(constant: str) -> object:
    raise ValueError(constant)


def _canonical(values: Mapping[str, Any]) -> bytes | None:
    try:
        return msgspec.json.encode(values, order="deterministic")
    except (UnicodeError, OverflowError, ValueError, TypeError, RecursionError):
        return None
