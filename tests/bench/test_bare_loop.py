"""The loop that ours is compared with: it calls, tells errors as text, and ends when the model says so."""

import asyncio
import json
from pathlib import Path

import pytest

from stepfold.engine.capabilities.context import CallContext
from stepfold.engine.capabilities.workspace import Workspace
from stepfold.engine.models.scripted import Script
from stepfold.events.configuration import Generation
from tests.bench import bare_loop

READ = '{"tool": "fs.read", "arguments": {"path": "a.txt"}}'
DONE = '{"tool": "done", "arguments": {"summary": "read"}}'


def run(project: Path, *said: str, steps: int = 9) -> bare_loop.Replies:
    script = Script.parse(b"\n".join(json.dumps({"text": text}).encode() for text in said))
    context = CallContext(workspace=Workspace(project), sandbox="")
    return asyncio.run(bare_loop.run(script, "read a.txt", context, Generation(), steps))


def test_it_calls_until_the_model_says_that_it_is_done(tmp_path: Path) -> None:
    found = run(tmp_path, READ, f"Now I am done: {DONE}", READ)

    assert (found.ended, found.valid, len(found.texts)) == ("done", 2, 2)


def test_what_is_no_call_is_answered_and_uses_up_a_step(tmp_path: Path) -> None:
    found = run(tmp_path, "I would read the file.", '{"tool": "fs.mend", "arguments": {}}', READ, steps=3)

    assert (found.ended, found.valid, len(found.texts)) == ("step_cap", 1, 3)


@pytest.mark.parametrize(
    "text", ["", "no object", '{"arguments": {}}', '{"tool": "fs.read", "arguments": []}', "{"]
)
def test_what_is_no_call_is_none(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        bare_loop.called(text)


def test_a_call_counts_wherever_it_stands() -> None:
    assert bare_loop.called(f"Sure!\n```json\n{READ}\n```") == ("fs.read", {"path": "a.txt"})
