"""Every page holds: its commands print what it shows, its Python runs, its tables say what the code does."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepfold.engine.cli.main import COMMANDS
from stepfold.engine.runtime.settings import Settings
from stepfold.engine.runtime.settings_file import FILE_NAME, parse_settings
from tests.docs.pages import PAGES, ROOT, Shell, agrees, blocks_of, typed_in

NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
ALL = sorted([*PAGES, *(page for page in ROOT.glob("*.md") if page.name != "README.md")])


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_page_can_be_played_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for block in blocks_of(page):
        where = f"{page.name}, block at line {block.line}"
        if block.language == "console":
            for typed in typed_in(block):
                code, came = shell.type(typed.command)
                assert code == 0, f"{where}: {typed.command!r} ended with {code}:\n{came}"
                if typed.shown:
                    assert agrees(typed.shown, came), f"{where}: {typed.command!r} prints\n{came}"
        elif block.language == "python":
            code, came = shell.python(block.text)
            assert code == 0, f"{where}: {came}"


@pytest.mark.parametrize(
    ("shown", "came", "agree"),
    [
        ("a\nb", "a\nb\n", True),
        ("a … c", "a b c", True),
        ("a\n…\nc", "a\n1\n2\nc", True),
        ("a…", "a", True),
        ("a  b", "a  b   ", True),
        ("a", "a\nb", False),
        ("a … d", "a b c", False),
        ("a.c", "abc", False),
    ],
)
def test_an_ellipsis_stands_for_anything_and_the_rest_for_itself(shown: str, came: str, agree: bool) -> None:
    assert agrees(shown, came) is agree


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_toml_block_is_a_configuration(page: Path) -> None:
    for block in blocks_of(page):
        if block.language == "toml":
            parse_settings(block.text.encode(), f"{page.name}:{block.line}")


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.name)
def test_every_link_into_the_project_leads_somewhere(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", text):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_readme_names_every_command_and_no_other() -> None:
    rows = re.findall(r"^\| `stepfold (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)

    assert sorted(rows) == sorted(COMMANDS)


def keys_of(shape: type[msgspec.Struct], prefix: str = "") -> list[tuple[str, str]]:
    """Every key below a table, with its default as TOML writes it."""
    found: list[tuple[str, str]] = []
    for field in msgspec.structs.fields(shape):
        name = f"{prefix}{field.name}"
        candidates = (field.type, *getattr(field.type, "__args__", ()))
        inner = [kind for kind in candidates if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
        if not inner:
            found.append((name, as_toml(field)))
        elif field.type is inner[0]:
            found.extend(keys_of(inner[0], f"{name}."))
        else:
            found.extend(keys_of(inner[0], f"{name}[]." if "list" in str(field.type) else f"{name}.<name>."))
    return found


def as_toml(field: Any) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return {list: "[]", dict: "{}"}[field.default_factory]
    match field.default:
        case msgspec.NODEFAULT:
            return "required"
        case None:
            return "unset"
        case bool() as value:
            return str(value).lower()
        case str() as value:
            return f'"{value}"'
        case tuple() as value:
            return str(list(value))
        case value:
            return str(value)


def test_the_table_of_settings_is_the_one_that_is_read() -> None:
    page = (ROOT / "docs" / "running.md").read_text()
    rows = re.findall(r"^\| `([a-z_.\[\]<>]+)` \| `([^`]*)` \|", page, re.MULTILINE)

    assert rows == keys_of(Settings), f"the keys of {FILE_NAME} in docs/running.md"
