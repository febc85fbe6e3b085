"""The system turn as named sections, what is stable first and what changes last.

A small model on a CPU pays for every token that its cache has not seen, so the order is part of the
design: request N should be a prefix of request N + 1. Recent observations stand in the turns; the
section of that name holds only what compaction took out of them.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from stepfold.engine.contract.schemas import TOOLS, Tool
from stepfold.events.configuration import WORDING_OF_WHAT_IS_THERE, GoalConfig
from stepfold.events.vocabulary import Section
from stepfold.projections.digest import digest_of
from stepfold.projections.fold_goal import checks_of, config_of, section_inputs
from stepfold.projections.state import GoalState, Run

CHARACTERS_A_TOKEN = 4

FILES_SHOWN_AT_MOST = 60
"""Some hundreds of tokens, at every first step."""

_ENVELOPE = """\
You work towards a goal in a project, one action per reply.
Every reply is exactly one JSON object and nothing else: no prose, no markdown, no code fence.
{"name": "<tool>", "arguments": {<its arguments>}}
"""
_LOADING_COURSE = """\
Files and commands are reached through capabilities: load them, then call them. A usual course is:
{"name": "capability_load", "arguments": {"names": ["fs.read", "fs.patch"]}}
{"name": "capability_call", "arguments": {"capability": "fs.read", "arguments": {"path": "notes.txt"}}}
{"name": "capability_call", "arguments": {"capability": "fs.patch", \
"arguments": {"path": "notes.txt", "old": "teh cat", "new": "the cat"}}}
{"name": "verify", "arguments": {}}
"""
_LOADED_COURSE = """\
Files and commands are reached through capabilities, by capability_call. Look first, for instance:
{"name": "capability_call", "arguments": {"capability": "fs.list", "arguments": {}}}
Then read the files that matter, change what has to change, and verify:
{"name": "verify", "arguments": {}}
"""
_KNOWN_COURSE = """\
Files and commands are reached through capabilities, by capability_call: \
read the files that matter, then change or make what the goal asks for.
"""
_VERIFIED_COURSE = """\
The acceptance checks run by themselves after each change of a file, and you read what they say.
"""
_ENDING = """\
A failing check does not pass by itself: change a file, then verify again.
finish is refused until all checks pass. \
Its summary says in your own words what you changed in this project."""

_PROFILE_HINTS = {
    "coding": "coding: find the code and its tests, make the smallest change, run the checks.",
    "data": "data: look at the data first, compute with commands, state figures you have seen.",
    "writing": "writing: read what is there, keep its tone, change only what was asked for.",
    "research": "research: gather from the project's files, and say where each fact stands.",
    "ops": "ops: look at the state first, prefer commands that can be undone, check after each change.",
    "general": "general: look first, act in small steps, check the result.",
}


_CHAT = """\
This is a conversation with a person who reads nothing but your words.
finish ends your turn: its summary is your answer to them. It needs no passing check here, \
but say what you did not verify. ask_user asks them something."""


def framing(run: Run) -> tuple[tuple[str, str], ...]:
    """The sections of the system turn, as (name, text), empty ones left out."""
    goal = run.goal
    sections = (
        ("contract", _contract(run)),
        ("tools", "Tools:\n" + "\n".join(_tool_line(tool.name, tool) for tool in _tools(run))),
        ("chat", _CHAT if config_of(run).chat else ""),
        ("goal", "" if config_of(run).chat else f"Goal: {config_of(run).goal}"),
        ("profile", f"Profile: {_PROFILE_HINTS.get(goal.profile, goal.profile)}"),
        ("checks", _checks(run)),
        ("memory", _listed("From earlier runs of this project:", goal.hits)),
        ("capabilities", _capabilities(run)),
        ("files", _files(goal)),
        ("observations", _listed("Earlier observations, shortened:", goal.compacted)),
    )
    return tuple((name, text) for name, text in sections if text)


def _contract(run: Run) -> str:
    """The envelope and a usual course.

    An example's file is looked for in the project, and its words are put into other files: where nothing
    has to be loaded first, the example names none.
    """
    return f"{_ENVELOPE}{_course(run)}{_ENDING}"


def _course(run: Run) -> str:
    config = config_of(run)
    if not config.preload:
        return _LOADING_COURSE
    course = _KNOWN_COURSE if _files(run.goal) else _LOADED_COURSE
    if config.keep:
        course += f"What fits {', '.join(config.keep)} is right as it is, and can't be changed.\n"
    return f"{course}{_VERIFIED_COURSE}" if config.verify_changes and checks_of(run) else course


def _tools(run: Run) -> list[Tool]:
    """The eight; for a constrained model without those that nothing can come of in this run."""
    idle = idle_tools(config_of(run)) if _speaks_of_what_is_there(run) else frozenset()
    return [tool for name, tool in TOOLS.items() if name not in idle]


def idle_tools(config: GoalConfig) -> frozenset[str]:
    """The tools of the contract that nothing can come of in a run.

    A model that reads of workers and of a memory spends steps on them. One that has had a choice of
    capabilities from the start spent steps on loading the rest.
    """
    useful = {
        "worker_dispatch": bool(config.worker_slots) and config.depth < config.worker_depth,
        "memory_write": config.memory,
        "ask_user": not config.unattended,
        "capability_search": not config.preload,
        "capability_load": not config.preload,
    }
    return frozenset(name for name, is_useful in useful.items() if not is_useful)


def _speaks_of_what_is_there(run: Run) -> bool:
    config = config_of(run)
    return config.wording >= WORDING_OF_WHAT_IS_THERE and config.generation.response_format == "actions"


def shown_files(goal: GoalState) -> tuple[str, ...]:
    """The files that a constrained model may name, as they were before the first step; none of very many."""
    return goal.files_at_start if len(goal.files_at_start) <= FILES_SHOWN_AT_MOST else ()


def _files(goal: GoalState) -> str:
    shown = shown_files(goal)
    return f"Files at the start: {', '.join(shown)}" if shown else ""


def changed_sections(run: Run) -> tuple[Section, ...]:
    """The sections for `ContextBuilt`: none when nothing they depend on changed, texts only where new."""
    goal = run.goal
    if goal.sections and goal.section_inputs == section_inputs(goal):
        return ()
    sections = []
    for name, text in framing(run):
        digest = digest_of(text)
        sections.append(Section(name, digest, "" if digest in goal.texts else text))
    if tuple((section.name, section.digest) for section in sections) == goal.sections:
        return ()
    return tuple(sections)


def estimated_tokens(run: Run, sections: Sequence[Section]) -> int:
    """About how large the request is. Four characters a token; the provider's figure replaces it later."""
    texts = run.goal.texts
    system = (
        sum(len(section.text or texts.get(section.digest, "")) + 2 for section in sections)
        if sections
        else len(run.goal.system)
    )
    return (system + run.history.characters) // CHARACTERS_A_TOKEN


