"""The request of every step of a tool-calling run is rebuilt from its log, digest and all."""

import json
from pathlib import Path

from stepfold import AgentHarness, tool
from stepfold.engine.cli.reading import fold_file
from stepfold.engine.cli.show import summary_of
from stepfold.engine.models.protocol import body
from stepfold.engine.runtime.requests import recorded_request
from stepfold.events.journal import read_log
from stepfold.events.store import Store
from stepfold.projections.outcome import outcome


@tool(idempotency="pure")
def double(number: int) -> int:
    """Twice a number."""
    return 2 * number


def recorded(folder: Path) -> Store:
    function = {"name": "double", "arguments": '{"number": 4}'}
    call = {"id": "a", "type": "function", "function": function}
    replies = [{"message": {"tool_calls": [call]}}, {"text": "eight"}]
    script = folder / "replies.jsonl"
    script.write_text("".join(json.dumps(reply) + "\n" for reply in replies))
    store = Store(folder / "store")
    AgentHarness(f"script:{script}", [double], store=store).invoke_sync(messages=["twice four?"])
    return store


def test_a_tool_calling_run_shows_what_its_model_was_sent(tmp_path: Path) -> None:
    store = recorded(tmp_path)
    events = [record.event for record in read_log(store.path_of(store.find("last"))).records]

    first, second = recorded_request(events, 1), recorded_request(events, 2)

    assert first is not None
    assert second is not None
    assert first.agrees
    assert second.agrees
    sent = body(second.request)
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "tool"]
    assert sent["messages"][2]["content"] == "8"
    assert [offered["function"]["name"] for offered in sent["tools"]] == ["double"]


def test_a_tool_calling_run_has_an_outcome_and_a_row_of_its_own(tmp_path: Path) -> None:
    store = recorded(tmp_path)
    run_id = store.find("last")

    result = outcome(fold_file(store.path_of(run_id)))
    row = summary_of(store, run_id)

    assert (result.finish, result.actions, result.summary) == ("completed", 1, "eight")
    assert "tool a: 8" in result.transcript
    assert (row["goal"], row["actions"]) == ("twice four?", 1)
