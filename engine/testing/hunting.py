"""The hunt: Hypothesis draws cases of a target, the kit judges them, and the smallest that fails is told."""

import base64
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from msgspec import Struct

from stepfold.engine.testing.event_strategies import events
from stepfold.engine.testing.moves import Script, as_json
from stepfold.engine.testing.said import EIGHT, actions, malformed_replies, noise
from stepfold.engine.testing.script_strategies import scripts
from stepfold.engine.testing.targets import JUDGES, Fault, described
from stepfold.engine.testing.values import ANY_VALUE, TEXTS, arguments_for
from stepfold.events.codec import encode
from stepfold.events.configuration import Manifest

BATCH = 200
"""Examples between two looks at the clock of the whole hunt; each is its own search, with its own seed."""


class Batch(NamedTuple):
    """One search: a target, how many examples, from which seed."""

    target: str
    examples: int
    start: int


class Find(Struct, frozen=True):
    """A fault and the smallest case that shows it, found by so many examples."""

    target: str
    case: Any
    fault: Fault
    examples: int


class _TimeIsUp(KeyboardInterrupt):
    """The one way to leave a search of Hypothesis before its examples are used up."""


def cases(target: str, tools: Sequence[Manifest] = ()) -> st.SearchStrategy[dict[str, Any]]:
    """Cases of a target, as `targets.JUDGES` takes them."""
    match target:
        case "contract":
            return _contract_cases({tool.name: bytes(tool.schema) for tool in tools})
        case "codec":
            return events().map(_codec_case) | st.binary(max_size=80).map(_line_case)
        case "tools":
            return st.one_of([_tool_cases(tool) for tool in tools])
        case "harness":
            return scripts("tools").map(_script_case)
        case _:
            return (scripts("goal", tuple(tools)) if tools else scripts("goal")).map(_script_case)


def _contract_cases(schemas: dict[str, bytes]) -> st.SearchStrategy[dict[str, Any]]:
    named = {"tools": {name: schema.decode() for name, schema in schemas.items()}} if schemas else {}
    known = schemas or dict(EIGHT)

    def said(reply: str | bytes, **told: Any) -> dict[str, Any]:
        raw = {"raw": reply} if isinstance(reply, str) else {"raw_b64": base64.b64encode(reply).decode()}
        return {**raw, **told, **named}

    right = actions(known).map(
        lambda spoken: said(spoken.reply, action={"name": spoken.name, "arguments": spoken.arguments})
    )
    wrong = malformed_replies(known).map(lambda m: said(m.reply, expected=list(m.expected)))
    by_weight = (*(wrong,) * 6, *(right,) * 2, noise().map(said))
    return st.integers(0, len(by_weight) - 1).flatmap(lambda at: by_weight[at])


def _codec_case(event: Any) -> dict[str, Any]:
    try:
        line = encode(event)
    except Exception as error:
        # An encoder that fails must be a find of the judge, and not the end of the drawing.
        return {"unwritable": f"{type(error).__name__}: {error}", "event": as_json(event)}
    return {"line_b64": base64.b64encode(line).decode(), "event": as_json(event)}


def _line_case(line: bytes) -> dict[str, Any]:
    return {"line_b64": base64.b64encode(line).decode()}


def _tool_cases(tool: Manifest) -> st.SearchStrategy[dict[str, Any]]:
    entry = {"name": tool.name, "schema": bytes(tool.schema).decode()}
    listed = {"name": tool.name, "schema": json.loads(entry["schema"])}
    if tool.aliases:
        listed["aliases"] = [list(pair) for pair in tool.aliases]
    if tool.hidden:
        listed["hidden"] = list(tool.hidden)
    right = arguments_for(bytes(tool.schema)).map(lambda a: {"tool": listed, "arguments": a, "valid": True})
    other = st.dictionaries(TEXTS, ANY_VALUE, max_size=3)
    return right | other.map(lambda a: {"tool": listed, "arguments": a, "valid": False})


def _script_case(script: Script) -> dict[str, Any]:
    return {"config": script.config, "moves": list(script.moves)}


def search(
    target: str,
    *,
    examples: int = BATCH,
    start: int = 0,
    tools: Sequence[Manifest] = (),
    known: frozenset[str] = frozenset(),
    until: float = float("inf"),
    shrinks: bool = True,
    counted: Callable[[], None] = lambda: None,
) -> Find | None:
    """Look through `examples` cases of a target, from seed `start`; the first fault, shrunk, or None.

    Faults whose rule is in `known` are passed by; at `until` (of the monotonic clock) nothing new is tried.
    """
    found: list[Find] = []
    count = 0
    drawn = cases(target, tools)
    phases = (Phase.generate, Phase.shrink) if shrinks else (Phase.generate,)

    @seed(start)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(st.data())
    def attempt(data: st.DataObject) -> None:
        nonlocal count
        if not found and monotonic() > until:
            raise _TimeIsUp
        case = data.draw(drawn)
        count += not found
        counted()
        try:
            JUDGES[target](_as_saved(case))
        except Exception as error:
            fault = described(error)
            if fault.rule in known or (found and found[-1].fault.rule != fault.rule):
                return
            found.append(Find(target, case, fault, count))
            raise

    try:
        attempt()
    except _TimeIsUp:
        pass
    except Exception:
        # Hypothesis ends with the smallest case it tried, which is the last one that failed.
        if not found:
            raise
    return found[-1] if found else None


def _as_saved(case: dict[str, Any]) -> Any:
    return json.loads(as_json(case))


def hunt(
    targets: Sequence[str],
    *,
    tools: Sequence[Manifest] = (),
    seconds: float = float("inf"),
    examples: int | None = None,
    start: int = 0,
    counted: Callable[[str], None] = lambda target: None,
) -> Iterator[Find]:
    """Search target after target until the time or the examples are used up, each fault told once."""
    until = monotonic() + seconds
    known: dict[str, set[str]] = {target: set() for target in targets}
    for batch in batches(targets, examples, start):
        if monotonic() > until:
            return
        found = search(
            batch.target,
            examples=batch.examples,
            start=batch.start,
            tools=tools,
            known=frozenset(known[batch.target]),
            until=until,
            counted=partial(counted, batch.target),
        )
        if found is not None:
            known[batch.target].add(found.fault.rule)
            yield found


def batches(targets: Sequence[str], examples: int | None, start: int) -> Iterator[Batch]:
    """The batches of a hunt, in its order; without an end where `examples` of each target sets none."""
    for number in itertools.count() if targets else ():
        size = BATCH if examples is None else min(BATCH, examples - number * BATCH)
        if size <= 0:
            return
        yield from (Batch(target, size, start + number) for target in targets)
