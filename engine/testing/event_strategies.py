"""Any event of the vocabulary, built from its declaration: legal as a line, whatever it would mean."""

import json
import typing
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

from stepfold.events import vocabulary as v

ODD = '\u2028\u2029\u0085\x00\n\r\t\ud800\udfff\ufdd0\ufeff"\\'
_TEXTS = st.text(
    st.one_of(st.sampled_from(ODD), st.characters(codec=None), st.sampled_from("0123456789abcdef")),
    max_size=12,
)
_RAW = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def events() -> st.SearchStrategy[Any]:
    """Events of every kind."""
    return st.sampled_from(sorted(v.KINDS)).flatmap(lambda kind: _structs_of(v.KINDS[kind]))


def _values_of(shape: Any) -> st.SearchStrategy[Any]:
    if isinstance(shape, type) and shape in _PLAIN:
        return _PLAIN[shape]
    if isinstance(shape, type) and issubclass(shape, msgspec.Struct):
        return _structs_of(shape)
    if get_origin(shape) is typing.Literal:
        return st.sampled_from(get_args(shape))
    if get_origin(shape) is tuple:
        inner = get_args(shape)
        if inner[-1] is Ellipsis:
            return st.lists(_values_of(inner[0]), max_size=2).map(tuple)
        return st.tuples(*map(_values_of, inner))
    return st.one_of(*map(_values_of, get_args(shape)))


def _written(value: Any, indent: int | None) -> msgspec.Raw:
    """JSON as somebody else wrote it, on one line or on several."""
    return msgspec.Raw(json.dumps(value, indent=indent, separators=(",", ":")).encode())


_PLAIN: dict[type, st.SearchStrategy[Any]] = {
    str: _TEXTS,
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
    msgspec.Raw: st.builds(_written, _RAW, st.sampled_from((None, 1))),
}
_built: dict[type, st.SearchStrategy[Any]] = {}


def _structs_of(shape: type) -> st.SearchStrategy[Any]:
    if shape not in _built:
        hints = get_type_hints(shape)
        names: tuple[str, ...] = shape.__struct_fields__  # type: ignore[attr-defined]
        fields = {name: st.deferred(lambda hint=hints[name]: _values_of(hint)) for name in names}  # type: ignore[misc]
        if "v" in fields:
            fields["v"] = st.just(v.VERSION)
        _built[shape] = st.builds(shape, **fields)
    return _built[shape]
