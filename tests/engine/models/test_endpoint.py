"""The endpoint against a server that answers well, badly and not at all."""

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.models.endpoint import Endpoint, completion_reply, text_safe
from stepfold.engine.models.failures import Place, retry_after
from stepfold.engine.models.protocol import Request
from stepfold.events.configuration import Generation, Manifest
from stepfold.events.vocabulary import Message, ModelDelta, ModelErred, ModelReplied, ToolCall

REQUEST = Request("m", (Message("user", "hello there"),), Generation(), None)
SECRET = "sk-very-secret-0123456789"


def completion(message, **more):
    return {"model": "m-1", "choices": [{"message": message, "finish_reason": "stop"}], **more}


def ask(server_or_url, request=REQUEST, timeout=10.0):
    url = server_or_url if isinstance(server_or_url, str) else server_or_url.url

    async def once():
        endpoint = Endpoint(url, request.model, timeout=timeout)
        try:
            return await endpoint.reply(request)
        finally:
            await endpoint.close()

    return asyncio.run(once())


def stream(server, request=REQUEST, timeout=10.0):
    async def once():
        endpoint = Endpoint(server.url, request.model, timeout=timeout)
        try:
            return [event async for event in endpoint.stream(request)]
        finally:
            await endpoint.close()

    return asyncio.run(once())


# --- replies ----------------------------------------------------------------------------------------


def test_a_reply_brings_text_usage_and_the_servers_model(server):
    usage = {"prompt_tokens": 7, "completion_tokens": 2}
    server.answers(completion({"role": "assistant", "content": "hi"}, usage=usage))
    reply = ask(server)
    assert isinstance(reply, ModelReplied)
    assert (reply.text, reply.model, reply.finish_reason) == ("hi", "m-1", "stop")
    assert (reply.input_tokens, reply.output_tokens, reply.estimated) == (7, 2, False)
    assert server.asked == [{"model": "m", "messages": [{"role": "user", "content": "hello there"}]}]


def test_without_usage_the_counts_are_estimates_and_say_so(server):
    server.answers(completion({"content": "12345"}))
    reply = ask(server)
    assert (reply.input_tokens, reply.output_tokens, reply.estimated) == (3, 2, True)


