"""What leaves in another format is valid there, and holds what the run held."""

import base64
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from openai.types.chat import ChatCompletionMessageParam
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from pydantic import TypeAdapter

from stepfold.engine.studies.exports.atif import trajectory
from stepfold.engine.studies.exports.openai_messages import messages
from stepfold.engine.studies.exports.otel import spans
from stepfold.engine.studies.imports.importing import import_file
from stepfold.events.journal import read_log
from stepfold.events.store import Store
from stepfold.events.vocabulary import (
    AnyEvent,
    Message,
    ModelReplied,
    ToolCall,
    ToolCalled,
    ToolReturned,
    Unknown,
)
from stepfold.projections.run import fold

ROOT = Path(__file__).parents[4]
FIXTURES = sorted(ROOT.glob("replay_fixtures/*/log.jsonl"))
IMPORTED = sorted(
    path for path in ROOT.glob("tests/engine/studies/imports/traces/*/*") if path.suffix != ".md"
)
Events = tuple[AnyEvent | Unknown, ...]


def events_of(path: Path) -> Events:
    return tuple(record.event for record in read_log(path).records)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Events]]:
    with Store(tmp_path_factory.mktemp("store")) as store:
        traces = [run.trace for path in IMPORTED for run in list(import_file(store, path, "auto"))[:2]]
        yield [events_of(Path(trace)) for trace in traces]


@pytest.fixture(scope="module")
def runs(imported: list[Events]) -> list[Events]:
    assert len(imported) > 11
    return [*map(events_of, FIXTURES), *imported]


def test_a_trajectory_is_what_the_published_models_take(runs: list[Events]) -> None:
    published = pytest.importorskip("harbor.models.trajectories", reason="`make install-dev` brings harbor")
    for events in runs:
        made = trajectory(events)

        read = published.Trajectory.model_validate_json(json.dumps(made))
        assert read.to_json_dict() == json.loads(json.dumps(made))
        assert [step["step_id"] for step in made["steps"]] == list(range(1, len(made["steps"]) + 1))
        for step in made["steps"]:
            asked = {call["tool_call_id"] for call in step.get("tool_calls", ())}
            results = step.get("observation", {"results": []})["results"]
            assert {result.get("source_call_id") for result in results} - {None} <= asked


def test_a_trajectory_holds_every_reply_call_result_and_token(imported: list[Events]) -> None:
    for events in imported:
        made = trajectory(events)
        steps = made["steps"]

        kinds = [type(event) for event in events]
        assert sum(step.get("llm_call_count") == 1 for step in steps) == kinds.count(ModelReplied)
        assert sum(len(step.get("tool_calls", ())) for step in steps) == kinds.count(ToolCalled)
        results = [result for step in steps for result in step.get("observation", {"results": []})["results"]]
        assert len(results) == kinds.count(ToolReturned)
        assert made["final_metrics"]["total_prompt_tokens"] == fold(events).usage.input_tokens
        assert made["final_metrics"]["total_prompt_tokens"] == sum(
            step.get("metrics", {"prompt_tokens": 0})["prompt_tokens"] for step in steps
        )


def test_spans_are_valid_otlp_and_one_trace(runs: list[Events]) -> None:
    for events in runs:
        made = spans(events)

        parsed = json_format.ParseDict(with_ids_in_base64(made), TracesData())
        (scope,) = parsed.resource_spans[0].scope_spans
        root, *below = scope.spans
        assert {span.trace_id for span in scope.spans} == {root.trace_id}
        assert {span.parent_span_id for span in below} <= {root.span_id}
        assert len({span.span_id for span in scope.spans}) == len(scope.spans)
        assert all(span.end_time_unix_nano >= span.start_time_unix_nano for span in scope.spans)
        assert sum(span.name.startswith("chat") for span in below) >= sum(
            isinstance(event, ModelReplied) for event in events
        )
        usage = [int_of(span, "gen_ai.usage.input_tokens") for span in below]
        assert sum(usage) == int_of(root, "gen_ai.usage.input_tokens")


def with_ids_in_base64(tree: Any) -> Any:
    """OTLP writes ids in hexadecimal, where protobuf's own JSON has base64."""
    match tree:
        case dict():
            return {
                name: base64.b64encode(bytes.fromhex(value)).decode()
                if name in {"traceId", "spanId", "parentSpanId"}
                else with_ids_in_base64(value)
                for name, value in tree.items()
            }
        case list():
            return [with_ids_in_base64(item) for item in tree]
        case _:
            return tree


def int_of(span: Any, name: str) -> int:
    return next((attribute.value.int_value for attribute in span.attributes if attribute.key == name), 0)


def test_spans_hold_no_text(runs: list[Events]) -> None:
    for events in runs:
        told = json.dumps(spans(events))
        said = [turn.content for turn in fold(events).history.turns if len(turn.content) > 80]
        assert not any(json.dumps(text)[1:-1] in told for text in said)


def test_messages_are_what_the_sdk_takes(runs: list[Events]) -> None:
    adapter = TypeAdapter(list[ChatCompletionMessageParam])
    for events in runs:
        found = messages(events)

        adapter.validate_python(found)
        asked: set[str] = set()
        for message in found:
            asked.update(call["id"] for call in message.get("tool_calls", ()))
            assert message["role"] != "tool" or message["tool_call_id"] in asked


def turns_from(found: Iterable[dict[str, Any]]) -> list[Message]:
    """The turns that exported messages hold."""
    return [
        Message(
            message["role"],
            message["content"],
            tuple(
                ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
                for call in message.get("tool_calls", ())
            ),
            message.get("tool_call_id", ""),
        )
        for message in found
    ]


def test_messages_come_back_as_the_history_they_were(imported: list[Events]) -> None:
    for events in imported:
        turns = fold(events).history.turns
        asked = {call.id for turn in turns for call in turn.tool_calls}
        back = turns_from(messages(events))

        # A result of nobody's call leaves as the user's: only there the role differs.
        orphans = [turn for turn in turns if turn.role == "tool" and turn.tool_call_id not in asked]
        assert len(back) == len(turns)
        differing = [(was, now) for was, now in zip(turns, back, strict=True) if was != now]
        assert [was for was, _ in differing] == orphans
        assert all((now.role, now.content) == ("user", was.content) for was, now in differing)
