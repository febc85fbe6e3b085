"""Which way of constraining replies a server keeps to: found out by asking it, once a life of a run.

Servers answer 200 to a `response_format` that they ignore, and misread shapes that they don't know. So
each is asked for a greeting under a constraint that allows something else only: who greets does not
keep to it.
"""

import asyncio
import json
from inspect import isawaitable
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from stepfold.engine.contract.choices import action_shape, nested, object_shape, one_of, union
from stepfold.engine.contract.gbnf import grammar_of
from stepfold.engine.models.protocol import Model, Request
from stepfold.events.configuration import Generation
from stepfold.events.vocabulary import BLANK, NULL, ConstraintProbed, Message, ModelErred, ModelReplied

PROBE_SECONDS = 60.0
"""For one question: a small model on a CPU has to be loaded first."""

LONGEST_REPLY = 60

_SHAPES = [
    action_shape(name, object_shape({"side": one_of([side])}))
    for name, side in (("lighthouse", "north"), ("windmill", "south"))
]
_QUESTION = Message("user", "Say hello to me in one short sentence of plain English.")
FORMS = ("union", "grammar", "nested")
"""From the narrowest to the widest: only the first two bind a tool's arguments to its name."""


async def probed(model: Model, generation: Generation) -> ConstraintProbed:
    """Ask the model under each form until one holds. Never raises.

    Models that don't read what they are asked (a script, a recording) are not asked at all.
    """
    if not getattr(model, "reads_messages", True):
        return ConstraintProbed(*BLANK, form="none", why=f"{model.name} answers what is written in a file")
    heard = ""
    for form in FORMS:
        landed = await _asked(model, _request(model.name, generation, form))
        if isinstance(landed, ModelReplied) and _keeps(landed.text, form):
            return ConstraintProbed(*BLANK, form=form)
        heard = landed.detail if isinstance(landed, ModelErred) else "it answers as if there were none"
    return ConstraintProbed(*BLANK, form="none", why=f"the server keeps to no constraint: {heard}")


def constraint(form: str, shapes: list[dict[str, Any]]) -> tuple[Raw, str]:
    """The JSON Schema and the grammar of these shapes in a form: one of the two, or neither."""
    match form:
        case "union":
            return Raw(msgspec.json.encode(union(shapes))), ""
        case "nested":
            return Raw(msgspec.json.encode(nested(shapes))), ""
        case "grammar":
            return NULL, grammar_of(union(shapes))
        case _:
            return NULL, ""


def _request(name: str, generation: Generation, form: str) -> Request:
    schema, grammar = constraint(form, _SHAPES)
    plain = replace(generation, response_format="none", max_tokens=None, stop=())
    return Request(
        model=name,
        messages=(_QUESTION,),
        generation=plain,
        max_tokens=LONGEST_REPLY,
        response_schema=schema,
        response_name="" if schema is NULL else "action",
        grammar=grammar,
    )


async def _asked(model: Model, request: Request) -> ModelReplied | ModelErred:
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            reply = model.reply(request)
            return await reply if isawaitable(reply) else reply
    except Exception as error:
        return ModelErred(*BLANK, error=type(error).__name__, detail=" ".join(str(error).split()))


def _keeps(text: str, form: str) -> bool:
    try:
        said = json.loads(text)
    except ValueError:
        return False
    allowed = [{name: _only(shape) for name, shape in whole["properties"].items()} for whole in _SHAPES]
    if form == "nested":
        # The name and the arguments need not belong together.
        allowed = [one | {"arguments": two["arguments"]} for one in allowed for two in allowed]
    return said in allowed


def _only(shape: dict[str, Any]) -> Any:
    """The one value that a shape of the probe allows."""
    if "enum" in shape:
        return shape["enum"][0]
    return {name: _only(inner) for name, inner in shape["properties"].items()}
