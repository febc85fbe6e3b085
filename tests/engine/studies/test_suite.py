"""A suite's file becomes trials: which settings hold, what an id depends on, what is refused by name."""

import subprocess
from pathlib import Path

import pytest

from stepfold.engine.runtime.settings import SettingsError
from stepfold.engine.studies.final_state import lay_out
from stepfold.engine.studies.suite import Suite, Trial, read_suite, trials_of
from tests.engine.studies.suites import TASK, script, suite


def read(folder: Path, text: str = TASK, head: str = 'models = ["script:good.jsonl"]\n') -> Suite:
    return read_suite(suite(folder, text, head))


def only(found: Suite) -> Trial:
    (trial,) = trials_of(found)
    return trial


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_suite_stands_for_every_task_model_seed_and_repeat(tmp_path: Path) -> None:
    head = 'models = ["script:good.jsonl", "http://localhost:1/v1#tiny"]\nseeds = [3, 4]\nrepeats = 2\n'

    trials = trials_of(read(tmp_path / "s", TASK + TASK.replace("greets", "again"), head))

    assert len(trials) == len({trial.run_id for trial in trials}) == 16
    assert [trial.run_id.rpartition("-")[0] for trial in trials[:5]] == [
        "s-greets-script_good-s3r1",
        "s-greets-script_good-s3r2",
        "s-greets-script_good-s4r1",
        "s-greets-script_good-s4r2",
        "s-greets-tiny-s3r1",
    ]
    assert {trial.settings.model.seed for trial in trials} == {3, 4}


def test_a_suite_can_be_moved_and_its_trials_keep_their_ids(tmp_path: Path) -> None:
    assert only(read(tmp_path / "a" / "s")).run_id == only(read(tmp_path / "b" / "s")).run_id


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("write hello into", "put hello into"),
        ("test -f hello.txt", "test -s hello.txt"),
        ("cmp hello.txt", "cmp -s hello.txt"),
        ('"nothing\\n"', '"something\\n"'),
        ('"hello\\n"', '"hello"'),
        ("[[tasks]]", "[settings.loop]\nmax_steps = 9\n[[tasks]]"),
    ],
)
def test_what_a_run_depends_on_is_in_its_id(tmp_path: Path, old: str, new: str) -> None:
    assert TASK.replace(old, new) != TASK

    assert (
        only(read(tmp_path / "a" / "s")).run_id
        != only(read(tmp_path / "b" / "s", TASK.replace(old, new))).run_id
    )


def test_another_script_of_the_same_name_is_another_trial(tmp_path: Path) -> None:
    before = only(read(tmp_path / "s")).run_id
    script(tmp_path / "s" / "good.jsonl", "no action")

    assert only(read_suite(tmp_path / "s")).run_id != before


def test_a_changed_file_of_a_project_folder_is_another_trial(tmp_path: Path) -> None:
    text = TASK.replace("files = {", 'project = "p"\nfiles = {', 1)
    (tmp_path / "s" / "p").mkdir(parents=True)
    (tmp_path / "s" / "p" / "a.txt").write_text("1")
    before = only(read(tmp_path / "s", text)).run_id
    (tmp_path / "s" / "p" / "a.txt").write_text("2")

    assert only(read_suite(tmp_path / "s")).run_id != before


def test_the_task_goes_before_the_suite_and_the_suite_before_the_project(tmp_path: Path) -> None:
    (tmp_path / "s" / "p").mkdir(parents=True)
    (tmp_path / "s" / "p" / "stepfold.toml").write_text(
        "[loop]\nmax_steps = 1\ncontext_window = 100\nprofile = 'ops'\n[memory]\nenabled = true\n"
    )
    head = "[settings.loop]\nmax_steps = 2\ncontext_window = 200\n"
    text = TASK.replace("files = {", 'project = "p"\nsettings.loop.max_steps = 3\nfiles = {', 1)

    settings = only(read(tmp_path / "s", head + text)).settings

    assert (settings.loop.max_steps, settings.loop.context_window, settings.loop.profile) == (3, 200, "ops")
    assert [check.id for check in settings.checks] == ["there"]
    assert not settings.memory.enabled, "runs side by side would learn from each other"


