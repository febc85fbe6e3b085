"""Forks of tool-calling runs: what is shared is the source's, the rest is live, and all of it replays."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stepfold.engine.runtime.changes import ChangeError
from stepfold.engine.runtime.fork import CannotFork
from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.middleware import Middleware
from stepfold.engine.runtime.replay import replay
from stepfold.engine.runtime.run_policy import ResponseFormat, RunConfig, RunPolicy
from stepfold.engine.runtime.sub_agents import sub_agent
from stepfold.events.chain import unsealed
from stepfold.events.configuration import Retry
from stepfold.events.journal import read_log
from stepfold.events.vocabulary import Message, ToolCall
from stepfold.projections.run import fold
from tests.harness_house import (
    Counted,
    Played,
    Scripted,
    Streaming,
    VirtualClock,
    calls,
    check,
    erred,
    play,
    settled,
    text,
)

BOTH = calls(("a", "left"), ("b", "right"))
ENDS = text("the end")
ANSWER = ResponseFormat("answer", b'{"type":"object","properties":{"n":{"type":"integer"}}}')


class Noting(Middleware):
    """Changes a little at every hook, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def before_agent(self, context: Any, messages: Any) -> None:
        self.asked += 1
        messages.append(Message("user", "and be quick"))

    def before_tool(self, context: Any, request: Any) -> None:
        self.asked += 1

    def after_tool(self, context: Any, request: Any, result: Any) -> None:
        self.asked += 1
        result.content += "!"

    def after_agent(self, context: Any, answer: Any) -> None:
        self.asked += 1


def forked(harness: AgentHarness, trace: Any, **named: Any) -> Played:
    """A fork, of which what holds of every run does too."""
    named.setdefault("config", RunConfig(run_id="f"))
    found = asyncio.run(settled(harness.fork(trace, **named)))
    check(found.events)
    assert harness.store is not None
    path = harness.store.path_of("f")
    assert replay(path).verdict == "identical"
    assert [record.event for record in read_log(path).records] == list(found.events)
    return found


def lines(store: Path, run_id: str) -> list[bytes]:
    written = (store / "runs" / f"{run_id}.jsonl").read_bytes().splitlines()
    return [unsealed(line)[0] for line in written[1:]]


def seq_of(played: Played, kind: str, which: int = 0) -> int:
    return int(played.of(kind)[which].seq)


def pair(store: Path, *script: Any, name: str = "scripted", **traits: Any) -> tuple[Any, Counted, Counted]:
    left, right = Counted("left", idempotency="pure"), Counted("right", "no")
    model = Scripted(*(script or (BOTH, ENDS)), name=name)
    return AgentHarness(model, [left.tool, right.tool], store=store, **traits), left, right


def everything(store: Path, clock: VirtualClock) -> tuple[AgentHarness, list[Any]]:
    """Concurrent tools of which one fails, retries with waits, a sub-agent, hooks, a deadline."""
    left, right = Counted("left"), Counted("right", ValueError("broken"))
    child = Scripted(text("from below"), name="child")
    below = sub_agent(AgentHarness(child, clock=clock), name="below", description="d")
    asks = calls(("a", "left"), ("b", "right"), ("c", "below", {"input": "x"}), ("d", "left"))
    model = Scripted(erred(), erred(), asks, erred(), ENDS)
    noting = Noting()
    policy = RunPolicy(
        tool_errors="return_to_model", wall_clock=900.0, retry=Retry(sleep=True, jitter=True, initial=5.0)
    )
    harness = AgentHarness(model, [left.tool, right.tool, below], [noting], policy, store=store, clock=clock)
    return harness, [left, right, child, model, noting]


def asked(hands: list[Any]) -> list[int]:
    return [hand.runs if isinstance(hand, Counted) else hand.asked for hand in hands]


def test_a_fork_that_changes_nothing_is_its_source_but_for_the_id_and_asks_nobody(tmp_path: Path) -> None:
    source = play(everything(tmp_path, VirtualClock())[0])
    assert source.kind == ""
    for at in range(1, len(source.events) + 1):
        harness, hands = everything(tmp_path, VirtualClock())
        name = f"f{at}"
        found = asyncio.run(settled(harness.fork("r1", at=at, config=RunConfig(run_id=name))))
        assert lines(tmp_path, name) == [
            line.replace(b'"r1', f'"{name}'.encode()) for line in lines(tmp_path, "r1")
        ]
        start = found.events[0]
        assert (start.source, start.source_seq, start.forked) == ("r1", at, None)
        assert asked(hands) == [0] * len(hands)


def test_an_edited_reply_is_what_the_model_said_and_all_after_it_is_live(tmp_path: Path) -> None:
    source = play(pair(tmp_path)[0])
    at = seq_of(source, "ModelReplied")
    other, left, right = pair(tmp_path, ENDS)
    function = {"name": "right", "arguments": "{}"}
    said = {"role": "assistant", "tool_calls": [{"id": "z", "function": function}]}

    found = forked(other, "r1", at=at, reply=said)

    assert found.events[at].tool_calls == (ToolCall("z", "right", "{}"),)
    assert (found.answers, left.runs, right.runs) == ([("z", "no")], 0, 1)
    assert found.run.text == "the end"


