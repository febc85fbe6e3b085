"""Suites for tests: a folder with one task to write a greeting, and scripts that do it, or don't."""

import json
from pathlib import Path

from tests.house import FINISH, VERIFY, call, load

GREETING = [load("fs.write"), call("fs.write", path="hello.txt", content="hello\n"), VERIFY, FINISH]
"""A way through, as it should be."""

WRONG = [load("fs.write"), call("fs.write", path="hello.txt", content="hell\n"), VERIFY, FINISH]
"""A way that the shown check lets through, and the hidden one doesn't."""

TASK = """
[[tasks]]
id = "greets"
goal = "write hello into hello.txt"
checks = [{ id = "there", command = "test -f hello.txt" }]
hidden = [{ id = "says_hello", command = "cmp hello.txt expected.txt" }]
files = { "notes.txt" = "nothing\\n" }
hidden_files = { "expected.txt" = "hello\\n" }
"""


def script(path: Path, *replies: object) -> str:
    """Write a script, and name it as `--model` wants it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"text": reply} if isinstance(reply, str) else reply for reply in replies]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"script:{path}"


def suite(folder: Path, text: str = TASK, head: str = 'models = ["script:good.jsonl"]\n') -> Path:
    """Write a suite and the script `good.jsonl`; the suite's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "suite.toml").write_text(head + text)
    script(folder / "good.jsonl", *GREETING)
    return folder
