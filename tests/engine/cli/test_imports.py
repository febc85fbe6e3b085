"""`stepfold import` and `export` from the command line: shapes, exit codes, one line for an error."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from stepfold.engine.cli.main import main

ROOT = Path(__file__).parents[3]
TRACES = ROOT / "tests/engine/studies/imports/traces"
BURR = TRACES / "burr/chat-6-errors.log.jsonl"
FIXTURE = ROOT / "replay_fixtures/fixes_a_failing_test/log.jsonl"
Capture = pytest.CaptureFixture[str]


def code_of(*arguments: object) -> int:
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_import_gives_an_object_a_run(tmp_path: Path, capsys: Capture) -> None:
    tau = TRACES / "tau_bench/gpt-4o-airline.a.json"

    assert code_of("import", "auto", BURR, tau, "--store", tmp_path, "--json") == 0

    burr, *others = map(json.loads, capsys.readouterr().out.splitlines())
    assert {name: burr[name] for name in ("format", "events", "turns", "calls", "rejected")} == {
        "format": "burr",
        "events": 11,
        "turns": 1,
        "calls": 4,
        "rejected": 0,
    }
    assert [found["what"] for found in burr["findings"]] == ["span_never_closed", "reply_lost"]
    assert burr["unmapped"] == {"end_span of a step": 4, "state": 4}
    assert [run["format"] for run in others] == ["tau_bench"] * 3
    assert Path(burr["trace"]) == tmp_path / "runs" / f"{burr['run_id']}.jsonl"


def test_a_file_of_no_format_is_2_in_one_line_and_others_are_imported(
    tmp_path: Path, capsys: Capture
) -> None:
    letter = tmp_path / "letter"
    letter.write_text("Dear Sir")

    assert code_of("import", "auto", letter, tmp_path / "nothing", BURR, "--store", tmp_path / "store") == 2

    said = capsys.readouterr()
    assert len(said.err.splitlines()) == 2
    assert "none of the known formats" in said.err
    assert said.out.startswith("burr-")


def test_an_imported_run_is_shown_and_can_t_be_taken_up(tmp_path: Path, capsys: Capture) -> None:
    code_of("import", "burr", BURR, "--store", tmp_path)
    capsys.readouterr()

    assert code_of("show", "last", "--store", tmp_path) == 0
    assert "exception in action decide_mode" in capsys.readouterr().out.splitlines()[0]
    assert code_of("show", "last", "--store", tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["actions"] == 4
    for arguments in (
        ("resume", "last"),
        ("fork", "last", "--at", "3"),
        ("judge", "last", "--set", "max_tool_calls=3"),
    ):
        assert code_of(*arguments, "--store", tmp_path) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_what_a_trace_holds_can_t_move_the_cursor(tmp_path: Path, capsys: Capture) -> None:
    evil = tmp_path / "evil.txt"
    evil.write_text(
        "Question: \x1b[2Jgone\nThought 1: t\nAction 1: Search[\x1b]0;x\x07]\nObservation 1: \x1b[31mred\n"
    )

    code_of("import", "auto", evil, "--store", tmp_path / "store")
    code_of("show", "last", "--store", tmp_path / "store")

    assert "\x1b" not in capsys.readouterr().out


def test_half_a_pair_of_surrogates_leaves_as_a_question_mark(tmp_path: Path, capsys: Capture) -> None:
    said = "\ud800".encode("unicode_escape").decode()
    script = tmp_path / "script.jsonl"
    call = {"name": "capability_call", "arguments": {"capability": "fs.read", "arguments": {"path": "X"}}}
    replies = [{"name": "capability_load", "arguments": {"names": ["fs.read"]}}, call]
    lines = [json.dumps({"text": json.dumps(reply)}).replace("X", said) for reply in replies]
    script.write_text("\n".join(lines))
    store = ("--store", tmp_path / "store")
    code_of("run", "read it", "--project", tmp_path, "--model", f"script:{script}", "--max-steps", 2, *store)
    capsys.readouterr()

    for form in ("--atif", "--otel", "--openai"):
        assert code_of("export", "last", form, "-", *store) == 0
        json.loads(capsys.readouterr().out)


def test_export_writes_each_format(tmp_path: Path, capsys: Capture) -> None:
    names = [tmp_path / name for name in ("a.json", "o.json", "m.json")]

    assert code_of("export", FIXTURE, "--atif", names[0], "--otel", names[1], "--openai", names[2]) == 0

    atif, otel, openai = (json.loads(name.read_text()) for name in names)
    assert atif["schema_version"] == "ATIF-v1.7"
    assert otel["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["name"] == "invoke_agent goal"
    assert openai[0]["role"] == "user"
    assert code_of("export", FIXTURE) == 2
    assert "--atif" in capsys.readouterr().err


class Collector(BaseHTTPRequestHandler):
    """Keeps what it is sent."""

    taken: ClassVar[list[tuple[str, str | None, Any]]] = []

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.taken.append((self.path, self.headers["x-key"], json.loads(content)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Not into the output of the test."""


def test_spans_are_sent_to_a_collector(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret")
    server = HTTPServer(("127.0.0.1", 0), Collector)
    Thread(target=server.serve_forever, daemon=True).start()

    assert code_of("export", FIXTURE, "--otel", f"http://127.0.0.1:{server.server_port}") == 0
    server.shutdown()
    server.server_close()

    ((path, key, tree),) = Collector.taken
    assert (path, key) == ("/v1/traces", "secret")
    assert tree["resourceSpans"]
    assert "secret" not in capsys.readouterr().err
    assert code_of("export", FIXTURE, "--otel", f"http://127.0.0.1:{server.server_port}") == 2
    assert capsys.readouterr().err.count("\n") == 1
