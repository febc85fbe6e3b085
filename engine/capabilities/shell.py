"""The native shell.run: a command in the sandbox, and its result as a model reads it."""

from typing import Any

from stepfold.engine.capabilities.context import CallContext
from stepfold.engine.capabilities.output import Capped
from stepfold.engine.capabilities.results import refused, returned_capped
from stepfold.engine.capabilities.sandbox import Completed, SandboxBroken, run
from stepfold.events.vocabulary import ToolReturned

DEFAULT_SECONDS = 120.0
COMMAND_BYTES = 120_000
"""The kernel takes 128 KiB for one word of a command line, and the command is one."""


async def run_command(arguments: dict[str, Any], context: CallContext) -> ToolReturned:
    """`shell.run`: the exit code on a line of its own, then both streams in the order they came."""
    size = len(arguments["command"].encode("utf-8", "surrogatepass"))
    if size > COMMAND_BYTES:
        return refused(
            "TooLong",
            f"the command has {size} bytes, and {COMMAND_BYTES} is the most: "
            "put what is long into a file with fs.write, in parts, and run that",
        )
    seconds = float(arguments.get("timeout_s") or DEFAULT_SECONDS)
    if not context.sandbox:
        return refused("NoSandbox", "there is no sandbox to run it in: see `stepfold doctor`")
    try:
        completed = await run(
            arguments["command"],
            workspace=context.workspace,
            backend=context.sandbox,
            timeout=seconds,
            limits=context.limits,
            readable=context.readable,
        )
    except SandboxBroken as reason:
        return refused("NoSandbox", f"the sandbox could not be built, and nothing ran: {reason}")
    head = f"{ending(completed, seconds)}\n"
    if completed.left:
        head = f"{head}{completed.left}\n"
    if context.sandbox == "none":
        head = f"sandbox=none\n{head}"
    return returned_capped(kept(completed), error_of(completed), head)


def kept(completed: Completed) -> Capped:
    """The output of a command as a capped text."""
    return Capped(completed.output.decode(), completed.size, completed.digest, completed.truncated)


def ending(completed: Completed, seconds: float) -> str:
    """One line on how a command ended. `seconds` is the limit that it had."""
    if completed.timed_out:
        return f"timed out after {seconds:g} s and was ended"
    if completed.flooded:
        return f"ended for writing more than {completed.size} bytes of output"
    return f"exit_code={completed.exit_code}"


def error_of(completed: Completed) -> str:
    """The kind of error that an ending is, if it is one."""
    if completed.timed_out:
        return "TimedOut"
    if completed.flooded:
        return "TooMuchOutput"
    return "" if completed.exit_code == 0 else "NonZeroExit"
