"""Bad input of every kind: one line on stderr that says what, where and what to do, and no traceback."""

import fcntl
import json
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.engine.cli.projects import (
    FINISH,
    GOAL,
    LOAD_FILES,
    PROGRAM,
    REPAIR,
    VERIFY,
    Command,
    Project,
    action,
    is_root,
    is_whole,
    somebody_else,
)


def attempt(project: Project, *options: object) -> object:
    """A run that bad input should stop before it begins."""
    return project.stepfold(
        "run", GOAL, "--project", project.folder, "--model", project.script(FINISH), *options
    )


# --- projects ---------------------------------------------------------------------------------------


def test_a_missing_project(stepfold: Command, tmp_path: Path) -> None:
    stepfold("run", GOAL, "--project", tmp_path / "nowhere").is_refused(
        "nowhere", "does not exist", "--project"
    )


def test_a_project_that_is_a_file(stepfold: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    stepfold("run", GOAL, "--project", tmp_path / "file").is_refused("is no folder", "--project")


@pytest.mark.parametrize("closed", ["project", "."], ids=["itself", "the folder around it"])
def test_a_project_that_may_not_be_read(stepfold: Command, closed: str) -> None:
    with tempfile.TemporaryDirectory() as around:
        project = Path(around) / "project"
        project.mkdir()
        Path(around).chmod(0o755)
        # What the command imports may lie where only we may read.
        stepfold("run", "--help")
        (Path(around) / closed).chmod(0o700 if is_root() else 0)
        with somebody_else():
            result = stepfold("run", GOAL, "--project", project)
        (Path(around) / closed).chmod(0o755)

    result.is_refused(str(project), "can't be read", "Permission denied")


def test_an_empty_goal(project: Project) -> None:
    project.stepfold("run", "  ", "--project", project.folder).is_refused("the goal is empty")


# --- stepfold.toml ----------------------------------------------------------------------------------

SETTINGS = {
    "syntax": ("[loop\nmax_steps = 3\n", ["not TOML", "line 1"]),
    "an unknown key": (
        "[loop]\nmax_step = 3\n",
        ["unknown key 'max_step' in [loop]", "did you mean 'max_steps'?"],
    ),
    "an unknown table": ("[lop]\n", ["unknown key 'lop' at the top level", "did you mean 'loop'?"]),
    "an unknown key of a check": (
        '[[checks]]\nid = "a"\ncomand = "true"\n',
        ["unknown key 'comand' in [checks]", "'command'"],
    ),
    "a wrong type": ('[loop]\nmax_steps = "many"\n', ["loop.max_steps", "int"]),
    "a wrong choice": ('[model]\nmode = "voice"\n', ["model.mode", "voice"]),
    "a check without a command": ('[[checks]]\nid = "a"\n', ["command"]),
    "a check id that stands twice": (
        '[[checks]]\nid = "a"\ncommand = "true"\n[[checks]]\nid = "a"\ncommand = "false"\n',
        ["'a' stands twice"],
    ),
    "no steps at all": ("[loop]\nmax_steps = 0\n", ["loop.max_steps is 0", "at least 1"]),
    "an unknown profile": ('[loop]\nprofile = "poetry"\n', ["'poetry'", "coding"]),
    "bytes that are no UTF-8": (b"[loop]\n# \xff\n", ["not UTF-8 at byte 9"]),
}


@pytest.mark.parametrize(("text", "words"), SETTINGS.values(), ids=list(SETTINGS))
@pytest.mark.parametrize("command", ["run", "doctor"])
def test_broken_settings(project: Project, text: str | bytes, words: list[str], command: str) -> None:
    path = project.folder / "stepfold.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    goal = [GOAL] if command == "run" else []

    project.stepfold(command, *goal, "--project", project.folder).is_refused(str(path), *words)


# --- models -----------------------------------------------------------------------------------------

SCRIPTS = {
    "no JSON": b'{"text": "a"}\n{text}\n',
    "no object": b'{"text": "a"}\n["text"]\n',
    "an unknown key": b'{"text": "a"}\n{"txt": "b"}\n',
    "a blank line": b'{"text": "a"}\n\n{"text": "b"}\n',
    "no UTF-8": b'{"text": "a"}\n{"text": "\xff"}\n',
    "nothing to say": b'{"text": "a"}\n{"delay_ms": 5}\n',
}


@pytest.mark.parametrize("content", SCRIPTS.values(), ids=list(SCRIPTS))
def test_a_broken_line_of_a_script_is_named_before_anything_runs(project: Project, content: bytes) -> None:
    script = project.folder.parent / "broken.jsonl"
    script.write_bytes(content)

    result = project.stepfold("run", GOAL, "--project", project.folder, "--model", f"script:{script}")

    result.is_refused(str(script), "line 2")
    assert project.traces == []


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("nonsense", ["'nonsense'", "URL#NAME, script:FILE or trace:FILE"]),
        ("gpt-5", ["URL#NAME"]),
        ("script:", ["names no file", "script:FILE"]),
        ("script:/nowhere/at/all.jsonl", ["/nowhere/at/all.jsonl", "No such file"]),
        ("trace:/nowhere/at/all.jsonl", ["/nowhere/at/all.jsonl", "No such file"]),
        ("http://", ["no host"]),
        ("ftp://host/v1#m", ["URL#NAME"]),
        ("", ["no model"]),
    ],
)
def test_a_model_that_is_none(
    project: Project, model: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepfold.engine.models.discovery.LOCAL", ())
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")

    project.stepfold("run", GOAL, "--project", project.folder, "--model", model).is_refused(*words)


def test_a_script_that_is_a_folder(project: Project) -> None:
    project.stepfold(
        "run", GOAL, "--project", project.folder, "--model", f"script:{project.folder}"
    ).is_refused(str(project.folder), "directory")


# --- options and runs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", GOAL, "--max-steps", "0"],
        ["run", GOAL, "--max-steps", "many"],
        ["run", GOAL, "--profile", "poetry"],
        ["run", GOAL, "--nonsense"],
        ["diagram", "--loop", "spiral"],
        ["no-such-command"],
        ["--nonsense"],
    ],
    ids=" ".join,
)
def test_options_that_are_none(stepfold: Command, arguments: list[str]) -> None:
    stepfold(*arguments).is_refused("--help")


