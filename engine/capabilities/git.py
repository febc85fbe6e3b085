"""The natives git.status and git.diff, and the one way that git is called.

A repository's settings name programs: hooks, filters, a monitor, a pager. Those that a setting can
turn off are turned off, and git runs in the sandbox all the same, for not all of them can.
"""

import shlex
from pathlib import Path
from typing import Any

from stepfold.engine.capabilities.context import CallContext
from stepfold.engine.capabilities.paths import STORE
from stepfold.engine.capabilities.results import refused, returned, returned_capped
from stepfold.engine.capabilities.sandbox import Completed, SandboxBroken, look
from stepfold.engine.capabilities.shell import kept
from stepfold.engine.capabilities.workspace import Workspace
from stepfold.events.vocabulary import ToolReturned

SECONDS = 60.0

SAFE = (
    "git --no-pager --no-optional-locks "
    "-c core.fsmonitor=false -c core.hooksPath=/dev/null "
    "-c core.pager=cat -c diff.external= -c core.attributesFile=/dev/null -c core.quotePath=false "
    "-c color.ui=false -c submodule.recurse=false -c protocol.allow=never -c core.sshCommand=false "
    "-c safe.directory='*'"
)
AS_WRITTEN = "--literal-pathspecs"
"""In front of a command that a path of the model goes into: what stands in it is no pattern."""

NO_SETTINGS = "GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_ATTR_NOSYSTEM=1"


async def status(arguments: dict[str, Any], context: CallContext) -> ToolReturned:
    """`git.status`: the branch, and one line a changed file, in git's short form; never the store."""
    completed = await run_git(f"status --short --branch -- . ':(exclude,glob)**/{STORE}/**'", context)
    return _result(completed, "nothing changed")


async def diff(arguments: dict[str, Any], context: CallContext) -> ToolReturned:
    """`git.diff`: against the last commit, staged or not; before the first commit, what is staged."""
    path = arguments.get("path", "")
    if path:
        context.workspace.resolve(path)
    behind = f" -- {shlex.quote(path)}" if path else ""
    words = f"{AS_WRITTEN} diff --no-ext-diff --no-textconv{behind}"
    born = await run_git("rev-parse --verify --quiet HEAD", context)
    against = words.replace("diff", "diff HEAD" if _is_zero(born) else "diff --cached", 1)
    return _result(await run_git(against, context), "no difference")


def _is_zero(completed: Completed | str) -> bool:
    return not isinstance(completed, str) and completed.exit_code == 0


async def run_git(words: str, context: CallContext) -> Completed | str:
    """Run one git command, its settings made safe; a text says why that could not be."""
    if not context.sandbox:
        return "there is no sandbox to run git in: see `stepfold doctor`"
    try:
        return await look(
            f"{NO_SETTINGS} {SAFE} {words}",
            workspace=context.workspace,
            backend=context.sandbox,
            timeout=SECONDS,
            limits=context.limits,
            readable=(*context.readable, *repository_folders(context.workspace)),
        )
    except SandboxBroken as reason:
        return f"the sandbox could not be built: {reason}"


def repository_folders(workspace: Workspace) -> tuple[str, ...]:
    """The folders of a linked worktree's repository, which lie outside of the project.

    They count only where the repository names this worktree in turn: a `.git` file alone proves
    nothing, for whoever can write in the project could have it point to any folder of the user's.
    """
    pointer = workspace.root / ".git"
    try:
        if not pointer.is_file() or pointer.is_symlink():
            return ()
        folder = _target(pointer.read_text()[:4096], workspace.root)
        named_in_turn = (folder / "gitdir").read_text().strip()
        if Path(named_in_turn) != pointer or not (folder / "HEAD").is_file():
            return ()
        common = (folder / (folder / "commondir").read_text().strip()).resolve()
    except (OSError, UnicodeError):
        return ()
    return (str(common),) if folder.is_relative_to(common) else (str(folder), str(common))


def _target(text: str, root: Path) -> Path:
    name, _, target = text.strip().partition(": ")
    return (root / target).resolve() if name == "gitdir" else root


def _result(completed: Completed | str, when_empty: str) -> ToolReturned:
    if isinstance(completed, str):
        return refused("NoSandbox", completed)
    if completed.timed_out:
        return refused("TimedOut", f"git took longer than {SECONDS:g} s and was ended")
    if completed.exit_code:
        said = completed.output.decode().strip()
        kind = "NoRepository" if "not a git repository" in said else "GitFailed"
        return refused(kind, said or f"git ended with exit code {completed.exit_code}")
    return returned_capped(kept(completed)) if completed.size else returned(when_empty)
