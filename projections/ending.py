"""That a run ended, and why it ended as it did: what people read first."""

import msgspec
from msgspec import Struct

from stepfold.events.vocabulary import RunCompleted, RunFailed, RunFinished, TraceEnded
from stepfold.projections.outcome import LoopOutcome


def why(outcome: LoopOutcome) -> str:
    """The sentence. It holds what a model or a tool may have said: make it visible where it is shown."""
    if outcome.loop == "imported":
        return f"imported; as its file says: {outcome.summary or 'nothing of an end'}"
    match outcome.status:
        case "completed" if outcome.loop == "tools":
            return "the model gave its answer"
        case "failed" if outcome.loop == "tools":
            return outcome.reason
        case "completed" if not outcome.evidence:
            return "the model called finish; there is no acceptance check, so it was taken at its word"
        case "completed":
            return "every acceptance check passed"
        case "step_cap":
            return f"all {outcome.steps} steps are used up; unmet: {', '.join(outcome.unmet) or 'none'}"
        case "missing_evidence" if outcome.limit:
            return f"{outcome.summary}; unmet: {', '.join(outcome.unmet) or 'none'}"
        case "missing_evidence":
            return "verify was repeated and no check can run: say how to verify with [[checks]]"
        case "awaiting_user" if outcome.chat:
            return f"it is your turn; `stepfold chat --resume {outcome.run_id}` goes on"
        case "awaiting_user":
            return "the model asks; answer with `stepfold resume RUN --answer TEXT`"
        case "paused":
            return "it is paused; the program that started it can resume it"
        case "cancelled":
            return "it was cancelled"
        case "failed" if outcome.guard:
            return f"{outcome.detail} (guard {outcome.guard})"
        case "failed":
            return f"the model gave no reply: {outcome.reason}"
        case "running":
            return "another process is at work on it"
        case "interrupted" if outcome.loop == "tools":
            return "its process died; the program that started it can resume it"
        case _:
            return f"its process died; `stepfold resume {outcome.run_id}` goes on"


_LAST = frozenset(kind.__name__ for kind in (RunCompleted, RunFailed, TraceEnded))


class _Head(Struct):
    kind: str = ""
    status: str = ""
    to: str = ""


_decode_head = msgspec.json.Decoder(_Head).decode


def ends_run(line: bytes) -> bool:
    """Whether a line of a log is the last one that its run can have. Raises msgspec.DecodeError."""
    head = _decode_head(line)
    ended = head.kind == RunFinished.__name__ and head.status != "awaiting_user"
    return ended or head.kind in _LAST or head.to == "exhausted"
