"""Who&When conversations (Magentic-One): several agents, nothing structured, a human's verdict."""

import re
from collections.abc import Iterator

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
from stepfold.engine.studies.imports.values import content_of, mapping, text_of
from stepfold.events.vocabulary import Score

_HANDED_OVER = re.compile(r"(.+?) \(-> (.+)\)")
_ENDED = "(termination condition)"
_CAP = re.compile(r"Max (rounds|turns|steps)\b.*reached", re.IGNORECASE)
SHOWN = 200


def runs(source: Source) -> Iterator[Said]:
    """One file, one run. A hand-over is nearest to a call, and that agent's next report to its result."""
    yield Began(source.name)
    yield from _annotations(source)
    role = text = ""
    open_calls: dict[str, int] = {}
    for value in source.items("history.item"):
        message = mapping(value)
        role, text = text_of(message.get("role")), content_of(message.get("content"))
        handed_over = _HANDED_OVER.fullmatch(role)
        if role == "human":
            yield Spoke("user", text)
        elif handed_over is not None:
            agent = handed_over[2]
            open_calls[agent] = open_calls.get(agent, 0) + 1
            yield Replied(text="", calls=(Call(agent, text),), agent=handed_over[1])
        else:
            yield Replied(text=text, agent=role)
            if open_calls.get(role):
                open_calls[role] -= 1
                yield Answered(text=text, name=role, repeats=True)
    yield from source.noticed()
    yield _end(source, role, text)


def _annotations(source: Source) -> Iterator[Said]:
    if source.first("mistake_step") is not None:
        agent, step = text_of(source.first("mistake_agent")), text_of(source.first("mistake_step"))
        reason = text_of(source.first("mistake_reason"))
        yield Noticed("annotated_mistake", f"history {step}", f"{agent}: {reason}")
    for name in ("ground_truth", "level", "question_ID"):
        if source.first(name) is not None:
            yield Unplaced(name)


def _end(source: Source, role: str, text: str) -> Ended:
    corrected = source.first("is_corrected")
    scores = (Score("is_corrected", text_of(corrected)),) if corrected is not None else ()
    if _ENDED not in role:
        return Ended(recorded="none recorded", scores=scores)
    first = text.strip().split("\n", 1)[0][:SHOWN]
    recorded = f"last record: {role} / {first}"
    return Ended(recorded=recorded, status="step_cap" if _CAP.search(first) else "", scores=scores)
