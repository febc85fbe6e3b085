"""One reply is one action or one of nine errors: examples, each with the rule it stands for."""

import base64
import json
from pathlib import Path

import pytest

from stepfold.engine.contract.envelope import ERRORS, Action, ActionParseError, parse_action
from stepfold.engine.contract.schemas import TOOLS

DATA = Path(__file__).parents[2] / "data"
LINES = [
    pytest.param(line, id=json.loads(line)["id"])
    for file in ("replies.jsonl", "real_replies.jsonl")
    for line in (DATA / file).read_bytes().split(b"\n")
    if line
]
FINISH = '{"name": "finish", "arguments": {"summary": "done"}}'


def raw_reply(case: dict[str, str]) -> str | bytes:
    return case["raw"] if "raw" in case else base64.b64decode(case["raw_b64"])


def kind(parsed: Action | ActionParseError) -> str:
    return "Action" if isinstance(parsed, Action) else parsed.error


def rejected(reply: str | bytes) -> ActionParseError:
    parsed = parse_action(reply)
    assert isinstance(parsed, ActionParseError)
    return parsed


def called(value: str) -> str:
    return f'{{"name":"capability_call","arguments":{{"capability":"x","arguments":{{"v":{value}}}}}}}'


@pytest.mark.parametrize("line", LINES)
def test_every_labelled_reply_is_what_its_label_says(line: bytes) -> None:
    case = json.loads(line)
    reply = raw_reply(case)

    parsed = parse_action(reply)

    assert kind(parsed) == case["expect"]
    if isinstance(parsed, Action):
        text = reply if isinstance(reply, str) else reply.decode()
        assert json.loads(text[parsed.start : parsed.end]) == parsed.arguments
        assert text[parsed.start] == "{" and text[parsed.end - 1] == "}"
    else:
        assert 0 < len(parsed.detail) <= 300
        assert parsed.detail.isascii() and parsed.detail.isprintable()


def test_both_data_files_are_there_in_full() -> None:
    assert len(LINES) == 93 + 136


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"", "Empty"),
        (" \t\r\n", "Empty"),
        ("```json\n \t\n```", "Empty"),
        ("```json```", "Empty"),
        ("\x0b", "NotJson"),
        ("\u2028" + FINISH, "NotJson"),
        ("\ufeff", "NotJson"),
        ("\ufeff".encode() + FINISH.encode(), "NotJson"),
        ("\x00", "NotJson"),
        ("\ud800", "NotJson"),
        ('"\ud800"', "NotJson"),
        (called('"\\ud83c\\ud83c"'), "NotJson"),
        (called('"\\\\ud83c"'), "Action"),
        (called('{"\\udfff":1}'), "NotJson"),
        (b"\xed\xa0\x80", "NotJson"),
        ("-Infinity", "NotJson"),
        (called("-Infinity"), "NotJson"),
        (called("-1e999"), "NotJson"),
        (called("1e-999"), "Action"),
        (called("1" * 4300), "Action"),
        (called("-" + "1" * 4300), "Action"),
        (called("1" * 4301), "NotJson"),
        (called("01"), "NotJson"),
        (called("+1"), "NotJson"),
        (called("1."), "NotJson"),
        (called("0x10"), "NotJson"),
        (called("\uff11"), "NotJson"),
        (called("/* no */ 1"), "NotJson"),
        (called("[" * 125 + "]" * 125), "Action"),
        (called("[" * 126 + "]" * 126), "NotJson"),
        ("[" * 128 + "]" * 128, "NotObject"),
        ("[" * 129 + "]" * 129, "NotJson"),
        (called(json.dumps("[" * 500)), "Action"),
        (called(json.dumps('\\"[' * 500)), "Action"),
        (called('{"a":1,"\\u0061":2}'), "NotJson"),
        ("```json5```", "NotJson"),
        ("```json 5```", "NotObject"),
        ("```jsonnull```", "NotJson"),
        ("```json" + FINISH + "```", "Action"),
        (" \n```json\n" + FINISH + "```\t\n", "Action"),
        ("```json\n```json\n" + FINISH + "\n```\n```", "NotJson"),
        ("````json\n" + FINISH + "\n````", "NotJson"),
        ("```json\n" + FINISH + "\n````", "NotJson"),
        ("```json\n" + FINISH, "NotJson"),
        ("```json\n" + FINISH + "\n```\u00a0", "NotJson"),
        ('{"name":1,"arguments":2,"x":3}', "ExtraTopLevelKeys"),
        ('{"name":null}', "MissingName"),
        ('{"name":"nope","arguments":[]}', "ArgumentsNotObject"),
        ('{"name":"verify","arguments":{"checks":[]}}', "Action"),
        ('{"name":"capability_load","arguments":{"names":[]}}', "SchemaInvalid"),
        ('{"name":"finish","arguments":{"summary":true}}', "SchemaInvalid"),
    ],
)
def test_the_rules_of_the_contract(reply: str | bytes, error: str) -> None:
    assert kind(parse_action(reply)) == error


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (FINISH + "}", "one closing brace too many after a whole object (line 1, column 53)"),
        (FINISH + " }\n}", "2 closing braces too many after a whole object (line 1, column 54)"),
        (FINISH[:-1], "one closing brace is missing at the end of the reply"),
        (FINISH[:33], "the reply ends while 2 brackets are still open"),
        (FINISH[:-4], "the reply ends inside a string that begins at line 1, column 45"),
        ('{"a": "x\\u12', "the reply ends inside an escape"),
        ('{"a": [tru', "the reply ends while 2 brackets are still open"),
        ('{"a": -', "the reply ends while 1 bracket is still open"),
        (FINISH + FINISH, "a second JSON object after the first (line 1, column 53)"),
        (FINISH + "\nDone.", 'text after the JSON: "Done." (line 2, column 1)'),
        ("Sure: " + FINISH, "text before the JSON object: the reply begins with"),
        ("I am done.", 'no JSON object: the reply begins with "I am done."'),
        ("<think>hm</think>" + FINISH, "reasoning before the JSON object"),
        ("{'name': 1}", "single quotes where JSON needs double quotes"),
        ("```\n" + FINISH + "\n```", 'a code fence without the tag "json"'),
        ("```JSON\n" + FINISH + "\n```", 'a code fence tagged "JSON" is not stripped'),
        ('{"a": [1,\n ]}', "a comma with nothing after it (line 1, column 9)"),
        ('{"a": 1,}', "a comma with nothing after it (line 1, column 8)"),
        ('{"a": "x\ny"}', "a raw line break; write \\n (line 1, column 9)"),
        ('{"a": None}', "None is not JSON; write null (line 1, column 7)"),
        ('{"NaN": "NaN",\n"b": NaN}', "NaN is not JSON; write a number or null (line 2, column 6)"),
        ('{"a": {"b": 1, "b": 2}}', 'duplicate key "b"'),
        ('{"a": "x"y"}', 'a string ends too early before "y"'),
        (b'{"a": "\xe9"}', "not UTF-8: byte 0xE9 at offset 7"),
    ],
)
def test_a_detail_says_what_stood_where(reply: str | bytes, sentence: str) -> None:
    error = rejected(reply)

    assert error.error == "NotJson"
    assert sentence in error.detail
    assert error.message == f"NotJson: {error.detail}"


