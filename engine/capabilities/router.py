"""Finding capabilities: the ranking behind `capability_search`, and the signature lines of the prompt.

Pure and deterministic: the answer is recorded as a decided event and computed again on replay.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

from stepfold.events.configuration import Manifest

_WORD = re.compile(r"[a-z0-9]+")
_STEM = re.compile(r"(?:ing|es|s|ed)$")

NAME_WEIGHT = 4
DESCRIPTION_WEIGHT = 1


def search(query: str, manifests: Iterable[Manifest]) -> tuple[str, ...]:
    """The names of the capabilities that fit `query`, best first; all of them when none fits.

    A word of the query counts four times in a name and once in a description. Ties keep the order
    of `manifests`, so that equal inputs rank alike everywhere.
    """
    listed = tuple(manifests)
    wanted = _words(query)
    scored = [(_score(wanted, manifest), manifest.name) for manifest in listed]
    found = sorted((entry for entry in scored if entry[0] > 0), key=lambda entry: -entry[0])
    return tuple(name for _, name in found) or tuple(manifest.name for manifest in listed)


def signatures(manifests: Iterable[Manifest]) -> str:
    """One line a capability: `fs.read(path: string, start_line?: integer) — what it does`.

    Arguments that the host injects are left out.
    """
    return "\n".join(_signature(manifest) for manifest in manifests)


def _score(wanted: frozenset[str], manifest: Manifest) -> int:
    in_name = _words(manifest.name)
    in_description = _words(manifest.description)
    return NAME_WEIGHT * len(wanted & in_name) + DESCRIPTION_WEIGHT * len(wanted & in_description)


@lru_cache(maxsize=2048)
def _words(text: str) -> frozenset[str]:
    return frozenset(_STEM.sub("", word) or word for word in _WORD.findall(text.lower()))


def _signature(manifest: Manifest) -> str:
    return _render(manifest.name, manifest.description, bytes(manifest.schema), manifest.hidden)


@lru_cache(maxsize=512)
def _render(name: str, description: str, schema: bytes, hidden: tuple[str, ...]) -> str:
    decoded: Any = msgspec.json.decode(schema)
    properties: dict[str, Any] = decoded.get("properties", {}) if isinstance(decoded, dict) else {}
    required = decoded.get("required", []) if isinstance(decoded, dict) else []
    shown = ", ".join(
        f"{key}{'' if key in required else '?'}: {_type_of(rule)}"
        for key, rule in properties.items()
        if key not in hidden
    )
    one_line = " ".join(description.split())
    return f"{name}({shown}) — {one_line}" if one_line else f"{name}({shown})"


def _type_of(rule: object) -> str:
    match rule:
        case {"type": str(kind)}:
            return kind
        case {"type": [*kinds]}:
            return "|".join(str(kind) for kind in kinds)
        case _:
            return "any"
