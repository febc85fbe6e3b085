"""Ctrl-C, SIGTERM and SIGKILL on a real process: the log is whole, nobody is left, resuming loses nothing."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.engine.cli.projects import (
    FINISH,
    LOAD_FILES,
    REPAIR,
    VERIFY,
    Project,
    action,
    call,
    children_of,
    installed,
    is_alive,
    is_whole,
    read,
    wait_for,
)

SLEEP = call("shell.run", command="echo started > started; sleep 300", timeout_s=600)


def until(path: Path) -> None:
    """Wait for a file that a command makes."""
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.01)


def arguments(project: Project, model: str) -> list[object]:
    return ["run", "make it pass", "--project", project.folder, "--model", model, "--json"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_cancel_while_the_model_thinks_ends_cancelled(project: Project, number: signal.Signals) -> None:
    model = project.script(LOAD_FILES, {"text": FINISH, "delay_ms": 300_000})
    with installed(*arguments(project, model)) as process:
        trace = wait_for(project.store, "ModelStarted", 2)
        process.send_signal(number)
        out, err = process.communicate(timeout=20)

    assert process.returncode == 130
    assert b'"finish": "cancelled"' in out
    assert err == b""
    assert is_whole(trace)
    assert read(trace)[-1]["status"] == "cancelled"
    assert [event["reason"] for event in read(trace) if event["kind"] == "CancelRequested"] == [number.name]
    assert project.ask("replay", trace).code == 0


def test_a_cancel_while_a_command_runs_ends_the_command_too(project: Project) -> None:
    model = project.script(LOAD_FILES, SLEEP, FINISH)
    with installed(*arguments(project, model)) as process:
        trace = wait_for(project.store, "ToolStarted")
        until(project.folder / "started")
        children = children_of(process.pid)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)

    assert process.returncode == 130
    assert children
    assert [child for child in children if is_alive(child)] == []
    assert is_whole(trace)
    assert [event["kind"] for event in read(trace)[-3:]] == [
        "ToolFailed",
        "ObservationRecorded",
        "RunFinished",
    ]
    assert project.ask("replay", trace).code == 0


def test_a_cancel_while_a_check_runs_ends_the_check_too(project: Project) -> None:
    project.configure('[[checks]]\nid = "slow"\ncommand = "touch started; sleep 300"\n')
    with installed(*arguments(project, project.script(VERIFY, FINISH))) as process:
        trace = wait_for(project.store, "CheckStarted")
        until(project.folder / "started")
        children = children_of(process.pid)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)

    assert process.returncode == 130
    assert [child for child in children if is_alive(child)] == []
    assert read(trace)[-1]["status"] == "cancelled"
    assert project.ask("replay", trace).code == 0


def test_a_cancelled_run_is_over(project: Project) -> None:
    model = project.script({"text": FINISH, "delay_ms": 300_000})
    with installed(*arguments(project, model)) as process:
        wait_for(project.store, "ModelStarted")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)

    resumed = project.stepfold("resume", "last", "--project", project.folder, "--model", model)

    resumed.is_refused("has ended (cancelled)")


KILLED_WHILE = {
    "the model is asked first": ("ModelStarted", 1),
    "the model is asked later": ("ModelStarted", 4),
    "a check runs": ("CheckStarted", 1),
    "a command runs": ("ToolStarted", 2),
}


@pytest.mark.parametrize(("kind", "count"), KILLED_WHILE.values(), ids=list(KILLED_WHILE))
def test_a_killed_run_goes_on_where_it_was(project: Project, kind: str, count: int) -> None:
    project.configure('[[checks]]\nid = "sum"\ncommand = "sleep 0.4; grep -q \'a + b\' calc.py"\n')
    touch = call("shell.run", command="echo once >> ran; sleep 0.4")
    replies = [
        {"text": reply, "delay_ms": 60} for reply in (LOAD_FILES, VERIFY, REPAIR, touch, VERIFY, FINISH)
    ]
    model = project.script(*replies)
    with installed(*arguments(project, model)) as process:
        trace = wait_for(project.store, kind, count)
        process.kill()
        process.communicate()
    recorded = trace.read_bytes()
    whole = recorded[: recorded.rfind(b"\n") + 1]

    resumed = project.stepfold("resume", "last", "--project", project.folder, "--model", model, "--json")

    assert process.returncode == -signal.SIGKILL
    assert resumed.code == 0, resumed
    assert trace.read_bytes().startswith(whole)
    assert is_whole(trace)
    assert (resumed.json["finish"], resumed.json["steps"]) == ("completed", 6)
    # Not at all, where the process died between the intent and the command.
    ran = project.folder / "ran"
    times = ran.read_text().count("once") if ran.exists() else 0
    lost = [event["kind"] for event in read(trace)].count("EffectLost")
    assert times == 1 or (times, lost) == (0, 1)
    assert project.ask("replay", trace).code == 0
    shown = project.ask("log", "last")
    assert shown.out == trace.read_bytes()


def test_a_command_whose_end_nobody_saw_is_not_run_again(project: Project) -> None:
    model = project.script(LOAD_FILES, SLEEP, REPAIR, VERIFY, FINISH)
    with installed(*arguments(project, model)) as process:
        trace = wait_for(project.store, "ToolStarted")
        until(project.folder / "started")
        process.kill()
        process.communicate()
    (project.folder / "started").unlink()

    resumed = project.stepfold("resume", "last", "--project", project.folder, "--model", model, "--json")

    assert (resumed.code, resumed.json["finish"]) == (0, "completed")
    assert not (project.folder / "started").exists()
    assert [event["kind"] for event in read(trace)].count("EffectLost") == 1
    assert "outcome unknown" in project.transcript()
    assert project.ask("replay", trace).code == 0


def test_a_run_that_is_being_written_is_resumed_by_nobody_else(project: Project) -> None:
    model = project.script({"text": FINISH, "delay_ms": 300_000})
    with installed(*arguments(project, model)) as process:
        trace = wait_for(project.store, "ModelStarted")
        before = trace.read_bytes()
        resumed = project.stepfold("resume", "last", "--project", project.folder, "--model", model)
        assert process.poll() is None
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=20)

    resumed.is_refused(str(trace), "another process is writing this run")
    assert trace.read_bytes().startswith(before)


def test_a_killed_run_goes_on_with_its_worker(project: Project) -> None:
    project.configure('[loop]\nworker_slots = 1\n[[checks]]\nid = "a"\ncommand = "true"\n')
    said = [
        action("worker_dispatch", task="look"),
        {"text": action("capability_search", query="files"), "delay_ms": 400},
        VERIFY,
        FINISH,
    ]
    model = project.script(*said)
    with installed(*arguments(project, model)) as process:
        # Parent and worker play one script, so the worker's own dispatch is refused: it is deep enough.
        wait_for(project.store, "ToolRejected")
        process.kill()
        process.communicate()

    resumed = project.stepfold("resume", "last", "--project", project.folder, "--model", model, "--json")

    parent, child = sorted(project.traces, key=lambda trace: len(trace.name))
    assert (resumed.code, resumed.json["finish"]) == (0, "completed")
    assert resumed.json["run_id"] == parent.stem
    assert read(child)[0]["parent"] == parent.stem
    assert [event["kind"] for event in read(child)].count("RunReopened") == 1
    assert project.ask("replay", parent, child).code == 0
    listed = project.ask("runs").text
    assert f"[worker of {parent.stem}] look" in listed
    asked = project.ask("sql", f"SELECT run_id FROM runs WHERE parent = '{parent.stem}'", "--format", "csv")
    assert child.stem in asked.text


def test_an_open_run_is_running_or_interrupted(project: Project) -> None:
    model = project.script({"text": FINISH, "delay_ms": 300_000})
    with installed(*arguments(project, model)) as process:
        wait_for(project.store, "ModelStarted")
        while_it_runs = project.ask("show", "last", "--json").json
        listed = project.ask("runs", "--json").json
        process.kill()
        process.communicate()

    assert (while_it_runs["finish"], while_it_runs["status"], listed[0]["status"]) == (
        "failed",
        "running",
        "running",
    )
    assert project.ask("runs", "--json").json[0]["status"] == "interrupted"
    shown = project.ask("show", "last").text
    assert shown.startswith("interrupted")
    assert f"stepfold resume {project.trace.stem}" in shown
