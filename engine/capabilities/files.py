"""The natives that look at one file or folder and change one: fs.list, fs.read, fs.write, fs.patch."""

import difflib
import os
import posixpath
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from stepfold.engine.capabilities.nearby import hint, same_name
from stepfold.engine.capabilities.paths import STORE, kept_by, kept_reason
from stepfold.engine.capabilities.results import refused, returned
from stepfold.engine.capabilities.workspace import PathOutside, Workspace
from stepfold.events.vocabulary import ToolReturned

FILE_LIMIT = 16 * 1024 * 1024
"""Bytes of the largest file that is read whole."""

ENTRY_LIMIT = 1_000
CANDIDATES = 3
CANDIDATE_SCAN = 4_000
"""Lines looked at for a near miss: the comparison is the costly part of a patch that fails."""


def list_folder(arguments: dict[str, Any], workspace: Workspace) -> ToolReturned:
    """`fs.list`: one name a line, folders with a slash, links with where they point; never the store."""
    path = arguments.get("path", ".") or "."
    real = workspace.resolve(path)
    if not real.is_dir():
        return _missing(path, real.exists(), "folder", workspace)
    with workspace.folder(real) as opened, os.scandir(opened) as entries:
        lines = sorted(_entry(entry, opened) for entry in entries if entry.name != STORE)
    left_out = len(lines) - ENTRY_LIMIT
    more = [f"[… {left_out} more entries …]"] if left_out > 0 else []
    return returned("\n".join([*lines[:ENTRY_LIMIT], *more]) or "(empty folder)")


def _entry(entry: os.DirEntry[str], folder: int) -> str:
    if entry.is_symlink():
        return f"{entry.name} -> {os.readlink(entry.name, dir_fd=folder)}"
    return f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name


def read_file(arguments: dict[str, Any], workspace: Workspace) -> ToolReturned:
    """`fs.read`: the text as it stands, or the lines asked for. Binary files are refused."""
    path = arguments["path"]
    content = _content(path, workspace)
    if isinstance(content, ToolReturned):
        return content
    if b"\0" in content[:8192]:
        return refused("Binary", f"{path} is no text file")
    start, end = arguments.get("start_line"), arguments.get("end_line")
    if start is None and end is None:
        return returned(content.decode("utf-8", "replace") or "(empty file)")
    lines = _split_lines(content)
    # JSON Schema takes 2.0 for an integer.
    first, last = int(start or 1), len(lines) if end is None else int(end)
    if first > max(len(lines), 1) or last < first:
        return refused("NoSuchLines", f"{path} has {len(lines)} lines: there are no lines {first} to {last}")
    return returned(b"".join(lines[first - 1 : last]).decode("utf-8", "replace"))


def write_file(arguments: dict[str, Any], workspace: Workspace) -> ToolReturned:
    """`fs.write`: the whole file, folders made as needed, put in place at once."""
    path = arguments["path"]
    real = workspace.writable(path)
    if real == workspace.root or path.endswith("/"):
        return refused("IsFolder", f"{path!r} names a folder: name the file in it")
    in_new_folder, before = not real.parent.exists(), _before(real, workspace)
    content = arguments["content"].encode("utf-8", "surrogatepass")
    workspace.write_bytes(real, content)
    if before == content:
        # No error: a call that is made again after a crash finds what it wrote.
        return returned(f"{path} already had this content ({len(content)} bytes): nothing is different now")
    if before is not None:
        return returned(f"replaced {path} ({_replacement(before, content)})")
    made = f"created {path} ({len(content)} bytes)"
    other = same_name(path, workspace) if in_new_folder else ""
    return returned(f"{made}, in a new folder. {other} is another file, and unchanged" if other else made)


def _before(real: Path, workspace: Workspace) -> bytes | None:
    """What stands in a file that is about to be replaced; None for a new one."""
    return workspace.read_bytes(real, FILE_LIMIT) if real.exists() else None


def _replacement(before: bytes, content: bytes) -> str:
    """How much there is and was: a model that means to add a line and writes that line alone can see it."""
    told = f"{len(content)} bytes; it had {len(before)}"
    if content and before.endswith(b"\n") and not content.endswith(b"\n"):
        return f"{told}, and a line break at its end, which it has no more"
    return told


def unread(path: str, seen: Collection[str], workspace: Workspace) -> ToolReturned | None:
    """A refusal of `fs.write` over a file that was not read before; None where it may write.

    Earned by models that were asked to add a line to a list, and wrote a file of that line. `seen` are
    the paths, normal ones, of what the model has read or written whole.
    """
    try:
        real = workspace.resolve(path)
        if posixpath.normpath(path) in seen or not real.is_file() or not real.stat().st_size:
            return None
    except (PathOutside, OSError):
        return None  # The call itself says what is wrong with it.
    return refused(
        "Unread",
        f"{path} is there already, and all of it would be replaced: fs.read it first. To change a part of "
        "it, use fs.patch",
    )


