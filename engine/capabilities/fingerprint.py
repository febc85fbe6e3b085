"""One digest over a project's files, for evidence to hold on to: it counts as long as they are the same.

What git ignores and what tools keep for themselves (caches, environments, the store) is left out: a
check may write there as it likes.
"""

import asyncio
import os
import stat
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

from stepfold.engine.capabilities.context import CallContext
from stepfold.engine.capabilities.searches import files_of_git
from stepfold.engine.capabilities.searching import SKIPPED

READ_AT_MOST = 1024 * 1024
"""Bytes of a file that are read; a larger one counts by its size and its time of change."""

APART = SKIPPED | {".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".coverage", ".nyc_output"}


async def fingerprint(context: CallContext, store: Path) -> str:
    """The digest of the project's files as they are now: names, contents, and which may be executed.

    `store` is where runs are recorded; if it lies in the project, it is no part of it.
    """
    known = await files_of_git(".", context)
    return await asyncio.to_thread(_digest, context.workspace.root, known, store.resolve())


def _digest(root: Path, known: Iterable[str] | None, store: Path) -> str:
    whole = blake2b(digest_size=8)
    # A project may lie in the store of an evaluation: then all of it would be left out.
    apart = store if store.is_relative_to(root) else None
    for path in sorted(_walked(root) if known is None else _with_nested(root, known)):
        if APART.isdisjoint(Path(path).parts) and not (apart and (root / path).is_relative_to(apart)):
            whole.update(os.fsencode(path) + b"\0" + _state(root / path))
    return whole.hexdigest()


def _walked(root: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        folders[:] = [name for name in folders if name not in APART]
        for name in (*names, *links):
            yield os.path.relpath(Path(folder) / name, root)


def _with_nested(root: Path, known: Iterable[str]) -> Iterator[str]:
    """What git lists; a repository inside the project is one entry to git, and its files count as well."""
    for path in known:
        inside = root / path
        if inside.is_dir() and not inside.is_symlink():
            yield from (f"{path}/{below}" for below in _walked(inside))
        else:
            yield path


def _state(path: Path) -> bytes:
    """What of a file counts. Never raises: what can't be read is a state as well."""
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            return b"link " + os.fsencode(path.readlink())
        if not stat.S_ISREG(found.st_mode):
            return b"special"
        runs = b"x" if found.st_mode & stat.S_IXUSR else b"-"
        if found.st_size > READ_AT_MOST:
            # The time of change can be put back with `touch`, that of the inode can't.
            return runs + b"%d %d %d" % (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        return runs + blake2b(path.read_bytes(), digest_size=8).digest()
    except OSError as error:
        return b"unreadable %d" % (error.errno or 0)
