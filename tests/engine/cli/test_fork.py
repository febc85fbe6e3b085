"""`stepfold fork`: what is shared is the source's byte for byte, the rest is live, and the whole replays."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from stepfold import AgentLoop
from stepfold.engine.runtime.fork import CannotFork
from stepfold.events.chain import unsealed
from stepfold.events.journal import read_log
from stepfold.projections.run import fold
from tests.engine.cli.projects import (
    BREAK,
    FINISH,
    LOAD_FILES,
    OUTCOME_KEYS,
    REPAIR,
    VERIFY,
    Project,
    Result,
    call,
    read,
)
from tests.house import edited

REPLIES = (LOAD_FILES, "prose", VERIFY, REPAIR, VERIFY, FINISH)


@pytest.fixture
def source(project: Project) -> Path:
    """The log of a completed run; its project is broken again, so that a fork may mend it anew."""
    assert project.run(*REPLIES).code == 0
    (project.folder / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    return project.trace


def forked(project: Project, source: Path, *arguments: object, code: int = 0) -> tuple[Result, Path]:
    result = project.ask("fork", source.stem, "--project", project.folder, "--json", *arguments)
    assert result.code == code, result.err
    trace = Path(result.json["trace"])
    assert trace != source
    for_replay = project.ask("replay", trace)
    assert for_replay.code == 0, for_replay.text
    for step in range(1, result.json["steps"] + 1):
        assert project.ask("prompt", trace.stem, "--step", step).code == 0
    return result, trace


def seq_of(trace: Path, kind: str, which: int = 0) -> int:
    return [int(event["seq"]) for event in read(trace) if event["kind"] == kind][which]


def without_id(event: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in event.items()
        if name not in {"run_id", "source", "source_seq", "chain"}
    }


def unsealed_lines(trace: Path) -> list[bytes]:
    """The canonical bytes of the events: a seal also covers the first line, which names the source."""
    return [unsealed(line)[0] for line in trace.read_bytes().splitlines()]


def test_a_fork_that_changes_nothing_is_its_source_but_for_the_id(project: Project, source: Path) -> None:
    run_id = source.stem.encode()
    for at in (1, 7, len(read(source))):
        result, trace = forked(project, source, "--at", at)

        assert list(result.json) == OUTCOME_KEYS
        start, *rest = unsealed_lines(trace)
        assert rest == [line.replace(run_id, trace.stem.encode(), 1) for line in unsealed_lines(source)[1:]]
        event = json.loads(start)
        assert (event["source"], event["source_seq"]) == (source.stem, at)
        assert without_id(event) == without_id(read(source)[0])


def test_what_was_served_and_not_run_again_is_named(project: Project, source: Path) -> None:
    result, _ = forked(project, source, "--at", 7)

    assert "not run again" in result.err
    assert "fs.write at step 4" in result.err
    assert "a - b" in (project.folder / "calc.py").read_text()


def test_another_model_takes_over_at_its_next_call_and_its_tools_are_live(
    project: Project, source: Path
) -> None:
    at = seq_of(source, "ModelStarted", 3)
    other = project.script(*REPLIES[:3], REPAIR, VERIFY, FINISH, name="other.jsonl")

    result, trace = forked(project, source, "--at", at, "--model", other)
    events = read(trace)

    assert result.json["finish"] == "completed"
    assert "not run again" not in result.err
    assert "a + b" in (project.folder / "calc.py").read_text()
    assert [without_id(event) for event in events[1:at]] == [without_id(e) for e in read(source)[1:at]]
    assert events[0]["forked"]["model"] == "script:other.jsonl"
    models = [event["model"] for event in events if event["kind"] == "ModelStarted"]
    assert models == ["script:script.jsonl"] * 3 + ["script:other.jsonl"] * 3


def test_an_edited_reply_is_what_the_model_said_and_all_after_it_is_live(
    project: Project, source: Path
) -> None:
    at = seq_of(source, "ModelReplied", 3)

    result, trace = forked(project, source, "--at", at, "--reply", BREAK, code=1)
    events = read(trace)

    assert events[at]["text"] == BREAK
    assert "return b" in (project.folder / "calc.py").read_text()
    # The recorded replies went on to serve until they were spent: verify, finish, and none for call 7.
    assert result.json["status"] == "failed"
    assert events[-2]["error"] == "recording_exhausted"
    assert "the recording is spent at step 7: name a model with --model or [model]" in result.err


def test_an_edit_that_is_no_edit_changes_nothing(project: Project, source: Path) -> None:
    _, trace = forked(project, source, "--at", seq_of(source, "ModelReplied", 3), "--reply", REPAIR)

    assert len(read(trace)) == len(read(source))


def test_a_smaller_cap_ends_the_fork_early_and_only_from_its_seq_on(project: Project, source: Path) -> None:
    at = seq_of(source, "ModelReplied", 2)

    result, trace = forked(project, source, "--at", at, "--set", "loop.max_steps=4", code=4)

    assert (result.json["status"], result.json["steps"]) == ("step_cap", 4)
    start = read(trace)[0]
    assert (start["config"]["max_steps"], start["forked"]["max_steps"]) == (80, 4)


def test_a_larger_cap_lets_a_capped_run_go_on(project: Project) -> None:
    assert project.run(LOAD_FILES, REPAIR, options=["--max-steps", 2]).code == 4
    source = project.trace
    at = seq_of(source, "GuardTripped")
    longer = project.script(LOAD_FILES, REPAIR, VERIFY, FINISH)

    result, _ = forked(project, source, "--at", at, "--set", "loop.max_steps=9", "--model", longer)

    assert (result.json["finish"], result.json["steps"]) == ("completed", 4)
    assert "fs.write at step 2" in result.err


def test_a_setting_at_the_first_event_is_what_the_fork_started_with(project: Project, source: Path) -> None:
    result, trace = forked(project, source, "--at", 1, "--set", "loop.max_steps=2", code=4)

    start = read(trace)[0]
    assert result.json["steps"] == 2
    assert start["config"]["max_steps"] == 2
    assert "forked" not in start


def test_a_denied_command_is_refused_in_the_fork(project: Project) -> None:
    shell = call("shell.run", command="echo hello")
    assert project.run(LOAD_FILES, shell, REPAIR, VERIFY, FINISH).code == 0

    _, trace = forked(project, project.trace, "--at", 3, "--set", "policy.shell.deny=echo")

    assert [event["name"] for event in read(trace) if event["kind"] == "ToolRejected"] == ["shell.run"]


def test_a_fork_of_a_fork_keeps_its_settings_and_refuses_others_after_them(
    project: Project, source: Path
) -> None:
    at = seq_of(source, "ModelReplied", 2)
    _, first = forked(project, source, "--at", at, "--set", "loop.max_steps=5", code=4)

    _, second = forked(project, first, "--at", at + 5, code=4)
    assert [without_id(event) for event in read(second)] == [without_id(event) for event in read(first)]

    again = ("--set", "loop.max_steps=4")
    refused = project.ask("fork", first.stem, "--at", at + 5, *again, "--project", project.folder)
    refused.is_refused("is itself a fork", f"from seq {at}")
    result, third = forked(project, first, "--at", at, *again, code=4)
    assert (result.json["steps"], read(third)[0]["forked"]["max_steps"]) == (4, 4)


def transcript_before(trace: Path, at: int) -> list[str]:
    return fold(record.event for record in read_log(trace).records[:at]).goal.transcript


def test_the_last_shared_event_is_folded_as_the_source_folds_it(project: Project, source: Path) -> None:
    # It was folded under the fork's own settings: checks that had been judged were judged by nobody.
    at = seq_of(source, "ChecksJudged") + 1

    _, trace = forked(project, source, "--at", at, "--set", 'verification="manual"')

    assert transcript_before(trace, at) == transcript_before(source, at)


def test_a_configuration_that_changes_right_after_the_start_holds_from_there_on(
    project: Project, source: Path
) -> None:
    start, *rest = source.read_bytes().splitlines(keepends=True)
    event = json.loads(unsealed(start.rstrip())[0])
    event |= {"source": "elsewhere", "source_seq": 1, "forked": {**event["config"], "max_steps": 2}}
    other = source.with_name("other.jsonl")
    other.write_bytes(edited(json.dumps(event, separators=(",", ":")).encode() + b"\n" + b"".join(rest)))

    run = fold(record.event for record in read_log(other).records[:1])

    assert getattr(run.config, "max_steps", 0) == 2


def test_a_fork_from_the_start_can_itself_be_forked(project: Project, source: Path) -> None:
    _, first = forked(project, source, "--at", 1, "--set", "loop.max_steps=3", code=4)

    _, second = forked(project, first, "--at", 1, code=4)
    assert [without_id(event) for event in read(second)] == [without_id(event) for event in read(first)]

    at = seq_of(first, "ModelStarted", 1)
    result, third = forked(project, first, "--at", at, "--set", "loop.max_steps=2", code=4)
    assert result.json["steps"] == 2
    assert [without_id(e) for e in read(third)[1:at]] == [without_id(e) for e in read(first)[1:at]]


HARNESS = """
from stepfold import AgentHarness, tool

