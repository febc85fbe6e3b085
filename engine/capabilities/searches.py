"""The native fs.search: which files are looked through, and a child process that looks."""

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from stepfold.engine.capabilities.context import CallContext
from stepfold.engine.capabilities.git import AS_WRITTEN, run_git
from stepfold.engine.capabilities.paths import STORE
from stepfold.engine.capabilities.results import refused, returned
from stepfold.events.vocabulary import ToolReturned

SECONDS = 10.0
LIMITS = {"files": 20_000, "size": 2 * 1024 * 1024, "matches": 200, "line": 300}
LISTING_LIMIT = 8 * 1024 * 1024


async def search_files(arguments: dict[str, Any], context: CallContext) -> ToolReturned:
    """`fs.search`: lines that match, as `path:line: text`, in the order of the paths."""
    pattern = arguments["pattern"]
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as reason:
        return refused(
            "BadPattern", f"not a regular expression ({reason}): put a backslash before ( ) [ ] . * + ?"
        )
    start = arguments.get("path", "") or "."
    real = context.workspace.resolve(start)
    if not real.exists():
        return refused("NotFound", f"there is no {start}: fs.list shows what is there")
    below = context.workspace.relative(real)
    request = {
        "pattern": pattern,
        "root": str(context.workspace.root),
        "start": below,
        "files": [below] if real.is_file() else await files_of_git(below, context),
        "limits": LIMITS,
    }
    answer = await _ask(msgspec.json.encode(request))
    if answer is None:
        return refused(
            "TimedOut", f"no end after {SECONDS:g} s: use a simpler pattern, or search in one folder"
        )
    return returned(_rendered(answer))


async def _ask(request: bytes) -> dict[str, Any] | None:
    """Search in a child, so that neither a slow pattern nor a large project holds up the loop."""
    program = str(Path(__file__).with_name("searching.py"))
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", program),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(SECONDS):
            said, _ = await child.communicate(request)
    except TimeoutError:
        return None
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()
    decoded = msgspec.json.decode(said) if said else None
    return decoded if isinstance(decoded, dict) else None


async def files_of_git(below: str, context: CallContext) -> list[str] | None:
    """What git knows or would add, below a folder; None where git has nothing to say."""
    if not context.sandbox:
        return None
    quoted = "'" + below.replace("'", "'\\''") + "'"
    limits = msgspec.structs.replace(context.limits, kept=LISTING_LIMIT)
    completed = await run_git(
        f"{AS_WRITTEN} ls-files -z --cached --others --exclude-standard -- {quoted}",
        msgspec.structs.replace(context, limits=limits),
    )
    if isinstance(completed, str) or completed.exit_code != 0 or completed.truncated:
        return None
    listed = {path for path in completed.output.decode().split("\0") if path}
    return sorted(path for path in listed if STORE not in path.split("/"))


def _rendered(answer: dict[str, Any]) -> str:
    lines = list(answer["lines"]) or [f"no match in {answer['files']} files"]
    if answer["stopped"]:
        lines.append(f"[… stopped {answer['stopped']}: search in one folder, or for more …]")
    if answer["large"]:
        lines.append(f"[… {answer['large']} files of more than {LIMITS['size']} bytes left out …]")
    return "\n".join(lines)