def test_a_run_that_has_ended_is_not_resumed(project: Project) -> None:
    project.run(FINISH, options=["--max-steps", 1])
    before = project.trace.read_bytes()

    result = project.stepfold(
        "resume", "last", "--project", project.folder, "--model", project.script(FINISH)
    )

    result.is_refused("has ended", "stepfold show")
    assert project.trace.read_bytes() == before


def test_a_run_that_never_was_is_not_resumed(project: Project) -> None:
    project.run(FINISH, options=["--max-steps", 1])

    result = project.stepfold(
        "resume", "1999", "--project", project.folder, "--model", project.script(FINISH)
    )

    result.is_refused("no run '1999'", "stepfold runs")


def test_a_start_that_two_runs_share_is_refused(project: Project) -> None:
    project.run(FINISH, options=["--max-steps", 1])
    project.run(FINISH, options=["--max-steps", 1])

    project.ask("show", "20").is_refused("names 2 runs", "write more of the id")


# --- stores -----------------------------------------------------------------------------------------


def test_a_store_that_is_a_file(project: Project, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")

    for result in (
        attempt(project, "--store", tmp_path / "store"),
        project.stepfold("runs", "--store", tmp_path / "store"),
    ):
        result.is_refused(str(tmp_path / "store"), "--store")


def test_an_index_that_is_no_database_stops_no_run(project: Project) -> None:
    project.store.mkdir()
    (project.store / "store.sqlite").write_bytes(b"nonsense" * 1000)

    result = project.run(FINISH, options=["--max-steps", 1])

    assert result.json["status"] == "step_cap"
    assert "move it away" in result.err
    verified = project.ask("log", "last", "--verify")
    assert (verified.code, verified.text.startswith("whole ")) == (0, True)
    assert f"SQLite can't be asked: {project.store / 'store.sqlite'}" in verified.text
    assert "move it away" in verified.text


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("", ("--model", "nonsense")),
        ("[loop]\nmax_steps = 'x'\n", ()),
        ("[budget]\ncost = 1.0\n", ()),
    ],
)
@pytest.mark.parametrize("command", [("run", "go on"), ("chat",)])
def test_a_setting_that_makes_no_sense_leaves_no_store_behind(
    project: Project, settings: str, words: tuple[str, ...], command: tuple[str, ...]
) -> None:
    project.configure(settings)
    model = words or ("--model", project.script(FINISH))

    assert project.stepfold(*command, "--project", project.folder, *model).code == 2
    assert not project.store.exists()


