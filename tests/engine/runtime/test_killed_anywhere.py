"""A run killed in or between any of its writes is resumed: nothing recorded is lost or run twice."""

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from stepfold import AgentLoop, replay
from stepfold.engine.models.scripted import Script
from stepfold.events import vocabulary as v
from stepfold.events.configuration import CheckSpec
from stepfold.events.integrity import check
from stepfold.events.journal import read_log
from tests.engine.cli.projects import FINISH, VERIFY, call, load
from tests.engine.runtime.deaths import killed, killed_at_touch

COMMANDS = ("echo one >> ran", "echo two >> ran")
REPLIES = (
    load("fs.read", "fs.write", "shell.run"),
    call("shell.run", command=COMMANDS[0]),
    call("fs.write", path="calc.py", content="a + b\n"),
    call("fs.read", path="calc.py"),
    "prose",
    call("shell.run", command=COMMANDS[1]),
    VERIFY,
    FINISH,
)
EVENTS = 60
"""At least so many events are written by the run, and so many deaths are died."""

CHECK = CheckSpec("fixed", "grep -q 'a + b' calc.py")


LARGE = (load("fs.write"), *(call("fs.write", path="calc.py", content=f"{n} a + b\n" * 9000) for n in (1, 2)))
TEXTS = 2


def loop_in(project: Path, said: Sequence[str] = REPLIES) -> AgentLoop:
    replies = b"\n".join(json.dumps({"text": reply}).encode() for reply in said)
    return AgentLoop(
        model=Script.parse(replies), project=project, checks=(CHECK,), sandbox="none", memory=False
    )


def dies(project: Path, events: int, torn: float) -> bool:
    """Whether the first life came that far, in a project of its own."""
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir()
    return killed(lambda: loop_in(project).run("make a + b", run_id="r"), events, torn)


@pytest.mark.parametrize("torn", [0.0, 0.5], ids=["at its boundary", "half way"])
def test_a_run_killed_at_any_event_is_resumed_whole(tmp_path: Path, torn: float) -> None:
    project = tmp_path / "project"
    path = project / ".stepfold" / "runs" / "r.jsonl"
    events = 1
    while dies(project, events, torn):
        recorded = path.read_bytes()
        whole = recorded[: recorded.rfind(b"\n") + 1]

        outcome = loop_in(project).resume("r")

        assert (outcome.finish, outcome.steps) == ("completed", len(REPLIES))
        assert path.read_bytes().startswith(whole)
        _assert_sound(project, path)
        events += 1
    assert events >= EVENTS


def _assert_sound(project: Path, path: Path) -> None:
    events = [record.event for record in read_log(path).records]
    results = Counter(e.key for e in events if isinstance(e, v.ToolReturned | v.ToolErred | v.EffectLost))
    assert set(results.values()) <= {1}
    ran = Counter((project / "ran").read_text().split() if (project / "ran").exists() else ())
    lost = sum(isinstance(event, v.EffectLost) for event in events)
    assert max(ran.values(), default=0) <= 1
    # Not at all, where the process died between the intent and the command: the model is told.
    assert len(ran) + lost >= len(COMMANDS)
    assert replay(path).verdict == "identical"
    with loop_in(project).store as store:
        found = check(path, store.index("r").lines())
    assert found.verdict == "whole"
    assert found.store == "agrees" or found.store.startswith("lacks")


def test_a_run_killed_at_any_touch_of_its_large_texts_is_resumed_whole(tmp_path: Path) -> None:
    project = tmp_path / "project"
    path = project / ".stepfold" / "runs" / "r.jsonl"
    replies = (*LARGE, VERIFY, FINISH)

    def dies(touches: int) -> bool:
        shutil.rmtree(project, ignore_errors=True)
        project.mkdir()
        run = partial(loop_in(project, replies).run, "make a + b", run_id="r")
        return killed_at_touch(run, path.with_name("texts"), touches)

    touches = 1
    while dies(touches):
        recorded = path.read_bytes()

        outcome = loop_in(project, replies).resume("r")

        assert (outcome.finish, outcome.steps) == ("completed", len(replies))
        assert path.read_bytes().startswith(recorded)
        assert replay(path).verdict == "identical"
        # What a draft was left of is swept; a text whose line was never written lies there for the next.
        assert {len(text.name) for text in path.with_name("texts").iterdir()} == {64}
        touches += 1
    assert touches > TEXTS * 5