@pytest.mark.parametrize(
    ("told", "cached"),
    [
        ({"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 7}}}, 7),
        ({"usage": {"prompt_tokens": 9, "prompt_cache_hit_tokens": 4}}, 4),
        ({"usage": {"prompt_tokens": 9}, "timings": {"cache_n": 0, "prompt_n": 9}}, 0),
        ({"usage": {"prompt_tokens": 9, "prompt_tokens_details": None}, "timings": []}, None),
        ({"usage": {"prompt_tokens_details": {"cached_tokens": "7"}}}, None),
        ({}, None),
    ],
)
def test_what_the_server_had_in_its_cache_is_recorded_where_it_says_so(server, told, cached):
    server.answers(completion({"content": "hi"}, **told))
    assert ask(server).cached_tokens == cached

    server.streams(piece(content="hi"), piece("stop"), {"choices": [], **told}, DONE)
    assert stream(server)[-1].cached_tokens == cached


def test_null_content_is_an_empty_reply(server):
    server.answers(completion({"content": None}))
    assert ask(server).text == ""


def test_a_wrong_content_type_does_not_matter_if_the_body_is_right(server):
    server.answers(completion({"content": "hi"}), Content_Type="text/plain")
    assert ask(server).text == "hi"


def test_thinking_is_split_off(server):
    server.answers(completion({"content": "<think>hm</think>\n\nyes", "reasoning_content": "first"}))
    reply = ask(server)
    assert (reply.text, reply.reasoning) == ("yes", "first\nhm")


def test_tool_calls_come_back_under_the_names_the_engine_knows(server):
    tools = (Manifest(name="fs.read", description="", schema=msgspec.Raw(b'{"type":"object"}')),)
    call = {"id": "c1", "type": "function", "function": {"name": "fs_read", "arguments": '{"path": 1'}}
    server.answers(completion({"content": None, "tool_calls": [call]}))
    reply = ask(server, msgspec.structs.replace(REQUEST, tools=tools))
    assert reply.tool_calls == (ToolCall("c1", "fs.read", '{"path": 1'),)
    assert server.asked[0]["tools"][0]["function"]["name"] == "fs_read"


def test_the_schema_goes_out_as_response_format(server):
    server.answers(completion({"content": "{}"}))
    schema = msgspec.Raw(b'{"type":"object"}')
    ask(server, msgspec.structs.replace(REQUEST, response_schema=schema, response_name="answer"))
    assert server.asked[0]["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}},
    }


def test_seed_stop_and_logit_bias_are_passed_through(server):
    server.answers(completion({"content": "ok"}))
    generation = Generation(seed=7, stop=("END", "\n"), logit_bias=(("42", -100.0),), temperature=0.5)
    ask(server, msgspec.structs.replace(REQUEST, generation=generation, max_tokens=9))
    sent = {
        name: server.asked[0][name] for name in ("seed", "stop", "logit_bias", "temperature", "max_tokens")
    }
    assert sent == {
        "seed": 7,
        "stop": ["END", "\n"],
        "logit_bias": {"42": -100.0},
        "temperature": 0.5,
        "max_tokens": 9,
    }


def test_a_lone_surrogate_reaches_the_server_as_the_replacement_character(server):
    server.answers(completion({"content": "ok"}))
    asked = (Message("user", "a\ud800b\ud83d\ude00"),)
    assert ask(server, msgspec.structs.replace(REQUEST, messages=asked)).text == "ok"
    assert server.asked[0]["messages"][0]["content"] == "a\ufffdb\U0001f600"


def test_one_endpoint_serves_several_event_loops(server):
    server.answers(completion({"content": "hi"}))
    endpoint = Endpoint(server.url, "m")
    assert [asyncio.run(endpoint.reply(REQUEST)).text for _ in range(3)] == ["hi"] * 3


# --- failures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "payload", "kind", "retryable", "says"),
    [
        (401, {"error": {"message": "no"}}, "auth", False, "OPENAI_API_KEY"),
        (403, {"error": {"message": "no"}}, "auth", False, "OPENAI_API_KEY"),
        (400, {"error": {"message": "bad temperature"}}, "invalid_request", False, "bad temperature"),
        (
            400,
            {"error": {"message": "x", "code": "context_length_exceeded"}},
            "context_overflow",
            False,
            "window",
        ),
        (
            400,
            {"error": {"code": 400, "message": "x", "type": "exceed_context_size_error"}},
            "context_overflow",
            False,
            "window",
        ),
        (402, {"error": "pay"}, "quota", False, "top it up"),
        (408, {}, "invalid_request", True, "408"),
        (409, {}, "invalid_request", True, "409"),
        (429, {"error": {"message": "slow down"}}, "rate_limited", True, "slow down"),
        (429, {"error": {"message": "x", "code": "insufficient_quota"}}, "quota", False, "quota"),
        (500, {"error": {"message": "boom"}}, "server", True, "boom"),
        (500, b"<html>oops</html>", "server", True, "500"),
        (503, b"", "server", True, "503"),
        (200, b"<!doctype html><p>hi", "bad_response", False, "/v1"),
        (200, b'{"choices": [{"mess', "bad_response", False, "no JSON"),
        (200, b"", "bad_response", False, "no JSON"),
        (200, b"[" * 100_000, "bad_response", False, "no JSON"),
        (200, b"\xff\xfe", "bad_response", False, "no JSON"),
        (200, {"choices": []}, "bad_response", False, "no choices"),
        (200, {"choices": [{}]}, "bad_response", False, "no choices"),
        (200, [], "bad_response", False, "no choices"),
        (200, {"error": {"message": "later", "code": 429}}, "rate_limited", True, "later"),
        (200, {"error": {"message": "odd"}}, "bad_response", False, "odd"),
    ],
)
def test_a_failure_is_one_line_that_says_what_to_do(server, status, payload, kind, retryable, says):
    server.answers(payload, status)
    erred = ask(server)
    assert isinstance(erred, ModelErred)
    assert (erred.error, erred.retryable) == (kind, retryable)
    assert says in erred.detail
    assert "\n" not in erred.detail


def test_an_unknown_model_lists_those_the_server_has(server):
    server.models = ["qwen3", "llama3"]
    server.answers({"error": {"message": "model 'm' not found"}}, 404)
    erred = ask(server)
    assert (erred.error, erred.status, erred.retryable) == ("not_found", 404, False)
    assert "qwen3, llama3" in erred.detail


def test_a_path_that_is_no_chat_api_is_not_taken_for_a_missing_model(server):
    server.models = ["m"]
    server.answers({"detail": "Not Found"}, 404)
    erred = ask(server)
    assert (erred.error, erred.status) == ("not_found", 404)
    assert "has no chat API at this path (Not Found)" in erred.detail


def test_retry_after_in_seconds(server):
    server.answers({}, 429, Retry_After="7")
    assert ask(server).retry_after == 7.0


def test_nothing_listens(closed_port):
    erred = ask(f"http://127.0.0.1:{closed_port}/v1")
    assert (erred.error, erred.retryable) == ("connection", True)
    assert f"nothing listens at http://127.0.0.1:{closed_port}/v1" in erred.detail
    assert "ollama serve" in erred.detail


def test_a_reset_connection(server):
    server.resets()
    erred = ask(server)
    assert (erred.error, erred.retryable) == ("connection", True)
    assert "broke the connection off" in erred.detail


def test_a_body_that_breaks_off(server):
    server.breaks_off(b'{"choices"')
    erred = ask(server)
    assert (erred.error, erred.retryable) == ("connection", True)


def test_a_slow_server_is_a_timeout(server):
    server.stays_silent()
    erred = ask(server, timeout=0.2)
    assert (erred.error, erred.retryable) == ("timeout", False)
    assert "within 0.2 s" in erred.detail


def test_a_server_that_sends_a_byte_at_a_time_is_a_timeout_all_the_same(server):
    server.drips(b" ")
    assert ask(server, timeout=0.3).error == "timeout"


def test_a_body_larger_than_a_reply_can_be_is_given_up(server, monkeypatch):
    monkeypatch.setattr("stepfold.engine.models.endpoint.LARGEST_REPLY", 10_000)
    server.answers(completion({"content": "again " * 5000}))
    erred = ask(server)
    assert (erred.error, erred.retryable) == ("bad_response", False)
    assert "more than 10000 bytes" in erred.detail


def test_a_stream_larger_than_a_reply_can_be_is_given_up(server, monkeypatch):
    monkeypatch.setattr("stepfold.engine.models.endpoint.LARGEST_REPLY", 1_000)
    server.streams(*[piece(content="again and again ")] * 40)
    *deltas, erred = stream(server)
    assert 1 < len(deltas) < 40
    assert erred.error == "bad_response"


def test_a_stream_that_goes_on_too_long_is_a_timeout(server):
    line = b"data: " + json.dumps(piece(content="slowly ")).encode() + b"\n\n"
    server.drips(line, kind="text/event-stream")
    assert stream(server, timeout=0.3)[-1].error == "timeout"


def test_cancelling_a_stream_hangs_up(server):
    line = b"data: " + json.dumps(piece(content="slowly ")).encode() + b"\n\n"
    server.drips(line, kind="text/event-stream")

    async def cancelled():
        async def all_of_it():
            async for _ in Endpoint(server.url, "m").stream(REQUEST):
                heard.set()

        heard = asyncio.Event()
        task = asyncio.ensure_future(all_of_it())
        await heard.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return await asyncio.to_thread(server.hung_up.wait, 5)

    assert asyncio.run(cancelled())


def test_cancelling_closes_the_request(server):
    server.stays_silent()

    async def cancelled():
        task = asyncio.ensure_future(Endpoint(server.url, "m").reply(REQUEST))
        while not server.asked:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        return await asyncio.to_thread(server.hung_up.wait, 5)

    assert asyncio.run(cancelled())


def test_the_key_goes_to_the_server_and_nowhere_else(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    server.answers({"error": {"message": f"bad temperature for key {SECRET}"}}, 400)
    erred = ask(server)
    assert server.headers[0]["authorization"] == f"Bearer {SECRET}"
    assert SECRET not in repr(erred)
    endpoint = Endpoint(f"http://user:{SECRET}@127.0.0.1:1/v1", "m")
    assert SECRET not in repr(endpoint)
    assert SECRET not in repr(asyncio.run(endpoint.reply(REQUEST)))


# --- streams ----------------------------------------------------------------------------------------


def piece(finish=None, **delta):
    return {"model": "m-1", "choices": [{"delta": delta, "finish_reason": finish}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
DONE = b"data: [DONE]\n\n"


def test_a_stream_gives_pieces_and_the_unary_reply(server):
    server.streams(
        piece(role="assistant", content=""),
        piece(content="<thi"),
        piece(content="nk>hm</think>\n he\u2028l"),
        piece(content="lo"),
        piece("stop"),
        USAGE,
        DONE,
    )
    *deltas, reply = stream(server)
    assert all(isinstance(delta, ModelDelta) for delta in deltas)
    assert "".join(delta.text for delta in deltas) == reply.text == "he\u2028llo"
    assert server.asked[0]["stream"] is True

    message = {"content": "<think>hm</think>\n he\u2028llo"}
    server.answers(completion(message, usage=USAGE["usage"]))
    assert reply.first_token > 0
    assert msgspec.structs.replace(reply, streamed=False, first_token=0.0) == ask(server)


def test_streamed_tool_calls_are_put_together(server):
    server.streams(
        piece(tool_calls=[{"index": 0, "id": "a", "function": {"name": "x", "arguments": ""}}]),
        piece(tool_calls=[{"index": 0, "function": {"arguments": '{"k"'}}]),
        piece(tool_calls=[{"index": 1, "id": "b", "function": {"name": "y", "arguments": "{}"}}]),
        piece(tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}}]),
        piece("tool_calls"),
        DONE,
    )
    (reply,) = stream(server)
    assert reply.tool_calls == (ToolCall("a", "x", '{"k": 1}'), ToolCall("b", "y", "{}"))


def test_pieces_without_an_index_go_on_with_the_last_call(server):
    server.streams(
        piece(tool_calls=[{"id": "a", "function": {"name": "x", "arguments": "{"}}]),
        piece(tool_calls=[{"function": {"arguments": "}"}}]),
        piece("tool_calls", tool_calls=[{"id": "b", "function": {"name": "y", "arguments": {"k": 1}}}]),
        DONE,
    )
    (reply,) = stream(server)
    assert reply.tool_calls == (ToolCall("a", "x", "{}"), ToolCall("b", "y", '{"k": 1}'))


def test_a_cut_stream_is_an_error_after_its_pieces(server):
    server.streams(piece(content="hel"))
    delta, erred = stream(server)
    assert delta.text == "hel"
    assert (erred.error, erred.retryable) == ("connection", True)


def test_a_piece_that_is_no_json(server):
    server.streams(piece(content="hel"), b"data: {oops\n\n", DONE)
    assert stream(server)[-1].error == "bad_response"


def test_an_error_inside_a_stream(server):
    server.streams({"error": {"message": "overloaded", "code": 503}}, DONE)
    (erred,) = stream(server)
    assert (erred.error, erred.retryable) == ("server", True)


def test_a_stream_that_is_refused(server):
    server.answers({}, 401)
    (erred,) = stream(server)
    assert erred.error == "auth"


def test_a_stream_that_stalls_is_a_timeout(server):
    server.stays_silent()
    (erred,) = stream(server, timeout=0.2)
    assert erred.error == "timeout"


def test_a_server_that_does_not_stream_answers_in_one_piece(server):
    server.answers(completion({"content": "hi"}))
    delta, reply = stream(server)
    assert delta.text == reply.text == "hi"


# --- properties -------------------------------------------------------------------------------------

PLACE = Place("http://h/v1", "m", "KEY")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
oddities = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "message": st.fixed_dictionaries(
                        {}, optional={"content": values, "tool_calls": values, "reasoning": values}
                    )
                    | values,
                    "finish_reason": values,
                },
            )
            | values,
            max_size=2,
        )
        | values,
        "usage": values | st.fixed_dictionaries({"prompt_tokens": values, "completion_tokens": values}),
        "model": values,
        "error": values,
    },
)


@given(oddities | values)
def test_any_json_is_a_reply_or_an_error(answer):
    outcome = completion_reply(msgspec.json.encode(answer), REQUEST, PLACE)
    assert isinstance(outcome, ModelReplied | ModelErred)


@given(st.binary())
def test_any_bytes_are_a_reply_or_an_error(content):
    assert isinstance(completion_reply(content, REQUEST, PLACE), ModelReplied | ModelErred)


@given(st.text(st.characters(exclude_categories=())))
def test_safe_text_is_utf8_and_keeps_what_was_right(text):
    safe = text_safe({"k": [text]})["k"][0]
    safe.encode()
    lone = re.compile("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")
    assert safe.count("\ufffd") == text.count("\ufffd") + len(lone.findall(text))


@given(st.integers(0, 10**6))
def test_retry_after_as_a_date(seconds):
    now = datetime(2026, 1, 1, tzinfo=UTC)
    header = format_datetime(now + timedelta(seconds=seconds), usegmt=True)
    assert retry_after({"retry-after": header}, now) == seconds


@given(st.text())
def test_any_retry_after_is_a_wait_or_none(header):
    assert retry_after({"retry-after": header}, datetime(2026, 1, 1, tzinfo=UTC)) >= 0