def test_a_reply_edited_into_words_ends_the_run(tmp_path: Path) -> None:
    source = play(pair(tmp_path)[0])
    other, left, right = pair(tmp_path)

    found = forked(other, "r1", at=seq_of(source, "ModelReplied"), reply="no need")

    assert (found.run.text, left.runs, right.runs) == ("no need", 0, 0)


def test_another_model_takes_over_at_its_next_call_and_what_was_called_is_not_called_again(
    tmp_path: Path,
) -> None:
    source = play(pair(tmp_path)[0])
    other, left, right = pair(tmp_path, text("I say otherwise"), name="other")

    found = forked(other, "r1", at=seq_of(source, "ToolStarted"))

    assert (found.run.text, left.runs, right.runs) == ("I say otherwise", 0, 0)
    assert [event.model for event in found.of("ModelStarted")] == ["scripted", "other"]
    assert [m.name for m in found.events[0].forked.models] == ["other"]
    assert found.answers == source.answers


def test_other_tools_are_offered_from_the_fork_on_although_the_question_is_the_same(tmp_path: Path) -> None:
    source = play(pair(tmp_path)[0])
    more = Counted("more")
    model = Scripted(calls(("m", "more"), ("n", "left")), ENDS)
    harness = AgentHarness(model, [more.tool], store=tmp_path)
    at = seq_of(source, "ModelStarted", 1)

    found = forked(harness, "r1", at=at, changes=["unknown_tool=return_tool_error"])

    assert [tool.name for tool in model.requests[0].tools] == ["more"]
    assert more.runs == 1
    assert "there is no tool 'left'; the tools are: more" in found.answers[-1][1]


def test_a_cap_ends_the_fork_early_and_only_from_its_seq_on(tmp_path: Path) -> None:
    source = play(pair(tmp_path, BOTH, BOTH, ENDS)[0])
    capped = play(pair(tmp_path / "other", BOTH, BOTH, ENDS, policy=RunPolicy(max_tool_calls=3))[0])

    at = seq_of(source, "ModelStarted", 1)
    found = forked(pair(tmp_path)[0], "r1", at=at, changes=["max_tool_calls=3"])

    assert (found.kind, found.answers) == ("LimitExceeded", capped.answers)
    start = found.events[0]
    assert (start.config.max_tool_calls, start.forked.max_tool_calls) == (50, 3)


def test_an_explicit_cap_of_the_config_only_makes_the_recorded_one_stricter(tmp_path: Path) -> None:
    source = play(pair(tmp_path, BOTH, BOTH, ENDS)[0], config=RunConfig(run_id="r1", max_model_calls=3))
    at = seq_of(source, "ModelStarted", 1)

    found = forked(pair(tmp_path)[0], "r1", at=at, config=RunConfig(run_id="f", max_model_calls=2))
    assert (found.events[0].forked.max_model_calls, found.kind) == (2, "LimitExceeded")

    wide = RunConfig(run_id="w", max_model_calls=9)
    kept = asyncio.run(settled(pair(tmp_path)[0].fork("r1", at=at, config=wide)))
    assert (kept.events[0].forked, kept.run.text) == (None, "the end")


@pytest.mark.parametrize("which", ["at the start", "at the second question"])
def test_another_system_turn_is_read_from_the_fork_on(tmp_path: Path, which: str) -> None:
    source = play(pair(tmp_path)[0], Message("system", "be long"), "hi")
    other, left, _ = pair(tmp_path, ENDS)
    model: Any = other.models["scripted"]
    at = 1 if which == "at the start" else seq_of(source, "ModelStarted", 1)

    found = forked(other, "r1", at=at, system="be brief")

    assert [m.content for m in model.requests[0].messages[:2]] == ["be brief", "hi"]
    assert found.run.messages[0].content == "be brief"
    assert left.runs == 0
    before = fold(found.events[: at - 1]).history.turns[:1]
    assert before == ([] if at == 1 else [Message("system", "be long")])


def test_a_system_turn_that_says_the_same_is_no_change(tmp_path: Path) -> None:
    play(pair(tmp_path)[0], Message("system", "be long"), "hi")
    other, left, _ = pair(tmp_path)

    found = forked(other, "r1", at=3, system="be long")

    assert (found.events[0].forked_system, left.runs) == ("", 0)


def test_a_deadline_does_not_count_the_time_between_source_and_fork(tmp_path: Path) -> None:
    source = play(pair(tmp_path, clock=VirtualClock(), policy=RunPolicy(wall_clock=10.0))[0])
    later = VirtualClock()
    later.moment += 3_600_000_000
    other, *_ = pair(tmp_path, text("later"), name="other", clock=later)

    found = forked(other, "r1", at=seq_of(source, "ToolStarted"))

    assert (found.kind, found.run.text) == ("", "later")