def test_two_servers_with_a_model_of_one_name_are_told_apart(tmp_path: Path) -> None:
    models = ("http://a:1/v1#tiny", "http://user:secret@b:1/v1#tiny")

    labels = [trial.label for trial in trials_of(read(tmp_path / "s"), models=models)]

    assert labels == ["http://a:1/v1#tiny", "b:1/v1#tiny"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["no [[tasks]]"]),
        (TASK.replace("goal =", "gaol ="), ["gaol", "goal"]),
        (TASK.replace('goal = "write hello into hello.txt"', 'goal = " "'), ["greets", "no goal"]),
        (TASK + TASK, ["greets", "twice"]),
        (TASK.replace('"greets"', '"a/b"'), ["a/b", "letters"]),
        (TASK.replace("notes.txt", "../notes.txt"), ["greets", ".."]),
        (TASK.replace('expected.txt" =', '/etc/passwd" ='), ["greets", "/etc/passwd"]),
        (TASK.replace("cmp hello.txt expected.txt", " "), ["says_hello", "a command or a summary"]),
        (TASK.replace('command = "cmp hello.txt expected.txt"', "summary = '('"), ["says_hello", "regular"]),
        (TASK.replace("files = {", 'project = "nowhere"\nfiles = {', 1), ["nowhere", "no folder"]),
        (TASK + 'ends = ["done"]\n', ["done"]),
        (TASK + "ends = []\n", ["greets", "ends"]),
        ("repeats = 0\n" + TASK, ["repeats is 0"]),
        (TASK + 'commits = [{ message = "m", files = { "../a" = "" } }]\n', ["greets", ".."]),
        (TASK + 'commits = [{ mesage = "m", files = {} }]\n', ["mesage", "message"]),
        (TASK + "settings.loop.max_step = 3\n", ["greets", "max_step", "max_steps"]),
        ("tasks = 3", ["tasks"]),
        ("[[tasks]", ["not TOML"]),
    ],
)
def test_a_broken_suite_is_refused_by_name(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(SettingsError) as refused:
        trials_of(read(tmp_path / "s", text))

    assert str(tmp_path / "s" / "suite.toml") in str(refused.value) or "the task" in str(refused.value)
    for word in words:
        assert word in str(refused.value)


def test_a_script_that_is_not_there_is_found_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"gone\.jsonl"):
        only(read(tmp_path / "s", TASK, 'models = ["script:gone.jsonl"]\n'))


def test_a_history_is_made_commit_by_commit_below_the_files(tmp_path: Path) -> None:
    one = '{ message = "one", author = "Ada", files = { "a" = "1\\n" } }'
    two = '{ message = "two", files = { "a" = "2\\n" } }'
    read_it = read(tmp_path / "s", f"{TASK}commits = [{one}, {two}]\n")
    for copy in ("first", "second"):
        lay_out(read_it, read_it.tasks[0], tmp_path / copy)

    logs = {git(tmp_path / copy, "log", "--format=%H %an %as %s") for copy in ("first", "second")}

    assert len(logs) == 1, "the same commits in every copy"
    assert [line.split(" ", 1)[1] for line in logs.pop().splitlines()] == [
        "A. Author 2024-01-02 two",
        "Ada 2024-01-01 one",
    ]
    assert git(tmp_path / "first", "status", "--porcelain") == "?? notes.txt", "files are not committed"


def test_trials_recorded_before_there_was_a_history_still_count(tmp_path: Path) -> None:
    assert only(read(tmp_path / "s")).run_id == "s-greets-script_good-r1-e286dd9c"
