"""The hands: which handler answers which native capability, and what becomes of a failure."""

from collections.abc import Awaitable, Callable
from typing import Any

from stepfold.engine.capabilities import files, git, searches, shell, web
from stepfold.engine.capabilities.context import CallContext
from stepfold.engine.capabilities.results import refused, returned
from stepfold.engine.capabilities.workspace import PathOutside
from stepfold.events.vocabulary import BLANK, ToolErred, ToolReturned

Landed = ToolReturned | ToolErred


def recall(arguments: dict[str, Any], context: CallContext) -> ToolReturned:
    """`memory.recall`: the notes that fit, best first, parted by blank lines."""
    if context.memory is None:
        return refused("NoMemory", "this run has no memory: go on without")
    hits = context.memory.recall(arguments["query"])
    if context.memory.fault:
        return refused("NoMemory", f"{context.memory.fault}")
    return returned("\n\n".join(hits) or "no note fits")


IMMEDIATE: dict[str, Callable[[dict[str, Any], CallContext], ToolReturned]] = {
    "fs.list": lambda arguments, context: files.list_folder(arguments, context.workspace),
    "fs.read": lambda arguments, context: files.read_file(arguments, context.workspace),
    "fs.write": lambda arguments, context: files.write_file(arguments, context.workspace),
    "fs.patch": lambda arguments, context: files.patch_file(arguments, context.workspace),
    "memory.recall": recall,
}

LASTING: dict[str, Callable[[dict[str, Any], CallContext], Awaitable[ToolReturned]]] = {
    "fs.search": searches.search_files,
    "shell.run": shell.run_command,
    "git.status": git.status,
    "git.diff": git.diff,
    "web.fetch": web.fetch,
}


def call(name: str, arguments: dict[str, Any], context: CallContext) -> Landed | Awaitable[Landed]:
    """Run one native with arguments that the lifecycle admitted.

    What a model can react to comes back as `ToolReturned` with `error` set; only what nobody
    expected is a `ToolErred`. Never raises, but for the cancellation of the task that awaits.
    """
    lasting = LASTING.get(name)
    if lasting is not None:
        return _awaited(lasting, arguments, context)
    try:
        return IMMEDIATE[name](arguments, context)
    except Exception as reason:
        return landing_of(reason)


async def _awaited(
    handler: Callable[[dict[str, Any], CallContext], Awaitable[ToolReturned]],
    arguments: dict[str, Any],
    context: CallContext,
) -> Landed:
    try:
        return await handler(arguments, context)
    except Exception as reason:
        return landing_of(reason)


def landing_of(reason: Exception) -> Landed:
    """A failure as an event: the file system's refusals are for the model, the rest for a person."""
    match reason:
        case PathOutside():
            return files.outside(reason)
        case OSError(strerror=str(text)):
            return refused(type(reason).__name__, f"{text}: fs.list shows what is there")
        case PermissionError() | IsADirectoryError() | NotADirectoryError():
            return refused(type(reason).__name__, str(reason))
        case _:
            return ToolErred(*BLANK, error=type(reason).__name__, detail=str(reason)[:2000])
