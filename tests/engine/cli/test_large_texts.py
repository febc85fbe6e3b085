"""A run with texts that lie beside its log: every command tells what it would of a log with them in it."""

import json
from pathlib import Path

import pytest

from stepfold.engine.runtime.replay import replay
from stepfold.engine.studies.spread import _content_of, _worked_on_elsewhere
from stepfold.events.texts import self_contained_lines
from tests.engine.cli.projects import FINISH, LOAD_FILES, REPAIR, VERIFY, Project, call

LARGE = "".join(f"line {number}\n" for number in range(10_000))
WRITE = call("fs.write", path="large.txt", content=LARGE)
NESTED = json.dumps(json.dumps(LARGE)[1:-1])[1:-1]
"""As it stands in the reply: JSON within the JSON of a line."""


@pytest.fixture
def recorded(project: Project) -> Project:
    """A completed run, in whose first reply there is a large text."""
    assert project.run(LOAD_FILES, WRITE, REPAIR, VERIFY, FINISH).code == 0
    assert project.trace.stat().st_size < len(LARGE)
    return project


@pytest.fixture
def copied(recorded: Project, tmp_path: Path) -> Path:
    """The log of that run where nothing lies beside it."""
    copy = tmp_path / "elsewhere" / "run.jsonl"
    copy.parent.mkdir()
    copy.write_bytes(recorded.trace.read_bytes())
    return copy


def texts_of(project: Project) -> list[Path]:
    return list((project.store / "runs" / "texts").iterdir())


def test_what_log_prints_is_a_log_by_itself(recorded: Project, tmp_path: Path) -> None:
    printed = recorded.ask("log", "last").out
    alone = tmp_path / "alone.jsonl"
    alone.write_bytes(printed)

    assert printed == b"".join(self_contained_lines(recorded.trace))
    assert NESTED in printed.decode()
    assert recorded.stepfold("log", alone, "--verify").text.startswith("whole ")
    assert "identical" in recorded.stepfold("replay", alone).text
    assert recorded.ask("log", "last", "--last", 3).out == b"".join(printed.splitlines(keepends=True)[-3:])
    assert recorded.ask("log", "last", "--follow").out == printed


def test_every_command_finds_the_text(recorded: Project, tmp_path: Path) -> None:
    def asked(*words: object) -> str:
        result = recorded.ask(*words)  # type: ignore[arg-type]
        assert (result.code, "missing" in result.err) == (0, False), (words, result.err)
        return result.text

    assert "line 9999" in asked("show", "last")
    assert "SQLite agrees" in asked("log", "last", "--verify")
    assert "identical" in asked("replay", "last")
    assert "line 9999" in asked("prompt", "last", "--step", 3)
    asked("diff", "last", "last")
    asked("view", "last", "-o", tmp_path / "page.html")
    assert "line 9999" in (tmp_path / "page.html").read_text()
    asked("export", "last", "--openai", tmp_path / "openai.json")
    assert "line 9999" in (tmp_path / "openai.json").read_text()
    asked("judge", "last", "--set", "loop.max_steps=3")
    asked("export", "--parquet", tmp_path / "parquet")
    rows = "SELECT count(*) AS n FROM events WHERE contains(data::VARCHAR, 'line 9999')"
    for _ in range(2):
        assert json.loads(asked("sql", rows, "--format", "json")) == [{"n": 1}]
    assert list((recorded.store / "parquet").glob("*.parquet"))


def test_a_fork_and_a_second_run_hold_it_once(recorded: Project) -> None:
    model = recorded.script(VERIFY, FINISH)
    forked = recorded.stepfold(
        "fork", recorded.trace, "--at", len(recorded.events()) - 6, "--model", model,
        "--project", recorded.folder, "--store", recorded.store, "--json",
    )  # fmt: skip
    assert forked.json["finish"] == "completed", forked.err
    assert recorded.run(LOAD_FILES, WRITE, REPAIR, VERIFY, FINISH).code == 0

    assert len(recorded.traces) == 3
    assert len(texts_of(recorded)) == 1
    assert all(trace.stat().st_size < len(LARGE) for trace in recorded.traces)


def test_a_recorded_model_says_it_again(recorded: Project) -> None:
    again = recorded.stepfold(
        "run",
        "make the test pass",
        "--project",
        recorded.folder,
        "--model",
        f"trace:{recorded.trace}",
        "--json",
    )

    assert again.json["finish"] == "completed", again.err
    assert len(texts_of(recorded)) == 1


def test_a_log_without_its_texts_is_shown_and_says_in_a_line_what_is_missing(
    recorded: Project, copied: Path
) -> None:
    (text,) = texts_of(recorded)
    shown = recorded.stepfold("show", copied)
    printed = recorded.stepfold("log", copied)
    verified = recorded.stepfold("log", copied, "--verify")

    assert (shown.code, shown.err.count("\n")) == (0, 1)
    assert "completed" in shown.text
    assert f"its text {text.name} is missing from {copied.parent / 'texts'}: copy it there" in shown.err
    assert printed.out == copied.read_bytes()
    assert (printed.err.count("\n"), text.name in printed.err) == (1, True)
    assert verified.code == 2
    assert text.name in verified.text


@pytest.mark.parametrize(
    ("words", "code"),
    [(("replay",), 3), (("judge", "--set", "loop.max_steps=3"), 0), (("fork", "--at", "20"), 2)],
)
def test_what_can_not_do_without_the_text_says_which_it_lacks(
    words: tuple[str, ...], code: int, recorded: Project, copied: Path
) -> None:
    (text,) = texts_of(recorded)
    model = ("--model", recorded.script(FINISH)) if words[0] == "fork" else ()

    result = recorded.stepfold(words[0], copied, *words[1:], *model)

    assert result.code == code
    assert text.name in result.err + result.text
    assert "Traceback" not in result.err


def test_its_texts_beside_it_make_a_copy_whole(recorded: Project, copied: Path) -> None:
    (text,) = texts_of(recorded)
    (copied.parent / "texts").mkdir()
    (copied.parent / "texts" / text.name).write_bytes(text.read_bytes())

    assert recorded.stepfold("log", copied, "--verify").code == 0


def test_a_trace_that_goes_to_another_machine_takes_its_texts_along(recorded: Project) -> None:
    content = _content_of(recorded.trace)
    recorded.trace.with_name("texts").rename(recorded.folder / "away")

    assert _worked_on_elsewhere(replay, str(recorded.trace), content).verdict == "identical"


def test_sql_leaves_out_the_line_and_says_which_text_it_lacks(recorded: Project) -> None:
    (text,) = texts_of(recorded)
    text.rename(text.with_name("other"))

    asked = recorded.ask("sql", "SELECT why FROM torn_lines", "--format", "json")

    assert text.name in asked.json[0]["why"]
    assert asked.code == 0
