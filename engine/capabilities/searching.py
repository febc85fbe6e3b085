"""A program of its own: looks for a pattern in files, where a pattern that never ends can be killed.

It is started as a file by `stepfold.engine.capabilities.searches`, reads one JSON request on stdin and
writes one JSON answer; it imports nothing but the standard library.
"""

# pathlib would double the start-up time of a program that runs once a search.
# ruff: noqa: PTH118
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

SKIPPED = {".git", ".hg", ".svn", ".stepfold", "node_modules", "__pycache__", ".venv", "venv", ".tox"}


def walked(root: str, start: str) -> Iterator[str]:
    """Files below a folder, in order, links not followed; for projects that git does not know."""
    for folder, folders, names in os.walk(os.path.join(root, start)):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for name in sorted(names):
            yield os.path.relpath(os.path.join(folder, name), root)


def opened(root: str, path: str) -> BinaryIO | None:
    """A regular file without a link on its way; None for anything else."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        *folders, name = path.split("/")
        for part in folders:
            deeper = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = deeper
        found = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return None
    finally:
        os.close(folder)
    if stat.S_ISREG(os.fstat(found).st_mode):
        return os.fdopen(found, "rb")
    os.close(found)
    return None


def search(request: dict[str, Any]) -> dict[str, Any]:
    """Answer a request: the lines found, and what was left out."""
    pattern = re.compile(request["pattern"])
    root, limits = request["root"], request["limits"]
    answer: dict[str, Any] = {"lines": [], "files": 0, "large": 0, "stopped": ""}
    files = request["files"] if request["files"] is not None else walked(root, request["start"])
    for path in files:
        if answer["files"] >= limits["files"]:
            answer["stopped"] = f"after {limits['files']} files"
            break
        file = opened(root, path)
        if file is None:
            continue
        answer["files"] += 1
        with file:
            content = file.read(limits["size"] + 1)
        if len(content) > limits["size"]:
            answer["large"] += 1
            continue
        if b"\0" in content[:8192]:
            continue
        for number, line in enumerate(content.decode("utf-8", "replace").split("\n"), 1):
            if pattern.search(line):
                answer["lines"].append(f"{path}:{number}: {line.rstrip()[: limits['line']]}")
                if len(answer["lines"]) >= limits["matches"]:
                    answer["stopped"] = f"after {limits['matches']} matches"
                    return answer
    return answer


if __name__ == "__main__":
    sys.stdout.write(json.dumps(search(json.loads(sys.stdin.buffer.read()))))
