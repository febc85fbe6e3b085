"""Guards from outside: by argument or entry point, asked before an action runs, and again by replay."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stepfold import AgentLoop, replay
from stepfold.engine.core.own_guards import GuardClash, MissingGuard, provide
from stepfold.engine.models.scripted import Script
from stepfold.events.configuration import Guards
from stepfold.events.journal import read_log
from stepfold.projections.outcome import LoopOutcome
from stepfold.projections.state import Run
from stepfold.testing import given
from tests.engine.cli.projects import FINISH, PROGRAM, Project, call, load
from tests.house import config

TOUCH = call("shell.run", command="touch was_here")


def no_shell(run: Run, name: str, arguments: dict[str, Any]) -> str:
    """Objects to commands."""
    return "no commands here" if arguments.get("capability") == "shell.run" else ""


def never_objects(run: Run, name: str, arguments: dict[str, Any]) -> str:
    """Objects to nothing."""
    return ""


def broken(run: Run, name: str, arguments: dict[str, Any]) -> str:
    """Is a mistake."""
    raise KeyError("path")


def run(tmp_path: Path, *replies: str, **settings: Any) -> tuple[AgentLoop, LoopOutcome]:
    script = Script.parse(b"\n".join(json.dumps({"text": reply}).encode() for reply in replies))
    loop = AgentLoop(model=script, project=tmp_path, checks=(), sandbox="none", **settings)
    return loop, loop.run("do it")


def test_an_action_that_a_guard_objects_to_is_not_carried_out_and_ends_the_run(tmp_path: Path) -> None:
    loop, outcome = run(tmp_path, load("shell.run"), TOUCH, FINISH, own_guards=[never_objects, no_shell])

    assert (outcome.finish, outcome.guard, outcome.detail) == ("failed", "no_shell", "no commands here")
    assert outcome.steps == 2
    assert not (tmp_path / "was_here").exists()
    assert replay(loop.store.path_of(outcome.run_id)).verdict == "identical"


def test_a_guard_that_does_not_object_changes_nothing_but_the_configuration(tmp_path: Path) -> None:
    _, outcome = run(tmp_path, load("shell.run"), TOUCH, FINISH, own_guards=[never_objects])

    assert outcome.finish == "completed"
    assert (tmp_path / "was_here").exists()


def test_a_guard_that_raises_objects_and_never_ends_in_a_traceback(tmp_path: Path) -> None:
    loop, outcome = run(tmp_path, FINISH, own_guards=[broken])

    assert (outcome.finish, outcome.guard) == ("failed", "broken")
    assert outcome.detail == "the guard itself failed: KeyError: 'path'"
    assert replay(loop.store.path_of(outcome.run_id)).verdict == "identical"


def test_a_guard_is_tested_one_decision_at_a_time() -> None:
    provide("no_shell", no_shell)
    story = given(config(guards=Guards(own=("no_shell",)), memory=False)).when(load("look"))

    story.when(FINISH)
    assert "GuardTripped" not in [type(event).__name__ for event in story.decided]


def test_two_guards_of_one_name_are_refused() -> None:
    provide("never_objects", never_objects)
    provide("never_objects", never_objects)

    with pytest.raises(GuardClash, match="there is another guard 'never_objects'"):
        provide("never_objects", no_shell)
    with pytest.raises(GuardClash, match="is no name for a guard"):
        provide("a b", no_shell)


def test_a_guard_that_is_not_here_is_named_before_a_run_begins(tmp_path: Path) -> None:
    with pytest.raises(MissingGuard, match="the guard 'nobody_has_this' is not here"):
        run(tmp_path, FINISH, guards=Guards(own=("nobody_has_this",)))
    assert not list((tmp_path / ".stepfold").glob("runs/*"))


def test_a_log_whose_guard_is_not_here_says_which(tmp_path: Path) -> None:
    loop, outcome = run(tmp_path, FINISH, own_guards=[never_objects])
    trace = loop.store.path_of(outcome.run_id)

    # Another process does not know the guard of this test.
    told = subprocess.run([PROGRAM, "replay", str(trace), "--json"], capture_output=True, text=True)

    assert told.returncode == 2, told
    assert "the guard 'never_objects' is not here" in json.loads(told.stdout)["why"]
    assert len(read_log(trace).records) > 5


INSTALLED = """
def only_finish(run, name, arguments):
    return "" if name == "finish" else f"{name} is not finish"
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    (site / "house_rules-1.0.dist-info").mkdir(parents=True)
    (site / "house_rules.py").write_text(INSTALLED)
    (site / "house_rules-1.0.dist-info" / "METADATA").write_text("Name: house-rules\nVersion: 1.0\n")
    (site / "house_rules-1.0.dist-info" / "entry_points.txt").write_text(
        "[stepfold.guards]\nonly_finish = house_rules:only_finish\nlost = house_rules:nobody\n"
    )
    monkeypatch.syspath_prepend(str(site))


@pytest.mark.usefixtures("installed")
def test_an_installed_guard_is_named_in_the_configuration_and_found_by_replay(project: Project) -> None:
    project.configure('[guards]\nown = ["only_finish"]\n')

    result = project.run(load("fs.read"))

    assert result.code == 1
    assert "load is not finish" in result.err + result.text
    assert project.ask("replay", "last").code == 0


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("written", ["only_finish", " only_finish, only_finish", '["only_finish"]'])
def test_recorded_runs_are_judged_under_an_installed_guard(project: Project, written: str) -> None:
    assert project.run(load("fs.read"), FINISH, options=["--max-steps", 2]).code == 4

    found = project.ask("judge", "last", "--set", f"guards.own={written}", "--json").json

    assert found["would"] == {"finish": "failed", "step": 1, "guard": "only_finish", "known": True}
    assert found["changed"]


@pytest.mark.usefixtures("installed")
def test_a_recorded_guard_can_be_judged_away(project: Project) -> None:
    project.configure('[guards]\nown = ["only_finish"]\n')
    assert project.run(load("fs.read")).code == 1

    found = project.ask("judge", "last", "--set", "guards.own=", "--json").json

    assert (found["recorded"]["finish"], found["would"]["known"]) == ("failed", False)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("written", "words"),
    [("nobody_has_this", "'nobody_has_this' is not here"), ("lost", "'lost' can't be loaded")],
)
def test_a_guard_that_is_not_here_judges_nothing(project: Project, written: str, words: str) -> None:
    project.run(FINISH)

    project.ask("judge", "last", "--set", f"guards.own={written}").is_refused("--set ", words)
