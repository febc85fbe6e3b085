import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.capabilities.manifests import NATIVE
from stepfold.engine.capabilities.router import search, signatures
from stepfold.events.configuration import Manifest

NAMES = tuple(manifest.name for manifest in NATIVE)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("read a file", "fs.read"),
        ("run a shell command", "shell.run"),
        ("patch", "fs.patch"),
        ("git diff", "git.diff"),
        ("fetch web page", "web.fetch"),
        ("listing files", "fs.list"),
        ("memory", "memory.recall"),
    ],
)
def test_the_best_fit_comes_first(query: str, first: str) -> None:
    assert search(query, NATIVE)[0] == first


@pytest.mark.parametrize("query", ["", "zzz", "…", "\0"])
def test_a_query_that_fits_nothing_gets_every_name(query: str) -> None:
    assert search(query, NATIVE) == NAMES


@given(st.text())
def test_any_query_gets_known_names_once_each_and_the_same_twice(query: str) -> None:
    found = search(query, NATIVE)
    assert found
    assert len(set(found)) == len(found)
    assert set(found) <= set(NAMES)
    assert found == search(query, NATIVE)


def test_a_signature_shows_types_and_what_may_be_left_out() -> None:
    lines = signatures(NATIVE).split("\n")
    assert len(lines) == len(NATIVE)
    assert lines[1].startswith("fs.read(path: string, start_line?: integer, end_line?: integer) — Read ")
    assert lines[6].startswith("git.status() — ")


def test_a_signature_leaves_out_what_the_host_injects() -> None:
    manifest = Manifest(
        name="mcp.a.b",
        description="two\nlines",
        schema=msgspec.Raw(
            b'{"properties": {"x": {"type": ["string", "null"]}, "key": {}}, "required": ["x"]}'
        ),
        hidden=("key",),
    )
    assert signatures([manifest]) == "mcp.a.b(x: string|null) — two lines"
