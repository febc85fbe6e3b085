"""ToolBench answers: a search tree with backtracking, told here in the order in which it was walked."""

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
from stepfold.engine.studies.imports.values import count_of, mapping, sequence, text_of

ERRORS = {5: "timed out", 8: "unauthorised", 11: "error inside the response", 12: "request failed"}
UNKNOWN_FUNCTION = 1
"""What a node's `observation_code` says; 0 and 3 are fine, 4 is giving up."""


def runs(source: Source) -> Iterator[Said]:
    """One file, one run. Each call is a reply of its own: a node for the tool, and one for its arguments."""
    answer = mapping(source.first("answer_generation"))
    yield Began(source.name)
    query = text_of(answer.get("query"))
    if query:
        yield Spoke("user", query)
    replies = 0
    for said in _walk(mapping(source.first("tree.tree"))):
        replies += isinstance(said, Replied)
        yield said
    yield from source.noticed()
    yield from _totals(answer, replies)
    yield _end(source.first("win"), answer)


def _walk(root: dict[str, Any]) -> Iterator[Said]:
    """Depth first, with a stack of our own: a tree may be deeper than Python's."""
    waiting: list[tuple[dict[str, Any], str, str, bool]] = [(root, "", "", False)]
    while waiting:
        node, thought, tool, again = waiting.pop()
        kind, text = node.get("node_type"), text_of(node.get("description"))
        if again:
            yield Noticed(
                "backtracked", detail="another child of a node that was tried: the context goes back"
            )
        if kind == "Thought":
            thought = text
        elif kind == "Action":
            tool = text
        elif kind == "Action Input" and tool:
            yield from _call(node, thought, tool, text)
            thought = tool = ""
        elif node is not root:
            yield Unplaced(f"node of type {text_of(kind) or 'none'}")
        children = [mapping(child) for child in sequence(node.get("children"))]
        if not children and (thought or tool):
            yield Replied(text=thought, calls=(Call(tool, ""),) if tool else ())
        for place, child in reversed(list(enumerate(children))):
            waiting.append((child, thought if not place else "", tool, place > 0))


def _call(node: dict[str, Any], thought: str, tool: str, arguments: str) -> Iterator[Said]:
    yield Replied(text=thought, calls=(Call(tool, arguments),))
    code = node.get("observation_code")
    if "observation" not in node:
        return
    refused = code == UNKNOWN_FUNCTION
    error = "unknown_function" if refused else ERRORS.get(code, "") if isinstance(code, int) else ""
    yield Answered(text=text_of(node["observation"]), error=error, refused=refused)


def _totals(answer: dict[str, Any], replies: int) -> Iterator[Said]:
    if answer.get("total_tokens") is not None:
        yield Unplaced("usage total: total_tokens")
    functions = sequence(answer.get("function"))
    if functions:
        yield Unplaced("function descriptions", len(functions))
    if answer.get("train_messages"):
        yield Unplaced("train_messages", len(sequence(answer["train_messages"])))
    asked = count_of(answer.get("query_count"))
    if asked != replies:
        yield Noticed("reply_lost", detail=f"{asked} model calls counted, {replies} replies recorded")


def _end(win: Any, answer: dict[str, Any]) -> Ended:
    valid, kind = answer.get("valid_data"), text_of(answer.get("finish_type"))
    if not isinstance(win, bool):
        return Ended(recorded="none recorded")
    recorded = f"win {win}, valid_data {valid}, finish_type {kind}"
    if win:
        return Ended(recorded=recorded, status="completed")
    recorded += " (finish_type is a default when win is false)" if not valid else ""
    return Ended(recorded=recorded, status="failed", error="no valid answer")
