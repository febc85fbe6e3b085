"""What is fuzzed, and how a case is judged: the contract, the codec, the tools of a user, the two loops.

A case is plain JSON, so that a failing one can be saved, sent and judged again without Hypothesis.
"""

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from stepfold.engine.capabilities.lifecycle import Admitted, Refused, admit
from stepfold.engine.contract.envelope import ERRORS, Action, parse_action
from stepfold.engine.contract.repair import LONGEST, repair_for
from stepfold.engine.contract.schemas import TOP_LEVEL, compile_schema
from stepfold.engine.testing.invariants import Broken, insist
from stepfold.engine.testing.moves import as_json, script_from
from stepfold.engine.testing.plays import play
from stepfold.events.codec import LineError, decode, encode
from stepfold.events.vocabulary import Unknown

Case = Mapping[str, Any]
Tools = Mapping[str, bytes]


class Fault(Struct, frozen=True):
    """What a case shows: the rule that does not hold, or the exception, and where it was raised."""

    rule: str
    why: str


def reply_of(case: Case) -> str | bytes:
    """The reply of a case: `raw`, or `raw_b64` for bytes."""
    return base64.b64decode(case["raw_b64"]) if "raw_b64" in case else str(case["raw"])


def judge_contract(case: Case) -> None:
    """A reply is an action or one named rejection, always the same; `expected` and `action` say which."""
    schemas = (
        {n: compile_schema(s.encode()) for n, s in case["tools"].items()} if "tools" in case else TOP_LEVEL
    )
    reply = reply_of(case)
    parsed = parse_action(reply, schemas)
    insist(parsed == parse_action(reply, schemas), "the same reply has the same verdict")
    if isinstance(parsed, Action):
        insist("expected" not in case, "a malformed reply is no action", case.get("expected"))
        text = reply if isinstance(reply, str) else reply.decode()
        written = json.loads(text[parsed.start : parsed.end])
        insist(written == parsed.arguments, "the span of an action is that of its arguments", written)
        if "action" in case:
            read = {"name": parsed.name, "arguments": parsed.arguments}
            insist(read == case["action"], "an action is read as it was written", read)
        return
    insist("action" not in case, "what keeps the contract is an action", parsed.message)
    insist(parsed.error in ERRORS, "a rejection is one of the nine", parsed.error)
    detail = parsed.detail
    insist(
        len(detail) <= 300 and detail.isascii() and detail.isprintable(),
        "a detail is short and plain",
        detail,
    )
    insist(len(repair_for(parsed)) < LONGEST, "a repair is short", parsed.error)
    if "expected" in case:
        insist(parsed.error in case["expected"], "a malformed reply is answered by its error", parsed.message)


def judge_codec(case: Case) -> None:
    """A line is an event that is written as it was read, or one LineError."""
    insist("unwritable" not in case, "every event can be written", case.get("unwritable"))
    line = base64.b64decode(case["line_b64"])
    try:
        event = decode(line)
    except LineError:
        insist("event" not in case, "what was written can be read", line)
        return
    if isinstance(event, Unknown):
        return
    written = encode(event)
    insist(b"\n" not in written, "an event is one line", written)
    insist(encode(decode(written)) == written, "an event comes back as it was written", written)  # type: ignore[arg-type]
    if "event" in case:
        insist(as_json(event) == case["event"], "an event is read as it was", event)
        insist(written == line, "an event has one form", written)


def judge_tools(case: Case) -> None:
    """A capability takes the arguments that its schema allows, and its schema refuses all others."""
    from stepfold.engine.testing.tools_file import manifest_of

    manifest = manifest_of(case["tool"])
    given = case["arguments"]
    verdict = admit(
        manifest.name,
        given,
        manifests={manifest.name: manifest},
        loaded={manifest.name},
        policy=(),
        sandbox="none",
        sandbox_required=False,
        network=True,
    )
    if isinstance(verdict, Refused):
        insist(not case["valid"], "a capability takes what its schema allows", verdict.reason)
        return
    insist(isinstance(verdict, Admitted), "a call is admitted or refused")
    taken = json.loads(verdict.arguments)
    said = compile_schema(bytes(manifest.schema)).validate(taken)
    insist(not said, "what runs keeps the schema", said)


def judge_script(case: Case) -> None:
    """Whatever a script does to a run, the invariants of its loop hold."""
    play(script_from(case))


JUDGES: dict[str, Callable[[Case], None]] = {
    "contract": judge_contract,
    "codec": judge_codec,
    "tools": judge_tools,
    "goal": judge_script,
    "harness": judge_script,
}
"""How a case of each target is judged: nothing is said of one that holds, the others raise."""


def fault_of(target: str, case: Case) -> Fault | None:
    """What the case shows, or None when all holds."""
    try:
        JUDGES[target](case)
    except Exception as error:
        return described(error)
    return None


def described(error: BaseException) -> Fault:
    """A fault by its rule, or by the exception and the innermost function of the engine that raised it."""
    if isinstance(error, Broken):
        return Fault(error.rule, str(error))
    where, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if "testing" not in code.co_filename and trace.tb_frame.f_globals.get("__name__", "").startswith(
            "stepfold."
        ):
            where = f"{Path(code.co_filename).stem}.{code.co_qualname}"
        trace = trace.tb_next
    return Fault(f"{type(error).__name__} in {where}", " ".join(str(error).split())[:500])
