"""What a person has in front of them: a project, a script of replies, the command `stepfold`, its store.

`Command` runs the command line in this process, as the entry point does; `installed` starts the program
that pip put beside this Python, for what only a process of its own can show (signals, a closed pipe).
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from stepfold.engine.cli.main import main
from tests.house import FINISH, LOAD, VERIFY, action, call, load

__all__ = ["FINISH", "LOAD", "VERIFY", "action", "call", "load"]

GOAL = "make the test pass"
UNIT = '[[checks]]\nid = "unit"\ncommand = "python -m unittest -q"\n'
QUICK = '[[checks]]\nid = "sum"\ncommand = "grep -q \'a + b\' calc.py"\n'
"""A check of a few milliseconds, for the tests that care about the loop and not about the check."""

LOAD_FILES = load("fs.read", "fs.write", "shell.run")
REPAIR = call("fs.write", path="calc.py", content="def add(a, b):\n    return a + b\n")
BREAK = call("fs.write", path="calc.py", content="def add(a, b):\n    return b\n")

OUTCOME_KEYS = [
    "run_id", "finish", "status", "steps", "actions", "rejected",
    "summary", "unmet", "evidence", "usage", "trace", "store",
]  # fmt: skip

NOBODY = 65534

PROGRAM = Path(sys.executable).parent / "stepfold"


class Result(Struct, frozen=True):
    """What came of a command."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """The output as text."""
        return self.out.decode()

    @property
    def json(self) -> Any:
        """The output as one JSON document."""
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        """The output as JSON Lines."""
        return [json.loads(line) for line in self.out.split(b"\n") if line]

    def is_refused(self, *words: str, code: int = 2) -> None:
        """One line on stderr that holds these words, nothing on stdout, no traceback."""
        assert self.code == code, (self.code, self.out, self.err)
        assert self.out == b""
        assert self.err.startswith("stepfold: ")
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        assert "unexpected" not in self.err
        for word in words:
            assert word in self.err, self.err


class Command:
    """The command line, in this process."""

    def __init__(self, capture: Any) -> None:
        self._capture = capture

    def __call__(self, *arguments: object) -> Result:
        self._capture.readouterr()
        code: Any = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ending:
            code = ending.code
        said = self._capture.readouterr()
        return Result(0 if code is None else int(code), said.out, said.err.decode())


class Project:
    """A folder with a test that fails, and its store."""

    def __init__(self, folder: Path, stepfold: Command) -> None:
        self.folder = folder
        self.stepfold = stepfold
        folder.mkdir(parents=True)
        (folder / "calc.py").write_text("def add(a, b):\n    return a - b\n")
        (folder / "test_calc.py").write_text(
            "import unittest\n\nfrom calc import add\n\n\nclass TestAdd(unittest.TestCase):\n"
            "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
        )
        self.configure(QUICK)

    def configure(self, text: str) -> None:
        """Write `stepfold.toml`."""
        (self.folder / "stepfold.toml").write_text(text)

    def script(self, *replies: str | dict[str, Any], name: str = "script.jsonl") -> str:
        """Write a script beside the project, and name it as `--model` wants it."""
        path = self.folder.parent / name
        lines = [{"text": reply} if isinstance(reply, str) else reply for reply in replies]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return f"script:{path}"

    def run(self, *replies: str | dict[str, Any], options: Sequence[object] = ()) -> Result:
        """`stepfold run --json` on a script of these replies."""
        model = self.script(*replies)
        return self.stepfold("run", GOAL, "--project", self.folder, "--model", model, "--json", *options)

    def ask(self, command: str, *arguments: object) -> Result:
        """A command that looks into the store."""
        return self.stepfold(command, *arguments, "--store", self.store)

    @property
    def store(self) -> Path:
        """Where its runs lie."""
        return self.folder / ".stepfold"

    @property
    def traces(self) -> list[Path]:
        """The logs of its runs, oldest first."""
        return sorted((self.store / "runs").glob("*.jsonl"))

    @property
    def trace(self) -> Path:
        """The log of its only run."""
        (only,) = self.traces
        return only

    def events(self, *wanted: str) -> list[dict[str, Any]]:
        """The events of the only run, or those of some kinds."""
        return [event for event in read(self.trace) if not wanted or event["kind"] in wanted]

    def transcript(self) -> str:
        """What `show` prints of the last run."""
        return self.ask("show", "last").text


def read(trace: Path) -> list[dict[str, Any]]:
    """The whole lines of a log, decoded."""
    return [json.loads(line) for line in trace.read_bytes().split(b"\n")[:-1]]


def is_whole(trace: Path) -> bool:
    """Every line ends, and the seqs leave no gap."""
    return trace.read_bytes().endswith(b"\n") and [event["seq"] for event in read(trace)] == list(
        range(len(read(trace)))
    )


@contextmanager
def installed(*arguments: object, cwd: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """The installed program as a process of its own; ended at the latest when the block is left."""
    process = subprocess.Popen(
        [PROGRAM, *map(str, arguments)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_for(folder: Path, kind: str, count: int = 1) -> Path:
    """The log of the only run in a store, as soon as it holds so many events of a kind."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for trace in (folder / "runs").glob("*.jsonl"):
            if trace.read_bytes().count(f'"kind":"{kind}"'.encode()) >= count:
                return trace
        time.sleep(0.01)
    raise AssertionError(f"no {kind} within 20 s")


def children_of(parent: int) -> list[int]:
    """The processes below one, however deep."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            below.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found = list(below.get(parent, []))
    for child in found:
        found.extend(below.get(child, []))
    return found


def is_alive(process: int) -> bool:
    """Whether a process still runs; a dead one that nobody has asked about counts as gone."""
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def is_root() -> bool:
    """Whether this process may do what only root may."""
    return os.geteuid() == 0


@contextmanager
def somebody_else() -> Iterator[None]:
    """Root may read everything, so for a moment this process is nobody."""
    if not is_root():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
