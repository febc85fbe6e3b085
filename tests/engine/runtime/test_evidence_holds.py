"""Evidence counts for the files it was taken from: whoever changes them, the checks must look again."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stepfold import AgentLoop, replay
from stepfold.engine.models.protocol import Request
from stepfold.engine.models.scripted import Script
from stepfold.events.configuration import CheckSpec
from stepfold.events.journal import read_log
from stepfold.projections.outcome import LoopOutcome
from tests.engine.cli.projects import FINISH, REPAIR, VERIFY, action, call, load

FIXED = CheckSpec("fixed", "grep -q 'a + b' calc.py")
ASK = action("ask_user", question="Shall I go on?")


class WithAVisitor:
    """A script of replies, and somebody who does something while the n-th of them is awaited."""

    name = "script"
    reads_messages = False

    def __init__(self, *replies: str, visits: dict[int, Callable[[], None]]) -> None:
        lines = [b'{"text": %s}' % _json(reply) for reply in replies]
        self._script = Script.parse(b"\n".join(lines))
        self._visits = visits

    def reply(self, request: Request) -> object:
        self._visits.get(request.call, lambda: None)()
        return self._script.reply(request)


def _json(text: str) -> bytes:
    import msgspec

    return msgspec.json.encode(text)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    return folder


def run(
    project: Path, *replies: str, checks: tuple[CheckSpec, ...] = (FIXED,), **visits: Callable[[], None]
) -> tuple[AgentLoop, LoopOutcome]:
    model = WithAVisitor(
        *replies, visits={int(name.removeprefix("at_")): visit for name, visit in visits.items()}
    )
    loop = AgentLoop(model=model, project=project, checks=checks, max_steps=len(replies))  # type: ignore[arg-type]
    outcome = loop.run("keep add right")
    assert replay(loop.store.path_of(outcome.run_id)).verdict == "identical"
    return loop, outcome


def kinds(loop: AgentLoop, outcome: LoopOutcome) -> list[str]:
    return [type(r.event).__name__ for r in read_log(loop.store.path_of(outcome.run_id)).records]


def test_evidence_holds_while_nobody_changes_the_files(project: Path) -> None:
    loop, outcome = run(project, VERIFY, FINISH)

    assert (outcome.status, outcome.steps) == ("completed", 2)
    assert "WorkspaceChanged" not in kinds(loop, outcome)


def test_a_file_changed_from_outside_after_the_check_makes_its_evidence_stale(project: Path) -> None:
    def breaks() -> None:
        (project / "calc.py").write_text("def add(a, b):\n    return 5\n")

    loop, outcome = run(project, VERIFY, FINISH, VERIFY, FINISH, at_2=breaks)

    assert kinds(loop, outcome).count("WorkspaceChanged") == 1
    assert kinds(loop, outcome).count("FinishRejected") == 2
    assert (outcome.status, outcome.unmet) == ("step_cap", ("fixed",))
    assert "changed from outside" in outcome.transcript


def test_a_file_changed_and_checked_again_lets_the_run_finish(project: Path) -> None:
    def adds() -> None:
        (project / "notes.txt").write_text("hello\n")

    loop, outcome = run(project, VERIFY, FINISH, VERIFY, FINISH, at_2=adds)

    assert kinds(loop, outcome).count("FinishRejected") == 1
    assert outcome.status == "completed"


def test_a_check_that_changes_the_files_makes_the_evidence_before_it_stale(project: Path) -> None:
    breaks = CheckSpec("breaks", "sed -i 's/a + b/a - b/' calc.py")

    _, outcome = run(project, VERIFY, FINISH, VERIFY, FINISH, checks=(FIXED, breaks))

    assert outcome.status == "step_cap"
    assert "fixed" in outcome.unmet


def test_a_check_that_writes_the_same_again_harms_no_evidence(project: Path) -> None:
    writes = CheckSpec("writes", "echo ok > report.txt")

    _, outcome = run(project, VERIFY, VERIFY, FINISH, checks=(FIXED, writes))

    assert outcome.status == "completed"


def test_what_tools_keep_for_themselves_is_no_change(project: Path) -> None:
    (project / "test_calc.py").write_text(
        "import unittest\nfrom calc import add\n\n\nclass T(unittest.TestCase):\n"
        "    def test(self):\n        self.assertEqual(add(1, 2), 3)\n"
    )
    checks = (FIXED, CheckSpec("unit", "python -m unittest -q"))

    _, outcome = run(project, VERIFY, FINISH, checks=checks)

    assert outcome.status == "completed"


def test_what_git_ignores_is_no_change(project: Path) -> None:
    os.system(f"git -C {project} init -q")
    (project / ".gitignore").write_text("build/\n")
    checks = (FIXED, CheckSpec("build", "mkdir -p build && date +%N > build/stamp"))

    _, outcome = run(project, VERIFY, FINISH, checks=checks)

    assert outcome.status == "completed"


def test_a_file_changed_while_the_run_waited_for_an_answer_is_seen_when_it_goes_on(project: Path) -> None:
    replies = (VERIFY, ASK, FINISH)
    loop, asked = run(project, *replies)
    assert asked.status == "awaiting_user"
    (project / "calc.py").write_text("def add(a, b):\n    return 5\n")

    later = AgentLoop(model=WithAVisitor(*replies, visits={}), project=project, checks=(FIXED,))  # type: ignore[arg-type]
    outcome = later.resume(asked.run_id, answer="yes")

    assert outcome.unmet == ("fixed",)
    assert kinds(loop, outcome).count("WorkspaceChanged") == 1
    assert outcome.finish == "missing_evidence"


def test_a_call_that_changes_the_files_is_no_change_from_outside(project: Path) -> None:
    loop, outcome = run(project, load("fs.write"), VERIFY, REPAIR, VERIFY, FINISH)

    assert outcome.status == "completed"
    assert "WorkspaceChanged" not in kinds(loop, outcome)


def test_a_store_inside_the_project_is_no_part_of_it(project: Path) -> None:
    model = WithAVisitor(VERIFY, FINISH, visits={})
    loop = AgentLoop(model=model, project=project, checks=(FIXED,), store=project / "runs kept here")  # type: ignore[arg-type]

    assert loop.run("keep add right").status == "completed"


def test_a_command_that_reads_after_the_check_leaves_it_standing(project: Path) -> None:
    loop, outcome = run(project, load("fs.read"), VERIFY, call("fs.read", path="calc.py"), FINISH)

    assert outcome.status == "completed"
    assert "WorkspaceChanged" not in kinds(loop, outcome)