def test_extra_keys_are_named_in_the_order_met() -> None:
    detail = rejected('{"zeta": 1, "name": "finish", "alpha": 2}').detail
    assert detail.endswith('"zeta", "alpha"')


@pytest.mark.parametrize(
    "name", ["fs.read", "verify\u200b", "v\u0435rify", "\U0001f600" * 500, "x" * 10**6, "\x1b[2J"]
)
def test_an_unknown_tool_is_shown_escaped_beside_all_eight(name: str) -> None:
    error = rejected(
        json.dumps({"name": name, "arguments": {}}, ensure_ascii=False).replace("\x1b", "\\u001b")
    )

    assert error.error == "UnknownTool"
    assert all(tool in error.detail for tool in TOOLS)
    assert error.detail.isascii() and error.detail.isprintable() and len(error.detail) <= 300


def test_a_schema_error_joins_every_message() -> None:
    error = rejected('{"name":"finish","arguments":{"zeta":1,"alpha":2}}')

    assert error.detail == 'finish: arguments must have "summary"; arguments may not have "zeta", "alpha"'


@pytest.mark.parametrize("template", ["{}", " \n{}\n", "```json\n{}\n```", "\r\n```json {}```\n\n"])
@pytest.mark.parametrize(
    "envelope",
    [
        '{ "name" :"finish", "arguments" : %s }',
        '{"arguments":%s  ,"name":"finish"}',
        '{"argu\\u006dents":%s,"n\\u0061me":"f\\u0069nish"}',
    ],
)
def test_the_span_is_the_exact_text_of_the_arguments(template: str, envelope: str) -> None:
    arguments = '{ "summary" : "a } \\" \\\\ \\u00e9 é \U0001f600 { ```json" }'
    reply = template.replace("{}", envelope % arguments)

    parsed = parse_action(reply.encode())

    assert isinstance(parsed, Action)
    assert reply[parsed.start : parsed.end] == arguments


def test_a_validator_that_fails_is_a_failed_validation() -> None:
    class Broken:
        def validate(self, arguments: object) -> tuple[str, ...]:
            raise ZeroDivisionError

    parsed = parse_action(FINISH, {"finish": Broken()})

    assert isinstance(parsed, ActionParseError)
    assert (parsed.error, parsed.tool) == ("SchemaInvalid", "finish")


def test_the_nine_names_are_all_reachable() -> None:
    replies = [
        "",
        "x",
        "[]",
        '{"x":1}',
        "{}",
        '{"name":"x"}',
        '{"name":"x","arguments":1}',
        '{"name":"x","arguments":{}}',
        '{"name":"finish","arguments":{}}',
    ]
    assert tuple(map(kind, map(parse_action, replies))) == ERRORS
