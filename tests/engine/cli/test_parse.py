"""`stepfold parse` through click: what is printed where, and the exit code."""

import base64
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stepfold.engine.cli.parse import parse
from stepfold.engine.contract.envelope import ERRORS

DATA = Path(__file__).parents[2] / "data"
FINISH = '{"name": "finish", "arguments": {"summary": "d\u00f6ne"}}'


def run(*arguments: str | Path, stdin: str | bytes = b"") -> Result:
    return CliRunner().invoke(parse, [str(argument) for argument in arguments], input=stdin)


@pytest.mark.parametrize("file", ["replies.jsonl", "real_replies.jsonl"])
def test_every_labelled_line_is_answered_by_one_line(file: str) -> None:
    cases = [json.loads(line) for line in (DATA / file).read_bytes().split(b"\n") if line]

    result = run("--jsonl", DATA / file)

    assert result.exit_code == 0
    assert result.stdout.isascii()
    verdicts = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(verdict["id"], verdict.get("error", "Action")) for verdict in verdicts] == [
        (case["id"], case["expect"]) for case in cases
    ]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_an_action_is_printed_and_exits_0(options: list[str]) -> None:
    result = run(*options, stdin=FINISH)

    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"action": {"name": "finish", "arguments": {"summary": "d\u00f6ne"}}}
    assert result.stdout.isascii()
    assert result.stderr == ""


def test_a_rejection_exits_1_and_shows_people_the_repair() -> None:
    result = run(stdin=FINISH + "}")

    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"] == "NotJson"
    assert result.stderr.startswith("NotJson: one closing brace too many")


def test_a_rejection_for_machines_is_one_line() -> None:
    result = run("--json", stdin=b"\xff")

    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"error": "NotJson", "detail": "not UTF-8: byte 0xFF at offset 0"}
    assert result.stdout.count("\n") == 1
    assert result.stderr == ""


def test_a_file_is_one_whole_reply(tmp_path: Path) -> None:
    file = tmp_path / "reply.txt"
    file.write_text(f"```json\n{FINISH}\n```\n", encoding="utf-8")

    assert run(file).exit_code == 0


def test_lines_hold_text_or_bytes_and_keep_their_id() -> None:
    lines = [
        {"raw": ""},
        {"id": 7, "raw_b64": base64.b64encode(FINISH.encode()).decode()},
        {"id": None, "raw": "\ud800"},
        {"raw": "a\u2028b"},
    ]

    result = run("--jsonl", stdin="\n\n".join(map(json.dumps, lines)))

    assert result.exit_code == 0
    verdicts = [json.loads(line) for line in result.stdout.splitlines()]
    assert [list(verdict) for verdict in verdicts] == [
        ["error", "detail"],
        ["id", "action"],
        ["id", "error", "detail"],
        ["error", "detail"],
    ]
    assert verdicts[1]["id"] == 7


@pytest.mark.parametrize(
    "broken",
    ["{", "[]", "{}", '{"raw": 1}', '{"raw_b64": "?"}', '{"raw_b64": "\u00e9"}', "[" * 100_000, b"\xff"],
)
def test_a_broken_line_is_named_by_its_number(broken: str | bytes) -> None:
    line = broken if isinstance(broken, bytes) else broken.encode()

    result = run("--jsonl", stdin=b'{"raw": ""}\n\n' + line + b'\n{"raw": ""}\n')

    assert result.exit_code == 2
    assert result.stdout.count("\n") == 1
    assert "-, line 3: " in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("options", [[], ["--jsonl"], ["--tools"]])
def test_an_unreadable_file_is_one_line_and_exits_2(options: list[str], tmp_path: Path) -> None:
    for file in (tmp_path / "missing", tmp_path):
        result = run(*options, file)

        assert result.exit_code == 2
        assert result.stdout == ""
        assert str(file) in result.stderr
        assert result.stderr.count("\n") == 1


SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


@pytest.mark.parametrize(
    "tools",
    [
        [{"name": "fs.read", "schema": SCHEMA, "description": "Read a file."}],
        [{"name": "fs.read", "parameters": SCHEMA}],
        {"tools": [{"name": "fs.read", "inputSchema": SCHEMA}]},
        [{"type": "function", "function": {"name": "fs.read", "parameters": SCHEMA}}],
    ],
)
def test_tools_of_any_common_shape_replace_the_eight(tools: object, tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(tools), encoding="utf-8")

    assert run("--tools", file, stdin='{"name": "fs.read", "arguments": {"path": "a"}}').exit_code == 0
    assert "SchemaInvalid" in run("--tools", file, stdin='{"name": "fs.read", "arguments": {}}').stdout
    assert "UnknownTool" in run("--tools", file, stdin=FINISH).stdout


@pytest.mark.parametrize(
    "tools",
    ["", "{}", "[]", "[1]", '[{"name": 1}]', '[{"name": "x", "schema": {"type": "strin"}}]', '{"tools": 1}'],
)
def test_broken_tools_are_one_line_and_exit_2(tools: str, tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text(tools, encoding="utf-8")

    result = run("--tools", file, stdin=FINISH)

    assert result.exit_code == 2
    assert str(file) in result.stderr
    assert result.stderr.count("\n") == 1


def test_help_has_an_example() -> None:
    result = run("--help")

    assert result.exit_code == 0
    assert "stepfold parse --jsonl" in result.stdout


def test_the_nine_names_are_what_users_script_against() -> None:
    verdicts = [json.loads(run("--json", stdin=reply).stdout) for reply in ("", "x", "[]", '{"x":1}')]

    assert tuple(verdict["error"] for verdict in verdicts) == ERRORS[:4]
