"""Model servers that fail: the run ends `failed`, exit code 1, its log whole and replayable."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.engine.cli.projects import (
    FINISH,
    GOAL,
    LOAD_FILES,
    REPAIR,
    UNIT,
    VERIFY,
    Project,
    Result,
    action,
    call,
    is_whole,
)

Answer = tuple[int, str, bytes]


class Endpoint:
    """An HTTP server of this machine: request n gets answer n, the last one again and again."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                endpoint.asked.append(json.loads(self.rfile.read(length)))
                endpoint.headers.append({name.lower(): value for name, value in self.headers.items()})
                status, kind, content = endpoint.answers[min(len(endpoint.asked), len(endpoint.answers)) - 1]
                self._send(status, kind, content)

            def do_GET(self) -> None:
                self._send(200, "application/json", b'{"data": [{"id": "small"}, {"id": "large"}]}')

            def _send(self, status: int, kind: str, content: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing on stderr."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        threading.Thread(target=lambda: self._http.serve_forever(poll_interval=0.01), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    served = Endpoint()
    yield served
    served.close()


def chat(text: str) -> Answer:
    """An answer as a server gives it."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    body = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "small",
        "choices": [choice],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
    return 200, "application/json", json.dumps(body).encode()


def trouble(status: int, message: str) -> Answer:
    return status, "application/json", json.dumps({"error": {"message": message}}).encode()


def run(project: Project, url: str) -> Result:
    return project.stepfold("run", GOAL, "--project", project.folder, "--model", f"{url}#small", "--json")


def fails(project: Project, result: Result) -> str:
    """Check how a run ended that had no model, and give what it says of the model."""
    assert result.code == 1, result
    assert (result.json["finish"], result.json["status"]) == ("failed", "failed")
    assert result.err.startswith("stepfold: ")
    assert result.err.count("\n") == 1
    assert is_whole(project.trace)
    assert project.events()[-1]["kind"] == "RunFinished"
    assert project.ask("replay", project.trace).code == 0
    detail: str = project.events("ModelErred")[-1]["detail"]
    assert "\n" not in detail
    return detail


def test_a_server_that_answers_well(project: Project, endpoint: Endpoint) -> None:
    endpoint.answers = [chat(reply) for reply in (LOAD_FILES, REPAIR, VERIFY, FINISH)]

    result = run(project, endpoint.url)

    assert (result.code, result.json["finish"]) == (0, "completed")
    assert result.json["usage"] == {
        "model_calls": 4,
        "input_tokens": 28,
        "output_tokens": 12,
        "total_tokens": 40,
        "estimated": False,
    }
    rebuilt = project.ask("prompt", "last", "--step", 4, "--json").json["request"]
    assert rebuilt["messages"] == endpoint.asked[3]["messages"]


def test_a_server_that_is_down(project: Project) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"

    assert url in fails(project, run(project, url))
    assert len(project.events("RetryScheduled")) == 2


def test_a_key_that_is_refused(project: Project, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    endpoint.answers = [trouble(401, "Incorrect API key provided")]

    detail = fails(project, run(project, endpoint.url))

    assert "OPENAI_API_KEY" in detail
    assert b"sk-very-secret" not in project.trace.read_bytes()
    assert len(endpoint.asked) == 1


def test_a_model_that_is_not_there(project: Project, endpoint: Endpoint) -> None:
    endpoint.answers = [trouble(404, "model 'small' not found")]

    detail = fails(project, run(project, endpoint.url))

    assert "small" in detail
    assert len(endpoint.asked) == 1


def test_a_server_that_breaks_is_asked_again_and_then_given_up(project: Project, endpoint: Endpoint) -> None:
    endpoint.answers = [trouble(500, "out of memory")]

    assert "500" in fails(project, run(project, endpoint.url))
    assert len(endpoint.asked) == 3


def test_a_server_that_recovers_costs_no_step(project: Project, endpoint: Endpoint) -> None:
    endpoint.answers = [
        trouble(503, "loading"),
        *(chat(text) for text in (LOAD_FILES, REPAIR, VERIFY, FINISH)),
    ]

    result = run(project, endpoint.url)

    assert (result.code, result.json["steps"]) == (0, 4)
    assert project.ask("replay", project.trace).code == 0


HTML = b"<!doctype html><title>It works!</title><h1>Welcome to nginx</h1>"


@pytest.mark.parametrize(
    "answer", [(200, "text/html", HTML), (200, "application/json", b"{}"), (200, "", b"")]
)
def test_a_server_that_is_no_model(project: Project, endpoint: Endpoint, answer: Answer) -> None:
    endpoint.answers = [answer]

    assert endpoint.url in fails(project, run(project, endpoint.url))


def test_a_model_is_taken_from_the_configuration(project: Project, endpoint: Endpoint) -> None:
    project.configure(f'[model]\nbase_url = "{endpoint.url}"\nname = "large"\n')
    endpoint.answers = [chat(FINISH)]

    project.stepfold("run", GOAL, "--project", project.folder, "--max-steps", 1)

    assert endpoint.asked[0]["model"] == "large"


def test_a_server_with_several_models_wants_a_name(project: Project, endpoint: Endpoint) -> None:
    result = project.stepfold("run", GOAL, "--project", project.folder, "--model", endpoint.url)

    result.is_refused("small, large", f"{endpoint.url}#NAME")


def test_without_any_model_a_person_reads_what_to_start(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    without: Callable[[], tuple[()]] = tuple
    monkeypatch.setattr("stepfold.engine.models.discovery.find_local", without)

    result = project.stepfold("run", GOAL, "--project", project.folder)

    result.is_refused("no model", "ollama serve", "stepfold demo")


NORTH = json.dumps({"name": "lighthouse", "arguments": {"side": "north"}})


def constrained(endpoint: Endpoint) -> str:
    model = f'base_url = "{endpoint.url}"\nname = "small"\nresponse_format = "actions"'
    return f"{UNIT}[model]\n{model}\n"


@pytest.mark.parametrize(("hellos", "form"), [([], "union"), (["Hello!"], "grammar")])
def test_a_constrained_run_says_how_it_was_constrained_and_what_was_sent(
    project: Project, endpoint: Endpoint, hellos: list[str], form: str
) -> None:
    project.configure(
        f'{UNIT}[model]\nbase_url = "{endpoint.url}"\nname = "small"\nresponse_format = "actions"\n'
    )
    said = [*hellos, NORTH, LOAD_FILES, REPAIR, VERIFY, FINISH]
    endpoint.answers = [chat(text) for text in said]

    result = project.stepfold("run", GOAL, "--project", project.folder, "--json")

    assert (result.code, result.json["usage"]["model_calls"]) == (0, 4)
    assert [event["form"] for event in project.events("ConstraintProbed")] == [form]
    assert project.ask("replay", "last").text.startswith("identical")
    sent = endpoint.asked[len(hellos) + 1 :]
    for step, body in enumerate(sent, 1):
        rebuilt = project.ask("prompt", "last", "--step", step, "--json").json["request"]
        assert rebuilt == body
    asked = [json.dumps(body.get("response_format") or body["grammar"]) for body in sent]
    # What is loaded may be called, and nothing else.
    assert "capability_call" not in asked[0]
    assert "fs.write" in asked[1] and "capability_call" in asked[1]
    assert asked[1] == asked[2]
    # Before the checks pass they may be run, and after it the run may be finished.
    assert ["verify" in asked[2], "finish" in asked[2]] == [True, False]
    assert ["verify" in asked[3], "finish" in asked[3]] == [False, True]


def streamed(text: str) -> Answer:
    """The same in pieces: one a character, then the usage."""
    pieces = [{"choices": [{"index": 0, "delta": {"content": letter}}]} for letter in text]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}
    told = [
        {"id": "x", "object": "chat.completion.chunk", "model": "small", **one}
        for one in (*pieces, end, usage)
    ]
    lines = [f"data: {json.dumps(one)}\n\n" for one in told]
    return 200, "text/event-stream", "".join([*lines, "data: [DONE]\n\n"]).encode()


def test_a_run_asks_for_pieces_where_the_settings_say_so_and_keeps_when_the_first_came(
    project: Project, endpoint: Endpoint
) -> None:
    project.configure(f'{UNIT}[model]\nbase_url = "{endpoint.url}"\nname = "small"\nstream = true\n')
    endpoint.answers = [streamed(text) for text in (LOAD_FILES, REPAIR, VERIFY, FINISH)]

    result = project.stepfold("run", GOAL, "--project", project.folder, "--json")

    assert (result.code, result.json["usage"]["output_tokens"]) == (0, 12)
    assert [body["stream"] for body in endpoint.asked] == [True] * 4
    replies = project.events("ModelReplied")
    assert [reply["text"] for reply in replies] == [LOAD_FILES, REPAIR, VERIFY, FINISH]
    assert all(reply["streamed"] and reply["first_token"] > 0 for reply in replies)
    assert project.ask("replay", "last").text.startswith("identical")


def paths_of(body: dict[str, Any], capability: str) -> list[str] | None:
    """Which paths a capability was offered with, in a request under `union`."""
    for shape in body["response_format"]["json_schema"]["schema"]["anyOf"]:
        call = shape["properties"]["arguments"]["properties"]
        if call.get("capability", {}).get("enum") == [capability]:
            found: list[str] | None = call["arguments"]["properties"]["path"].get("enum")
            return found
    return None


def test_a_constrained_model_can_name_the_files_that_are_there_and_those_it_makes(
    project: Project, endpoint: Endpoint
) -> None:
    project.configure(
        f'{UNIT}[loop]\npreload = ["fs.read", "fs.write", "shell.run"]\n'
        f'[model]\nbase_url = "{endpoint.url}"\nname = "small"\nresponse_format = "actions"\n'
    )
    make = call("shell.run", command="mkdir made && echo one > made/one.txt && rm calc.py && touch .env")
    ask = action("ask_user", question="go on?")
    endpoint.answers = [chat(text) for text in (NORTH, make, ask, NORTH, ask)]
    project.stepfold("run", GOAL, "--project", project.folder)
    first, second = (paths_of(body, "fs.read") for body in endpoint.asked[1:])
    (project.folder / "made" / "one.txt").unlink()
    (project.folder / "by_hand.txt").write_text("while nobody was at work")

    result = project.stepfold("resume", "last", "--answer", "yes", "--project", project.folder)

    assert result.code == 5
    assert first == ["calc.py", "stepfold.toml", "test_calc.py"]
    assert second == [".env", "made/one.txt", "stepfold.toml", "test_calc.py"]
    assert paths_of(endpoint.asked[-1], "fs.read") == [".env", "by_hand.txt", "stepfold.toml", "test_calc.py"]
    told = [(event.get("files"), event.get("gone")) for event in project.events("ProjectListed")]
    assert told == [
        (first, None),
        ([".env", "made/one.txt"], ["calc.py"]),
        (["by_hand.txt"], ["made/one.txt"]),
    ]
    shown = [
        body["messages"][0]["content"].rpartition("\n")[2] for body in (endpoint.asked[1], endpoint.asked[-1])
    ]
    assert shown == ["Files at the start: calc.py, stepfold.toml, test_calc.py"] * 2
    assert project.ask("replay", "last").text.startswith("identical")


def test_a_server_that_keeps_to_no_constraint_is_worked_with_all_the_same(
    project: Project, endpoint: Endpoint
) -> None:
    project.configure(
        f'{UNIT}[model]\nbase_url = "{endpoint.url}"\nname = "small"\nresponse_format = "actions"\n'
    )
    endpoint.answers = [chat(text) for text in (*["Hello!"] * 3, LOAD_FILES, REPAIR, VERIFY, FINISH)]

    result = project.stepfold("run", GOAL, "--project", project.folder, "--json")

    assert result.code == 0
    assert [event["form"] for event in project.events("ConstraintProbed")] == ["none"]
    assert "response_format" not in endpoint.asked[-1]
