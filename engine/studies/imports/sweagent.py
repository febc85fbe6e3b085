"""SWE-agent trajectories (`.traj`): one JSON object, one run, a step for each reply."""

from collections.abc import Iterator
from typing import Any

from stepfold.engine.studies.imports.reading import Source
from stepfold.engine.studies.imports.said import (
    Answered,
    Began,
    Call,
    Ended,
    Noticed,
    Replied,
    Said,
    Spoke,
    Unplaced,
)
from stepfold.engine.studies.imports.values import content_of, count_of, mapping, text_of

HARNESS_ACTION = "exit_"
"""A last step whose action begins so is the harness's own, and no reply of the model."""


def runs(source: Source) -> Iterator[Said]:
    """The steps of `trajectory`; `history` repeats them, and begins with a demonstration of another task."""
    info = mapping(source.first("info"))
    name = text_of(source.first("instance_id")) or source.path.name.removesuffix(".traj")
    yield Began(name)
    yield from _task(source)
    for value in source.items("trajectory.item"):
        step = mapping(value)
        action = text_of(step.get("action"))
        if action.startswith(HARNESS_ACTION):
            yield Noticed("harness_action", action, text_of(step.get("observation"))[:200])
            continue
        yield from _step(step, action)
    yield from source.noticed()
    yield from _totals(info)
    recorded = text_of(info.get("exit_status"))
    if recorded == "submitted":
        yield Ended(recorded=recorded, status="completed")
    elif recorded:
        yield Ended(recorded=recorded, status="failed", error=recorded)
    else:
        yield Ended(recorded="none recorded")


def _task(source: Source) -> Iterator[Said]:
    demonstrations = 0
    seen: set[str] = set()
    for value in source.items("history.item"):
        message = mapping(value)
        role = text_of(message.get("role"))
        if message.get("is_demo") is True:
            demonstrations += 1
        elif role in {"system", "user"} and role not in seen:
            seen.add(role)
            yield Spoke(role, content_of(message.get("content")))
        if role == "user" and "user" in seen:
            break
    if demonstrations:
        yield Unplaced("history: demonstration messages", demonstrations)


def _step(step: dict[str, Any], action: str) -> Iterator[Said]:
    words = action.split(maxsplit=1)
    # The action is in the reply, in its own mark-up; the call is what the harness read out of it.
    calls = (Call(words[0], action),) if words else ()
    yield Replied(text=text_of(step.get("response")), calls=calls)
    if not words:
        yield Noticed("reply_without_call", detail="the step has no action")
    if "observation" in step and words:
        yield Answered(text=text_of(step.get("observation")))
    if step.get("state"):
        yield Unplaced("step state")
    if step.get("execution_time") is not None:
        yield Unplaced("step execution_time")


def _totals(info: dict[str, Any]) -> Iterator[Said]:
    stats = mapping(info.get("model_stats"))
    for name in ("tokens_sent", "tokens_received", "instance_cost"):
        if stats.get(name) is not None:
            yield Unplaced(f"usage total: {name}")
    if info.get("submission"):
        yield Unplaced("submission")
    calls = count_of(stats.get("api_calls"))
    if calls:
        yield Noticed("model_calls_stated", detail=f"{calls} model calls by the file's own count")
