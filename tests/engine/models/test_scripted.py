"""Scripts: what they answer, and what is said of a broken one."""

import asyncio
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stepfold.engine.models.protocol import Request
from stepfold.engine.models.scripted import Script, ScriptError
from stepfold.events.configuration import Generation
from stepfold.events.vocabulary import BLANK, Message, ModelErred, ModelReplied, ToolCall


def asked(call, attempt=0):
    return Request("m", (Message("user", "12345"),), Generation(), None, call=call, attempt=attempt)


def play(content, call=1):
    return Script.parse(content).reply(asked(call))


def test_line_n_answers_call_n_whatever_was_asked_before():
    script = Script.parse(b'{"text": "a"}\n{"text": "b"}\n{"text": "c"}\n')
    assert [script.reply(asked(n)).text for n in (3, 1, 2)] == ["c", "a", "b"]


def test_text_is_kept_as_it_is():
    text = "<think>no</think> \u2028 \ud800 \x00 {}"
    assert play(json.dumps({"text": text}).encode()).text == text


def test_unicode_line_separators_do_not_end_a_line():
    script = Script.parse('{"text": "a\u2028b\x85c"}\n{"text": "d"}'.encode())
    assert (len(script), script.reply(asked(1)).text) == (2, "a\u2028b\x85c")


def test_usage_is_taken_or_estimated():
    given_usage = play(b'{"text": "x", "usage": {"prompt_tokens": 9, "completion_tokens": 8}}')
    assert (given_usage.input_tokens, given_usage.output_tokens, given_usage.estimated) == (9, 8, False)
    estimated = play(b'{"text": "123456789"}')
    assert (estimated.input_tokens, estimated.output_tokens, estimated.estimated) == (2, 3, True)


def test_a_message_brings_its_tool_calls():
    call = {"id": "c", "function": {"name": "verify", "arguments": "{}"}}
    reply = play(json.dumps({"message": {"content": None, "tool_calls": [call]}}).encode())
    assert (reply.text, reply.tool_calls, reply.finish_reason) == (
        "",
        (ToolCall("c", "verify", "{}"),),
        "tool_calls",
    )


def test_errors_in_short_and_in_full():
    assert play(b'{"error": "timeout"}') == ModelErred(
        *BLANK, error="timeout", detail="written in the script"
    )
    assert play(b'{"error": "server"}').retryable
    full = {"kind": "rate_limited", "detail": "slow", "retryable": False, "retry_after": 2, "status": 429}
    assert play(json.dumps({"error": full}).encode()) == ModelErred(
        *BLANK, error="rate_limited", detail="slow", retryable=False, retry_after=2.0, status=429
    )


def test_past_the_end_the_error_says_how_long_the_script_is():
    erred = play(b'{"text": "a"}', call=2)
    assert erred.error == "script_exhausted"
    assert "has 1 line," in erred.detail
    assert not erred.retryable


def test_a_delay_is_awaited():
    async def awaited():
        return await Script.parse(b'{"text": "a", "delay_ms": 1}').reply(asked(1))

    assert asyncio.run(awaited()).text == "a"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"text": "a"', "no JSON"),
        (b'{"text": NaN}', "text is no string"),
        (b"[1]", "no object"),
        (b'{"txt": "a"}', "did you mean 'text'"),
        (b"{}", "exactly one of"),
        (b'{"text": "a", "error": "b"}', "text and error"),
        (b'{"text": 3}', "text is no string"),
        (b'{"message": "a"}', "message is no object"),
        (b'{"text": "a", "usage": {"prompt_tokens": -1}}', "usage needs"),
        (b'{"text": "a", "delay_ms": -1}', "delay_ms"),
        (b'{"text": "a", "delay_ms": true}', "delay_ms"),
        (b'{"error": 4}', "error is neither"),
        (b'{"error": {"detail": "x"}}', "error.kind"),
        (b'{"error": {"kind": "x", "retryable": 1}}', "error.retryable"),
        (b"\xff", "not UTF-8"),
        (b"", "is blank"),
        (b"[" * 100_000, "no JSON"),
        (b"1" * 5_000, "no JSON"),
    ],
)
def test_a_broken_line_is_named(line, says):
    with pytest.raises(ScriptError, match="line 2") as caught:
        Script.parse(b'{"text": "a"}\n' + line + b'\n{"text": "b"}\n')
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ScriptError, match=r"none\.jsonl"):
        Script.load(tmp_path / "none.jsonl")


@given(st.lists(st.text(st.characters(exclude_categories=()))))
@example(["\ud800\udc00", "\ud800"])
def test_every_text_comes_back(texts):
    # JSON itself joins an escaped pair of surrogates to one character, so what its own reader makes counts.
    lines = [json.dumps({"text": text}) for text in texts]
    script = Script.parse("".join(f"{line}\n" for line in lines).encode())
    replies = [script.reply(asked(n)).text for n in range(1, len(texts) + 1)]
    assert replies == [json.loads(line)["text"] for line in lines]


@given(st.binary())
def test_any_bytes_are_a_script_or_a_script_error(content):
    try:
        script = Script.parse(content)
    except ScriptError:
        return
    assert isinstance(script.reply(asked(1)), ModelReplied | ModelErred)
