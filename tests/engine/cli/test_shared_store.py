"""Every command on a store in PostgreSQL, as on a folder; and its password in nothing that is written."""

import time
from pathlib import Path

import pytest

from tests.engine.cli.projects import (
    FINISH,
    GOAL,
    LOAD_FILES,
    REPAIR,
    VERIFY,
    Project,
    action,
    installed,
    read,
)
from tests.postgres import new_database

SECRET = "open-sesame"


@pytest.fixture
def shared(socket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store's URL, which is also the one in the environment."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    url = new_database(socket, "shared").replace("stepfold@", f"stepfold:{SECRET}@")
    monkeypatch.setenv("STEPFOLD_STORE", url)
    return url


def test_a_run_is_recorded_shown_replayed_asked_and_exported(
    shared: str, project: Project, tmp_path: Path
) -> None:
    ended = project.run(LOAD_FILES, REPAIR, VERIFY, FINISH)
    assert (ended.code, ended.json["finish"]) == (0, "completed")
    said = [ended]

    def asked(*words: object) -> str:
        result = project.stepfold(*words)
        assert result.code == 0, (words, result.err)
        said.append(result)
        return result.text

    run_id = ended.json["run_id"]
    assert asked("runs").count(run_id) == 1
    assert "completed" in asked("show", "last")
    assert f'"store": "{ended.json["store"]}"' in asked("show", "last", "--json")
    assert asked("log", "last").encode() == Path(ended.json["trace"]).read_bytes()
    assert "PostgreSQL agrees" in asked("log", "last", "--verify")
    assert "identical" in asked("replay", "last")
    assert "user" in asked("prompt", "last", "--step", 2)
    assert "4" in asked("sql", "SELECT steps FROM runs")
    asked("view", "last", "-o", tmp_path / "page.html")
    asked("export", "last", "--openai", tmp_path / "openai.json")
    asked("export", "--parquet", tmp_path / "parquet")
    asked("judge", "last", "--set", "loop.max_steps=2")
    assert "1 run" in asked("doctor", "--project", project.folder)
    assert not (project.folder / ".stepfold").exists()

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    assert not [one for one in said if SECRET in one.text + one.err]


def test_a_question_is_answered_on_another_machine(
    shared: str, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = action("ask_user", question="which of the two?")
    model = project.script(LOAD_FILES, ask, REPAIR, VERIFY, FINISH)
    assert project.stepfold("run", GOAL, "--project", project.folder, "--model", model).code == 5

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other machine"))
    ended = project.stepfold(
        "resume", "last", "--answer", "the first", "--project", project.folder, "--model", model, "--json"
    )

    assert (ended.code, ended.json["finish"]) == (0, "completed")
    assert "identical" in project.stepfold("replay", "last").text


def test_a_run_elsewhere_is_running_until_it_is_killed_and_then_goes_on(
    shared: str, project: Project, tmp_path: Path
) -> None:
    slow = {"text": VERIFY, "delay_ms": 60_000}
    waiting = project.script(LOAD_FILES, slow, name="waiting.jsonl")
    with installed("run", GOAL, "--project", project.folder, "--model", waiting) as process:
        until = time.monotonic() + 20
        while time.monotonic() < until and "running" not in project.stepfold("runs").text:
            time.sleep(0.05)
        assert "running" in project.stepfold("show", "last").text
        refused = project.stepfold("resume", "last", "--project", project.folder, "--model", waiting)
        refused.is_refused("another process is writing this run")
        process.kill()
        process.wait()
    assert "interrupted" in project.stepfold("runs").text

    model = project.script(LOAD_FILES, REPAIR, VERIFY, FINISH)
    ended = project.stepfold("resume", "last", "--project", project.folder, "--model", model, "--json")

    assert ended.code == 0
    assert [event["kind"] for event in read(Path(ended.json["trace"]))].count("RunReopened") == 1


def test_a_database_that_is_not_there_is_told_in_one_line(project: Project, tmp_path: Path) -> None:
    address = f"postgresql://u:{SECRET}@/none?host={tmp_path}"
    for command in (["runs"], ["show", "last"], ["sql", "SELECT 1"]):
        refused = project.stepfold(*command, "--store", address)
        refused.is_refused("can't be reached")
        assert SECRET not in refused.err


def test_the_lines_of_a_shared_run_can_not_be_edited(shared: str, project: Project) -> None:
    project.run(LOAD_FILES, FINISH)

    project.stepfold("log", "last", "--reseal", "shorter").is_refused("keeps what was written", code=2)


@pytest.mark.parametrize(
    "url",
    [
        "postgres://nobody:se@open-sesame@127.0.0.1:1/x",
        "postgresql://nobody:se/open-sesame@127.0.0.1:1/x",
        "postgresql:/nobody:open-sesame@127.0.0.1:1/x",
        "Postgresql://nobody:open-sesame@127.0.0.1:1/x",
    ],
)
@pytest.mark.parametrize("command", [("runs",), ("run", GOAL)])
def test_a_url_that_is_not_written_as_it_should_be_tells_no_password(
    url: str, command: tuple[str, ...], project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first three were taken for hosts and told; the last became a folder of this name.
    monkeypatch.chdir(project.folder)
    model = ("--model", project.script(FINISH)) if command[0] == "run" else ()
    before = sorted(project.folder.rglob("*"))

    result = project.stepfold(*command, "--store", url, *model)

    assert result.code == 2
    assert SECRET.encode() not in result.out + result.err.encode()
    assert result.err.count("\n") == 1
    assert sorted(project.folder.rglob("*")) == before
