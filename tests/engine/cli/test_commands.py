"""The command as installed: its help, `diagram`, `doctor`, `demo`."""

import json
import sqlite3
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from stepfold.engine.cli.main import COMMANDS, main
from stepfold.engine.core.goal_table import GOAL as GOAL_TABLE
from tests.engine.cli.projects import OUTCOME_KEYS, PROGRAM, Command, Project, is_whole


def installed(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, cwd=cwd)


def test_the_installed_program_names_its_version_and_its_commands() -> None:
    assert version("stepfold") in installed("--version").stdout
    help_page = installed("--help")
    assert help_page.returncode == 0
    for name in COMMANDS:
        assert f"  {name} " in help_page.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example(stepfold: Command, name: str) -> None:
    result = stepfold(name, "--help")

    assert result.code == 0
    assert f"Usage: stepfold {name} " in result.text
    assert f"stepfold {name}" in result.text.partition("Example")[2]


def test_no_command_is_loaded_for_the_help() -> None:
    listed = subprocess.run(
        [
            PROGRAM.parent / "python",
            "-c",
            "import sys\nfrom stepfold.engine.cli.main import main\n"
            "try: main(['--help'])\nexcept SystemExit: pass\n"
            "print([name for name in ('duckdb', 'openai', 'asyncio', 'msgspec') if name in sys.modules])",
        ],
        capture_output=True,
        text=True,
    )

    assert listed.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("loop", ["goal", "tools"])
def test_the_diagram_is_mermaid(stepfold: Command, loop: str) -> None:
    result = stepfold("diagram", "--loop", loop)

    assert result.code == 0
    assert result.text.startswith("stateDiagram-v2\n")


def test_the_diagram_shows_every_state_and_every_guard(stepfold: Command) -> None:
    drawn = stepfold("diagram").text

    for state in GOAL_TABLE.states:
        assert state in drawn
    for guard in ("has_no_automatic_verifier_evidence", "action_repeats", "steps_spent", "evidence_complete"):
        assert guard in drawn


def test_the_doctor_tells_machines_what_is_there(project: Project) -> None:
    result = project.stepfold("doctor", "--project", project.folder, "--json")

    assert result.code == 0
    assert list(result.json) == [
        "stepfold", "python", "sandbox", "models", "key", "checks", "mcp_servers", "store",
    ]  # fmt: skip
    assert result.json["checks"] == [{"id": "sum", "command": "grep -q 'a + b' calc.py"}]
    assert result.json["store"] == {"folder": str(project.store), "runs": 0, "problem": ""}
    assert not project.store.exists()


def test_the_doctor_tells_people_how_to_get_what_is_missing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepfold.engine.models.discovery.LOCAL", (("Ollama", "http://127.0.0.1:9/v1"),))
    project.configure("")
    (project.folder / "test_calc.py").unlink()

    result = project.stepfold("doctor", "--project", project.folder)

    assert "ollama serve" in result.text
    assert "[[checks]]" in result.text


def test_the_demo_completes_and_replays(tmp_path: Path) -> None:
    result = installed("demo", "--into", "demo", "--json", cwd=tmp_path)

    assert (result.returncode, result.stderr) == (0, "")
    told = json.loads(result.stdout)
    assert list(told) == [*OUTCOME_KEYS, "replay"]
    assert (told["finish"], told["replay"]["verdict"]) == ("completed", "identical")
    assert is_whole(Path(told["trace"]))


def test_the_demo_never_writes_into_what_is_there(stepfold: Command, tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()

    stepfold("demo", "--into", tmp_path / "demo").is_refused("is there already", "--into")


@pytest.mark.parametrize(
    ("state", "said"), [("broken", "file is not a database; move it away"), ("locked", "locked by another")]
)
def test_the_doctor_says_what_is_wrong_with_a_store(project: Project, state: str, said: str) -> None:
    database = project.store / "store.sqlite"
    database.parent.mkdir(exist_ok=True)
    if state == "broken":
        database.write_bytes(b"no database " * 1000)
    holder = sqlite3.connect(":memory:" if state == "broken" else database)
    holder.execute("BEGIN EXCLUSIVE")
    result = project.stepfold("doctor", "--project", project.folder)
    holder.close()
    assert result.code == 1
    assert said in result.text


def test_the_doctor_calls_no_store_that_is_out_of_reach_empty(project: Project) -> None:
    nowhere = "postgresql://127.0.0.1:1/none"
    result = project.stepfold("doctor", "--project", project.folder, "--store", nowhere, "--json")
    assert result.code == 1
    assert result.json["store"]["problem"]


def test_a_command_without_arguments_shows_its_help_in_lines(capsys: pytest.CaptureFixture[str]) -> None:
    for typed in ([], ["eval"]):
        with pytest.raises(SystemExit) as left:
            main(typed)

        assert left.value.code == 2
        assert "\nCommands:\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("rnu", "did you mean `stepfold run`?"),
        ("replya", "did you mean `stepfold replay`?"),
        ("xyz", "--help"),
    ],
)
def test_a_command_that_is_not_there_is_answered_with_the_one_that_was_meant(
    asked: str, told: str, stepfold: Command
) -> None:
    stepfold(asked, "last").is_refused(f"there is no command '{asked}'", told)
