"""The formats by name, and which one a file is: told by what is in it, not by what it is called."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stepfold.engine.studies.imports import (
    burr,
    codex_tui,
    inspect,
    mini_swe_agent,
    openhands,
    pi,
    react_text,
    sweagent,
    tau_bench,
    toolbench,
    who_when,
)
from stepfold.engine.studies.imports.reading import Source, skip_mark
from stepfold.engine.studies.imports.said import Said
from stepfold.engine.studies.imports.values import mapping

FORMATS: dict[str, Callable[[Source], Iterator[Said]]] = {
    "sweagent": sweagent.runs,
    "mini_swe_agent": mini_swe_agent.runs,
    "inspect": inspect.runs,
    "openhands": openhands.runs,
    "pi": pi.runs,
    "codex_tui": codex_tui.runs,
    "tau_bench": tau_bench.runs,
    "toolbench": toolbench.runs,
    "react_text": react_text.runs,
    "who_when": who_when.runs,
    "burr": burr.runs,
}
"""What each format's name reads."""

LOOKED_AT = 256 * 1024
LINES_LOOKED_AT = 20
TOKENS_LOOKED_AT = 50_000
LONGEST_PLACE = 5_000
_REACT = re.compile(r"^Question:.*?^(Thought|Action) 1:", re.MULTILINE | re.DOTALL)
_BURR = {"begin_entry", "end_entry", "begin_span", "end_span", "attribute"}


def guessed(path: Path) -> str:
    """The format of a file, or "" for a file of none. Raises OSError."""
    with path.open("rb") as file:
        skip_mark(file)
        head = file.read(LOOKED_AT)
    return _of_lines(head) or _of_document(path) or _of_text(head)


def _of_lines(head: bytes) -> str:
    for line in head.split(b"\n")[:LINES_LOOKED_AT]:
        try:
            value = mapping(json.loads(line))
        except (ValueError, RecursionError):
            continue
        found = _of_record(value)
        if found:
            return found
    return ""


def _of_record(record: dict[str, Any]) -> str:
    kind = record.get("type")
    if kind == "session" or (kind == "message" and "role" in mapping(record.get("message"))):
        return "pi"
    if isinstance(kind, str) and kind in _BURR:
        return "burr"
    if {"ts", "dir", "kind"} <= record.keys():
        return "codex_tui"
    if {"kind", "source", "timestamp"} <= record.keys():
        return "openhands"
    return ""


def _of_document(path: Path) -> str:
    """By the names in a document, as far as it takes to tell."""
    import ijson

    seen: set[str] = set()
    try:
        with path.open("rb") as file:
            skip_mark(file)
            for count, (prefix, event, value) in enumerate(ijson.parse(file, use_float=True)):
                if count > TOKENS_LOOKED_AT or len(prefix) > LONGEST_PLACE:
                    break
                if event == "map_key" and prefix.count(".") < 3:
                    seen.add(f"{prefix}.{value}" if prefix else value)
                    found = _of_names(seen)
                    if found:
                        return found
    except (ijson.JSONError, ValueError, OverflowError, RecursionError):
        pass
    return _of_names(seen)


_NAMES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("sweagent", ("trajectory.item.action", "trajectory.item.observation")),
    ("mini_swe_agent", ("trajectory_format", "messages")),
    ("mini_swe_agent", ("info.model_stats", "messages.item.role")),
    ("inspect", ("eval.task", "status")),
    ("inspect", ("samples.item.epoch", "samples.item.messages")),
    ("toolbench", ("win", "tree.tree")),
    ("toolbench", ("tree.tree", "answer_generation")),
    ("who_when", ("history.item.role", "mistake_step")),
    ("who_when", ("history.item.role", "question", "ground_truth")),
    ("tau_bench", ("item.traj", "item.task_id")),
    ("mini_swe_agent", ("item.role", "item.content")),
)


def _of_names(seen: set[str]) -> str:
    return next((name for name, names in _NAMES if seen.issuperset(names)), "")


def _of_text(head: bytes) -> str:
    return "react_text" if _REACT.search(head.decode("utf-8", "replace")) else ""
