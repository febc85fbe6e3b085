"""Workers: runs of their own that a run dispatches, waits for, pays for, and takes along when it ends."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepfold.engine.models.protocol import Request
from stepfold.engine.runtime.agent_loop import AgentLoop
from stepfold.engine.runtime.replay import replay
from stepfold.events.configuration import CheckSpec
from stepfold.events.journal import read_log
from stepfold.events.vocabulary import (
    BLANK,
    CancelRequested,
    ModelReplied,
    RunFinished,
)
from stepfold.projections.outcome import LoopOutcome
from stepfold.projections.run import fold
from tests.house import ASK, FINISH, VERIFY, action, call, load

GOAL = "count it all"


class ByGoal:
    """A model that answers each run by its goal; it meets whoever it is told to before it answers."""

    name = "by goal"
    reads_messages = True

    def __init__(self, said: Mapping[str, Sequence[str]], together: Sequence[str] = ()) -> None:
        self._said = said
        self._together = together
        self._met: set[str] = set()
        self._all_there: asyncio.Event | None = None
        self.asked: Counter[str] = Counter()
        self.halted: set[str] = set()

    async def reply(self, request: Request) -> ModelReplied:
        """The reply of this run's n-th call."""
        goal = next(message.content for message in request.messages if message.role == "user")
        self.asked[goal] += 1
        if goal in self.halted:
            await asyncio.Event().wait()
        if goal in self._together:
            self._all_there = self._all_there or asyncio.Event()
            self._met.add(goal)
            if self._met == set(self._together):
                self._all_there.set()
            await asyncio.wait_for(self._all_there.wait(), 10)
        return ModelReplied(*BLANK, text=self._said[goal][request.call - 1], input_tokens=10, output_tokens=2)


def dispatch(task: str, **more: str) -> str:
    return action("worker_dispatch", task=task, **more)


def loop_on(folder: Path, model: Any, **settings: Any) -> AgentLoop:
    chosen = {"worker_slots": 1, "checks": (), "sandbox": "none", **settings}
    return AgentLoop(model=model, project=folder, **chosen)


def logs_of(loop: AgentLoop) -> dict[str, list[Any]]:
    """The events of all runs, by goal."""
    logs = [[r.event for r in read_log(path).records] for path in sorted(loop.store.runs_folder.iterdir())]
    return {log[0].config.goal: log for log in logs}


def all_replay(loop: AgentLoop) -> bool:
    return all(replay(path).verdict == "identical" for path in loop.store.runs_folder.iterdir())


def answer(outcome: LoopOutcome, call_id: str) -> str:
    """What the transcript says below an action, up to the next."""
    _, _, rest = outcome.transcript.partition(f"{call_id} worker_dispatch")
    return rest.partition("\ncall_")[0]


def test_a_worker_is_a_run_of_its_own_and_its_outcome_the_observation(tmp_path: Path) -> None:
    model = ByGoal({GOAL: [dispatch("part"), FINISH], "part": [action("finish", summary="seven of them")]})
    loop = loop_on(tmp_path, model)

    outcome = loop.run(GOAL)

    parent, child = logs_of(loop)[GOAL], logs_of(loop)["part"]
    assert outcome.finish == "completed"
    assert "has finished: seven of them" in answer(outcome, "call_1")
    assert (child[0].parent, child[0].parent_call) == (parent[0].run_id, "call_1")
    assert child[0].run_id.startswith(f"{parent[0].run_id}.1.")
    assert (outcome.usage.model_calls, outcome.usage.input_tokens, outcome.usage.output_tokens) == (3, 30, 6)
    assert all_replay(loop)


def test_workers_run_beside_each_other_while_slots_are_free(tmp_path: Path) -> None:
    # Each waits until both have been asked: one after the other they would wait for ever.
    model = ByGoal(
        {GOAL: [dispatch("a"), dispatch("b"), FINISH], "a": [FINISH], "b": [FINISH]}, together=("a", "b")
    )
    loop = loop_on(tmp_path, model, worker_slots=2)

    outcome = loop.run(GOAL)

    assert outcome.finish == "completed"
    assert outcome.transcript.count("has finished") == 2
    assert all_replay(loop)


def test_what_judges_the_project_waits_for_the_workers(tmp_path: Path) -> None:
    there = CheckSpec("there", "test -e made")
    make = call("fs.write", path="made", content="x")
    said = {GOAL: [dispatch("make"), FINISH, VERIFY, FINISH], "make": [load("fs.write"), make, FINISH]}
    loop = loop_on(tmp_path, ByGoal(said), worker_slots=2, checks=(there,))

    outcome = loop.run(GOAL)

    lines = outcome.transcript.splitlines()
    refused = next(n for n, line in enumerate(lines) if line.startswith("finish rejected"))
    assert any("has finished" in line for line in lines[:refused])
    assert (outcome.finish, outcome.steps) == ("completed", 4)


def test_a_worker_makes_the_evidence_stale(tmp_path: Path) -> None:
    passes = CheckSpec("passes", "true")
    said = {GOAL: [VERIFY, dispatch("part"), FINISH, VERIFY, FINISH], "part": [FINISH]}

    outcome = loop_on(tmp_path, ByGoal(said), checks=(passes,)).run(GOAL)

    assert "finish rejected; unmet checks: passes" in outcome.transcript
    assert outcome.finish == "completed"


