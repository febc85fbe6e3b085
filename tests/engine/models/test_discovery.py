"""Servers that run on this machine are found by themselves, with the models they list."""

from typing import Any

import pytest

from stepfold.engine.models import discovery
from stepfold.engine.models.discovery import find_local, probe


def test_a_named_server_and_one_that_runs_here_are_found_in_this_order(
    server: Any, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.models = ["small", "large"]
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    nothing = f"http://127.0.0.1:{closed_port}/v1"
    monkeypatch.setattr(discovery, "LOCAL", (("Ollama", nothing), ("llama-server", server.url)))

    found = find_local(timeout=5)

    assert [(one.server, one.models, one.problem) for one in found] == [
        ("OPENAI_BASE_URL", ("small", "large"), ""),
        ("llama-server", ("small", "large"), ""),
    ]


def test_a_server_without_models_says_so(server: Any) -> None:
    found = probe("vLLM", server.url, timeout=5)

    assert found is not None
    assert found.problem == "answers, but lists no model"
