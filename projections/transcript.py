"""The wording of the transcript: how each thing that happened reads, to the model and to people.

The transcript is folded, so its words belong to the version that a run recorded in its `wording`.
To change a sentence for new runs, branch on that version; what an old run said stays as it was.
"""

from collections.abc import Sequence

import msgspec

from stepfold.events.configuration import WORDING_OF_WHAT_IS_THERE, Manifest
from stepfold.events.vocabulary import CheckReturned, EffectLost, ToolErred, ToolReturned

VERIFY_GUARD = "loop_guard=repeated verify without automatic verifier; stopping for user direction"
_WAY_ON = (
    "They will not pass until a file is changed. Next: fs.read the file at fault, change it with fs.patch "
    "(path, old: a text that stands there now, new: the text instead), then verify."
)
# Up to wording 2 a patch was explained, and models of one or two billion parameters patched with the very
# words of the explanation.
_WAY_ON_WITHOUT_EXAMPLE = (
    "They will not pass with the files as they are. Next: fs.read the file that is at fault and change it "
    "with fs.patch, or make the one that is missing with fs.write."
)
_UNPROVEN = "They have not passed with the files as they are now: call verify, and mend what fails."
SEARCH_GUARD = "loop_guard=repeated capability_search; running the missing acceptance checks"


def action_line(call_id: str, name: str, arguments: str) -> str:
    """What the model did, on one line however the model laid it out."""
    if "\n" not in arguments:
        return f"{call_id} {name} {arguments}"
    try:
        arguments = msgspec.json.format(arguments, indent=0)
    except (msgspec.DecodeError, UnicodeEncodeError):
        arguments = " ".join(arguments.split())
    return f"{call_id} {name} {arguments}"


def rejected_line(call_id: str, error: str) -> str:
    """That the reply was no action; what the model reads about it, the detail first, comes below."""
    return f"{call_id} rejected as {error}"


def found_lines(names: Sequence[str], manifests: dict[str, Manifest]) -> str:
    """The answer to a search."""
    if not names:
        return "capability_search found nothing"
    rows = [f"{name}: {manifests[name].description}" for name in names if name in manifests]
    return "\n".join(["capability_search found (load them with capability_load):", *rows])


def loaded_lines(loaded: Sequence[str], failed: Sequence[str], available: Sequence[str]) -> str:
    """The acknowledgement of a load; both literals are part of the contract."""
    acknowledged = f"capability_load_ack={','.join(loaded)}"
    if not failed:
        return acknowledged
    return (
        f"{acknowledged}\ncapability_load_failed={','.join(failed)} (unknown capability). "
        f"Loadable capabilities: {', '.join(available)}"
    )


def refused_line(name: str, hop: str, reason: str) -> str:
    """That a hop of the lifecycle refused the call."""
    return f"{name} rejected ({hop}): {reason}"


def result_lines(name: str, landed: ToolReturned | ToolErred | EffectLost | None, error: str) -> str:
    """What a tool gave."""
    match landed:
        case ToolReturned(error=""):
            return f"{name} result:\n{landed.content}"
        case ToolReturned():
            return f"{name} error ({landed.error}): {landed.content}"
        case ToolErred():
            return f"{name} failed ({landed.error}): {landed.detail}"
        case EffectLost():
            return (
                f"{name}: outcome unknown. The process ended while it ran: it may or may not have "
                "taken effect. Look before you call it again."
            )
        case _:
            return f"{name} failed ({error})"


def dispatched_line(call_id: str) -> str:
    """That a worker is at work while the run goes on."""
    return f"worker_dispatch: the worker of {call_id} has started; its outcome follows when it ends"


WORKSPACE_CHANGED = "the project's files were changed from outside: earlier checks no longer count"


def evidence_lines(check_id: str, landed: CheckReturned | EffectLost | None) -> str:
    """What a check showed; the output only where it failed."""
    match landed:
        case CheckReturned(exit_code=0):
            return f"check {check_id}: passed"
        case CheckReturned(exit_code=None):
            return f"check {check_id}: could not run\n{landed.output}"
        case CheckReturned():
            return f"check {check_id}: failed (exit code {landed.exit_code})\n{landed.output}"
        case _:
            return f"check {check_id}: was cut off"


def judged_lines(unmet: Sequence[str], unknown: Sequence[str], checks: Sequence[str], wording: int) -> str:
    """Where the goal stands after a `verify`."""
    lines = []
    if unknown:
        there = f"the checks are: {', '.join(checks)}" if checks else "there are no checks"
        lines.append(f"unknown checks: {', '.join(unknown)}; {there}")
    if not checks:
        lines.append("no acceptance check is configured or detected: nothing can be verified automatically")
    elif unmet:
        what_next = _WAY_ON if wording < WORDING_OF_WHAT_IS_THERE else _WAY_ON_WITHOUT_EXAMPLE
        lines.append(f"unmet checks: {', '.join(unmet)}. {what_next}")
    else:
        lines.append("all acceptance checks pass: call finish")
    return "\n".join(lines)


def finish_rejected_line(unmet: Sequence[str], wording: int) -> str:
    """That `finish` came without the evidence."""
    # A check that has passed before is unmet, too, when something was changed since.
    what_next = _WAY_ON if wording < WORDING_OF_WHAT_IS_THERE else _UNPROVEN
    return f"finish rejected; unmet checks: {', '.join(unmet)}. {what_next}"


def finish_accepted_line(by: str, summary: str) -> str:
    """That the goal is met."""
    if by == "search_repeats":
        return "finish accepted: every acceptance check has passed"
    return f"finish accepted: {summary}"
