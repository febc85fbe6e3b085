"""The body on the wire."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.models.protocol import Request, body, tool_names
from stepfold.events.configuration import Generation, Manifest
from stepfold.events.vocabulary import Message, ToolCall

REQUEST = Request("m", (Message("user", "hi"),), Generation(), None)


def tool(name, schema=b"{}", hidden=()):
    return Manifest(name=name, description="d", schema=msgspec.Raw(schema), hidden=hidden)


def changed(**fields):
    return body(msgspec.structs.replace(REQUEST, **fields))


def test_a_plain_request_asks_for_nothing_more():
    assert body(REQUEST) == {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_settings_go_out_and_the_calls_own_limit_goes_first():
    generation = Generation(temperature=0.0, max_tokens=10, seed=4, stop=("x",))
    sent = changed(generation=generation, max_tokens=20)
    assert {key: sent[key] for key in ("temperature", "max_tokens", "seed", "stop")} == {
        "temperature": 0.0,
        "max_tokens": 20,
        "seed": 4,
        "stop": ["x"],
    }
    assert changed(generation=generation)["max_tokens"] == 10


def test_structured_turns_are_paired():
    turns = (
        Message("assistant", tool_calls=(ToolCall("c1", "fs.read", "{}"),)),
        Message("tool", "text", tool_call_id="c1"),
    )
    call = {"id": "c1", "type": "function", "function": {"name": "fs_read", "arguments": "{}"}}
    assert changed(messages=turns)["messages"] == [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "text"},
    ]


def test_arguments_of_the_host_are_not_shown():
    schema = b'{"type":"object","properties":{"a":{},"key":{}},"required":["a","key"]}'
    sent = changed(tools=(tool("x", schema, ("key",)),))["tools"][0]["function"]["parameters"]
    assert sent == {"type": "object", "properties": {"a": {}}, "required": ["a"]}


def test_formats():
    as_object = Generation(response_format="json_object")
    as_schema = Generation(response_format="json_schema")
    assert changed(generation=as_object)["response_format"] == {"type": "json_object"}
    envelope = changed(generation=as_schema)["response_format"]["json_schema"]["schema"]
    assert (envelope["required"], envelope["additionalProperties"]) == (["name", "arguments"], False)
    given_schema = changed(generation=as_schema, response_schema=msgspec.Raw(b'{"type":"string"}'))
    assert given_schema["response_format"]["json_schema"]["schema"] == {"type": "string"}


def test_a_choice_of_tool_goes_by_its_name_on_the_wire():
    assert changed(tool_choice="required")["tool_choice"] == "required"
    picked = changed(tools=(tool("fs.read"),), tool_choice="fs.read")["tool_choice"]
    assert picked == {"type": "function", "function": {"name": "fs_read"}}


@given(
    st.lists(st.text(max_size=80) | st.sampled_from(["a.b", "a_b", "a-b", "a b"]), unique=True, max_size=8)
)
def test_names_on_the_wire_are_legal_and_lead_back(names):
    wire = tool_names(tuple(tool(name) for name in names))
    assert list(wire) == names
    assert len(set(wire.values())) == len(names)
    for name in wire.values():
        assert 1 <= len(name) <= 64
        assert all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
