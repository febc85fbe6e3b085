"""The ways in which models miss the contract: each a deed done to a valid action, and what must answer it.

Every kind was seen in a real reply of a small model, or is what a parser has stumbled over elsewhere.
"""

import html
import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]
Arguments = dict[str, Any]
Deed = Callable[[Draw, str, Arguments], tuple[str | bytes, tuple[str, ...]]]
"""Makes a malformed reply of an action: the reply, and the errors that may answer it."""

NOT_JSON = ("NotJson",)
SIZES = (200, 20_000, 1_000_000)
"""Characters of what is made huge; shrinking goes to the smallest."""

_TAGS = ("JSON", "json5", "jsonc", "python", "", "tool_call", "javascript", "js\u043en")
_PROSE = (
    "Sure! ",
    "I will now call the tool:\n",
    "Action: ",
    "x",
    "\u00a0",
    "\ufeff",
    "\x00",
    "0",
    "{}",
    "// ",
)
_MARKUP = (
    *("<tool_call>\n{}\n</tool_call>", "{}<|im_end|>", "[TOOL_CALLS] {}", "<function=x>{}</function>"),
    *("<|channel|>commentary<|message|>{}", "<s>{}</s>", "<tool_code>{}</tool_code>", "{}<end_of_turn>"),
)
_CONTROL = ("\x00", "\x01", "\x08", "\x0b", "\x1b[2J", "\x1f", "\n", "\t")
_ESCAPES = ("\\x41", "\\'", "\\u12", "\\u{41}", "\\a", "\\", "\\U0001F600")
_NUMBERS = ("1e999", "-1e400", "9" * 5000, "-" + "1" * 4301, "01", "1.", ".5", "+1", "0x10", "1_000", "--1")


def written(name: str, arguments: Arguments) -> str:
    """The action as plain JSON."""
    return json.dumps({"name": name, "arguments": arguments})


def _with_value(name: str, arguments: Arguments, value: str) -> str:
    """The action with one more argument, whose value is written as given."""
    opening = json.dumps(arguments)[:-1] + (", " if arguments else "")
    return f'{{"name": {json.dumps(name)}, "arguments": {opening}"{_free_key(arguments)}": {value}}}}}'


def _free_key(arguments: Arguments) -> str:
    key = "extra"
    while key in arguments:
        key += "_"
    return key


def _chosen(*texts: str) -> st.SearchStrategy[str]:
    return st.sampled_from(texts)