def test_a_trace_of_a_newer_version(project: Project) -> None:
    project.run(FINISH, options=["--max-steps", 1])
    project.trace.write_bytes(project.trace.read_bytes().replace(b'"v":1,', b'"v":99,'))

    for command in (["show", "last"], ["prompt", "last", "--step", 1]):
        project.ask(*command).is_refused(f"{project.trace}:1", "schema version 99", "upgrade")


def test_a_trace_that_is_none(project: Project, tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_bytes(b"")

    project.stepfold("show", path).is_refused(str(path), "no whole event")


def test_a_run_that_another_process_writes(project: Project) -> None:
    project.run(VERIFY, LOAD_FILES, options=["--max-steps", 2])
    project.trace.write_bytes(b"".join(project.trace.read_bytes().splitlines(keepends=True)[:-2]))
    with project.trace.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        model = project.script(FINISH)
        result = project.stepfold("resume", "last", "--project", project.folder, "--model", model)

    result.is_refused(str(project.trace), "another process is writing this run")


def test_a_disk_that_is_full(project: Project) -> None:
    store = project.folder.parent / "small"
    store.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", store], capture_output=True)
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount a small file system")
    try:
        replies = ["x" * 50_000] * 20
        result = project.run(*replies, options=["--store", store])
        (trace,) = (store / "runs").glob("*.jsonl")

        result.is_refused(str(store), "No space left on device", "resume")
        assert is_whole(trace)
        assert project.stepfold("replay", trace).code == 0
    finally:
        subprocess.run(["umount", store], check=True)


# --- what a person did not do wrong ------------------------------------------------------------------


def test_debug_shows_the_traceback(project: Project) -> None:
    (project.folder / "stepfold.toml").write_text("[loop\n")

    asked = subprocess.run(
        [PROGRAM, "--debug", "doctor", "--project", project.folder], capture_output=True, text=True
    )

    assert "Traceback" in asked.stderr
    assert "SettingsError" in asked.stderr


def test_an_ended_run_is_told_before_a_model_is_asked_for(project: Project) -> None:
    project.run(FINISH, options=["--max-steps", 1])

    project.stepfold("resume", "last", "--project", project.folder).is_refused("has ended (step_cap)")


def test_a_question_without_an_answer_needs_no_model(project: Project) -> None:
    project.run(action("ask_user", question="which one?"))

    result = project.stepfold("resume", "last", "--project", project.folder, "--json")

    assert (result.code, result.json["summary"]) == (5, "which one?")


def test_a_question_is_answered_from_end_to_end(project: Project) -> None:
    replies = [action("ask_user", question="which one?"), LOAD_FILES, REPAIR, VERIFY, FINISH]
    asked = project.run(*replies)

    answered = project.stepfold(
        "resume", "last", "--answer", "the first", "--project", project.folder,
        "--model", project.script(*replies), "--json",
    )  # fmt: skip

    assert (asked.code, asked.json["finish"], asked.json["steps"]) == (5, "awaiting_user", 1)
    assert (answered.code, answered.json["finish"]) == (0, "completed")
    assert "user: the first" in project.transcript()
    assert project.ask("replay", project.trace).code == 0


def test_an_output_that_can_not_be_written_is_told_in_one_line(project: Project) -> None:
    project.run(FINISH, options=["--max-steps", 1])
    command = [PROGRAM, "show", "last", "--store", project.store]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)

    assert done.returncode == 2
    assert done.stderr == b"stepfold: the output can't be written: No space left on device; free some space\n"


def test_a_folder_that_vanishes_is_passed_over(project: Project) -> None:
    # Nobody may look into all of /proc, and some of it is gone before it is looked at.
    result = project.stepfold("replay", "/proc/self")

    result.is_refused("no *.jsonl below /proc/self")


def test_a_script_may_begin_with_a_byte_order_mark(project: Project) -> None:
    script = project.folder.parent / "marked.jsonl"
    script.write_bytes(b"\xef\xbb\xbf" + json.dumps({"text": action("ask_user", question="x?")}).encode())

    result = project.stepfold("run", GOAL, "--project", project.folder, "--model", f"script:{script}")

    assert result.code == 5
