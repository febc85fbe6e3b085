"""A store whose SQLite is locked, or that may only be read: the logs are whole, and nothing is lost."""

import shlex
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepfold.engine.runtime.run_log import RunLog
from stepfold.events import index
from stepfold.events.integrity import check
from stepfold.events.journal import read_log
from stepfold.events.store import Store
from tests.engine.cli.projects import (
    FINISH,
    LOAD_FILES,
    REPAIR,
    VERIFY,
    Command,
    Project,
    installed,
    somebody_else,
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "BUSY_SECONDS", 0.05)


@contextmanager
def locked(store: Path) -> Iterator[None]:
    """Another program is in the middle of a change."""
    other = sqlite3.connect(store / "store.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def agreement(store: Path, trace: Path) -> str:
    with Store(store) as opened:
        return check(trace, opened.kept(trace.stem)).store


def test_a_run_does_not_wait_for_a_locked_index_and_the_next_one_catches_it_up(project: Project) -> None:
    # It ended after half a minute with "unexpected OperationalError", and an empty log.
    project.run(FINISH)
    with locked(project.store):
        result = project.run(LOAD_FILES, REPAIR, VERIFY, FINISH)

    trace = Path(result.json["trace"])
    assert result.code == 0
    assert "database is locked; its log is whole" in result.err
    assert project.ask("replay", trace).code == 0
    assert agreement(project.store, trace).startswith("lacks the lines from seq 0 on")

    project.run(FINISH)

    assert agreement(project.store, trace) == "agrees"
    assert list((project.store / "behind").iterdir()) == []


def test_a_lock_that_is_gone_before_the_run_rests_leaves_nothing_behind(project: Project) -> None:
    project.run(FINISH)
    source = read_log(project.trace).records
    with Store(project.store) as store:
        with RunLog(store, "r") as log:
            log.begin()
            with locked(project.store):
                for record in source:
                    log.record(record.event)
                    log.flush()

        assert len(list(store.index("r").lines())) == len(source)


def test_what_is_locked_is_told_in_one_line(project: Project) -> None:
    project.run(FINISH)
    arguments = ("run", "go on", "--project", project.folder, "--model", project.script(FINISH))
    with locked(project.store), installed(*arguments) as running:
        _, said = running.communicate()

    assert said.count(b"SQLite catches up with the next run") == 1
    assert b"Warning" not in said


def test_the_runs_of_a_store_that_may_only_be_read_are_shown(stepfold: Command) -> None:
    with tempfile.TemporaryDirectory() as around:
        Path(around).chmod(0o755)
        project = Project(Path(around) / "project", stepfold)
        project.run(FINISH)
        there = ("--store", project.store)
        model = project.script(FINISH)
        asked = []
        for command in (
            "runs",
            "show last",
            "log last --verify",
            "sql 'SELECT count(*) FROM runs'",
            f"replay {project.trace}",
        ):
            stepfold(*shlex.split(command), *there)
            with closed(project.store):
                asked.append(stepfold(*shlex.split(command), *there))
        with closed(project.store):
            refused = stepfold("run", "go on", "--project", project.folder, "--model", model, *there)

    assert {(result.code, result.err) for result in asked} == {(0, "")}
    refused.is_refused("can't be written: Permission denied; choose another --store")


@contextmanager
def closed(store: Path) -> Iterator[None]:
    """Nobody may write the store."""
    folders = [store, store / "runs"]
    for folder in folders:
        folder.chmod(0o555)
    try:
        with somebody_else():
            yield
    finally:
        for folder in folders:
            folder.chmod(0o755)
