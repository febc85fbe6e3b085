"""The page on agents: its code runs from top to bottom, and prints what the page shows."""

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/agents.md"
_BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps(page: str) -> Iterator[tuple[str, str]]:
    """Each block of code with the output that stands under it; nothing printed, nothing shown."""
    code = ""
    for kind, body in _BLOCK.findall(page):
        if kind == "text":
            yield code, body
            code = ""
            continue
        if code:
            yield code, ""
        code = body
    if code:
        yield code, ""


def test_the_code_of_the_page_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    count = 0
    for code, shown in steps(PAGE.read_text(encoding="utf-8")):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(PAGE), "exec"), names)
        assert printed.getvalue() == shown, code
        count += 1
    assert count > 8


def test_a_block_without_output_is_a_step_of_its_own() -> None:
    page = "```python\na = 1\n```\nthen\n```python\nprint(a)\n```\n```text\n1\n```\n"
    assert list(steps(page)) == [("a = 1\n", ""), ("print(a)\n", "1\n")]
