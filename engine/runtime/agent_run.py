"""What a tool-calling run came to: its result, its status, and the error that it may end in."""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from stepfold.events.vocabulary import AnyEvent, Message
from stepfold.projections.fold_tools import answer_of
from stepfold.projections.harness_settings import config_of
from stepfold.projections.state import Run
from stepfold.projections.usage import Usage

RunState = Literal["pending", "running", "paused", "completed", "failed", "cancelled"]
Phase = Literal["idle", "building_request", "model", "tools", "middleware", "done"]

_PHASES: dict[str, Phase] = {
    "": "idle",
    "opening": "idle",
    "checking": "building_request",
    "requesting": "building_request",
    "asking": "model",
    "replied": "model",
    "deciding": "model",
    "admitting": "tools",
    "acting": "tools",
    "skipping": "tools",
    "hooking": "middleware",
    "finishing": "middleware",
    "pausing": "idle",
    "paused": "idle",
    "completed": "done",
    "failed": "done",
}


class AgentRun(Struct, frozen=True):
    """The result of a run, whole or partial.

    `text` is the final answer, `structured` the value where a response format was asked for.
    `model_calls` counts logical calls, `usage` what was billed, sub-agents included. `from_cache`
    says that the last reply came from the response cache. `stop_reason` of a paused run is the reason
    of the pause. `events` are those of this life of the run; the log has them all.
    """

    run_id: str
    status: RunState
    messages: tuple[Message, ...]
    text: str | None
    structured: Any
    usage: Usage
    model_calls: int
    tool_calls: int
    steps: int
    stop_reason: str = ""
    error: str = ""
    detail: str = ""
    from_cache: bool = False
    events: tuple[AnyEvent, ...] = ()


class HarnessRunStatus(Struct, frozen=True):
    """A compact snapshot: where a run stands. Times are those of the log."""

    run_id: str
    status: RunState
    phase: Phase
    model_calls: int
    tool_calls: int
    started: str
    ended: str
    in_flight: tuple[str, ...] = ()
    error: str = ""


class AgentLoopResult(Struct, frozen=True):
    """A run with its status."""

    run: AgentRun
    status: HarnessRunStatus


class HarnessError(Exception):
    """A run that ended in an error. `kind` names it, `run` is what there was by then.

    Kinds: LimitExceeded, Timeout, ModelNotFound, ToolNotFound, Validation, Model, Tool, Cancelled,
    Interrupted, Middleware, EmptyResponse, StructuredOutput, NoProgress; or what a fatal tool raised.
    """

    def __init__(self, kind: str, detail: str, run: AgentRun, status: HarnessRunStatus) -> None:
        self.kind = kind
        self.detail = detail
        self.run = run
        self.status = status
        super().__init__(f"{kind}: {detail}" if detail else kind)


def status_of(run: Run) -> HarnessRunStatus:
    """Where a run stands, from its fold."""
    state = _state(run)
    ended = run.ts if state in {"completed", "failed", "cancelled"} else ""
    return HarnessRunStatus(
        run_id=run.run_id,
        status=state,
        phase=_PHASES.get(run.state, "idle"),
        model_calls=run.harness.model_calls,
        tool_calls=run.harness.tool_calls,
        started=run.started_ts,
        ended=ended,
        in_flight=tuple(key for key in run.due if key.startswith(("model:", "tool:"))),
        error=(error_text(run) or run.fault) if run.fault else "",
    )


def agent_run(run: Run, events: tuple[AnyEvent, ...] = ()) -> AgentRun:
    """The result of a run, from its fold."""
    harness = run.harness
    return AgentRun(
        run_id=run.run_id,
        status=_state(run),
        messages=tuple(run.history.turns),
        text=_final_text(run),
        structured=_structured(run),
        usage=run.usage,
        model_calls=harness.model_calls,
        tool_calls=harness.tool_calls,
        steps=run.step,
        stop_reason=harness.pause if run.status == "paused" else harness.stop_reason,
        error=run.fault,
        detail=error_text(run) if run.fault else "",
        from_cache=harness.reply is not None and harness.reply.cache == "hit",
        events=events,
    )


def error_text(run: Run) -> str:
    """What went wrong, in words for people."""
    config = config_of(run)
    match run.fault:
        case "LimitExceeded" if run.harness.limit == "model_calls":
            return f"max model calls ({config.max_model_calls}) reached"
        case "LimitExceeded":
            return f"max tool calls ({config.max_tool_calls}) reached"
        case "Timeout" if run.harness.limit == "wall_clock":
            return f"the run's {config.wall_clock:g} s are up"
        case "ModelNotFound":
            return "no model is registered under the name that was asked for"
        case "EmptyResponse":
            return "the model's reply is blank"
        case "StructuredOutput":
            return f"the final text is not what {config.response_name!r} asks for"
        case _:
            return run.fault_detail


def _state(run: Run) -> RunState:
    match run.status:
        case "":
            return "running" if run.seq else "pending"
        case "paused" | "completed" | "failed" | "cancelled" as known:
            return known
        case _:
            return "failed"


def _final_text(run: Run) -> str | None:
    harness = run.harness
    if run.status != "completed" or (harness.final is None and harness.reply is None):
        return None
    return answer_of(run)


def _structured(run: Run) -> Any:
    config = config_of(run)
    if run.status != "completed" or config.response_strategy == "none":
        return None
    text = run.harness.structured or (_final_text(run) or "").encode("utf-8", "surrogatepass")
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
