"""Which constraint a server keeps to is found out by asking it, and never trusted."""

import asyncio
import json
from typing import Any

import pytest

from stepfold.engine.models.constraints import probed
from stepfold.engine.models.endpoint import Endpoint
from stepfold.engine.models.scripted import Script
from stepfold.events.configuration import Generation
from stepfold.events.vocabulary import ConstraintProbed

NORTH = {"name": "lighthouse", "arguments": {"side": "north"}}
MIXED = {"name": "lighthouse", "arguments": {"side": "south"}}


def form_of(body: dict[str, Any]) -> str:
    """Under which form a request asks."""
    if "grammar" in body:
        return "grammar"
    return "union" if "anyOf" in body["response_format"]["json_schema"]["schema"] else "nested"


def keeping(server: Any, *forms: str, says: Any = NORTH, refuses: bool = False) -> None:
    """A server that keeps to these forms alone; to others it answers as it likes, or with an error."""

    def behave(handler: Any) -> None:
        from tests.engine.models.conftest import send

        if form_of(server.asked[-1]) in forms:
            text = json.dumps(says)
        elif refuses:
            return send(handler, 400, b'{"error": {"message": "anyOf is not supported"}}')
        else:
            text = "Hello there!"
        message = {"message": {"content": text}, "finish_reason": "stop"}
        return send(handler, 200, json.dumps({"choices": [message]}).encode())

    server.behaviour = behave


def probe(server: Any) -> ConstraintProbed:
    async def once() -> ConstraintProbed:
        endpoint = Endpoint(server.url, "m", timeout=60)
        try:
            return await probed(endpoint, Generation(response_format="actions", temperature=0.0, seed=3))
        finally:
            await endpoint.close()

    return asyncio.run(once())


@pytest.mark.parametrize("refuses", [True, False])
@pytest.mark.parametrize(
    ("keeps", "form", "asked"),
    [
        (("union", "grammar", "nested"), "union", ["union"]),
        (("grammar", "nested"), "grammar", ["union", "grammar"]),
        (("nested",), "nested", ["union", "grammar", "nested"]),
    ],
)
def test_the_narrowest_form_that_a_server_keeps_to_is_taken(
    server: Any, keeps: tuple[str, ...], form: str, asked: list[str], refuses: bool
) -> None:
    keeping(server, *keeps, refuses=refuses)

    assert probe(server).form == form
    assert [form_of(body) for body in server.asked] == asked
    assert all(body["max_tokens"] == 60 and body["seed"] == 3 for body in server.asked)


def test_a_server_that_answers_200_and_ignores_it_is_not_trusted(server: Any) -> None:
    keeping(server)

    found = probe(server)

    assert found.form == "none"
    assert "as if there were none" in found.why


def test_a_server_that_mixes_up_a_union_keeps_to_none(server: Any) -> None:
    keeping(server, "union", "grammar", says=MIXED)

    assert probe(server).form == "none"


def test_in_the_nested_form_name_and_arguments_need_not_belong_together(server: Any) -> None:
    keeping(server, "nested", says=MIXED)

    assert probe(server).form == "nested"


def test_a_server_that_refuses_says_why(server: Any) -> None:
    keeping(server, refuses=True)

    assert "anyOf is not supported" in probe(server).why


def test_a_script_is_not_asked(tmp_path: Any) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text('{"text": "one"}\n')

    found = asyncio.run(probed(Script.load(str(path)), Generation(response_format="actions")))

    assert found.form == "none"
    assert "written in a file" in found.why
