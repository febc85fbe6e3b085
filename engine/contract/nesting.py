"""How deep the brackets of a text nest, found in linear time and without recursion."""

from array import array
from itertools import accumulate

DEEPEST = 128
"""Levels of nesting that the contract accepts: the envelope is level 1, its arguments level 2."""

_SLICE = 4096
_STEPS = bytes.maketrans(b"[{]}", bytes((1, 1, 255, 255)))
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))


def nesting(text: str) -> int:
    """Return the brackets still open at the end of `text`, or the first level found beyond `DEEPEST`.

    Brackets inside strings don't count. Exact for every JSON text; for other text an estimate
    that an error message may use.
    """
    level = 0
    brackets = _outside_strings(text).encode("utf-8", "replace").translate(_STEPS, _OTHERS)
    for first in range(0, len(brackets), _SLICE):
        levels = list(accumulate(array("b", brackets[first : first + _SLICE]), initial=level))
        highest = max(levels)
        if highest > DEEPEST:
            return highest
        level = levels[-1]
    return level


def is_too_deep(text: str) -> bool:
    """Tell whether a JSON text nests deeper than `DEEPEST`. Two counts settle it for most texts."""
    if text.count("{") + text.count("[") <= DEEPEST:
        return False
    # Text made to be deep shows it early: then the first slice is enough.
    return nesting(text[:_SLICE]) > DEEPEST or (len(text) > _SLICE and nesting(text) > DEEPEST)


def _outside_strings(text: str) -> str:
    # Once escaped backslashes and then escaped quotes are gone, every quote that is left opens or
    # closes a string. Three passes in C, where one regular expression would keep a stack.
    return "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])
