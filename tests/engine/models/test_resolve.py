"""What `--model` may hold, and what answers on this machine."""

import pytest

from stepfold.engine.models import discovery
from stepfold.engine.models.discovery import Found, find_local, probe
from stepfold.engine.models.resolve import ModelSpecError, resolve


def test_a_script_and_a_url(tmp_path):
    script = tmp_path / "s.jsonl"
    script.write_text('{"text": "a"}\n')
    assert resolve(f"script:{script}").name == "script:s.jsonl"
    assert repr(resolve("http://127.0.0.1:8080#qwen")) == "Endpoint('http://127.0.0.1:8080/v1', 'qwen')"
    assert repr(resolve("https://h/api/v3#a/b:c")) == "Endpoint('https://h/api/v3', 'a/b:c')"


def test_a_url_without_a_name_means_the_only_model(server):
    server.models = ["only"]
    assert resolve(server.url).name == "only"
    server.models = ["one", "two"]
    with pytest.raises(ModelSpecError, match="one, two"):
        resolve(server.url)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("gpt-4", "write URL#NAME"),
        ("gpt-4", "trace:FILE$"),
        ("qwen:7b", "trace:FILE$"),
        ("localhost:8080", r"did you mean http://localhost:8080\?"),
        ("127.0.0.1:8080/v1#qwen", r"did you mean http://127\.0\.0\.1:8080/v1#qwen\?"),
        ("", "write URL#NAME"),
        ("script:", "names no file"),
        ("script:/none/such", "can't read the script"),
        ("trace:/none/such", "can't read the trace"),
        ("http://#m", "no host"),
        ("http://h:99999#m", "no host"),
        ("http://[::1#m", "no host"),
    ],
)
def test_a_spec_that_names_no_model_is_told_so(spec, says):
    with pytest.raises(ModelSpecError, match=says):
        resolve(spec)


def test_servers_that_answer_are_found_in_order(server, closed_port, monkeypatch):
    server.models = ["m"]
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{closed_port}/v1")
    monkeypatch.setattr(
        discovery, "LOCAL", (("here", server.url), ("gone", f"http://127.0.0.1:{closed_port}"))
    )
    assert find_local(timeout=5) == (Found("here", server.url, ("m",)),)


def test_a_server_that_lists_nothing_says_so(server):
    assert probe("here", server.url, timeout=5) == Found(
        "here", server.url, problem="answers, but lists no model"
    )