@tool(idempotency="pure")
def double(number: int) -> int:
    return 2 * number

agent = AgentHarness("script:{script}", [double], store={store})
nothing = 3
"""


def test_a_tool_calling_run_is_forked_by_the_harness_of_its_own_program(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.folder)
    monkeypatch.syspath_prepend(str(project.folder))
    function = {"name": "double", "arguments": '{"number":4}'}
    asks = {"message": {"tool_calls": [{"id": "a", "type": "function", "function": function}]}}
    script = project.folder / "agent.jsonl"
    script.write_text(json.dumps(asks) + "\n" + json.dumps({"text": "eight"}) + "\n")
    store = repr(str(project.store))
    (project.folder / "own_agent.py").write_text(HARNESS.format(script=script, store=store))
    made = import_module("own_agent").agent.invoke_sync(messages=["double 4"])
    trace = project.store / "runs" / f"{made.run_id}.jsonl"
    at = seq_of(trace, "ModelReplied", 1)
    ask = ("fork", trace, "--at", at, "--project", project.folder)

    result = project.ask(*ask, "--harness", "own_agent:agent", "--reply", "ten", "--json")

    assert (result.code, result.json["summary"]) == (0, "ten")
    assert project.ask("replay", result.json["trace"]).code == 0
    project.ask(*ask).is_refused("AgentHarness.fork", "--harness MODULE:ATTRIBUTE")
    project.ask(*ask, "--harness", "own_agent:nothing").is_refused("no AgentHarness is there")
    project.ask(*ask, "--harness", "no_such_agent:x").is_refused("No module named")
    project.ask(*ask, "--harness", "own_agent:agent", "--model", "script:x").is_refused("leave one")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--at", 0), ("--at 0", "the events 1 to")),
        (("--at", 9999), ("--at 9999",)),
        (("--at", 5, "--reply", "x"), ("no reply", "replies stand at")),
        (("--at", 5, "--set", "loop.max_stepz=3"), ("did you mean 'loop.max_steps'",)),
        (("--at", "END", "--set", "loop.max_steps=3"), ("has ended",)),
    ],
)
def test_a_fork_that_makes_no_sense_is_refused_in_one_line(
    project: Project, source: Path, arguments: tuple[object, ...], words: tuple[str, ...]
) -> None:
    given = [len(read(source)) if argument == "END" else argument for argument in arguments]

    project.ask("fork", "last", "--project", project.folder, *given).is_refused(*words)
    assert project.traces == [source]


def test_a_source_that_this_engine_would_decide_otherwise_is_refused(project: Project, source: Path) -> None:
    source.write_bytes(edited(source.read_bytes().replace(b'"row":"repair"', b'"row":"mended"', 1)))

    refused = project.ask("fork", source, "--at", len(read(source)), "--project", project.folder)

    refused.is_refused("decides otherwise at seq", "stepfold replay")


def test_a_run_cut_off_goes_on_in_its_fork(project: Project, source: Path) -> None:
    cut = seq_of(source, "ToolStarted") + 1
    lines = source.read_bytes().splitlines(keepends=True)
    other = source.with_name("cut-off.jsonl")
    other.write_bytes(edited(b"".join(lines[:cut]).replace(source.stem.encode(), b"cut-off")))
    model = project.script(*REPLIES)

    result, _ = forked(project, other, "--at", cut, "--model", model)

    assert result.json["finish"] == "completed"
    assert "a + b" in (project.folder / "calc.py").read_text()


def test_the_library_forks_too(project: Project, source: Path) -> None:
    loop = AgentLoop(model=project.script(*REPLIES), project=project.folder, store=project.store, checks=())

    found = loop.fork(source.stem, at=3, changes=["loop.max_steps=2"])

    assert (found.status, found.steps) == ("step_cap", 2)
    with pytest.raises(CannotFork, match="--at 0"):
        loop.fork(source.stem, at=0)
