"""tau-bench trajectories: a JSON array, an object for each run, in chat messages."""

from collections.abc import Iterator
from typing import Any

from stepfold.engine.studies.imports.reading import Source
from stepfold.engine.studies.imports.said import Answered, Began, Call, Ended, Replied, Said, Spoke, Unplaced
from stepfold.engine.studies.imports.values import content_of, mapping, sequence, text_of
from stepfold.events.vocabulary import Score

STOP = "###STOP###"
CAP = 30
"""Replies after which the benchmark stops a run. The file doesn't say so, hence it is inferred."""
HANDED_OVER = "transfer_to_human_agents"


def runs(source: Source) -> Iterator[Said]:
    """One run an element of the array."""
    for value in source.items("item"):
        run = mapping(value)
        yield Began(f"task {text_of(run.get('task_id'))} trial {text_of(run.get('trial'))}")
        yield from source.noticed()
        yield from _run(run)


def _run(run: dict[str, Any]) -> Iterator[Said]:
    messages = [mapping(message) for message in sequence(run.get("traj"))]
    for message in messages:
        yield from _message(message)
    info = mapping(run.get("info"))
    yield Unplaced("info.task", int("task" in info))
    yield Unplaced("info.user_cost", int(info.get("user_cost") is not None))
    yield _end(messages, run, info)


def _message(message: dict[str, Any]) -> Iterator[Said]:
    text = content_of(message.get("content"))
    match message.get("role"):
        case "assistant":
            calls = [mapping(call) for call in sequence(message.get("tool_calls"))]
            yield Replied(text=text, calls=tuple(map(_call, calls)))
        case "tool":
            yield Answered(
                id=text_of(message.get("tool_call_id")) or None,
                name=text_of(message.get("name")),
                text=text,
                error="Error" if text.startswith("Error") else "",
            )
        case "user" | "system":
            yield Spoke(text_of(message.get("role")), text)
        case role:
            yield Unplaced(f"message of role {text_of(role) or 'none'}")


def _call(call: dict[str, Any]) -> Call:
    function = mapping(call.get("function"))
    return Call(text_of(function.get("name")), text_of(function.get("arguments")), text_of(call.get("id")))


def _end(messages: list[dict[str, Any]], run: dict[str, Any], info: dict[str, Any]) -> Ended:
    scores = (Score("reward", text_of(run["reward"])),) if run.get("reward") is not None else ()
    last = messages[-1] if messages else {}
    replies = sum(message.get("role") == "assistant" for message in messages)
    if last.get("role") == "user" and STOP in content_of(last.get("content")):
        return Ended(recorded=f"user said {STOP}", status="completed", scores=scores)
    if replies >= CAP:
        return Ended(
            recorded=f"{CAP}-step cap",
            status="step_cap",
            inferred=f"{CAP} replies, and the user did not stop"
            + (", and no reward was worked out" if info.get("reward_info") is None else ""),
            scores=scores,
        )
    if last.get("role") == "tool" and last.get("name") == HANDED_OVER:
        return Ended(recorded=f"last call is {HANDED_OVER}", status="completed", scores=scores)
    return Ended(recorded="none recorded", scores=scores)
