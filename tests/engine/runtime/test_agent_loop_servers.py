"""Goal runs with a real MCP server: its tools pass the gates of all tools, and replay needs no server."""

import sys
from pathlib import Path
from typing import Any

import pytest

from stepfold import replay
from stepfold.engine.capabilities.servers import ServerSpec
from stepfold.events.configuration import Rule
from stepfold.events.journal import read_log
from stepfold.events.vocabulary import ToolRejected, ToolReturned, ToolsListed
from stepfold.projections.outcome import LoopOutcome
from tests.engine.runtime.test_agent_loop import loop_on
from tests.house import FINISH, action, call, load

PROGRAM = Path(__file__).parents[1] / "capabilities" / "mcp_server.py"
HOUSE = ServerSpec(
    name="house",
    command=sys.executable,
    args=(str(PROGRAM),),
    env=(("HOUSE_KEY", "$HOUSE_TOKEN"),),
    contained=False,
)
NAMES = ("echo", "change", "die", "hang", "environment")
SEARCH = action("capability_search", query="say a text again")


def ran(folder: Path, *replies: str, **more: Any) -> tuple[LoopOutcome, list[Any], bytes]:
    loop = loop_on(folder, *replies, checks=(), max_steps=len(replies), servers=(HOUSE,), **more)
    outcome = loop.run("use the house")
    path = folder / ".stepfold" / "runs" / f"{outcome.run_id}.jsonl"
    assert replay(path).verdict == "identical"
    return outcome, [record.event for record in read_log(path).records], path.read_bytes()


def of(events: list[Any], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOUSE_TOKEN", "very-secret-value")


def test_the_tools_of_a_server_pass_every_gate_and_no_secret_is_recorded(tmp_path: Path) -> None:
    outcome, events, log = ran(
        tmp_path,
        SEARCH,
        call("mcp.house.echo", text="ab"),
        load(*(f"mcp.house.{name}" for name in NAMES)),
        call("mcp.house.echo", word="ab"),
        call("mcp_house_echo", text="ab"),
        call("mcp.house.environment"),
        call("mcp.house.hang"),
        call("mcp.house.change"),
        call("mcp.house.echo", text="ab"),
        FINISH,
        tool_policy=(Rule("deny", "mcp.house.h*"),),
    )

    assert outcome.finish == "completed"
    assert [(event.name, event.hop) for event in of(events, ToolRejected)] == [
        ("mcp.house.echo", "gate"),
        ("mcp.house.echo", "schema"),
        ("mcp.house.hang", "policy"),
        ("mcp.house.echo", "dispatch"),
    ]
    assert next(event.content for event in of(events, ToolReturned)) == "ab"
    assert len(of(events, ToolsListed)) == 2
    assert b"very-secret-value" not in log
    assert b"HOUSE_KEY=$HOUSE_TOKEN" in log
    assert "mcp.house.echo: Say a text again." in outcome.transcript


def test_a_server_that_dies_is_an_observation_and_the_run_goes_on(tmp_path: Path) -> None:
    outcome, events, _ = ran(
        tmp_path, load("mcp.house.die"), call("mcp.house.die"), call("mcp.house.die"), FINISH
    )

    assert outcome.finish == "completed"
    assert [event.error for event in of(events, ToolReturned)] == ["ServerError"]
    assert of(events, ToolsListed)[-1].tools == ()
    assert [event.hop for event in of(events, ToolRejected)] == ["dispatch"]


def test_a_resumed_run_lists_the_tools_of_its_new_life(tmp_path: Path) -> None:
    asks = action("ask_user", question="which text?")
    outcome, _, _ = ran(tmp_path, load("mcp.house.echo"), asks)
    loop = loop_on(
        tmp_path,
        *("", "", call("mcp.house.echo", text="ab"), FINISH),
        checks=(),
        servers=(HOUSE,),
    )
    path = tmp_path / ".stepfold" / "runs" / f"{outcome.run_id}.jsonl"
    # The run was started with two steps: a third one needs its cap raised, as a fork has it.
    resumed = loop.fork(path, at=1, changes=["loop.max_steps=4"])

    forked = tmp_path / ".stepfold" / "runs" / f"{resumed.run_id}.jsonl"
    assert replay(forked).verdict == "identical"
    assert resumed.finish == "awaiting_user"
    answered = loop.resume(resumed.run_id, answer="ab")
    assert answered.finish == "completed"
    events = [record.event for record in read_log(forked).records]
    assert [event.content for event in of(events, ToolReturned)] == ["ab"]
    assert replay(forked).verdict == "identical"


def test_without_the_extra_the_run_goes_on_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)

    outcome, events, _ = ran(tmp_path, FINISH)

    assert outcome.finish == "completed"
    assert "pip install 'stepfold[mcp]'" in of(events, ToolsListed)[0].error


def test_the_servers_of_a_chat_are_there_in_every_turn(tmp_path: Path) -> None:
    loop = loop_on(tmp_path, FINISH, FINISH, FINISH, checks=(), servers=(HOUSE,))

    with loop.chat() as chat:
        for words in ("hi", "ho", "ha"):
            chat.say(words)

    events = [record.event for record in read_log(loop.store.path_of(chat.run_id)).records]
    listed = of(events, ToolsListed)
    assert [(event.error, len(event.tools) > 5) for event in listed] == [("", True)] * 3
