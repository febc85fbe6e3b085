import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepfold.engine.capabilities.memory import Memory


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    kept = Memory(tmp_path / "memory.sqlite")
    for text in ("the tests need a database", "database migrations run twice for every database", "use tabs"):
        assert kept.write(text, "r1")
    return kept


def test_notes_come_best_first(memory: Memory) -> None:
    assert memory.recall("database migration") == (
        "database migrations run twice for every database",
        "the tests need a database",
    )
    assert memory.recall("database", limit=1) == ("database migrations run twice for every database",)
    assert memory.recall("nothing of that") == ()


def test_equal_notes_come_in_the_order_they_were_written(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "m")
    for run in ("1", "2", "3"):
        memory.write(f"same words {run}", run)
    assert memory.recall("same words") == ("same words 1", "same words 2", "same words 3")


@pytest.mark.parametrize(
    "query", ['"', 'a" OR "b', "NEAR(a b)", "text:database", "-database", "*", "", "\0", "\ud800x"]
)
def test_query_syntax_means_nothing(memory: Memory, query: str) -> None:
    memory.recall(query)
    assert memory.fault == ""


def test_another_connection_may_write_in_between(memory: Memory) -> None:
    other = Memory(memory.path)
    assert other.write("a note of another process", "r2")
    assert memory.recall("another process") == ("a note of another process",)


def test_the_notes_may_live_in_a_database_that_is_there_already(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE runs (id TEXT)")
    memory = Memory(path)
    memory.write("kept beside", "r")
    assert memory.recall("beside") == ("kept beside",)


def test_a_broken_file_recalls_nothing_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_bytes(b"no database" * 500)
    memory = Memory(path)
    assert memory.recall("anything") == ()
    assert str(path) in memory.fault
    assert not memory.write("x", "r")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.text(max_size=40), st.text(max_size=40))
def test_any_note_and_any_query_are_taken(memory: Memory, note: str, query: str) -> None:
    assert memory.write(note, "r")
    memory.recall(query)
    assert memory.fault == ""
