"""`AgentLoop` as a library: its defaults, its outcome, asyncio, a model of one's own, one that breaks."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from stepfold import AgentLoop, open_store, replay
from stepfold.engine.models.protocol import Request
from stepfold.engine.models.reply import bare_reply
from stepfold.engine.models.scripted import Script
from stepfold.engine.runtime.reopen import CannotResume
from stepfold.events.configuration import CheckSpec
from stepfold.events.journal import read_log
from stepfold.events.store import StoreError
from stepfold.events.vocabulary import ModelReplied, RunStarted
from stepfold.projections.outcome import LoopOutcome
from tests.house import ASK, FINISH, LOAD, PROSE, VERIFY, action, call, load

THERE = CheckSpec("there", "test -f made")
MAKE = call("fs.write", path="made", content="")
ACHIEVES = (load("fs.write"), MAKE, VERIFY, FINISH)


def script(*replies: str) -> Script:
    return Script.parse("".join(json.dumps({"text": reply}) + "\n" for reply in replies).encode())


def loop_on(folder: Path, *replies: str, **more: Any) -> AgentLoop:
    return AgentLoop(model=script(*replies), project=folder, **{"checks": [THERE], **more})


def started(folder: Path) -> Any:
    """The first event of the only run."""
    (trace,) = (folder / ".stepfold" / "runs").glob("*.jsonl")
    first = read_log(trace).records[0].event
    assert isinstance(first, RunStarted)
    return first.config


def test_a_goal_is_reached_and_its_outcome_says_how(tmp_path: Path) -> None:
    outcome = loop_on(tmp_path, *ACHIEVES).run("make the file")

    assert isinstance(outcome, LoopOutcome)
    assert (outcome.finish, outcome.status, outcome.steps, outcome.actions) == (
        "completed",
        "completed",
        4,
        4,
    )
    assert [(item.check_id, item.passed) for item in outcome.evidence] == [("there", True)]
    assert "finish accepted: all done" in outcome.transcript
    assert replay(tmp_path / ".stepfold" / "runs" / f"{outcome.run_id}.jsonl").verdict == "identical"


def test_the_defaults_are_the_conservative_ones(tmp_path: Path) -> None:
    AgentLoop(model=script(PROSE), project=tmp_path, max_steps=1).run("anything")

    config = started(tmp_path)
    assert (config.model_request_timeout, config.worker_slots, config.context_window) == (120.0, 0, 262_000)
    assert (config.verification, config.checks) == ("commands", ())
    assert AgentLoop(model=script(), project=tmp_path)._config.max_steps == 12


def test_without_checks_of_its_own_a_loop_takes_those_that_the_project_shows(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("check:\n\ttrue\n")

    outcome = AgentLoop(model=script(VERIFY, FINISH), project=tmp_path).run("anything")

    assert (outcome.finish, [item.check_id for item in outcome.evidence]) == ("completed", ["make-check"])


def test_manual_verification_has_no_check_that_could_run(tmp_path: Path) -> None:
    outcome = loop_on(tmp_path, VERIFY, VERIFY, verification="manual").run("anything")

    assert (outcome.finish, outcome.status) == ("missing_evidence", "missing_evidence")
    assert outcome.evidence == ()


def test_the_same_script_makes_the_same_decisions(tmp_path: Path) -> None:
    logs = []
    for name in ("one", "two"):
        (tmp_path / name / "project").mkdir(parents=True)
        loop = loop_on(tmp_path / name / "project", *ACHIEVES, store=tmp_path / name / "store")
        outcome = loop.run("make the file", run_id="same")
        events = [json.loads(record.line) for record in read_log(loop.store.path_of(outcome.run_id)).records]
        for event in events:
            for passing in ("ts", "duration"):
                event.pop(passing, None)
        logs.append(events)

    assert logs[0] == logs[1]


def test_a_run_inside_an_event_loop(tmp_path: Path) -> None:
    loop = loop_on(tmp_path, *ACHIEVES)

    outcome = asyncio.run(loop.run_async("make the file"))

    assert outcome.finish == "completed"


def test_a_cancelled_task_leaves_a_whole_log_that_is_resumed(tmp_path: Path) -> None:
    slow = Script.parse(
        "".join(json.dumps({"text": text, "delay_ms": 50}) + "\n" for text in ACHIEVES).encode()
    )
    store = open_store(tmp_path / "store")
    loop = AgentLoop(model=slow, project=tmp_path, store=store, checks=[THERE])

    async def cut_off() -> None:
        task = asyncio.create_task(loop.run_async("make the file", run_id="cut"))
        while store.index("cut").count() < 12:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cut_off())
    before = store.path_of("cut").read_bytes()
    outcome = loop.resume("cut")

    assert outcome.finish == "completed"
    assert store.path_of("cut").read_bytes().startswith(before)
    assert replay(store.path_of("cut")).verdict == "identical"


def test_every_event_is_told_as_it_is_recorded(tmp_path: Path) -> None:
    told: list[Any] = []

    outcome = loop_on(tmp_path, FINISH, max_steps=1, watch=told.append).run("anything")

    log = read_log(tmp_path / ".stepfold" / "runs" / f"{outcome.run_id}.jsonl")
    assert told == [record.event for record in log.records]


def test_a_question_is_answered_by_resume_alone(tmp_path: Path) -> None:
    loop = loop_on(tmp_path, ASK, *ACHIEVES)
    asked = loop.run("make the file")

    assert asked.finish == "awaiting_user"
    assert loop.resume(asked.run_id) == asked
    done = loop.resume(asked.run_id, answer="the first")
    assert (done.finish, done.steps, done.run_id) == ("completed", 5, asked.run_id)


@pytest.mark.parametrize("answer", [None, "whatever"])
def test_what_has_ended_is_not_resumed(tmp_path: Path, answer: str | None) -> None:
    loop = loop_on(tmp_path, *ACHIEVES)
    outcome = loop.run("make the file")

    with pytest.raises(CannotResume, match=r"has ended \(completed\)"):
        loop.resume(outcome.run_id, answer=answer)


def test_a_run_that_never_was_is_not_resumed_and_leaves_nothing(tmp_path: Path) -> None:
    loop = loop_on(tmp_path, FINISH)

    with pytest.raises(StoreError, match="no run 'never-was'"):
        loop.resume("never-was")

    assert loop.store.run_ids() == []


def test_a_small_window_drops_old_turns_and_a_large_one_leaves_no_trace(tmp_path: Path) -> None:
    chatter = [action("capability_search", query=f"{number} " + "x" * 400) for number in range(8)]
    logs = {}
    for window in (900, 262_000):
        loop = loop_on(tmp_path, *chatter, max_steps=8, context_window=window, store=tmp_path / str(window))
        path = loop.store.path_of(loop.run("anything").run_id)
        logs[window] = [type(record.event).__name__ for record in read_log(path).records]
        assert replay(path).verdict == "identical"

    assert "ContextCompacted" in logs[900]
    assert [kind for kind in logs[900] if kind != "ContextCompacted"] == logs[262_000]


class Own:
    """A model of one's own: a name, and an answer to a request."""

    name = "own"

    def __init__(self) -> None:
        self.asked: list[Request] = []

    async def reply(self, request: Request) -> ModelReplied:
        self.asked.append(request)
        await asyncio.sleep(0)
        return bare_reply(FINISH)


