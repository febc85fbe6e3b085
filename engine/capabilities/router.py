"""Finding capabilities: the ranking behind `capability_search`.

Pure and deterministic: the answer is recorded as a decided event and computed again on replay.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

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


def _score(wanted: frozenset[str], manifest: Manifest) -> int:
    in_name = _words(manifest.name)
    in_description = _words(manifest.description)
    return NAME_WEIGHT * len(wanted & in_name) + DESCRIPTION_WEIGHT * len(wanted & in_description)


@lru_cache(maxsize=2048)
def _words(text: str) -> frozenset[str]:
    return frozenset(_STEM.sub("", word) or word for word in _WORD.findall(text.lower()))
