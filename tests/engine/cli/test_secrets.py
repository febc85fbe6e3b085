"""A planted key, and a server and a model that say it at every turn: it stands in nothing that is written."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.cli.projects import FINISH, GOAL, VERIFY, Project, call, installed, load
from tests.engine.cli.test_endpoints import Answer, Endpoint, chat, endpoint, trouble

__all__ = ["endpoint"]

SECRET = 'sk-zq7Wkv"Y8/0123456789'
"""With a quote and a slash, which JSON and URLs write in another way."""

HEADER = f"the header was Authorization: Bearer {SECRET}"


def answers() -> list[Answer]:
    """First an error that echoes the header, then replies that do, and ask a tool for the key's file."""
    said = [
        f"Sure! {HEADER}",
        load("fs.read", "fs.write"),
        call("fs.read", path="secret.txt"),
        call("fs.write", path="calc.py", content=f"def add(a, b):\n    return a + b\n# {SECRET}\n"),
        json.dumps({"name": "finish", "arguments": {"summary": HEADER}}),
        VERIFY,
        FINISH,
    ]
    return [trouble(503, f"{'.' * 150}{HEADER}"), *(chat(text) for text in said)]


@pytest.fixture(params=["environment", "file"])
def planted(request: pytest.FixtureRequest, project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project that holds the key in a file, as people do, and the key where a run looks for it."""
    path = project.folder / "secret.txt"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    if request.param == "environment":
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    else:
        monkeypatch.setenv("OPENAI_API_KEY_FILE", str(path))
    return project


def without_it(name: str, content: bytes) -> None:
    """Neither the key nor half of it."""
    for secret in (SECRET, json.dumps(SECRET)[1:-1], SECRET[-10:], SECRET[3:9]):
        assert secret.encode() not in content, name


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_planted_key_is_in_no_output(planted: Project, endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.answers = answers()
    model, exports = f"{endpoint.url}#small", tmp_path / "exports"
    exports.mkdir()

    ran = planted.stepfold("run", GOAL, "--project", planted.folder, "--model", model)
    asked = [
        planted.ask("show", "last"),
        planted.ask("show", "last", "--json"),
        planted.ask("log", "last"),
        *(planted.ask("prompt", "last", "--step", step) for step in range(1, 8)),
        planted.ask("runs"),
        planted.ask("replay", "last"),
        planted.ask("judge", "last", "--set", "loop.max_steps=3"),
        planted.ask("sql", "SELECT * FROM events"),
        planted.ask("sql", "SELECT * FROM messages"),
        planted.ask("view", "last", "-o", exports / "page.html"),
        planted.ask("export", "last", "--atif", exports / "atif.json"),
        planted.ask("export", "last", "--otel", exports / "otel.json"),
        planted.ask("export", "last", "--openai", exports / "messages.json"),
        planted.ask("export", "--parquet", exports / "parquet"),
        planted.stepfold("doctor", "--project", planted.folder),
        planted.stepfold("doctor", "--project", planted.folder, "--json"),
    ]

    assert ran.code == 0, ran
    assert all(result.code == 0 for result in asked), [result for result in asked if result.code]
    assert endpoint.headers[0]["authorization"] == f"Bearer {SECRET}"
    assert b"[key]" in planted.trace.read_bytes()
    for result in (ran, *asked):
        without_it("output", result.out + result.err.encode())
    written = [*files_below(planted.store), *files_below(exports)]
    assert {path.suffix for path in written} >= {".jsonl", ".sqlite", ".html", ".json", ".parquet"}
    for path in written:
        without_it(path.name, path.read_bytes())


def test_what_goes_back_to_the_server_does_not_hold_it_either(planted: Project, endpoint: Endpoint) -> None:
    endpoint.answers = answers()

    planted.stepfold("run", GOAL, "--project", planted.folder, "--model", f"{endpoint.url}#small")

    without_it("request", json.dumps(endpoint.asked).encode())


@pytest.mark.parametrize("debug", [(), ("--debug",)])
def test_no_crash_and_no_traceback_shows_it(
    debug: tuple[str, ...], planted: Project, endpoint: Endpoint
) -> None:
    endpoint.answers = [trouble(401, HEADER)]
    broken = [
        ("run", GOAL, "--model", f"{endpoint.url}#small"),
        ("run", GOAL, "--model", endpoint.url),
        ("run", GOAL, "--model", f"http://me:{SECRET}@127.0.0.1:1/v1"),
        ("run", GOAL, "--model", f"http://127.0.0.1:1/v1?key={SECRET}#small"),
        ("resume", "last"),
    ]
    for words in broken:
        with installed(*debug, *words, "--project", planted.folder) as process:
            out, err = process.communicate(timeout=60)
        assert process.returncode in (1, 2), err
        without_it(" ".join(map(str, words[:1])), out + err)
    for path in files_below(planted.store):
        without_it(path.name, path.read_bytes())


def test_a_key_file_that_others_can_read_is_a_line_on_stderr(
    project: Project, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "key"
    path.write_text(SECRET)
    path.chmod(0o644)
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(path))
    endpoint.answers = [chat(FINISH)]

    words: list[Any] = ["--project", project.folder, "--max-steps", 1]
    result = project.stepfold("run", GOAL, *words, "--model", f"{endpoint.url}#small")

    assert f"stepfold: warning: others can read the key in {path}: chmod 600 {path}" in result.err
    assert project.stepfold("doctor", "--project", project.folder, "--json").json["key"] == {
        "variable": "OPENAI_API_KEY",
        "set": True,
        "says": f"others can read the key in {path}: chmod 600 {path}",
    }


def test_a_key_file_that_is_not_there_stops_a_run_before_it_starts(
    project: Project, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY_FILE", "/nowhere/key")

    result = project.stepfold("run", GOAL, "--project", project.folder, "--model", f"{endpoint.url}#small")

    result.is_refused("OPENAI_API_KEY_FILE", "/nowhere/key", "No such file")
    assert not endpoint.asked