def fence(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """A fence that is not the one that may be stripped."""
    whole = written(name, arguments)
    tag = draw(_chosen(*_TAGS))
    shape = draw(
        _chosen("```{}\n{}\n```", "~~~{}\n{}\n~~~", "```json\n{1}\n```\n```json\n{1}\n```", "{1}\n```")
    )
    return shape.replace("{1}", whole).replace("{}", tag, 1).replace("{}", whole), NOT_JSON


def open_fence(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """A fence that never closes, or closes with too little."""
    return f"```json\n{written(name, arguments)}{draw(_chosen('', chr(10), '`', '``'))}", NOT_JSON


def prose(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """Words before or behind, with or without a sound fence between them."""
    whole = draw(_chosen("{}", "```json\n{}\n```")).replace("{}", written(name, arguments))
    words = draw(st.sampled_from(_PROSE))
    return (words + whole if draw(st.booleans()) else f"{whole}\n{words}"), NOT_JSON


def think_block(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """Reasoning left in the reply, closed or not, with or without a draft of the action in it."""
    whole = written(name, arguments)
    inner = draw(_chosen("The tests pass.", whole, "", "[1] {maybe}"))
    return draw(_chosen("<think>{}</think>\n", "<think>{}\n", "{}</think>")).replace(
        "{}", inner
    ) + whole, NOT_JSON


def call_markup(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """The markup of a chat template, printed as text."""
    return draw(st.sampled_from(_MARKUP)).replace("{}", written(name, arguments)), NOT_JSON


def other_notation(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """The call in another language."""
    pairs = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    lines = "\n".join(f"{key}: {value}" for key, value in arguments.items())
    forms = (f"{name}({pairs})", f"name: {name}\narguments:\n{lines}", f"<{name}>{lines}</{name}>")
    escaped = html.escape(written(name, arguments))
    return draw(_chosen(*forms, escaped)), NOT_JSON


def python_dict(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """What Python prints of the dict."""
    return repr({"name": name, "arguments": arguments}), NOT_JSON


def curly_quotes(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """Typographic quotes as structure."""
    return "{“name”: “" + name + "”, “arguments”: {}}", NOT_JSON


def trailing_comma(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """A comma before a closing bracket, or a comment where none may stand."""
    whole = written(name, arguments)
    tail = draw(_chosen(",", " ,\n", " // done\n", " /* x */", ";", ",,"))
    return (whole[:-1] + tail + "}" if draw(st.booleans()) else whole[:-2] + tail + "}}"), NOT_JSON


def not_a_number(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """NaN and its like, which Python's own reader takes."""
    value = draw(_chosen("NaN", "Infinity", "-Infinity", "undefined", "None", "True", "nul", "nan"))
    return _with_value(name, arguments, draw(_chosen(value, f"[{value}]", f'{{"a": {value}}}'))), NOT_JSON


def huge_number(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """Numbers that don't stay finite, that Python refuses, or that JSON doesn't write so."""
    return _with_value(name, arguments, draw(st.sampled_from(_NUMBERS))), NOT_JSON


def duplicate_key(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """One key twice, so that two readers could read two actions; also behind an escape, also deep."""
    inner = json.dumps(arguments)
    again = draw(_chosen('"name": "finish"', '"n\\u0061me": "x"', '"arguments": {}', f'"arguments": {inner}'))
    whole = f'{{"name": {json.dumps(name)}, "arguments": {inner}'
    deep = _with_value(name, arguments, draw(_chosen('{"a": 1, "a": 1}', '[{"a": {}, "\\u0061": []}]')))
    return draw(_chosen(f"{whole}, {again}}}", deep)), NOT_JSON


def double_encoded(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """JSON inside a JSON string: the arguments, or the whole."""
    inner = json.dumps({"name": name, "arguments": json.dumps(arguments)})
    if draw(st.booleans()):
        return inner, ("ArgumentsNotObject",)
    return json.dumps(written(name, arguments)), ("NotObject",)


def renamed_keys(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """The right things under other names."""
    called = draw(_chosen("tool", "function", "action", "Name", "name ", "tool_name", "name"))
    given = draw(_chosen("input", "parameters", "args", "Arguments", "action_input", " arguments"))
    return json.dumps({called: name, given: arguments}), ("ExtraTopLevelKeys",)


def extra_key(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """A key more than the two, first or last."""
    key = draw(_chosen("thought", "id", "type", "reasoning", "", "NAME", "\u0000", "arguments "))
    whole = {"name": name, "arguments": arguments}
    return json.dumps({key: "x", **whole} if draw(st.booleans()) else {**whole, key: None}), (
        "ExtraTopLevelKeys",
    )


def two_objects(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """Two actions in one reply."""
    whole = written(name, arguments)
    return whole + draw(_chosen("", "\n", " ", ",", "\n\n---\n")) + draw(
        _chosen(whole, "{}", "[]", "null")
    ), NOT_JSON


def in_an_array(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """The action in a list, alone or with others."""
    return f"[{written(name, arguments)}{draw(_chosen('', ', null', ', {}'))}]", ("NotObject",)


def scalar(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """No object at all."""
    return draw(_chosen("null", "true", '""', "0", "-1.5e3", "[]", json.dumps(name))), ("NotObject",)


def truncated(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """Cut off, as a token limit does it."""
    whole = written(name, arguments)
    return whole[: draw(st.integers(1, len(whole) - 1))], NOT_JSON


def control_character(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """A control character inside a string, unescaped."""
    return _with_value(name, arguments, f'"a{draw(st.sampled_from(_CONTROL))}b"'), NOT_JSON


def bad_escape(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """An escape that JSON doesn't have."""
    return _with_value(name, arguments, f'"C:{draw(st.sampled_from(_ESCAPES))}"'), NOT_JSON


def surrogate(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """Half of a surrogate pair, as it is or behind an escape, in a value or in a key."""
    half = draw(_chosen("\\ud83c", "\\uDF78", "\ud800", "\udfff", "\\uD83C\\u0041", "\\udf78\\ud83c"))
    return _with_value(
        name, arguments, draw(_chosen(f'"{half}"', f'{{"{half}": 1}}', f'["x", "{half}y"]'))
    ), NOT_JSON


def odd_blank(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """White space that JSON doesn't know: a BOM, a no-break space, a form feed, a line separator."""
    blank = draw(_chosen("\ufeff", "\u00a0", "\x0c", "\u2028", "\u200b", "\x0b"))
    whole = written(name, arguments)
    return draw(
        _chosen(blank + whole, whole + blank, "{" + blank + whole[1:], whole[:-1] + blank + "}")
    ), NOT_JSON


def deep_nest(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """Deeper than the contract goes, closed or not."""
    levels = draw(st.sampled_from((127, 128, 1000, 100_000)))
    opening, closing = draw(st.sampled_from((("[", "]"), ('{"a":', "}"))))
    middle = "" if opening == "[" else "1"
    if draw(st.booleans()):
        return opening * (levels + 2), NOT_JSON
    return _with_value(name, arguments, opening * levels + middle + closing * levels), NOT_JSON


def megabytes(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """A fault at the far end of very much text."""
    size = draw(st.sampled_from(SIZES))
    whole = written(name, arguments)
    filler = draw(_chosen("lorem ipsum ", "\\n", "{", '"', "```json\n", "\\", "[1,"))
    long = filler * (size // len(filler))
    return draw(
        _chosen(whole + long + "x", long + whole, f"{whole}{' ' * size}x", " " * size + "```json")
    ), NOT_JSON


def bad_bytes(draw: Draw, name: str, arguments: Arguments) -> tuple[bytes, tuple[str, ...]]:
    """Bytes that are no UTF-8."""
    whole = written(name, arguments)
    broken = draw(
        st.sampled_from((b"\xff", b"\xe9", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80"))
    )
    if draw(st.booleans()):
        return whole.encode("utf-16"), NOT_JSON
    return whole[:-1].encode() + broken + b"}", NOT_JSON


def no_name(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """Nothing, or something else than a string, where the name should be."""
    value = draw(st.sampled_from((None, 1, True, [name], {"name": name})))
    whole: Arguments = {"arguments": arguments}
    return json.dumps(whole if draw(st.booleans()) else {"name": value, **whole}), ("MissingName",)


def no_arguments(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """The name alone."""
    return json.dumps({"name": draw(_chosen(name, "fs.read", ""))}), ("MissingArguments",)


def other_arguments(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """Arguments that are no object."""
    value = draw(st.sampled_from((None, 0, False, "", "{", [], [arguments], "{}")))
    return json.dumps({"name": name, "arguments": value}), ("ArgumentsNotObject",)


def unknown_tool(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """A name near a right one, or of something that is not at the top level."""
    shape = draw(_chosen("{} ", " {}", "functions.{}", "{}\u200b", "{}<|channel|>", "\n{}", "{}.x"))
    near = draw(_chosen(shape.replace("{}", name), name.upper() + "!", "", "\u0000", "nobody.knows.it"))
    return json.dumps({"name": near, "arguments": arguments}), ("UnknownTool",)


def empty(draw: Draw, name: str, arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """Nothing but white space, also in a fence."""
    blank = draw(st.text(" \t\r\n", max_size=4))
    return draw(_chosen(blank, f"```json{blank}```", f"{blank}```json\n```{blank}")), ("Empty",)


DEEDS: dict[str, Deed] = {
    deed.__name__: deed
    for deed in (
        *(empty, truncated, prose, fence, open_fence, think_block, call_markup, other_notation, python_dict),
        *(curly_quotes, trailing_comma, not_a_number, huge_number, duplicate_key, control_character),
        *(bad_escape, surrogate, odd_blank, bad_bytes, deep_nest, megabytes, two_objects, in_an_array),
        *(scalar, double_encoded, renamed_keys, extra_key, no_name, no_arguments, other_arguments),
        unknown_tool,
    )
}
"""Every kind of malformed reply by name."""
