"""Where a key comes from, and that a curtain hides it wherever it stands and however it is cut."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from stepfold.engine.models.keys import HIDDEN, Curtain, Key, StreamCurtain, key_of, secrets_of
from stepfold.events.vocabulary import BLANK, NULL, ModelReplied, ToolCall, ToolStarted

SECRET = "sk-planted-0123456789"
keys = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=24)


def written(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    path = folder / "key"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", f"{SECRET}\n")
    assert key_of("MY_KEY") == Key(SECRET)


def test_a_key_comes_from_the_file_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY_FILE", str(written(tmp_path, f"{SECRET}\n".encode())))
    assert key_of("MY_KEY") == Key(SECRET)


def test_the_variable_goes_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", SECRET)
    monkeypatch.setenv("MY_KEY_FILE", str(tmp_path / "missing"))
    assert key_of("MY_KEY") == Key(SECRET)


def test_without_a_variable_there_is_no_key_and_no_problem() -> None:
    assert key_of("NO_SUCH_KEY_HERE") == key_of("") == Key()


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644])
def test_a_file_that_others_can_read_is_worth_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    path = written(tmp_path, SECRET.encode(), mode)
    monkeypatch.setenv("MY_KEY_FILE", str(path))

    key = key_of("MY_KEY")

    assert (key.value, key.problem) == (SECRET, "")
    assert f"chmod 600 {path}" in key.warning


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b" \n", "empty"),
        (b"\xff\xfe", "no text"),
        (b"two words", "holds a space"),
        (b"a\x00b", "holds a space"),
    ],
)
def test_a_file_without_a_usable_key_says_so_and_does_not_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, says: str
) -> None:
    monkeypatch.setenv("MY_KEY_FILE", str(written(tmp_path, content)))

    key = key_of("MY_KEY")

    assert key.value == ""
    assert says in key.problem
    assert "two words" not in key.problem


def test_what_is_no_plain_file_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, says in (("pipe", "no small file"), ("missing", "can't be read"), ("", "no small file")):
        monkeypatch.setenv("MY_KEY_FILE", str(tmp_path / name))
        assert says in key_of("MY_KEY").problem


def test_a_key_does_not_show_itself() -> None:
    assert SECRET not in repr(Key(SECRET))


def test_a_url_may_hold_secrets_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", SECRET)
    found = secrets_of("MY_KEY", "https://me:p%40ssword@host/v1?api-version=2024-10-21")
    assert found == (SECRET, "p@ssword", "2024-10-21")
    assert secrets_of("", "http://[half") == ()


def test_an_event_is_cleaned_however_deep_and_keeps_its_defaults() -> None:
    calls = (ToolCall("c", "echo", json.dumps({"said": SECRET})),)
    reply = ModelReplied(*BLANK, text=f"it is {SECRET}.", tool_calls=calls)
    started = ToolStarted(
        *BLANK, row="r", call_id="c", name="n", key="k", arguments=Raw(f'"{SECRET}"'.encode())
    )
    plain = ToolStarted(*BLANK, row="r", call_id="c", name="n", key="k")
    curtain = Curtain([SECRET])

    assert SECRET not in repr(curtain.value(reply))
    assert curtain.value(reply).text == f"it is {HIDDEN}."
    assert bytes(curtain.value(started).arguments) == f'"{HIDDEN}"'.encode()
    assert curtain.value(plain).arguments is NULL


def test_a_placeholder_is_no_secret() -> None:
    assert Curtain(["ollama", ""]).text("ask ollama") == "ask ollama"


@given(keys, st.text(max_size=8), st.text(max_size=8))
def test_a_secret_is_hidden_in_every_way_of_writing_it(key: str, before: str, after: str) -> None:
    curtain = Curtain([key])
    for said in (
        before + key + after,
        json.dumps(before + key + after),
        repr(f"{before}{key}{after}".encode()),
    ):
        assert key not in curtain.text(said)
        assert key.encode() not in curtain.content(said.encode("utf-8", "replace"))


@given(st.data())
def test_a_stream_is_cleaned_as_the_whole_text_is(data: Any) -> None:
    # Of few letters, so that secrets overlap with themselves and with what stands around them.
    key = data.draw(st.text("ab", min_size=8, max_size=10))
    text = "".join(data.draw(st.lists(st.sampled_from([key, key[:5], "a", "ab", "b", "c"]), max_size=12)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    curtain = Curtain([key])
    stream = StreamCurtain(curtain)

    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    shown = "".join([stream.feed(piece) for piece in pieces]) + stream.end()

    assert shown == curtain.text(text)
    assert key not in shown
