"""What a model reads after its reply was rejected: the error, what would mend it, the rule restated.

A run is rendered by the wording that it was made with, so a change here is a new version. Version 1 says
the same after every error of a kind. A small model read its last sentence alone, which spoke of `finish`,
and jumped there with nothing done. So version 2 ends in what to send: the reply with its smallest mend,
else the tool's schema with an example; and says nothing else when the same error comes again.
"""

import json
import re
from collections.abc import Mapping

from stepfold.engine.contract.envelope import ActionParseError
from stepfold.engine.contract.mending import example_for, mended
from stepfold.engine.contract.quoting import quoted, shortened
from stepfold.engine.contract.schemas import TOOLS
from stepfold.engine.contract.validators import Validator

LONGEST = 1500
"""Characters below which every repair text stays, so that a rejection costs little of the window."""

_DOTTED = re.compile(r"[a-z]+(?:\.[a-z0-9_]+)+")

_INSTRUCTION = (
    'Reply with exactly one JSON object: {"name": <tool>, "arguments": {...}}. It has these two keys and no '
    "others, begins with { and ends with its matching }. Write no prose, no markdown and no reasoning "
    "outside it, and one action only.\n"
    "Ways on: capability_call with the capability fs.read to look at a file, fs.patch to change one, or "
    "shell.run to run a command; finish when every acceptance check passes.\n"
    "If writing a large file failed, split it: write a short first part, then add the rest in several "
    "smaller fs.patch calls."
)

_BY_CAUSE = {
    "extra_brace": "The object before it was whole: send it again without the extra closing brace.",
    "extra_bracket": "The value before it was whole: send the object again without the extra bracket.",
    "missing_brace": "The rest was whole: send it again with one more } at the end.",
    "two_documents": "One action a reply: send the first alone, and the next after its result.",
    "text_after": "Stop right after the closing brace of the object.",
    "prose": "Leave out the text, and begin with the opening brace.",
    "reasoning": "Leave out the reasoning, and begin with the opening brace.",
    "markup": "Leave out the tags and markers, and begin with the opening brace.",
    "fence": "Send the bare object, without any ``` marks.",
    "truncated": "The reply was cut off before its end: send a shorter one, with less content in one action.",
    "control_character": "Inside a string write a line break as \\n and a tab as \\t.",
    "escape": "Inside a string write a backslash as two backslashes.",
    "inner_quote": 'Inside a string write a quote as \\".',
    "quotes": "Every key and every string stands in double quotes.",
    "trailing_comma": "No comma before a closing } or ].",
    "duplicate_key": "Write every key once.",
    "too_deep": "Use flatter arguments.",
}


def repair_instruction() -> str:
    """Return the one instruction that ends every rejection: the envelope restated, and ways on."""
    return _INSTRUCTION


def repair_for(error: ActionParseError) -> str:
    """Return all that the model sees after a rejection. A pure function of the error.

    Shorter than `LONGEST` characters, whatever the model wrote.
    """
    return "\n".join(part for part in (error.message, _addition(error), _INSTRUCTION) if part)


def repair_after(error: ActionParseError, reply: str, before: int, schemas: Mapping[str, Validator]) -> str:
    """Return what the model sees after a rejection, by wording 2.

    `before` counts the rejections of the same kind that came right before this one. Shorter than `LONGEST`
    characters but for the mended reply, which is never longer than the one it mends by more than a little.
    """
    send = _to_send(reply, error, schemas)
    if before:
        again = f"The same error for the {_ordinal(before + 1)} time. {error.message}"
        return "\n".join(part for part in (again, _addition(error), send or _INSTRUCTION) if part)
    return "\n".join(part for part in (error.message, _INSTRUCTION, _addition(error), send) if part)


def _to_send(reply: str, error: ActionParseError, schemas: Mapping[str, Validator]) -> str:
    if whole := mended(reply, error, schemas):
        return f"Send exactly this and nothing else, if it is what you meant:\n{whole}"
    example = example_for(reply, error)
    return "" if example in _addition(error) else f"For example: {example}"


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")


def _addition(error: ActionParseError) -> str:
    match error.error:
        case "NotJson":
            return _BY_CAUSE.get(error.cause, "")
        case "NotObject":
            return "Send the object itself, neither in a list nor as a string."
        case "ExtraTopLevelKeys":
            return 'Rename or drop the other keys; what the tool needs goes inside "arguments".'
        case "UnknownTool":
            return _way_to(error.tool)
        case "MissingArguments" | "ArgumentsNotObject" | "SchemaInvalid":
            return _usage(error.tool)
        case _:
            return ""


def _usage(name: str) -> str:
    tool = TOOLS.get(name)
    if tool is None:
        return ""
    schema = tool.schema.decode()
    return f"Arguments of {name}, as a JSON Schema: {shortened(schema)}\nFor example: {tool.example}"


def _way_to(name: str) -> str:
    capability = name.strip().lower().removeprefix("functions.")
    if capability in TOOLS:
        return f"If you meant {capability}, write the name exactly so."
    if not _DOTTED.fullmatch(capability):
        return ""
    call = {"name": "capability_call", "arguments": {"capability": capability, "arguments": {}}}
    return (
        f"If {quoted(capability)} is a capability, load it with capability_load and then call it "
        f"with its own arguments filled in: {json.dumps(call)}"
    )
