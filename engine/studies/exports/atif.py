"""A run as a trajectory of the Agent Trajectory Interchange Format (ATIF), version 1.7.

The rules that shape it: steps count from 1 without a gap; calls, metrics and reasoning stand in steps of
the agent alone; a result names a call of its own step, or none.
"""

from collections.abc import Iterable
from typing import Any

from stepfold.engine.studies.exports.turns import Turn, arguments_of, turns_of
from stepfold.events.vocabulary import AnyEvent, Unknown
from stepfold.projections.outcome import outcome
from stepfold.projections.state import Run

VERSION = "ATIF-v1.7"


def trajectory(events: Iterable[AnyEvent | Unknown]) -> dict[str, Any]:
    """The whole run as one trajectory. Raises ValueError for a run in which nobody has said anything."""
    run = Run()
    steps: list[dict[str, Any]] = []
    # Which step asked for a call: its result belongs there, however late it comes.
    asked: dict[str, dict[str, Any]] = {}
    for turn in turns_of(events, run):
        if turn.message.role == "tool":
            _result(turn, steps, asked)
            continue
        step = _step(turn, len(steps) + 1)
        steps.append(step)
        asked.update((call.id, step) for call in turn.calls)
    if not steps:
        raise ValueError(f"run {run.run_id}: nobody has said anything in it, and a trajectory needs a step")
    result = outcome(run)
    model = getattr(run.config, "model", "")
    return {
        "schema_version": VERSION,
        "session_id": run.run_id,
        "trajectory_id": run.run_id,
        "agent": {"name": "stepfold", "version": run.engine, **({"model_name": model} if model else {})},
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": result.usage.input_tokens,
            "total_completion_tokens": result.usage.output_tokens,
            "total_cost_usd": result.usage.cost,
            "total_steps": len(steps),
        },
        "extra": {"loop": run.loop, "finish": result.finish, "status": result.status, **_origin(run)},
    }


def _origin(run: Run) -> dict[str, str]:
    source = getattr(run.config, "format", "")
    return {"imported_from": source, "end_as_recorded": run.goal.summary} if source else {}


def _step(turn: Turn, number: int) -> dict[str, Any]:
    step: dict[str, Any] = {"step_id": number}
    if turn.at:
        step["timestamp"] = turn.at
    role = turn.message.role
    step["source"] = {"assistant": "agent", "system": "system"}.get(role, "user")
    step["message"] = turn.message.content
    if role == "assistant":
        _agents(step, turn)
    return step


def _agents(step: dict[str, Any], turn: Turn) -> None:
    reply = turn.reply
    step["llm_call_count"] = 0 if reply is None else 1
    if reply is not None:
        if reply.model:
            step["model_name"] = reply.model
        if reply.reasoning:
            step["reasoning_content"] = reply.reasoning
        step["metrics"] = {
            "prompt_tokens": reply.input_tokens,
            "completion_tokens": reply.output_tokens,
            "cost_usd": reply.cost,
        }
    if turn.calls:
        step["tool_calls"] = [
            {"tool_call_id": call.id, "function_name": call.name, "arguments": arguments_of(call)}
            for call in turn.calls
        ]


def _result(turn: Turn, steps: list[dict[str, Any]], asked: dict[str, dict[str, Any]]) -> None:
    call_id, content = turn.message.tool_call_id, turn.message.content
    step = asked.get(call_id)
    if step is None:
        # A result of nobody's call: something that the environment said.
        step = {"step_id": len(steps) + 1, "source": "system", "message": ""}
        steps.append(step)
        result: dict[str, Any] = {"content": content}
    else:
        result = {"source_call_id": call_id, "content": content}
    step.setdefault("observation", {"results": []})["results"].append(result)
