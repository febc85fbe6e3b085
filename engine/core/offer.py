"""What a constrained model is offered to say next: each action that is not refused for certain.

The contract and the table judge every reply all the same. What stays out here is what they would refuse
whatever its arguments, and what could only tell again what was told: a model of one or two billion
parameters that is refused repeats itself word for word, and has then spent a step on each. So, too, a tool
is left out while the steps go round: each like an earlier one, in what was said and in what came of it.
Where the files of the project are known, a path of what is read or patched is one of them.
"""

import posixpath
from collections.abc import Iterator, Mapping

from stepfold.engine.capabilities.lifecycle import network_refusal
from stepfold.engine.capabilities.paths import kept_by, protected_entry
from stepfold.engine.contract.choices import Schema, alternatives, arguments_of, narrowed, without
from stepfold.engine.core import guards
from stepfold.engine.core.arguments import visible_schema
from stepfold.engine.core.framing import idle_tools, shown_files
from stepfold.engine.core.goal_sees import Acting
from stepfold.events.configuration import Manifest
from stepfold.projections.fold_goal import checks_of, config_of
from stepfold.projections.state import Run

WAYS_OUT = frozenset({"finish", "ask_user"})
"""A model may say the same twice to a person who said the same twice."""

LINES = ("start_line", "end_line")
"""Offered when something was too long to be told whole. Offered before, models read two lines of four."""

LAST_RESORT = ("ask_user",)
"""Where nothing else is left to say."""


def offered(run: Run) -> list[Schema]:
    """The shapes of what the model may say now."""
    network = config_of(run).network
    usable = {
        name: manifest for name, manifest in run.manifests.items() if not network_refusal(manifest, network)
    }
    loadable = tuple(name for name in usable if name not in run.goal.loaded)
    checks = _untold_checks(run)
    again = frozenset(run.goal.again) - WAYS_OUT
    left_out = again | idle_tools(config_of(run))
    callable_now = {name: usable[name] for name in run.goal.loaded if name in usable and name not in again}
    tools = [tool for tool in _tools(run, loadable, checks) if tool not in left_out]
    calls = dict(_calls(callable_now, run))
    return alternatives(tools if tools or calls else [*LAST_RESORT], calls, loadable=loadable, checks=checks)


def _calls(loaded: Mapping[str, Manifest], run: Run) -> Iterator[tuple[str, Schema]]:
    """The argument schemas of what may be called, each path one that leads somewhere."""
    files = run.goal.files
    for name, manifest in loaded.items():
        schema = arguments_of(visible_schema(manifest))
        if name == "fs.read" and not run.goal.was_capped:
            schema = without(schema, LINES)
        if name == "fs.list" and files and files == shown_files(run.goal):
            continue
        paths = None if files is None else _paths(name, files, run)
        if paths is None:
            yield name, schema
        elif paths:
            yield name, narrowed(schema, "path", paths)


def _paths(name: str, files: tuple[str, ...], run: Run) -> list[str] | None:
    """What a capability may be given as its path; None for any text."""
    match name:
        case "fs.read":
            return [file for file in files if file not in run.goal.told_files]
        case "fs.patch":
            return [
                file for file in files if not (protected_entry(file) or kept_by(file, config_of(run).keep))
            ]
        case "fs.list":
            return _folders(files)
        case "fs.search" | "git.diff":
            return [*_folders(files), *files]
        case _:
            return None


def _folders(files: tuple[str, ...]) -> list[str]:
    """The folders that hold the files, the project's own first."""
    folders = {"."}
    for file in files:
        while file := posixpath.dirname(file):
            folders.add(file)
    return sorted(folders)


def _tools(run: Run, loadable: tuple[str, ...], checks: tuple[str, ...]) -> Iterator[str]:
    yield from ("memory_write", "ask_user")
    if loadable:
        yield from ("capability_search", "capability_load")
    if checks:
        yield "verify"
    if not guards.no_worker_free(run, Acting("", {})):
        yield "worker_dispatch"
    if guards.chatting(run, None) or guards.evidence_complete(run, None):
        yield "finish"


def _untold_checks(run: Run) -> tuple[str, ...]:
    """The checks whose answer may be another than the one that the model has read.

    One that ran in this workspace says the same again. One that could not run may do so now.
    """
    goal = run.goal
    told = {
        item.check_id
        for item in goal.evidence.values()
        if item.is_fresh(goal.mutations) and item.exit_code is not None
    }
    return tuple(check.id for check in checks_of(run) if check.id not in told)
