"""The `sql` command, from the command line to what it prints."""

import csv
import io
import json

import msgspec
import pytest
from click.testing import CliRunner

from stepfold.engine.cli.output import visible_line
from stepfold.engine.cli.sql import sql, table_lines
from stepfold.events.configuration import GoalConfig
from stepfold.events.vocabulary import ModelReplied, RunFinished, RunStarted
from stepfold.projections.sql.relations import Table

TS = "2026-01-01T00:00:00.000000Z"
HOSTILE = 'a,"b"\n\x1b[31mred\u2028\u202e \'👍'
LOG = (
    RunStarted(1, "r-1", 0, 0, TS, config=GoalConfig(goal="fix it", model="m"), engine="0"),
    ModelReplied(1, "r-1", 1, 1, TS, key="model:model-1:0", text=HOSTILE, input_tokens=3),
    RunFinished(1, "r-1", 2, 1, TS, row="close", status="completed"),
)


@pytest.fixture
def store(tmp_path):
    runs = tmp_path / "store" / "runs"
    runs.mkdir(parents=True)
    (runs / "r-1.jsonl").write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in LOG))
    return runs.parent


def run(*arguments, **more):
    return CliRunner().invoke(sql, [str(argument) for argument in arguments], **more)


def test_a_table_for_people(store):
    result = run("SELECT run_id, finish, steps FROM runs", "--store", store)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "run_id  finish     steps",
        "------  ---------  -----",
        "r-1     completed  1",
    ]


def test_a_table_does_nothing_to_the_terminal(store):
    out = run("SELECT content FROM messages WHERE role = 'assistant'", "--store", store).stdout
    assert out.splitlines()[2] == 'a,"b"\\n\\x1b[31mred\\u2028\\u202e \'👍'


def test_csv_and_json_keep_every_character(store):
    query = "SELECT seq, content FROM messages ORDER BY seq"
    expected = [(0, "fix it"), (1, HOSTILE)]
    table = list(csv.reader(io.StringIO(run(query, "--store", store, "--format", "csv").stdout, newline="")))
    assert table == [["seq", "content"], *[[str(seq), text] for seq, text in expected]]
    objects = json.loads(run(query, "--store", store, "--format", "json").stdout)
    assert objects == [{"seq": seq, "content": text} for seq, text in expected]


def test_json_values_are_values(store):
    query = """
        SELECT data, ts, 1.5::DECIMAL(4,2) AS d, 'nan'::DOUBLE AS n, [1] AS l,
            DATE '2026-01-01' AS day, {'a': ts} AS s
        FROM events WHERE kind = 'RunFinished'
    """
    (row,) = json.loads(run(query, "--store", store, "--format", "json").stdout)
    assert row == {
        "data": {"row": "close", "status": "completed"},
        "ts": "2026-01-01T00:00:00",
        "d": 1.5,
        "n": None,
        "l": [1],
        "day": "2026-01-01",
        "s": {"a": "2026-01-01T00:00:00"},
    }


def test_no_rows_are_an_empty_array(store):
    assert json.loads(run("FROM guards", "--store", store, "--format", "json").stdout) == []


def test_parquet_goes_to_the_file(store, tmp_path):
    out = tmp_path / "out.parquet"
    assert run("FROM runs;", "--store", store, "--format", "parquet", "--output", out).exit_code == 0
    back = run(f"SELECT run_id FROM '{out}'", "--store", store, "--open-files", "--format", "csv")
    assert back.stdout == "run_id\nr-1\n"


def test_output_to_a_file(store, tmp_path):
    out = tmp_path / "out.csv"
    assert run("SELECT run_id FROM runs", "--store", store, "--format", "csv", "--output", out).stdout == ""
    assert out.read_text() == "run_id\nr-1\n"


def test_a_recipe_by_its_name(store):
    result = run("@tokens", "--store", store, "--format", "json")
    assert json.loads(result.stdout)[0]["input_tokens"] == 3


def test_the_query_from_standard_input_and_the_store_from_the_environment(store):
    result = run(
        "--format", "csv", input="SELECT count(*) AS n\nFROM events\n", env={"STEPFOLD_STORE": str(store)}
    )
    assert result.stdout == "n\n3\n"


def test_the_lists_need_no_store():
    assert "@rejection_rate" in run("--recipes").stdout
    assert "torn_lines" in run("--schema").stdout
    assert "Example:" in run("--help").stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("SELEC 1",), "syntax error"),
        (("SELECT nope FROM runs",), "nope"),
        (("SELECT * FROM read_csv('/etc/passwd')",), "disabled"),
        (("@tokns",), "did you mean @tokens?"),
        (("@zzz",), "see --recipes"),
        (("",), "no query"),
        (("FROM runs", "--format", "parquet"), "--output"),
        (("SELECT error('x\x1b[31m') FROM runs",), "\\x1b"),
        (("FROM runs", "--output", "/none/such/out.csv"), "can't write"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_2(store, arguments, says):
    result = run(*arguments, "--store", store)
    assert result.exit_code == 2
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_no_store(tmp_path):
    result = run("FROM runs", "--store", tmp_path / "none")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "--store" in result.stderr


def test_broken_lines_are_told_on_stderr(store):
    (store / "runs" / "r-2.jsonl").write_bytes(b'{"v":1,"run')
    result = run("SELECT count(*) AS n FROM events", "--store", store, "--format", "csv")
    assert result.stdout == "n\n3\n"
    assert "1 broken line" in result.stderr


def test_visible_text_is_printable():
    assert visible_line("".join(map(chr, range(0x3000)))).isprintable()
    assert visible_line("ünï 👍") == "ünï 👍"


def test_a_header_that_comes_from_the_data_is_as_visible_as_a_cell():
    table = Table(("\x1b[31m\u202e",), ("INTEGER",), iter([(1,)]))

    assert all(line.isprintable() for line in table_lines(table))


def test_two_columns_of_one_name_are_both_in_the_json(store):
    result = CliRunner().invoke(sql, ["SELECT 1 AS a, 2 AS a", "--store", str(store), "--format", "json"])

    assert json.loads(result.stdout) == [{"a": 1, "a_1": 2}]
