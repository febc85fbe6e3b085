"""JSON values that keep a JSON Schema, built from the schema rather than searched for.

A value is drawn along the schema: references are followed, `allOf` is merged, one branch of an `anyOf`
or `oneOf` is taken. Only what construction can't promise (`not`, `oneOf` whose branches overlap,
`unevaluatedProperties`) is left to the validator, the same one that judges a model's arguments.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from math import ceil, floor
from typing import Any
from urllib.parse import unquote

from hypothesis import strategies as st

from stepfold.engine.contract.validators import Validator, compile_schema

MOST_ITEMS = 4
"""How much longer than it must be an array, an object or a text is made."""

LARGEST = 2**53
"""Whole numbers stay where every reader of JSON agrees on them."""

Schema = Mapping[str, Any]
Strategy = st.SearchStrategy[Any]

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-LARGEST, LARGEST) | st.floats(allow_nan=False, allow_infinity=False)
ANY_VALUE: Strategy = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=MOST_ITEMS) | st.dictionaries(TEXTS, inner, max_size=MOST_ITEMS),
    max_leaves=6,
)
"""Any JSON value at all."""

_KEYWORDS_OF = {
    "object": (
        *("properties", "required", "additionalProperties", "patternProperties", "minProperties"),
        *("maxProperties", "propertyNames", "dependentRequired", "dependencies", "unevaluatedProperties"),
    ),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "additionalItems"),
    "string": ("minLength", "maxLength", "pattern"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_ALL_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")


class NoValue(ValueError):
    """A schema that no value was found for: it contradicts itself, or is beyond construction."""


@cache
def arguments_for(schema: bytes) -> st.SearchStrategy[dict[str, Any]]:
    """Objects that are valid under a schema, as the arguments of a tool have to be.

    Raises SchemaError for a schema that doesn't compile. A schema that nothing fits makes an example
    raise NoValue.
    """
    validator = compile_schema(schema)
    root = json.loads(schema)
    return _checked(_Builder(root).values({"allOf": [root], "type": "object"}), validator, schema)


def _checked(values: Strategy, validator: Validator, schema: bytes) -> Strategy:
    named = schema[:80].decode("utf-8", "replace")

    def whether(value: Any) -> bool:
        return isinstance(value, dict) and not validator.validate(value)

    if values.is_empty:
        raise NoValue(f"no value fits the schema {named}: parts of it exclude each other")
    return values.filter(whether)


class _Builder:
    """Builds strategies along one schema; a reference is built once, so that a schema may hold itself."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._by_reference: dict[str, Strategy] = {}

    def values(self, schema: Any) -> Strategy:
        """Values that fit a part of the schema."""
        if isinstance(schema, bool):
            return ANY_VALUE if schema else st.nothing()
        plain = self._flat(schema)
        if plain is None:
            return st.nothing()
        if set(plain) == {"$ref"}:
            return self._referred(plain["$ref"])
        if alternatives := self._alternatives(plain):
            return st.one_of([self.values(one) for one in alternatives])
        if "const" in plain:
            return st.just(plain["const"])
        if "enum" in plain:
            fitting = [value for value in plain["enum"] if _is_of(value, _types_of(plain))]
            return st.sampled_from(fitting) if fitting else st.nothing()
        return st.one_of([self._of_type(name, plain) for name in _types_of(plain)])

    def _referred(self, reference: str) -> Strategy:
        if reference not in self._by_reference:
            self._by_reference[reference] = st.deferred(lambda: self.values(self._target(reference)))
        return self._by_reference[reference]

    def _target(self, reference: str) -> Any:
        pointer = reference.partition("#")[2]
        if pointer and not pointer.startswith("/"):
            return next((part for part in _parts(self._root) if part.get("$anchor") == pointer), True)
        part: Any = self._root
        for step in pointer.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            part = part[int(name)] if isinstance(part, list) else part[name]
        return part

    def _flat(self, schema: Schema) -> dict[str, Any] | None:
        """The schema with its `allOf`, and a reference that has siblings, merged into it."""
        merged: dict[str, Any] | None = {name: part for name, part in schema.items() if name != "allOf"}
        waiting = [*schema.get("allOf", ())]
        if "$ref" in schema and (set(schema) - {"$ref", "$defs", "definitions", "description", "title"}):
            merged.pop("$ref")  # type: ignore[union-attr]
            waiting.append(self._target(schema["$ref"]))
        for _ in range(50):
            if not waiting or merged is None:
                return merged
            part = waiting.pop()
            if part is False:
                return None
            if part is True:
                continue
            waiting.extend(part.get("allOf", ()))
            if "$ref" in part:
                waiting.append(self._target(part["$ref"]))
            merged = _merged(merged, {k: v for k, v in part.items() if k not in {"allOf", "$ref"}})
        return merged

    def _alternatives(self, schema: Schema) -> list[Schema]:
        """One schema for each branch that may be taken; nothing when there is but one way."""
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                rest = {name: part for name, part in schema.items() if name != keyword}
                return [_with(rest, branch) for branch in schema[keyword] if branch is not False]
        if "if" in schema:
            rest = {k: v for k, v in schema.items() if k not in {"if", "then", "else"}}
            holds = _with(_with(rest, schema["if"]), schema.get("then", True))
            return [holds, _with({**rest, "not": schema["if"]}, schema.get("else", True))]
        return []

    def _of_type(self, name: str, schema: Schema) -> Strategy:
        match name:
            case "null":
                return st.none()
            case "boolean":
                return st.booleans()
            case "integer" | "number":
                return _numbers(schema, whole=name == "integer")
            case "string":
                return _texts(schema)
            case "array":
                return self._arrays(schema)
            case _:
                return self._objects(schema)

    def _arrays(self, schema: Schema) -> Strategy:
        fixed, rest = _items_of(schema)
        least, most = int(schema.get("minItems", 0)), schema.get("maxItems")
        contained = schema.get("contains")
        items = self.values(rest)
        head = [self.values(part) for part in fixed]
        wanted = 0 if contained is None else int(schema.get("minContains", 1))
        room = least + MOST_ITEMS if most is None else int(most)
        unique = _frozen if schema.get("uniqueItems") else None

        @st.composite
        def arrays(draw: Callable[[Strategy], Any]) -> list[Any]:
            length = draw(st.integers(min(least, room), min(room, least + MOST_ITEMS)))
            begun = [draw(one) for one in head[: max(length, least)]]
            begun += [draw(self.values(_with(_schema(rest), contained))) for _ in range(wanted)]
            left = max(0, least - len(begun)), max(0, length - len(begun))
            if items.is_empty:
                return begun
            more = draw(st.lists(items, min_size=left[0], max_size=max(left), unique_by=unique))
            return [*begun, *more]

        return arrays()

    def _objects(self, schema: Schema) -> Strategy:
        properties: dict[str, Any] = dict(schema.get("properties", {}))
        patterns = schema.get("patternProperties", {})
        extra = schema.get("additionalProperties", schema.get("unevaluatedProperties", True))
        required = list(dict.fromkeys(schema.get("required", ())))
        least = int(schema.get("minProperties", 0))
        most = int(schema.get("maxProperties", max(len(properties), least) + MOST_ITEMS))
        needs: dict[str, Any] = {**schema.get("dependentRequired", {}), **schema.get("dependencies", {})}
        names = self.values(_with({"type": "string"}, schema.get("propertyNames", True)))
        keyed = [_texts({"pattern": pattern}) for pattern in patterns]
        others_fit = self.values(extra)
        built: dict[str, Strategy] = {}

        def fits(name: str) -> Strategy:
            parts = [properties[name]] if name in properties else []
            parts += [part for pattern, part in patterns.items() if _matches(pattern, name)]
            if not parts:
                return others_fit
            if name not in built:
                built[name] = self.values({"allOf": parts} if len(parts) > 1 else parts[0])
            return built[name]

        @st.composite
        def objects(draw: Callable[[Strategy], Any]) -> dict[str, Any]:
            chosen = list(required)
            optional = [name for name in properties if name not in required]
            chosen += [name for name in optional if len(chosen) < most and draw(st.booleans())]
            for name in chosen:
                wanted = needs.get(name, ())
                chosen += [n for n in wanted if n not in chosen] if isinstance(wanted, (list, tuple)) else []
            if extra is not False or keyed:
                others = keyed if extra is False else [names, *keyed]
                count = draw(st.integers(max(0, least - len(chosen)), max(least, MOST_ITEMS // 2)))
                count = min(count, max(0, most - len(chosen)))
                for name in draw(st.lists(st.one_of(others), min_size=count, max_size=count, unique=True)):
                    chosen += [] if name in chosen else [name]
            while len(chosen) < least and (spare := [name for name in optional if name not in chosen]):
                chosen.append(spare[0])
            return {name: draw(fits(name)) for name in chosen if not fits(name).is_empty or name in required}

        return objects()


def _items_of(schema: Schema) -> tuple[list[Any], Any]:
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return list(schema.get("prefixItems", ())), items


def _numbers(schema: Schema, *, whole: bool) -> Strategy:
    low, high = schema.get("minimum"), schema.get("maximum")
    over, under = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    # In draft 4 the two exclusive keywords are flags of the other two.
    over, under = low if over is True else over or None, high if under is True else under or None
    lowest = max((bound for bound in (low, over) if bound not in (None, False)), default=None)
    highest = min((bound for bound in (high, under) if bound not in (None, False)), default=None)
    step = schema.get("multipleOf")
    if step is not None:
        return _multiples(step, lowest, highest, whole=whole)
    start = -LARGEST if lowest is None else ceil(lowest)
    end = LARGEST if highest is None else floor(highest)
    integers = st.integers(start, max(start, end)) if start <= end else st.nothing()
    if whole:
        return integers
    floats = st.floats(
        None if lowest is None else float(lowest),
        None if highest is None else float(highest),
        allow_nan=False,
        allow_infinity=False,
    )
    return integers | floats


def _multiples(step: float, lowest: float | None, highest: float | None, *, whole: bool) -> Strategy:
    first = -1000 if lowest is None else ceil(lowest / step)
    last = first + 2000 if highest is None else floor(highest / step)
    if first > last:
        return st.nothing()
    multiples = st.integers(first, last).map(lambda count: count * step)
    return multiples.filter(lambda number: number == int(number)).map(int) if whole else multiples


def _texts(schema: Schema) -> Strategy:
    least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
    if "pattern" in schema:
        return st.from_regex(schema["pattern"]).filter(
            lambda text: least <= len(text) and (most is None or len(text) <= most) and _is_writable(text)  # type: ignore[arg-type]
        )
    characters = st.characters(exclude_categories=["Cs"])
    return st.text(characters, min_size=least, max_size=least + 3 * MOST_ITEMS if most is None else int(most))


def _is_writable(text: str) -> bool:
    return not any("\ud800" <= mark <= "\udfff" for mark in text)


def _matches(pattern: str, name: str) -> bool:
    return re.search(pattern, name) is not None


def _types_of(schema: Schema) -> tuple[str, ...]:
    named = schema.get("type")
    if isinstance(named, str):
        return (named,)
    if named is not None:
        return tuple(named)
    # Without a type the keywords tell what the author thought of; any other value would fit as well.
    told = [name for name, keywords in _KEYWORDS_OF.items() if any(word in schema for word in keywords)]
    return tuple(told) or _ALL_TYPES


def _is_of(value: Any, names: tuple[str, ...]) -> bool:
    match value:
        case None:
            return "null" in names
        case bool():
            return "boolean" in names
        case str():
            return "string" in names
        case int() | float():
            return "number" in names or ("integer" in names and value == int(value))
        case list():
            return "array" in names
        case _:
            return "object" in names


def _schema(part: Any) -> Schema:
    return {} if part is True else {"not": {}} if part is False else part


def _with(schema: Schema, part: Any) -> Schema:
    if part is True or part == {}:
        return schema
    return {**schema, "allOf": [*schema.get("allOf", ()), part]}


def _merged(left: dict[str, Any], right: Schema) -> dict[str, Any] | None:
    """Both at once: every keyword at its stricter value; None when types or constants exclude each other."""
    both = dict(left)
    for keyword, value in right.items():
        if keyword not in both or both[keyword] == value:
            both[keyword] = value
            continue
        here = both[keyword]
        match keyword:
            case "type":
                shared = _shared_types(here, value)
                if not shared:
                    return None
                both[keyword] = shared
            case "properties" | "patternProperties":
                names = {**here, **value}
                both[keyword] = {
                    name: {"allOf": [here[name], value[name]]} if name in here and name in value else part
                    for name, part in names.items()
                }
            case "required":
                both[keyword] = [*here, *value]
            case "enum":
                both[keyword] = [one for one in here if one in value]
            case "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties":
                both[keyword] = max(here, value)
            case "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties":
                both[keyword] = min(here, value)
            case "anyOf" | "oneOf":
                both["allOf"] = [*both.get("allOf", ()), {keyword: value}]
            case "additionalProperties" if value is False or here is False:
                both[keyword] = False
            case "const":
                return None
            case _:
                pass
    return both


def _shared_types(left: Any, right: Any) -> list[str]:
    here = [left] if isinstance(left, str) else list(left)
    there = [right] if isinstance(right, str) else list(right)
    shared = [name for name in here if name in there or (name == "integer" and "number" in there)]
    return shared + [
        name for name in there if name == "integer" and "number" in here and "integer" not in here
    ]


def _frozen(value: Any) -> str:
    # 1 and 1.0 are one value to JSON Schema, and true is none of them.
    def plain(part: Any) -> Any:
        if isinstance(part, float) and part == int(part):
            return int(part)
        if isinstance(part, list):
            return [plain(inner) for inner in part]
        return {k: plain(v) for k, v in part.items()} if isinstance(part, dict) else part

    return json.dumps(plain(value), sort_keys=True)


def _parts(schema: Any) -> Any:
    if isinstance(schema, dict):
        yield schema
        for part in schema.values():
            yield from _parts(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _parts(part)
