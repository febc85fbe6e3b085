"""The eyes of the tools table: the one word that each state sees, and what comes with it."""

from typing import Any

import msgspec
from msgspec import Struct

from stepfold.engine.contract.schemas import compile_schema
from stepfold.engine.core.arguments import Arguments, read_arguments
from stepfold.engine.core.machine import AUTO
from stepfold.events.configuration import MiddlewareSpec
from stepfold.projections.fold_calls import is_child, next_slot, refused_slot
from stepfold.projections.harness_settings import config_of
from stepfold.projections.state import Run, Slot

REVERSED = frozenset({"after_model", "after_tool", "after_agent"})
"""Hooks that run from the last registered middleware to the first."""


class Turn(Struct, frozen=True):
    """A reply: its structured answer if it came as a call, and what is wrong with it."""

    structured_slot: Any = None
    structured_problem: str = ""


class Admission(Struct, frozen=True):
    """The first call of the turn that needs a word, or the first one to start."""

    slot: Any = None
    arguments: Arguments | None = None


class Folding(Struct, frozen=True):
    """The call that is folded next, and the sub-agent that is announced next."""

    slot: Any
    child_open: bool
    unannounced: Any


NOTHING_OPEN = Folding(None, False, None)
NO_TURN = Turn()


def nothing(run: Run) -> tuple[str, Any]:
    """The state waits for nothing."""
    return AUTO, None


def hooks_of(run: Run, hook: str) -> tuple[MiddlewareSpec, ...]:
    """The middlewares that have a hook, in the order in which they get it."""
    having = tuple(middleware for middleware in config_of(run).middleware if hook in middleware.hooks)
    return having[::-1] if hook in REVERSED else having


def hooks_done(run: Run, hook: str) -> int:
    """How many of them have had it."""
    return run.harness.hooks_done.get(hook, 0)


def hooks_left(run: Run, hook: str, done: int | None = None) -> bool:
    """Whether one of them has not."""
    if not config_of(run).middleware:
        return False
    return (hooks_done(run, hook) if done is None else done) < len(hooks_of(run, hook))


def reserved_slots(run: Run) -> int:
    """The calls of this turn that take a place under the cap and are not counted yet."""
    return sum(slot.phase in {"asked", "started"} for slot in run.slots)


def fallback_candidates(run: Run) -> list[tuple[str, str]]:
    """The models of the list that this call has not tried, each with what it lacks."""
    config = config_of(run)
    return [
        (model.name, _lacks(model.tools, model.structured, config.response_strategy, bool(config.manifests)))
        for model in config.models
        if model.name not in run.harness.tried
    ]


def _lacks(tools: bool, structured: bool, strategy: str, needs_tools: bool) -> str:
    if not tools and (needs_tools or strategy == "tool"):
        return "tools"
    if not structured and strategy == "provider":
        return "structured_output"
    return ""


def model_landing(run: Run) -> tuple[str, Any]:
    """The reply or the error of the attempt in flight."""
    landed = run.model_landed
    return (AUTO, None) if landed is None else (type(landed).__name__, landed)


def reply_read(run: Run) -> tuple[str, Any]:
    """The reply that was taken, judged against the response schema."""
    config = config_of(run)
    if config.response_strategy == "none":
        return AUTO, NO_TURN
    slot = next_slot(run, ("structured",))
    if slot is not None:
        return AUTO, Turn(slot, _problem(bytes(config.response_schema), slot.arguments))
    if not run.slots:
        text = "" if run.harness.reply is None else run.harness.reply.text
        return AUTO, Turn(
            None, _problem(bytes(config.response_schema), text.encode("utf-8", "surrogatepass"))
        )
    return AUTO, Turn()


def _problem(schema: bytes, text: bytes) -> str:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return f"not JSON: {error}"
    return "; ".join(compile_schema(schema).validate(value))


def admission(run: Run) -> tuple[str, Any]:
    """The first call, in call order, that a gate has something to say about; `admitted` when none has."""
    refused = refused_slot(run)
    if refused is not None:
        return "refused", Admission(refused)
    first: Admission | None = None
    for slot in run.slots:
        if slot.phase != "asked":
            continue
        if hooks_left(run, "before_tool", slot.before_hooks):
            return "hook_due", Admission(slot)
        if slot.name not in run.manifests:
            return "unknown", Admission(slot)
        arguments = arguments_of(run, slot)
        if arguments.problem:
            return "invalid", Admission(slot, arguments)
        first = first or Admission(slot, arguments)
    return "admitted", first or Admission()


def arguments_of(run: Run, slot: Slot) -> Arguments:
    """A call's arguments as its tool would get them, or what is wrong with them."""
    manifest = run.manifests[slot.name]
    return read_arguments(slot.arguments, manifest, normalize=config_of(run).invalid_arguments == "normalize")


def tool_landing(run: Run) -> tuple[str, Any]:
    """The result of the call that is folded next, which need not be the one that landed first."""
    first: Slot | None = None
    for slot in run.slots:
        if slot.phase != "started":
            continue
        if not slot.announced and is_child(run, slot):
            return AUTO, Folding(first or slot, False, slot)
        first = first or slot
    if first is None:
        return AUTO, NOTHING_OPEN
    landed = first.landed
    word = AUTO if landed is None else type(landed).__name__
    return word, Folding(first, first.announced and not first.child_closed, None)


def hook_word(run: Run) -> tuple[str, Any]:
    """A hook is over when it lands, or when the run can't wait for it any longer."""
    harness = run.harness
    if harness.hook_landed is not None:
        return "hook_over", None
    if harness.hook[0] == "on_error":
        return AUTO, None
    out_of_time = harness.deadline is not None and run.now >= harness.deadline
    return ("hook_over" if run.cancel or out_of_time else AUTO), None
