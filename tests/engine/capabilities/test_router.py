import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.capabilities.manifests import NATIVE
from stepfold.engine.capabilities.router import search

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
