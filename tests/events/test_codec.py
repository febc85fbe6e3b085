"""Every event's bytes are canonical and come back as the same event; nothing else comes back as one."""

import json
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepfold.engine.testing.event_strategies import TEXTS, structs_of
from stepfold.events import vocabulary as v
from stepfold.events.codec import LineError, NewerVersion, decode, encode
from stepfold.events.configuration import Generation, GoalConfig, HarnessConfig, Manifest


def canonical(value: Any) -> Any:
    """Raw JSON compares by its value: the white space that a caller left in it does not survive."""
    if isinstance(value, msgspec.Raw):
        return json.loads(bytes(value))
    if isinstance(value, tuple):
        return tuple(map(canonical, value))
    if isinstance(value, msgspec.Struct):
        return (type(value), *(canonical(getattr(value, name)) for name in value.__struct_fields__))
    return value


@pytest.mark.parametrize("kind", v.KINDS.values(), ids=v.KINDS)
def test_every_kind_comes_back_as_it_was(kind: type[v.Event]) -> None:
    @settings(max_examples=40, deadline=None)
    @given(structs_of(kind))
    def round_trip(event: v.Event) -> None:
        line = encode(event)

        back = decode(line)

        assert canonical(back) == canonical(event)
        assert encode(back) == line  # type: ignore[arg-type]
        assert b"\n" not in line
        json.loads(line)

    round_trip()


@given(TEXTS)
def test_any_text_survives_and_the_line_is_json_for_other_tools(text: str) -> None:
    event = v.ModelReplied(1, "r", 3, 1, "2026-01-01T00:00:00.000000Z", text=text)

    line = encode(event)

    assert decode(line) == event
    assert line.decode("utf-8").count("\n") == 0


def test_raw_json_with_line_feeds_is_written_on_one_line() -> None:
    pretty = msgspec.Raw(b'{\n  "type": "object"\n}')
    manifest = Manifest(name="t", description="d", schema=pretty)
    event = v.RunStarted(1, "r", 0, 0, "t", config=GoalConfig(goal="g", manifests=(manifest,)), engine="e")

    line = encode(event)

    assert b"\n" not in line
    assert json.loads(line)["config"]["manifests"][0]["schema"] == {"type": "object"}


def line_of(**changes: Any) -> bytes:
    fields = {
        "kind": "ModelCompleted",
        "v": 1,
        "run_id": "r",
        "seq": 7,
        "step": 1,
        "ts": "t",
        "row": "complete",
        "call_id": "model-1",
    }
    return json.dumps({key: value for key, value in (fields | changes).items() if value is not ...}).encode()


def test_an_unknown_kind_is_carried_along() -> None:
    assert decode(line_of(kind="FutureKind", color=1)) == v.Unknown(1, "r", 7, 1, "t", "FutureKind")


def test_an_unknown_field_is_tolerated() -> None:
    assert decode(line_of(color=[1, {"a": None}])) == decode(line_of())


@pytest.mark.parametrize("changes", [{}, {"kind": "FutureKind"}, {"ts": 5}, {"seq": ...}], ids=str)
def test_a_newer_version_says_that_stepfold_must_be_upgraded(changes: dict[str, Any]) -> None:
    with pytest.raises(NewerVersion, match="schema version 2, this engine reads up to 1: upgrade stepfold"):
        decode(line_of(v=2, **changes))


@pytest.mark.parametrize("version", [-1, -(10**6), None, "1", 1.5, True, [], ...], ids=str)
def test_a_version_that_never_was_is_named(version: Any) -> None:
    with pytest.raises(LineError) as caught:
        decode(line_of(v=version))
    assert "recursion" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_type_is_named_with_its_kind_seq_and_place() -> None:
    with pytest.raises(LineError, match=r"ModelCompleted at seq 7: .*call_id"):
        decode(line_of(call_id=5))


def test_a_missing_field_is_named() -> None:
    with pytest.raises(LineError, match=r"ModelCompleted at seq 7: .*`call_id`"):
        decode(line_of(call_id=...))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"v":' * 100_000,
        b'{"kind":"FutureKind","v":1,"x":' + b"[" * 100_000,
        b'{"v":"1","x":' + b"[" * 100_000,
        b'{"kind":"FutureKind","v":1,"run_id":"r","se',
        b'{"v":"one","run_id":"\xff',
        b'{"kind":"ModelCompleted","v":0,"run_id":"r","seq":0,"step":0,"ts":'
        + b"9" * 40
        + b',"row":"x","call_id":"m"}',
        b'{"kind":"ModelCompleted","v":0,"run_id":"r","seq":0,"step":0,"ts":9223372036854775807,"row":"x","call_id":"m"}',
        b'{"kind":"X","v":0,"n":' + b"9" * 5000 + b"}",
        b'{"kind":"X","v":0,"t":"\\ud800"}',
        b"9" * 10_000,
    ],
    ids=lambda line: repr(line[:40]),
)
def test_what_is_no_event_is_a_line_error_and_nothing_else(line: bytes) -> None:
    with pytest.raises(LineError):
        decode(line)


@given(st.data())
def test_no_bytes_raise_anything_but_a_line_error(data: st.DataObject) -> None:
    line = line_of(
        v=data.draw(st.sampled_from([0, 1, 2, "1"])), kind=data.draw(st.sampled_from([*v.KINDS, "X"]))
    )
    cut = data.draw(st.integers(0, len(line)))
    line = line[:cut] + data.draw(st.binary(max_size=20)) + data.draw(st.sampled_from([b"", line[cut:]]))

    try:
        event = decode(line)
    except LineError as error:
        assert str(error)
    else:
        assert isinstance(event, v.Event | v.Unknown)


def test_version_0_counted_microseconds_and_is_read_as_version_1() -> None:
    old = line_of(v=0, ts=1_700_000_000_123_456)

    event = decode(old)

    assert event == v.ModelCompleted(
        1, "r", 7, 1, "2023-11-14T22:13:20.123456Z", "complete", call_id="model-1"
    )


def test_a_version_0_line_of_an_unknown_kind_is_carried_along() -> None:
    event = decode(line_of(v=0, ts=0, kind="Forgotten"))

    assert event == v.Unknown(1, "r", 7, 1, "1970-01-01T00:00:00.000000Z", "Forgotten")


def test_a_response_schema_can_be_read_back() -> None:
    config = HarnessConfig(response_schema=msgspec.Raw(b'{"type":"object"}'))
    event = v.RunStarted(1, "r", 0, 0, "t", config=config, engine="e")

    assert decode(encode(event)) == event


@pytest.mark.parametrize("made", [Generation(), GoalConfig(goal="g"), HarnessConfig()])
def test_a_configuration_that_came_through_pickle_is_read_as_it_was_recorded(made: Any) -> None:
    """A worker of another process once recorded its defaults, and its run diverged when it was replayed."""
    recorded = msgspec.json.encode(pickle.loads(pickle.dumps(made)))

    assert msgspec.json.encode(msgspec.json.decode(recorded, type=type(made))) == recorded
