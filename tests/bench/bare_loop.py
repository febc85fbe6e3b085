"""The loop that people write on a first evening: what `tests/bench/study.py` compares ours with.

A history of messages that grows, a tool call as JSON in the reply, errors fed back as text, and an end
when the model says that it is done. It is given what ours has otherwise: the same model, the same tools in
the same sandbox, the same goal and as many replies. It has no strict action, no repair, no check before
the end and no guard. It takes a call wherever in the reply it stands, as such loops do.
"""

import json
from inspect import isawaitable
from typing import Any

from msgspec import Struct

from stepfold.engine.capabilities.context import CallContext
from stepfold.engine.capabilities.manifests import NATIVE_BY_NAME
from stepfold.engine.capabilities.native import call
from stepfold.engine.models.protocol import Model, Request
from stepfold.events.configuration import Generation
from stepfold.events.vocabulary import Message, ModelReplied

_TOOLS = "\n".join(
    f"{tool.name}: {tool.description} {bytes(tool.schema).decode()}" for tool in NATIVE_BY_NAME.values()
)


class Replies(Struct):
    """What a run of the bare loop came to: `ended` is `done`, `step_cap` or the error of the server."""

    ended: str = "step_cap"
    texts: list[str] = []
    valid: int = 0
    tokens: int = 0


async def run(model: Model, goal: str, context: CallContext, generation: Generation, steps: int) -> Replies:
    """Work towards the goal until the model says that it is done, or the steps are used up."""
    messages = [Message("system", SYSTEM), Message("user", goal)]
    found = Replies()
    for step in range(steps):
        request = Request(model.name, tuple(messages), generation, generation.max_tokens, call=step + 1)
        reply: Any = model.reply(request)
        reply = await reply if isawaitable(reply) else reply
        if not isinstance(reply, ModelReplied):
            found.ended = reply.error
            break
        found.texts.append(reply.text)
        found.tokens += reply.input_tokens + reply.output_tokens
        try:
            name, arguments = called(reply.text)
            found.valid += 1
            if name == "done":
                found.ended = "done"
                break
            landed: Any = call(name, arguments, context)
            landed = await landed if isawaitable(landed) else landed
            result = f"Result of {name}:\n{getattr(landed, 'content', '') or landed.error}"
        except Exception as error:
            result = f"Error: {type(error).__name__}: {error}"
        messages += [Message("assistant", reply.text), Message("user", result)]
    return found


SYSTEM = f"""\
You are an agent that works in a project folder. Answer with a JSON tool call and nothing else:
{{"tool": "<name>", "arguments": {{...}}}}
When the task is done, answer {{"tool": "done", "arguments": {{"summary": "<what you did>"}}}}
Tools:
{_TOOLS}"""


def called(text: str) -> tuple[str, dict[str, Any]]:
    """The first JSON object of a reply, as a call. Raises ValueError or KeyError for what is none."""
    found, _ = json.JSONDecoder().raw_decode(text, text.index("{"))
    name, arguments = found["tool"], found.get("arguments", {})
    if name not in NATIVE_BY_NAME and name != "done":
        raise ValueError(f"there is no tool {name!r}")
    if not isinstance(arguments, dict):
        raise ValueError("arguments must be an object")
    return name, arguments