def kept(path: str, patterns: Sequence[str], workspace: Workspace) -> ToolReturned | None:
    """A refusal to write through a link what `loop.keep` keeps; None where it may be written."""
    try:
        pattern = kept_by(workspace.relative(workspace.resolve(path)), patterns)
    except PathOutside:
        return None  # The call itself says what is wrong with it.
    return refused("Kept", kept_reason(path, pattern)) if pattern else None


def patch_file(arguments: dict[str, Any], workspace: Workspace) -> ToolReturned:
    """`fs.patch`: `old` by `new`, where `old` stands exactly once.

    Line ends are the file's: a model writes LF, and in a file of CRLF lines both texts are taken
    as CRLF when only that matches. All other bytes stay as they are.
    """
    path = arguments["path"]
    real = workspace.writable(path)
    content = _content(path, workspace)
    if isinstance(content, ToolReturned):
        return content
    old, new = (
        arguments["old"].encode("utf-8", "surrogatepass"),
        arguments["new"].encode("utf-8", "surrogatepass"),
    )
    if old == new:
        return refused("NoChange", "old and new are the same text: nothing would change")
    if old not in content and b"\r\n" in content and b"\r\n" not in old:
        old, new = old.replace(b"\n", b"\r\n"), new.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    places = _places(content, old)
    match places:
        case []:
            return refused("NoMatch", _near_misses(path, content, old))
        case [place]:
            workspace.write_bytes(real, content[:place] + new + content[place + len(old) :])
            line = content.count(b"\n", 0, place) + 1
            return returned(f"patched {path} at line {line}")
        case _:
            lines = ", ".join(str(content.count(b"\n", 0, place) + 1) for place in places[:20])
            return refused(
                "ManyMatches",
                f"old stands {len(places)} times in {path}, at the lines {lines}: "
                "give more lines around the one meant",
            )


def _places(content: bytes, old: bytes) -> list[int]:
    """Where `old` stands, overlapping matches too: each is another reading of the patch."""
    found: list[int] = []
    place = content.find(old)
    while place >= 0 and len(found) < 1_000:
        found.append(place)
        place = content.find(old, place + 1)
    return found


def _near_misses(path: str, content: bytes, old: bytes) -> str:
    lines = content.decode("utf-8", "replace").splitlines()
    wanted = old.decode("utf-8", "replace").splitlines()
    key = max(wanted, key=lambda line: len(line.strip()), default="").strip()
    scored = sorted(
        (
            (-difflib.SequenceMatcher(None, key[:200], line.strip()[:200]).ratio(), number, line)
            for number, line in enumerate(lines[:CANDIDATE_SCAN], 1)
            if line.strip()
        ),
    )[:CANDIDATES]
    head = f"old does not stand in {path} as written (white space counts)"
    close = [f"{number}: {line[:300]}" for score, number, line in scored if score <= -0.5]
    if not close:
        return f"{head}: read the file and copy the lines exactly"
    return "\n".join([f"{head}. The closest lines are:", *close])


def _content(path: str, workspace: Workspace) -> bytes | ToolReturned:
    real = workspace.resolve(path)
    try:
        content = workspace.read_bytes(real, FILE_LIMIT)
    except FileNotFoundError:
        return _missing(path, False, "file", workspace)
    except (IsADirectoryError, NotADirectoryError):
        return _missing(path, True, "file", workspace)
    if len(content) > FILE_LIMIT:
        return refused(
            "TooLarge", f"{path} is larger than {FILE_LIMIT} bytes: use shell.run to look at a part of it"
        )
    return content


def _split_lines(content: bytes) -> list[bytes]:
    """Lines that end in LF or CRLF; a lone CR ends none, as editors count them."""
    lines = [line + b"\n" for line in content.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _missing(path: str, exists: bool, wanted: str, workspace: Workspace) -> ToolReturned:
    if exists:
        way = "fs.read reads it" if wanted == "folder" else "fs.list shows what is in it"
        return refused("WrongKind", f"{path} is no {wanted}: {way}")
    return refused(
        "NotFound", f"there is no {wanted} {path}: fs.list shows what is there; {hint(path, workspace)}"
    )


def outside(reason: PathOutside) -> ToolReturned:
    """The result for a path that the file system led out, which the lexical hop could not see."""
    return refused("PathOutside", str(reason))
