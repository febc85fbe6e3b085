"""Structured calls as the text that the strict parser judges; thinking split off before it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.models.envelope import as_action, call_text, reply_text
from stepfold.engine.models.reasoning import ReasoningSplitter, split_reasoning
from stepfold.events.vocabulary import BLANK, ModelReplied, ToolCall


@given(st.text(), st.dictionaries(st.text(), st.integers()))
def test_one_call_reads_as_the_envelope(name, arguments):
    text = call_text((ToolCall("c", name, json.dumps(arguments)),))
    assert json.loads(text) == {"name": name, "arguments": arguments}


@given(st.text(st.characters(exclude_categories=())))
def test_arguments_go_in_as_they_came(arguments):
    assert call_text((ToolCall("c", "x", arguments),)) == f'{{"name": "x", "arguments": {arguments}}}'


def test_several_calls_read_as_an_array():
    calls = (ToolCall("a", "x", "{}"), ToolCall("b", "y", "{}"))
    assert json.loads(call_text(calls)) == [{"name": "x", "arguments": {}}, {"name": "y", "arguments": {}}]


def test_an_action_takes_the_calls_and_keeps_what_was_said_beside_them():
    replied = ModelReplied(
        *BLANK, text="I verify.", tool_calls=(ToolCall("c", "verify", "{}"),), reasoning="hm"
    )
    action = as_action(replied)
    assert action == ModelReplied(
        *BLANK, text='{"name": "verify", "arguments": {}}', reasoning="hm\nI verify."
    )
    assert as_action(action) == action


def test_text_parts_are_joined_and_arguments_as_objects_are_written():
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, "b"]
    calls = [{"function": {"name": "x", "arguments": {"k": "ü"}}}, "junk", {"function": None, "id": 4}]
    assert reply_text({"content": parts, "tool_calls": calls}) == (
        "ab",
        (ToolCall("", "x", '{"k": "ü"}'), ToolCall("", "", "")),
    )


def test_only_blocks_before_the_reply_are_thinking():
    assert split_reasoning("<think>a</think>\n<think> b </think>\n c <think>d</think>") == (
        "c <think>d</think>",
        "a\nb",
    )
    assert split_reasoning(' {"x": "<think>a</think>"}') == (' {"x": "<think>a</think>"}', "")
    assert split_reasoning("<think>never closed") == ("", "never closed")
    assert split_reasoning("<thi") == ("<thi", "")


HARMONY = (
    "<|channel|>analysis<|message|>Look first.<|end|><|start|>assistant<|channel|>commentary<|message|>"
    'I look.<|end|><|start|>assistant<|channel|>final<|message|>{"name": "verify", "arguments": {}}'
)


@pytest.mark.parametrize(
    ("said", "reply", "thought"),
    [
        (HARMONY, '{"name": "verify", "arguments": {}}', "Look first.\nI look."),
        ("<|channel|>final<|message|>yes", "yes", ""),
        (f"{HARMONY}<|return|>", '{"name": "verify", "arguments": {}}', "Look first.\nI look."),
        ("<|channel|>final<|message|>yes<|return|>\n", "yes", ""),
        ("<|channel|>final<|message|>yes<|end|>", "yes", ""),
        ("<|channel|>final<|message|>a < b <|ret", "a < b <|ret", ""),
        ("<|channel|>final<|message|><|return|> is a mark", "<|return|> is a mark", ""),
        ("<|channel|>final<|message|><", "<", ""),
        ("<|channel|>final<|message|> <|return", "<|return", ""),
        ("yes<|return|>", "yes<|return|>", ""),
        ("[THINK]hm[/THINK]yes", "yes", "hm"),
        ("[THINK]a</think>b", "", "a</think>b"),
        ("<|channel|>other<|message|>yes", "<|channel|>other<|message|>yes", ""),
    ],
)
def test_thinking_as_other_models_write_it(said, reply, thought):
    assert split_reasoning(said) == (reply, thought)

    splitter = ReasoningSplitter()
    shown = "".join([splitter.feed(letter) for letter in said] + [splitter.end()])
    assert (shown, splitter.reasoning) == (reply, thought)


tagged = st.lists(
    st.sampled_from(["<think>", "</think>", "<thi", "nk>", "</", "</think", ">", "a", " ", "\n", "{", "<"]),
    max_size=12,
)


def test_a_closing_tag_may_come_letter_by_letter():
    splitter = ReasoningSplitter()
    shown = "".join([splitter.feed(letter) for letter in "<think>a</think>b"] + [splitter.end()])
    assert (shown, splitter.reasoning) == ("b", "a")


@given(tagged)
def test_how_the_text_is_cut_does_not_matter(pieces):
    splitter = ReasoningSplitter()
    shown = "".join([splitter.feed(piece) for piece in pieces] + [splitter.end()])
    assert (shown, splitter.reasoning) == split_reasoning("".join(pieces))


@given(tagged)
def test_what_is_not_shown_is_kept_as_reasoning(pieces):
    text = "".join(pieces)
    shown, reasoning = split_reasoning(text)
    assert text.endswith(shown)
    assert without_tags(reasoning) == without_tags(text.removesuffix(shown))


def without_tags(text):
    return "".join(text.replace("<think>", "").replace("</think>", "").split())


harmony = st.lists(
    st.sampled_from(
        ["<|channel|>final<|message|>", "<|return|>", "<|end|>", "<|ret", "urn|>", "<", " ", "a"]
    ),
    max_size=10,
)


@given(harmony)
def test_nor_does_it_where_the_final_channel_ends(pieces):
    splitter = ReasoningSplitter()
    shown = "".join([splitter.feed(piece) for piece in pieces] + [splitter.end()])
    assert (shown, splitter.reasoning) == split_reasoning("".join(pieces))