@pytest.mark.parametrize(("seconds", "kind"), [("2", "Timeout"), ("60", ""), ("inf", "")])
def test_a_fork_has_the_deadline_that_it_asks_for(tmp_path: Path, seconds: str, kind: str) -> None:
    def slow(*script: Any) -> AgentHarness:
        clock = VirtualClock()

        async def sleeps(**_: Any) -> str:
            await clock.sleep(20)
            return "slept"

        tools = [Counted("slow", sleeps).tool]
        policy = RunPolicy(wall_clock=10.0)
        return AgentHarness(Scripted(*script), tools, store=tmp_path, clock=clock, policy=policy)

    source = play(slow(calls(("s", "slow")), ENDS))
    assert source.kind == "Timeout"
    at = seq_of(source, "ToolStarted") + 1

    found = forked(slow(ENDS), "r1", at=at, changes=[f"wall_clock={seconds}"])

    assert found.kind == kind
    assert found.answers == [("s", "Error: Timeout" if kind else "slept")]


def test_a_fork_in_the_middle_of_a_turn_runs_what_had_not_landed_under_ids_of_its_own(
    tmp_path: Path,
) -> None:
    source = play(everything(tmp_path, VirtualClock())[0])
    started = seq_of(source, "SubAgentStarted")
    path = tmp_path / "runs" / "r1.jsonl"
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[: started + 1]))
    harness, hands = everything(tmp_path, VirtualClock())
    hands[3].script = (ENDS,)

    found = forked(harness, cut, at=started + 1)

    assert (found.kind, found.run.text) == ("", "the end")
    assert [id for id, _ in found.answers] == ["a", "b", "c", "d"]
    (child,) = found.of("SubAgentStarted")
    assert child.child.startswith("f.")
    assert replay(tmp_path / "runs" / f"{child.child}.jsonl").verdict == "identical"
    assert hands[2].asked == 1


def test_a_structured_answer_is_asked_of_another_model_as_that_can_give_it(tmp_path: Path) -> None:
    policy = RunPolicy(response_format=ANSWER)
    tools = [Counted("left").tool]
    model = Scripted(calls(("a", "left")), text('{"n":1}'), supports_structured=True)
    source = play(AgentHarness(model, tools, policy=policy, store=tmp_path))
    assert (source.run.structured, source.events[0].config.response_strategy) == ({"n": 1}, "provider")
    plain = Scripted(calls(("z", "answer", {"n": 2})), name="plain")

    found = forked(AgentHarness(plain, tools, store=tmp_path), "r1", at=seq_of(source, "ModelStarted", 1))

    assert (found.run.structured, found.events[0].forked.response_strategy) == ({"n": 2}, "tool")
    clash = AgentHarness(plain, [Counted("answer").tool], store=tmp_path)
    with pytest.raises(CannotFork, match="'answer'"):
        asyncio.run(clash.fork("r1", at=3))


def test_a_streamed_reply_can_be_edited(tmp_path: Path) -> None:
    model = Streaming(text("one two"), pieces=("one", " two"))
    policy = RunPolicy(record_deltas=True)

    async def streamed() -> list[Any]:
        harness = AgentHarness(model, store=tmp_path, policy=policy)
        return [item async for item in harness.stream(config=RunConfig(run_id="r1"), messages=["hi"])]

    events = asyncio.run(streamed())
    at = next(e.seq for e in events if type(e).__name__ == "ModelReplied")

    found = forked(AgentHarness(model, store=tmp_path, policy=policy), "r1", at=at, reply="three")

    assert found.run.text == "three"


def test_a_fork_of_a_fork_keeps_its_settings_and_refuses_others_after_them(tmp_path: Path) -> None:
    source = play(pair(tmp_path)[0])
    at = seq_of(source, "ModelStarted", 1)
    forked(pair(tmp_path, text("x"), name="other")[0], "r1", at=at)
    same = pair(tmp_path, name="other")[0]

    again = asyncio.run(settled(same.fork("f", at=at + 1, config=RunConfig(run_id="g"))))

    assert lines(tmp_path, "g") == [line.replace(b'"f"', b'"g"') for line in lines(tmp_path, "f")]
    assert (again.events[0].source, again.events[0].source_seq) == ("f", at)
    with pytest.raises(CannotFork, match="is itself a fork"):
        asyncio.run(same.fork("f", at=at + 2, changes=["max_tool_calls=1"]))


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"at": 0}, "the events 1 to"),
        ({"at": 3, "reply": "x"}, "replies stand at"),
        ({"at": 2, "system": "x"}, "no system turn"),
        ({"at": 2, "changes": ["max_toolcalls=1"]}, "did you mean 'max_tool_calls'"),
        ({"at": 1_000}, "--at 1000"),
    ],
)
def test_a_fork_that_makes_no_sense_is_refused_and_leaves_nothing(
    tmp_path: Path, named: dict[str, Any], words: str
) -> None:
    play(pair(tmp_path)[0])
    with pytest.raises((CannotFork, ChangeError), match=words):
        asyncio.run(pair(tmp_path)[0].fork("r1", **named))
    assert [path.name for path in (tmp_path / "runs").glob("*.jsonl")] == ["r1.jsonl"]
    with pytest.raises(CannotFork, match="nothing of it is recorded"):
        asyncio.run(pair(tmp_path)[0].fork("r2", at=1))
