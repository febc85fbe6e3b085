"""Which calls are let in: unknown tools, arguments that don't fit, arguments that are the host's."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.core.arguments import read_arguments
from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.run_policy import RunConfig, RunPolicy
from tests.harness_house import Counted, Played, Scripted, calls, play, text

QUERY = {
    "type": "object",
    "properties": {"query": {"type": "string"}},
    "required": ["query"],
    "additionalProperties": False,
}
NORMALIZE = RunPolicy(invalid_arguments="normalize")


def asked(
    tool: Counted, *call: Any, policy: RunPolicy | None = None, config: RunConfig | None = None
) -> Played:
    harness = AgentHarness(Scripted(calls(call), text("done")), [tool.tool], policy=policy)
    return play(harness, config=config)


def test_tl_030_an_unknown_tool_fails_the_run_by_default() -> None:
    played = asked(Counted("lookup"), "c1", "missing")
    assert (played.kind, str(played.error)) == ("ToolNotFound", "ToolNotFound: missing")
    assert not played.of("ToolStarted")
    assert played.kinds[-1] == "RunFailed"


def test_tl_031_an_unknown_tool_may_be_rewritten_to_one_that_exists() -> None:
    lookup = Counted("lookup")
    played = asked(lookup, "c1", "missing", policy=RunPolicy(unknown_tool="rewrite:lookup"))
    assert lookup.runs == 1
    assert played.of("UnknownToolCalled")[0].recovery == "rewrite:lookup"
    assert played.of("ToolStarted")[0].name == "lookup"
    played = asked(Counted("lookup"), "c1", "missing", policy=RunPolicy(unknown_tool="rewrite:nope"))
    assert played.of("UnknownToolCalled")[0].recovery == "tool_error"
    assert (played.run.text, "'missing'" in played.answers[0][1]) == ("done", True)


def test_tl_032_an_unknown_tool_may_be_answered_with_those_there_are() -> None:
    beta = Counted("beta", "beta-out")
    model = Scripted(calls(("call-x", "missing"), ("call-b", "beta")), text("done"))
    played = play(AgentHarness(model, [beta.tool], policy=RunPolicy(unknown_tool="return_tool_error")))
    (x, error), (b, out) = played.answers
    assert (x, b, out, played.run.tool_calls) == ("call-x", "call-b", "beta-out", 2)
    assert "the tools are: beta" in error


def test_tl_033_arguments_that_dont_fit_may_fail_the_run() -> None:
    search = Counted("search", schema=QUERY)
    played = asked(
        search, "c1", "search", {"query": 42, "extra": True}, policy=RunPolicy(invalid_arguments="fail")
    )
    assert (played.kind, search.runs) == ("Validation", 0)


def test_arguments_that_dont_fit_are_answered_with_what_would_by_default() -> None:
    search = Counted("search", schema=QUERY)
    played = asked(search, "c1", "search", {"query": 42})
    assert (search.runs, played.run.text, played.run.tool_calls) == (0, "done", 1)
    assert '"required":["query"]' in played.answers[0][1].replace(" ", "")


def test_tl_034_a_fence_around_the_arguments_is_opened() -> None:
    fenced = '```json\n{"query":"rust"}\n```'
    for written in (fenced, json.dumps(fenced), json.dumps('{"query":"rust"}')):
        search = Counted("search", schema=QUERY)
        asked(search, "c1", "search", written, policy=NORMALIZE)
        assert search.seen == [{"query": "rust"}]


@pytest.mark.parametrize(
    "wrapper", ["param", "params", "args", "parameters", "input", "arguments", "properties"]
)
def test_tl_035_a_known_wrapper_is_opened_only_around_what_is_valid(wrapper: str) -> None:
    search = Counted("search", schema=QUERY)
    asked(search, "c1", "search", {wrapper: {"query": "rust"}}, policy=NORMALIZE)
    assert search.seen == [{"query": "rust"}]
    search = Counted("search", schema=QUERY)
    played = asked(search, "c1", "search", {wrapper: {"query": 7}}, policy=NORMALIZE)
    assert (search.runs, played.answers[0][1].startswith("Error: ")) == (0, True)
    declaring = Counted("search", schema={"type": "object", "properties": {wrapper: {"type": "object"}}})
    asked(declaring, "c1", "search", {wrapper: {"query": "rust"}}, policy=NORMALIZE)
    assert declaring.seen == [{wrapper: {"query": "rust"}}]


HIDDEN = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "thread_id": {"type": "string"}},
    "required": ["query", "thread_id"],
}


def test_tl_036_arguments_of_the_host_are_neither_shown_nor_taken() -> None:
    search = Counted("search", schema=HIDDEN, hidden=["thread_id"])
    model = Scripted(calls(("c1", "search", {"query": "hi", "thread_id": "forged"})), text("done"))
    played = play(AgentHarness(model, [search.tool]))
    assert (played.kind, search.seen) == ("", [{"query": "hi"}])
    assert b"thread_id" not in bytes(model.requests[0].tools[0].schema)


def test_the_hosts_values_reach_the_tool_and_never_the_log() -> None:
    search = Counted("search", schema=HIDDEN, hidden=["thread_id"])
    config = RunConfig(run_id="r1", injected={"thread_id": "s3cret", "unrelated": 1})
    played = asked(search, "c1", "search", {"query": "hi", "thread_id": "forged"}, config=config)
    assert search.seen == [{"query": "hi", "thread_id": "s3cret"}]
    assert "s3cret" not in repr(played.events)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode), st.booleans())
def test_whatever_a_model_writes_is_judged_and_never_raises(written: bytes, normalize: bool) -> None:
    found = read_arguments(written, Counted("search", schema=QUERY).tool.manifest, normalize=normalize)
    if not found.problem:
        assert set(json.loads(found.value or b"{}")) == {"query"}


@given(
    st.dictionaries(st.sampled_from(["query", "args", "x"]), st.text(max_size=3) | st.integers(), max_size=2)
)
def test_normalising_never_changes_what_is_valid(value: dict[str, Any]) -> None:
    manifest = Counted("search", schema={"type": "object"}).tool.manifest
    written = json.dumps(value).encode()
    assert read_arguments(written, manifest, normalize=True) == read_arguments(
        written, manifest, normalize=False
    )
