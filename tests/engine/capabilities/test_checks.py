import asyncio
import json
from pathlib import Path

import pytest

from stepfold.engine.capabilities.checks import detect, run_check
from stepfold.engine.capabilities.workspace import Workspace
from stepfold.events.configuration import CheckSpec


@pytest.mark.parametrize(
    ("files", "ids"),
    [
        ({}, ()),
        ({"README": "x"}, ()),
        ({"pytest.ini": ""}, ("pytest",)),
        ({"tests/test_a.py": ""}, ("pytest",)),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, ("pytest",)),
        ({"pyproject.toml": "[project]\n"}, ()),
        ({"package.json": json.dumps({"scripts": {"test": "node t.js"}})}, ("npm-test",)),
        (
            {"package.json": json.dumps({"scripts": {"test": 'echo "Error: no test specified" && exit 1'}})},
            (),
        ),
        ({"package.json": "{broken"}, ()),
        ({"package.json": "[]"}, ()),
        ({"Cargo.toml": ""}, ("cargo-test",)),
        ({"go.mod": ""}, ("go-test",)),
        ({"Makefile": "all:\n\ncheck: all\n"}, ("make-check",)),
        ({"Makefile": "check := 1\n"}, ()),
        ({"go.mod": "", "Cargo.toml": ""}, ("cargo-test", "go-test")),
    ],
)
def test_checks_are_those_that_the_root_shows(
    tmp_path: Path, files: dict[str, str], ids: tuple[str, ...]
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert tuple(spec.id for spec in detect(tmp_path)) == ids


def test_the_detected_pytest_runs_in_the_sandbox(project: Path, sandbox: str) -> None:
    (project / "test_it.py").write_text(
        "from src.main import answer\n\ndef test_it():\n    assert answer() == 42\n"
    )
    (spec,) = detect(project)
    failing = asyncio.run(run_check(spec, Workspace(project), sandbox))
    assert failing.exit_code == 1
    assert "assert 41 == 42" in failing.output
    (project / "src/main.py").write_text("def answer():\n    return 42\n")
    passing = asyncio.run(run_check(spec, Workspace(project), sandbox))
    assert passing.exit_code == 0
    assert passing.digest != failing.digest


def test_a_check_that_takes_too_long_is_no_evidence(project: Path, sandbox: str) -> None:
    returned = asyncio.run(
        run_check(CheckSpec("slow", "echo begun; sleep 60", 0.5), Workspace(project), sandbox)
    )
    assert returned.exit_code is None
    assert returned.output == "begun\nslow: timed out after 0.5 s and was ended"


def test_a_check_without_a_sandbox_says_why_it_did_not_run(project: Path) -> None:
    returned = asyncio.run(run_check(CheckSpec("a", "true"), Workspace(project), ""))
    assert returned.exit_code is None
    assert "stepfold doctor" in returned.output
