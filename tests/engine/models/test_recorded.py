"""Recordings: the answers of one run, live in another."""

import msgspec
import pytest

from stepfold.engine.models.protocol import Request
from stepfold.engine.models.recorded import Recording, RecordingError
from stepfold.events.configuration import Generation
from stepfold.events.vocabulary import BLANK, ModelDelta, ModelErred, ModelReplied, ModelStarted, ToolReturned


def started(n):
    return ModelStarted(1, "r", 0, n, "t", row="ask", call_id=f"model-{n}", model="m", digest="d")


def replied(text, **more):
    return ModelReplied(1, "r", 9, 1, "2026-01-01T00:00:00.000000Z", key="model:model-1:0", text=text, **more)


def erred(kind):
    return ModelErred(1, "r", 9, 1, "t", key="k", error=kind, retryable=True)


def asked(call, attempt=0):
    return Request("m", (), Generation(), None, call=call, attempt=attempt)


EVENTS = (
    started(1),
    erred("server"),
    replied("a"),
    started(2),
    ModelDelta(*BLANK, text="b"),
    ModelDelta(*BLANK, text="c"),
    replied("", streamed=True),
    started(3),
)


def test_calls_and_attempts_answer_as_recorded_without_their_stamps():
    recording = Recording(EVENTS)
    assert recording.reply(asked(1, 0)) == ModelErred(*BLANK, error="server", retryable=True)
    assert recording.reply(asked(1, 1)) == ModelReplied(*BLANK, text="a")
    assert recording.reply(asked(1, 7)) == ModelReplied(*BLANK, text="a")


def test_recorded_pieces_are_the_text_of_a_streamed_reply():
    assert Recording(EVENTS).reply(asked(2)) == ModelReplied(*BLANK, text="bc")


@pytest.mark.parametrize(("call", "says"), [(3, "cut off"), (4, "has 3 model calls")])
def test_where_the_recording_has_no_answer_the_error_says_so(call, says):
    outcome = Recording(EVENTS).reply(asked(call))
    assert outcome.error == "recording_exhausted"
    assert says in outcome.detail


def test_a_trace_file_answers_like_its_events(tmp_path):
    trace = tmp_path / "r.jsonl"
    lines = [msgspec.json.encode(event) for event in (*EVENTS, ToolReturned(*BLANK, content='"Model'))]
    trace.write_bytes(b"".join(line + b"\n" for line in lines) + b'{"kind":"ModelRep')
    recording = Recording.load(trace)
    assert len(recording) == 3
    assert recording.reply(asked(1, 1)).text == "a"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no model call"),
        (b'{"kind":"RunStarted"}\n', "no model call"),
        (b'{"kind":"ModelStarted"\n', "line 1"),
    ],
)
def test_a_file_that_is_no_trace_is_named(tmp_path, content, says):
    trace = tmp_path / "r.jsonl"
    trace.write_bytes(content)
    with pytest.raises(RecordingError, match=says):
        Recording.load(trace)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(RecordingError, match="can't read"):
        Recording.load(tmp_path / "none")
