"""The kit finds planted faults: each a small change of one function, found within so many examples.

A fault is planted by compiling the function's changed source and swapping its code object, so every name
that was imported from elsewhere runs the fault too.
"""

import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any, NamedTuple

import pytest

from stepfold.testing import search


class Planted(NamedTuple):
    """`old` becomes `new` in the function `place` ("module:qualified name"); `target` finds it."""

    place: str
    old: str
    new: str
    target: str
    examples: int


FAULTS = {
    # the parser
    "two equal keys pass": Planted("engine.contract.document:_object", "len(members) != len(pairs)", "False", "contract", 1000),
    "NaN passes": Planted("engine.contract.document:_constant", "raise _Constant(literal)", "return 0", "contract", 1000),
    "infinity passes": Planted("engine.contract.document:_float", "if not isfinite(number)", "if False", "contract", 1000),
    "what stands behind is dropped": Planted("engine.contract.document:read_document", "if after != end", "if False", "contract", 1000),
    "depth is not looked at": Planted("engine.contract.document:read_document", "if text[start] in", "if False and text[start] in", "contract", 1000),
    "halves of pairs pass": Planted("engine.contract.document:_refuse_escaped_surrogates", "json.dumps(value, ensure_ascii=False).encode()", "pass", "contract", 1000),
    "a BOM is trimmed": Planted("engine.contract.document:_trimmed", "inside.lstrip(BLANK)", "inside.lstrip(BLANK + '\\ufeff\\u00a0')", "contract", 1000),
    "extra keys are dropped": Planted("engine.contract.envelope:_envelope", "if not _KEYS.issuperset(value)", "if False", "contract", 1000),
    "null arguments pass as empty": Planted("engine.contract.envelope:_envelope", "if not isinstance(arguments, dict)", "if arguments and not isinstance(arguments, dict)", "contract", 1000),
    "the span is one short": Planted("engine.contract.envelope:_action", "end - 1) + 1", "end - 1)", "contract", 1000),
    "bytes that are no text pass": Planted("engine.contract.envelope:parse_action", 'text.decode("utf-8")', 'text.decode("utf-8", "ignore")', "contract", 1000),
    # the codec
    "escapes are not undone": Planted("events.codec:decode", "if _MARK_BEGINS in line and", "if False and", "codec", 400),
    "line feeds stay": Planted("events.codec:encode", "return _one_line(line) if _LINE_FEED in line else line", "return line", "codec", 1500),
    "half a pair of surrogates can't be written": Planted("events.codec:encode", "line = _encode(_map_text(event, _escape))\n    else", "raise\n    else", "codec", 1500),
    "tuples are not mapped": Planted("events.codec:_map_text", "return tuple(_map_text(item, change) for item in value)", "return value", "codec", 1500),
    # guards
    "one retry too many": Planted("engine.core.guards:retryable", "run.attempt + 1 <", "run.attempt <", "goal", 400),
    "a verify that can't help goes on": Planted("engine.core.guards:has_no_automatic_verifier_evidence", "return ", "return False and ", "goal", 400),
    "a repeated search runs no checks": Planted("engine.core.guards:checks_missing", "bool(", "not bool(", "goal", 400),
    "finish needs no evidence": Planted("engine.core.guards:checks_missing", "bool(unmet(checks_of(run), run.goal.evidence, run.goal.mutations))", "False", "goal", 200),
    "steps are not counted": Planted("engine.core.guards:steps_spent", ">=", ">", "goal", 50),
    "every verify is a repeat": Planted("engine.core.guards:action_repeats", "now.arguments == before.arguments or", "True or", "goal", 400),
    "a cancel is not heard": Planted("engine.core.guards:cancel_requested", "run.cancel", "False", "goal", 400),
    "the gate is open": Planted("engine.capabilities.lifecycle:_gate", "name in loaded", "True", "goal", 300),
    # evolve
    "a change leaves evidence fresh": Planted("projections.fold_goal:tool_ended", "goal.mutations += 1", "pass", "goal", 600),
    "a rejection is a call in the turns": Planted("projections.fold_goal:action_rejected", "run.reply, tool_call_id=event.call_id", "run.reply, tool_calls=(ToolCall(event.call_id, 'finish', '{}'),)", "goal", 400),
    "the step is not kept": Planted("projections.run:evolve", "run.step = event.step", "run.step = event.step or 0 if event.step < 3 else 2", "goal", 100),
    # pairing
    "an observation loses its call": Planted("projections.fold_goal:observation_recorded", "tool_call_id=call_id", "tool_call_id=''", "goal", 100),
    "answers lose their calls": Planted("projections.fold_tools:model_completed", "tool_calls", "tool_calls[:0] or event and run.model_landed.tool_calls", "harness", 100),
}  # fmt: skip


@contextmanager
def planted(fault: Planted) -> Iterator[None]:
    module_name, _, name = fault.place.partition(":")
    module: Any = importlib.import_module(f"stepfold.{module_name}")
    function = getattr(module, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert fault.old in source, f"{fault.place} does not say {fault.old!r} any more"
    changed: dict[str, Any] = {}
    exec(compile(source.replace(fault.old, fault.new), "<planted>", "exec"), vars(module) | {}, changed)
    whole: CodeType = function.__code__
    function.__code__ = changed[name].__code__
    try:
        yield
    finally:
        function.__code__ = whole


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    fault = FAULTS[name]

    with planted(fault):
        found = search(fault.target, examples=fault.examples, shrinks=False)

    assert found is not None, f"not within {fault.examples} examples"
    assert found.examples <= fault.examples


@pytest.mark.parametrize("target", ["contract", "codec", "goal", "harness"])
def test_without_a_fault_nothing_is_found(target: str) -> None:
    assert search(target, examples=30) is None
