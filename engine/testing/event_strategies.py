"""Any event of the vocabulary, built from its declaration: legal as a line, whatever it would mean."""

import json
import typing
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

from stepfold.events import vocabulary as v

ODD = '\u2028\u2029\u0085\x00\n\r\t\ud800\udfff\ufdd0\ufeff"\\'
TEXTS = st.lists(
    st.one_of(st.sampled_from(ODD), st.characters(codec=None), st.sampled_from("0123456789abcdef")),
    max_size=12,
).map("".join)
"""Not `st.text`: it makes one alphabet of the three, and draws a surrogate once in thousands of texts."""

WORDS = (
    "empty",
    "pause",
    "resume",
    "cancel",
    "inject",
    "redirect",
    "before_agent",
    "before_model",
    "after_model",
    "before_tool",
    "after_tool",
    "after_agent",
    "on_error",
    "interrupt",
    "stop_with_final",
    "structured_with_tool_calls",
    "tool:1.0",
    "wait:model-1:1",
    "model:model-1:0",
    "check:a:1",
    "memory",
    "hook",
    "user",
    "clock",
    "steering",
    "timeout",
    "Cancelled",
    "verify_repeats",
    "finish",
)
"""Texts that the engine writes itself."""

_RAW = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def events() -> st.SearchStrategy[Any]:
    """Events of every kind."""
    return st.sampled_from(sorted(v.KINDS)).flatmap(lambda kind: structs_of(v.KINDS[kind]))


def _values_of(shape: Any) -> st.SearchStrategy[Any]:
    if isinstance(shape, type) and shape in _PLAIN:
        return _PLAIN[shape]
    if isinstance(shape, type) and issubclass(shape, msgspec.Struct):
        return structs_of(shape)
    if get_origin(shape) is typing.Literal:
        return st.sampled_from(get_args(shape))
    if get_origin(shape) is tuple:
        inner = get_args(shape)
        if inner[-1] is Ellipsis:
            return st.lists(_values_of(inner[0]), max_size=3).map(tuple)
        return st.tuples(*map(_values_of, inner))
    return st.one_of(*map(_values_of, get_args(shape)))


def _written(value: Any, indent: int | None, separators: tuple[str, str]) -> msgspec.Raw:
    """JSON as somebody else wrote it, on one line or on several, with blanks or without."""
    return msgspec.Raw(json.dumps(value, indent=indent, separators=separators).encode())


_PLAIN: dict[type, st.SearchStrategy[Any]] = {
    str: TEXTS | st.sampled_from(WORDS),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
    msgspec.Raw: st.builds(
        _written, _RAW, st.sampled_from((None, 1, 2)), st.sampled_from(((",", ":"), (", ", ": ")))
    ),
}
_built: dict[type, st.SearchStrategy[Any]] = {}


def structs_of(shape: type) -> st.SearchStrategy[Any]:
    """Structs of one shape, each field with any value that its declaration allows."""
    if shape not in _built:
        hints = get_type_hints(shape)
        names: tuple[str, ...] = shape.__struct_fields__  # type: ignore[attr-defined]
        fields = {name: st.deferred(lambda hint=hints[name]: _values_of(hint)) for name in names}  # type: ignore[misc]
        if "v" in fields:
            fields["v"] = st.just(v.VERSION)
        _built[shape] = st.builds(shape, **fields)
    return _built[shape]