@pytest.mark.parametrize(("depth", "runs"), [(1, 2), (2, 3)])
def test_workers_go_only_so_deep(tmp_path: Path, depth: int, runs: int) -> None:
    script = tmp_path / "same.jsonl"
    script.write_text("".join(json.dumps({"text": text}) + "\n" for text in (dispatch("deeper"), FINISH)))
    loop = loop_on(tmp_path, f"script:{script}", worker_depth=depth)

    outcome = loop.run(GOAL)

    assert outcome.finish == "completed"
    assert len(list(loop.store.runs_folder.iterdir())) == runs
    deepest = max(loop.store.runs_folder.iterdir(), key=lambda path: len(path.name))
    assert f"workers go {depth} deep" in deepest.read_text()


def test_a_worker_that_asks_hands_its_question_up(tmp_path: Path) -> None:
    outcome = loop_on(tmp_path, ByGoal({GOAL: [dispatch("part"), FINISH], "part": [ASK]})).run(GOAL)

    assert "asks: which parser?" in answer(outcome, "call_1")


def test_a_worker_whose_model_fails_is_a_failed_call(tmp_path: Path) -> None:
    outcome = loop_on(tmp_path, ByGoal({GOAL: [dispatch("part"), FINISH], "part": []})).run(GOAL)

    assert "worker_dispatch failed (WorkerFailed)" in answer(outcome, "call_1")
    assert outcome.finish == "completed"


def test_a_profile_that_is_none_is_refused_with_those_there_are(tmp_path: Path) -> None:
    said = {GOAL: [dispatch("part", profile="wizard"), FINISH]}

    outcome = loop_on(tmp_path, ByGoal(said)).run(GOAL)

    assert "there is no profile 'wizard'; there are: " in answer(outcome, "call_1")


def cut_off(loop: AgentLoop, model: ByGoal, goal: str) -> None:
    """Let the run go until its worker waits for ever, and cut its task off, as a dying process would."""

    async def run() -> None:
        task = asyncio.create_task(loop.run_async(GOAL, run_id="root"))
        while not model.asked[goal]:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


def test_a_parent_that_is_taken_up_again_goes_on_with_its_worker(tmp_path: Path) -> None:
    make = call("fs.write", path="made", content="x")
    model = ByGoal({GOAL: [dispatch("part"), FINISH], "part": [load("fs.write"), make, FINISH]})
    model.halted = {"part"}
    loop = loop_on(tmp_path, model)
    cut_off(loop, model, "part")
    model.halted = set()

    outcome = loop.resume("last")

    assert (outcome.run_id, outcome.finish) == ("root", "completed")
    assert len(list(loop.store.runs_folder.iterdir())) == 2
    assert model.asked == {GOAL: 2, "part": 4}
    assert all_replay(loop)


def test_a_worker_that_had_ended_is_not_run_again(tmp_path: Path) -> None:
    model = ByGoal({GOAL: [dispatch("part"), FINISH], "part": [action("finish", summary="seven")]})
    loop = loop_on(tmp_path, model)
    loop.run(GOAL, run_id="root")
    trace = loop.store.path_of("root")
    lines = trace.read_bytes().splitlines(keepends=True)
    landing = next(n for n, line in enumerate(lines) if b'"kind":"ToolReturned"' in line)
    trace.write_bytes(b"".join(lines[:landing]))

    outcome = loop.resume("root")

    assert "has finished: seven" in answer(outcome, "call_1")
    assert model.asked["part"] == 1
    assert not [event for event in logs_of(loop)[GOAL] if type(event).__name__ == "EffectLost"]


def test_what_a_worker_has_cost_is_its_parents_too_when_it_is_given_up(tmp_path: Path) -> None:
    model = ByGoal({GOAL: [dispatch("a")], "a": [action("capability_search", query="x"), FINISH]})
    loop = loop_on(tmp_path, model)

    async def run() -> LoopOutcome:
        effects = loop._effects("root")
        running = asyncio.create_task(loop._run(GOAL, effects))
        while model.asked["a"] < 1:
            await asyncio.sleep(0)
        model.halted = {"a"}
        while model.asked["a"] < 2:
            await asyncio.sleep(0)
        effects.push(CancelRequested(*BLANK, reason="SIGINT"))
        return await running

    outcome = asyncio.run(run())

    usage = {goal: fold(log).usage for goal, log in logs_of(loop).items()}
    assert outcome.finish == "cancelled"
    assert usage["a"].total_tokens > 0
    assert usage[GOAL].model_calls == 2
    own = sum(
        event.input_tokens + event.output_tokens
        for event in logs_of(loop)[GOAL]
        if isinstance(event, ModelReplied)
    )
    assert outcome.usage.total_tokens == usage[GOAL].total_tokens == own + usage["a"].total_tokens
    assert all_replay(loop)


def test_a_cancel_goes_down_to_the_workers(tmp_path: Path) -> None:
    model = ByGoal({GOAL: [dispatch("a"), dispatch("b")], "a": [FINISH], "b": [FINISH]})
    model.halted = {"a", "b"}
    told: list[Any] = []
    loop = loop_on(tmp_path, model, worker_slots=2, watch=told.append)

    async def run() -> LoopOutcome:
        effects = loop._effects("root")
        running = asyncio.create_task(loop._run(GOAL, effects))
        while model.asked["a"] + model.asked["b"] < 2:
            await asyncio.sleep(0.01)
        effects.push(CancelRequested(*BLANK, reason="SIGINT"))
        return await running

    outcome = asyncio.run(run())

    assert outcome.finish == "cancelled"
    ends = {goal: log[-1] for goal, log in logs_of(loop).items()}
    assert set(ends) == {GOAL, "a", "b"}
    assert {end.status for end in ends.values() if isinstance(end, RunFinished)} == {"cancelled"}
    assert all(isinstance(end, RunFinished) for end in ends.values())
    assert all_replay(loop)