def _checks(run: Run) -> str:
    checks = checks_of(run)
    if not checks:
        return "Acceptance checks: none; nothing can be verified automatically."
    return _listed("Acceptance checks:", [f"{check.id}: {check.command}" for check in checks])


def _capabilities(run: Run) -> str:
    manifests, loaded = run.manifests, run.goal.loaded
    if not loaded:
        return f"Loaded capabilities: none yet. You may load: {', '.join(manifests)}"
    lines = [_tool_line(name, manifests[name]) for name in loaded if name in manifests]
    others = [name for name in manifests if name not in loaded]
    if config_of(run).preload and others and not _speaks_of_what_is_there(run):
        # Nobody had to load anything, so nothing else has told what else there is.
        lines.append(f"You may load more: {', '.join(others)}")
    return "\n".join(["Loaded capabilities, for capability_call:", *lines])


def _listed(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, *(f"- {line}" for line in lines)]) if lines else ""


def _tool_line(name: str, tool: Any) -> str:
    schema = msgspec.json.decode(tool.schema)
    description = " ".join(tool.description.split())
    if not isinstance(schema, dict):
        return f"- {name}: {description}"
    required = schema.get("required", ())
    hidden = getattr(tool, "hidden", ())
    arguments = ", ".join(
        f"{argument}{'' if argument in required else '?'}: {_type_of(shape)}"
        for argument, shape in schema.get("properties", {}).items()
        if argument not in hidden
    )
    return f"- {name}({arguments}): {description}"


def _type_of(shape: Any) -> str:
    kind = shape.get("type", "any") if isinstance(shape, dict) else "any"
    if kind == "array" and isinstance(shape.get("items"), dict):
        return f"[{shape['items'].get('type', 'any')}, …]"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
