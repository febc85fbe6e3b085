"""Parquet copies of finished runs: the same answers, and never trusted beyond their logs."""

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stepfold.events import chain
from stepfold.events.codec import encode
from stepfold.projections.sql import packs
from stepfold.projections.sql import relations as relations_module
from stepfold.projections.sql.relations import DOCUMENTED, open_relations
from tests.house import FINISH, LOAD, VERIFY, Hands, config, play


def write_run(store: Path, name: str, *replies: str, lines: int | None = None, **changes: Any) -> Path:
    events = play(config(**changes), Hands(replies))[1]
    file = store / "runs" / f"{name}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    sealed = chain.sealed_anew(encode(replace(event, run_id=name)) for event in events[:lines])
    file.write_bytes(b"".join(line + b"\n" for line in sealed))
    return file


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_run(tmp_path, "a", LOAD, VERIFY, FINISH)
    write_run(tmp_path, "b", "prose", "prose", max_steps=2)
    write_run(tmp_path, "open", LOAD, VERIFY, FINISH, lines=9)
    return tmp_path


def answers(store: Path) -> dict[str, list[Any]]:
    relations = open_relations(store)
    found = {
        view.name: sorted(map(repr, relations.query(f"SELECT * FROM {view.name}").rows))
        for view in DOCUMENTED
    }
    relations.close()
    return found


def packed(store: Path) -> set[str]:
    logs = sorted((store / "runs").glob("*.jsonl"))
    return {log.stem for log in packs.packed(store, logs).logs}


def test_the_second_question_has_the_same_answers_and_reads_finished_runs_from_parquet(store: Path) -> None:
    first = answers(store)

    assert packed(store) == {"a", "b"}
    assert answers(store) == first
    assert len(first["runs"]) == 3


def test_a_run_that_goes_on_is_read_from_its_log(store: Path) -> None:
    answers(store)
    write_run(store, "open", LOAD, VERIFY, FINISH)

    again = answers(store)

    assert packed(store) == {"a", "b", "open"}
    assert answers(store) == again


def test_a_log_that_was_changed_is_read_anew(store: Path) -> None:
    answers(store)
    write_run(store, "a", "prose", max_steps=1)

    relations = open_relations(store)

    assert list(relations.query("SELECT rejected FROM runs WHERE run_id = 'a'").rows) == [(1,)]


def test_a_line_that_was_changed_in_the_middle_is_noticed_though_size_and_seal_are_the_same(
    store: Path,
) -> None:
    answers(store)
    log = store / "runs" / "a.jsonl"
    log.write_bytes(log.read_bytes().replace(b"ProfileInferred", b"ProfileInferreX", 1))

    relations = open_relations(store)

    found = relations.query("SELECT count(*) FROM events WHERE kind = 'ProfileInferreX'").rows
    assert list(found) == [(1,)]


def test_a_log_that_was_only_touched_is_still_served(store: Path) -> None:
    answers(store)
    os.utime(store / "runs" / "a.jsonl", ns=(1, 1))

    assert packed(store) == {"a", "b"}


def test_a_run_that_was_deleted_is_gone(store: Path) -> None:
    answers(store)
    (store / "runs" / "b.jsonl").unlink()

    relations = open_relations(store)

    assert list(relations.query("SELECT run_id FROM runs ORDER BY 1").rows) == [("a",), ("open",)]


@pytest.mark.parametrize("suffix", ["parquet", "json"])
@pytest.mark.parametrize("damage", ["a flipped byte", "cut", "gone"])
def test_a_damaged_pack_is_noticed_and_made_anew(store: Path, suffix: str, damage: str) -> None:
    first = answers(store)
    (file,) = (store / packs.FOLDER).glob(f"*.{suffix}")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    match damage:
        case "a flipped byte":
            file.write_bytes(content)
        case "cut":
            file.write_bytes(content[: len(content) // 2])
        case _:
            file.unlink()

    assert packed(store) == set()
    assert answers(store) == first
    assert packed(store) == {"a", "b"}


def test_a_torn_tail_is_counted_every_time(store: Path) -> None:
    log = store / "runs" / "open.jsonl"
    log.write_bytes(log.read_bytes() + b'{"kind":"Mod')

    for _ in range(2):
        relations = open_relations(store)
        assert relations.torn == 1
        assert len(list(relations.query("SELECT * FROM torn_lines").rows)) == 1


def test_a_finished_run_with_a_broken_line_is_never_packed(store: Path) -> None:
    log = store / "runs" / "a.jsonl"
    lines = log.read_bytes().split(b"\n")
    log.write_bytes(b"\n".join([*lines[:3], b"{broken", *lines[3:]]))

    assert [open_relations(store).torn for _ in range(2)] == [1, 1]
    assert packed(store) == {"b"}


def test_small_packs_are_made_into_one(tmp_path: Path) -> None:
    for number in range(packs.SMALL_PACKS_AT_MOST + 2):
        write_run(tmp_path, f"r{number}", FINISH, max_steps=1)
        relations = open_relations(tmp_path)
        (count,) = next(relations.query("SELECT count(*) FROM runs").rows)
        assert count == number + 1

    assert len(list((tmp_path / packs.FOLDER).glob("*.parquet"))) < packs.SMALL_PACKS_AT_MOST


def test_a_run_that_ends_while_the_logs_are_loaded_is_not_packed_as_it_was_before(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = relations_module._load

    def load_and_let_it_end(connection: Any, files: list[Path]) -> Any:
        broken = load(connection, files)
        write_run(store, "open", LOAD, VERIFY, FINISH)
        return broken

    with monkeypatch.context() as patched:
        patched.setattr(relations_module, "_load", load_and_let_it_end)
        answers(store)

    assert "open" not in packed(store)
    relations = open_relations(store)
    (said,) = relations.query("SELECT status FROM runs WHERE run_id = 'open'").rows
    assert said == ("completed",)


def test_packs_that_can_not_be_made_into_one_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "SMALL_PACKS_AT_MOST", 100)
    for number in range(3):
        write_run(tmp_path, f"r{number}", FINISH, max_steps=1)
        open_relations(tmp_path).close()
    before = set((tmp_path / packs.FOLDER).iterdir())
    write_run(tmp_path, "one more", FINISH, max_steps=1)
    digest_of = packs._digest_of
    written: list[Path] = []

    def full_at_the_second(file: Path) -> str:
        written.extend([file] if file.name.startswith(".") else [])
        if len(written) > 1:
            raise OSError(28, "No space left on device")
        return digest_of(file)

    monkeypatch.setattr(packs, "SMALL_PACKS_AT_MOST", 2)
    monkeypatch.setattr(packs, "_digest_of", full_at_the_second)

    assert len(answers(tmp_path)["runs"]) == 4
    assert len(written) == 2
    left = set((tmp_path / packs.FOLDER).iterdir())
    assert before < left
    assert not [file for file in left if file.name.startswith(".")]


def test_a_store_that_can_not_be_written_is_still_read(store: Path) -> None:
    (store / packs.FOLDER).write_text("in the way")

    assert len(answers(store)["runs"]) == 3