def test_a_model_of_ones_own_gets_the_messages(tmp_path: Path) -> None:
    model = Own()

    outcome = AgentLoop(model=model, project=tmp_path, checks=()).run("say hello")

    assert outcome.finish == "completed"
    assert [message.role for message in model.asked[0].messages] == ["system", "user"]
    assert "say hello" in model.asked[0].messages[1].content


class Broken:
    """A model that breaks its promise never to raise."""

    name = "broken"

    def reply(self, request: Request) -> ModelReplied:
        raise ZeroDivisionError("in the\nadapter")


class Slow:
    """A model that never answers."""

    name = "slow"

    async def reply(self, request: Request) -> ModelReplied:
        await asyncio.sleep(3600)
        raise AssertionError


@pytest.mark.parametrize(
    ("model", "error"), [(Broken(), "ZeroDivisionError"), (Slow(), "timeout")], ids=["raises", "is silent"]
)
def test_a_model_that_fails_ends_the_run_and_not_the_process(tmp_path: Path, model: Any, error: str) -> None:
    loop = AgentLoop(model=model, project=tmp_path, checks=(), model_request_timeout=0.05)

    outcome = loop.run("anything")

    assert (outcome.finish, outcome.error) == ("failed", error)
    assert replay(loop.store.path_of(outcome.run_id)).verdict == "identical"


def test_a_loop_runs_one_goal_after_another(tmp_path: Path) -> None:
    loop = loop_on(tmp_path, LOAD, FINISH, max_steps=1)

    ids = {loop.run(goal).run_id for goal in ("one", "two", "three")}

    assert len(ids) == 3
    assert set(loop.store.run_ids()) == ids


def test_a_capability_that_there_is_not_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"loop\.preload has 'fs\.mend'; there are fs\.list, fs\.read"):
        AgentLoop(model=Script(()), project=tmp_path, preload=["fs.read", "fs.mend"])

    assert not list(tmp_path.iterdir())


def test_a_project_that_is_not_there_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="no folder"):
        AgentLoop(model=Script.parse(b'{"text": "x"}'), project=tmp_path / "nope")

    assert not (tmp_path / "nope").exists()


@pytest.mark.parametrize("goal", ["", " \n"])
def test_an_empty_goal_is_refused(tmp_path: Path, goal: str) -> None:
    loop = loop_on(tmp_path, FINISH)

    with pytest.raises(ValueError, match="the goal is empty"):
        loop.run(goal)

    assert loop.store.run_ids() == []
