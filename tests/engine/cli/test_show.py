"""`runs`, `show`, `log` and `prompt`: what is recorded comes back byte for byte, and harms no terminal."""

import json

import pytest

from stepfold.engine.cli import show
from tests.engine.cli.projects import (
    FINISH,
    LOAD_FILES,
    OUTCOME_KEYS,
    QUICK,
    REPAIR,
    UNIT,
    VERIFY,
    Project,
    action,
    call,
    installed,
    read,
    wait_for,
)
from tests.house import PROSE

HOSTILE = {
    "a lone surrogate": "half \ud83d of a pair",
    "U+2028": "one\u2028two\u2029three\u0085four",
    "NUL": "before\x00after",
    "ANSI": "\x1b[2J\x1b]0;title\x07\x1b[31mred",
    "a bidirectional override": "abc\u202edef\u2066ghi",
    "a noncharacter": "\ufdd0 and \ufdd0dead",
    "a BOM": "\ufeffstart",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
def test_what_a_model_says_survives_the_log_and_the_replay_and_is_shown_visibly(
    project: Project, text: str
) -> None:
    project.run(text, action("memory_write", text=text), FINISH, options=["--max-steps", 3])

    logged = project.ask("log", "last")
    assert logged.out == project.trace.read_bytes()
    assert len(logged.out.split(b"\n")) == len(read(project.trace)) + 1
    assert project.ask("replay", project.trace).code == 0
    shown = project.ask("show", "last").out
    for mark in ("\x1b", "\x00", "\x07", "\u2028", "\u202e", "\u2066", "\ufeff"):
        assert mark.encode() not in shown
    for step in (1, 2, 3):
        assert project.ask("prompt", "last", "--step", step, "--json").json["agrees"] is True


def test_the_reply_is_recorded_as_it_was_said(project: Project) -> None:
    text = HOSTILE["ANSI"] + HOSTILE["U+2028"]
    project.run(text, options=["--max-steps", 1])

    (replied,) = project.events("ModelReplied")
    assert replied["text"] == text
    assert (
        "\\u001b[31mred" in project.ask("show", "last").text or "rejected as NotJson" in project.transcript()
    )


def test_show_gives_the_outcome_that_run_gave(project: Project) -> None:
    ran = project.run(LOAD_FILES, REPAIR, VERIFY, FINISH)

    shown = project.ask("show", "last", "--json")

    assert list(shown.json) == OUTCOME_KEYS
    assert shown.json == ran.json


def test_a_run_is_named_by_its_id_its_start_or_its_file(project: Project) -> None:
    run_id = project.run(FINISH, options=["--max-steps", 1]).json["run_id"]

    for name in (run_id, run_id[:18], "last", project.trace):
        assert project.ask("show", name, "--json").json["run_id"] == run_id


def test_a_trace_is_shown_without_its_store(project: Project) -> None:
    project.run(FINISH, options=["--max-steps", 1])
    copy = project.folder.parent / "copy.jsonl"
    copy.write_bytes(project.trace.read_bytes())

    assert project.stepfold("show", copy, "--json").json["store"] == ""


def test_a_torn_last_line_is_told_and_left_out(project: Project) -> None:
    project.run(LOAD_FILES, REPAIR, VERIFY, FINISH)
    torn = project.folder.parent / "torn.jsonl"
    torn.write_bytes(project.trace.read_bytes()[:-20])

    result = project.stepfold("show", torn, "--json")

    assert result.code == 0
    assert "the last line is torn" in result.err
    assert (result.json["finish"], result.json["status"]) == ("failed", "interrupted")


def test_runs_are_listed_oldest_first(project: Project) -> None:
    first = project.run(FINISH, options=["--max-steps", 1]).json["run_id"]
    (project.traces[0]).rename(project.store / "runs" / "20000101-000000-aaaaaa.jsonl.bak")
    project.run(LOAD_FILES, REPAIR, VERIFY, FINISH)
    (project.store / "runs" / "20000101-000000-aaaaaa.jsonl.bak").rename(
        project.store / "runs" / f"{first}.jsonl"
    )

    rows = project.ask("runs", "--json").json

    assert [row["run_id"] for row in rows] == sorted(row["run_id"] for row in rows)
    assert {(row["finish"], row["steps"]) for row in rows} == {("missing_evidence", 1), ("completed", 4)}
    assert all(row["goal"] == "make the test pass" for row in rows)
    assert len(project.ask("runs").text.splitlines()) == 3
    assert project.ask("runs", "--json").json == rows


def test_an_empty_store_says_how_to_fill_it(project: Project) -> None:
    (project.store / "runs").mkdir(parents=True)

    result = project.ask("runs")

    assert (result.code, project.ask("runs", "--json").json) == (0, [])
    assert "stepfold run" in result.text


@pytest.mark.parametrize("mode", ["text", "chat"])
def test_every_request_is_rebuilt_with_the_digest_that_was_recorded(project: Project, mode: str) -> None:
    project.configure(f'{UNIT}\n[model]\nmode = "{mode}"\ntemperature = 0.2\nmax_tokens = 300\n')
    read_file = call("fs.read", path="calc.py")
    project.run(LOAD_FILES, "prose", read_file, VERIFY, REPAIR, VERIFY, FINISH)
    started = {event["step"]: event["digest"] for event in project.events("ModelStarted")}

    rebuilt = [project.ask("prompt", "last", "--step", step, "--json").json for step in started]

    assert [(row["digest"], row["agrees"]) for row in rebuilt] == [
        (digest, True) for digest in started.values()
    ]
    assert list(rebuilt[0]) == ["run_id", "step", "digest", "agrees", "request"]
    last = rebuilt[-1]["request"]
    assert (last["temperature"], last["max_tokens"]) == (0.2, 300)
    assert "return a + b" in json.dumps(last)
    assert len(last["messages"]) == (1 if mode == "text" else 2 + 2 * (len(started) - 1))


def test_the_prompt_of_a_text_model_is_printed_as_it_was_sent(project: Project) -> None:
    project.configure(f'{QUICK}\n[model]\nmode = "text"\n')
    project.run(VERIFY, FINISH, options=["--max-steps", 2])

    sent = project.ask("prompt", "last", "--step", 2, "--json").json["request"]["messages"][0]["content"]

    assert project.ask("prompt", "last", "--step", 2).out == sent.encode()


def test_a_log_is_followed_while_its_run_goes_on(project: Project) -> None:
    model = project.script(VERIFY, VERIFY, VERIFY, {"text": VERIFY, "delay_ms": 3000}, FINISH)
    arguments = ["run", "g", "--project", project.folder, "--model", model, "--max-steps", 5]
    with installed(*arguments) as running:
        trace = wait_for(project.store, "ModelStarted")
        with installed("log", trace, "--follow") as following:
            first = following.stdout.readline()
            assert running.poll() is None
            running.communicate()
            # A step cap leaves no terminal event: its last decision says that it is over.
            rest = following.stdout.read()

    assert first + rest == trace.read_bytes()


def test_a_closed_pipe_is_no_error(project: Project) -> None:
    # Longer than a pipe holds, so that the writer meets the closed end however late the reader closes it.
    project.run(*["x" * 50_000] * 4, options=["--max-steps", 4])
    with installed("log", project.trace) as process:
        process.stdout.readline()
        process.stdout.close()
        process.stdout = None
        assert process.stderr.read() == b""
        assert process.wait(20) == 0


@pytest.mark.parametrize("command", ["show", "log"])
def test_an_unknown_run_is_named(project: Project, command: str) -> None:
    (project.store / "runs").mkdir(parents=True)

    project.ask(command, "nothing-like-it").is_refused("no run 'nothing-like-it'", "stepfold runs")


def test_a_step_that_never_was_is_refused(project: Project) -> None:
    project.run(FINISH, options=["--max-steps", 1])

    project.ask("prompt", "last", "--step", 9).is_refused("nothing at step 9")


@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize(
    "asked", ["runs", "show nope", "log nope", "prompt nope --step 1", "diagram --audit", "resume nope"]
)
def test_looking_makes_no_store(asked: str, is_folder: bool, project: Project) -> None:
    if is_folder:
        project.store.mkdir()

    command, *words = asked.split()
    project.ask(command, *words).is_refused(str(project.store), "no store here", "--store")

    assert project.store.exists() is is_folder
    assert not is_folder or list(project.store.iterdir()) == []


@pytest.mark.parametrize("asked", ["resume nope", "fork nope --at 3", "chat --resume nope"])
def test_going_on_with_a_run_that_never_was_makes_no_store(asked: str, project: Project) -> None:
    # It made an empty one.
    words = (*asked.split(), "--project", project.folder, "--model", project.script(FINISH))

    project.stepfold(*words).is_refused("no store here")

    assert not project.store.exists()


def test_long_ids_keep_the_columns_and_a_narrow_terminal_drops_what_counts_less(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.run(FINISH, options=["--max-steps", 1])
    longer = project.trace.with_name(f"{'imported-' * 4}1.jsonl")
    longer.write_bytes(project.trace.read_bytes())
    tables = {}
    for width in (140, 60):
        monkeypatch.setattr(show, "_columns", lambda width=width: width)
        tables[width] = project.ask("runs").text.splitlines()

    for head, *rows in tables.values():
        assert {row.index("missing_evidence") for row in rows} == {head.index("finish")}
        assert len(rows) == 2
        assert longer.stem in rows[1]
        assert {row[head.index("goal") :] for row in rows} <= {"make the test pass", "make the tes"}
    assert tables[140][0].split() == ["run", "finish", "steps", "actions", "rejected", "goal"]
    assert tables[60][0].split() == ["run", "finish", "goal"]


def test_without_a_step_it_says_how_many_there_are(project: Project) -> None:
    project.run(PROSE, PROSE, FINISH, options=["--max-steps", 3])

    project.ask("prompt", "last").is_refused("the run has 3 steps", "--step N")
    project.ask("prompt", "last", "--step", 9).is_refused("nothing at step 9", "the run has 3 steps")
