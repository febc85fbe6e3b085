"""Large texts beside a log: stored once, and nothing that reads the log sees a difference."""

import json
import os
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from stepfold.engine.runtime.replay import replay
from stepfold.engine.runtime.run_log import RunLog
from stepfold.engine.runtime.snapshots import folded
from stepfold.events import texts
from stepfold.events.chain import chained, sealed
from stepfold.events.codec import decode, encode
from stepfold.events.integrity import check, reseal
from stepfold.events.journal import DamagedLog, LogError, read_log
from stepfold.events.store import Store
from stepfold.events.texts import LARGEST_INLINE, TextFolder, aside, bereft, restored, self_contained_lines
from stepfold.events.vocabulary import BLANK, AnyEvent, HookReturned, ModelReplied, RunStarted, ToolReturned
from stepfold.projections.run import fold
from tests.house import config, slots_of

MEGABYTE = "a line of a report, in Ünicode\n" * 35_000
LIMIT = "x" * LARGEST_INLINE
REFERENCE = "\ufdd0=" + "0" * 64


def replied(seq: int, text: str) -> ModelReplied:
    return ModelReplied(1, "r", seq, 1, "2026-01-01T00:00:00.000000Z", f"model:{seq}", text=text)


def started(goal: str = "mend it") -> RunStarted:
    return RunStarted(1, "r", 0, 0, "2026-01-01T00:00:00.000000Z", config=config(goal=goal), engine="e")


def written(store: Store, run_id: str, *said: str) -> Path:
    with RunLog(store, run_id) as log:
        log.begin()
        for event in (started(), *(replied(seq, text) for seq, text in enumerate(said, start=1))):
            log.record(event)
    return store.path_of(run_id)


def kept(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (store / "runs" / "texts").glob("*")}


def said(path: Path) -> list[str]:
    return [record.event.text for record in read_log(path).records if isinstance(record.event, ModelReplied)]


# --- a line -----------------------------------------------------------------------------------------


def there_and_back(line: bytes) -> bytes:
    short, given_texts = aside(line)
    return restored(short, given_texts.__getitem__)


@pytest.mark.parametrize(
    "text",
    [
        "",
        LIMIT,
        LIMIT + "x",
        "é" * (LARGEST_INLINE // 2) + "x",
        MEGABYTE,
        '"\\' * LARGEST_INLINE,
        "\u2028\0\x7f\U0001f600" * LARGEST_INLINE,
        REFERENCE,
        REFERENCE * 2000,
        "\ud83d" * LARGEST_INLINE,
        "\ufdd0" * LARGEST_INLINE,
    ],
    ids=range(11),
)
def test_a_line_comes_back_byte_for_byte(text: str) -> None:
    line = encode(replied(1, text))

    assert there_and_back(line) == line


def test_only_what_is_longer_than_64_KiB_of_UTF_8_is_put_aside() -> None:
    for text, is_aside in [(LIMIT, False), (LIMIT + "x", True), ("é" * 40_000, True), ("\n" * 40_000, False)]:
        short, given_texts = aside(encode(replied(1, text)))

        assert (list(given_texts.values()) == [text.encode()]) is is_aside
        assert (len(short) < 300) is is_aside


@given(st.lists(st.text(max_size=40), max_size=6), st.integers(0, 12))
def test_any_JSON_comes_back_whatever_is_put_aside(given_texts: list[str], largest: int) -> None:
    line = encode(HookReturned(*BLANK, change=Raw(json.dumps(given_texts, ensure_ascii=False).encode())))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "LARGEST_INLINE", largest)

        assert there_and_back(line) == line


@given(st.lists(st.sampled_from(['"', "\\", "\ufdd0", "=", "0" * 64, "\n", "é", "\\ufdd0"]), max_size=12))
def test_no_text_poses_as_a_reference(pieces: list[str]) -> None:
    text = "".join(pieces)
    for line in (
        encode(replied(1, text)),
        encode(HookReturned(*BLANK, change=Raw(json.dumps(text, ensure_ascii=False).encode()))),
    ):
        short, given_texts = aside(line)

        assert not given_texts
        assert texts.named(short) == frozenset()
        assert restored(short, {}.__getitem__) == line


@given(st.binary(max_size=60) | st.sampled_from([b'"\xef\xb7\x90=', b"\xef\xb7\x90==", b"\xef\xb7\x90"]))
def test_whatever_stands_in_a_file_a_text_that_is_lost_raises_nothing_else(content: bytes) -> None:
    def lost(digest: str) -> bytes:
        raise texts.LostText(digest)

    for line in (content, b'{"a":"\xef\xb7\x90=' + b"0" * 64 + b'"}' + content):
        bereft(line)
        try:
            restored(line, lost)
        except texts.LostText as error:
            assert str(error) == "0" * 64


def test_bytes_that_are_no_UTF_8_are_no_text_whatever_they_are_named() -> None:
    with pytest.raises(texts.LostText, match="no UTF-8"):
        texts.inlined(b'"\xef\xb7\x90=' + b"0" * 64 + b'"', lambda digest: b"\xff")


# --- a store ----------------------------------------------------------------------------------------


def test_two_runs_with_the_same_megabyte_hold_it_once(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        paths = [written(store, run_id, MEGABYTE, "short", MEGABYTE) for run_id in ("one", "two")]

    assert list(kept(tmp_path).values()) == [MEGABYTE.encode()]
    for path in paths:
        assert path.stat().st_size < 3000
        assert said(path) == [MEGABYTE, "short", MEGABYTE]
    in_sqlite = sqlite3.connect(tmp_path / "store.sqlite").execute("SELECT max(length(line)) FROM lines")
    assert in_sqlite.fetchone()[0] < 2000


def test_canonical_lines_chain_and_folds_are_those_of_a_log_with_its_texts_in_it(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        path = written(store, "r", MEGABYTE)
    alone = tmp_path / "alone.jsonl"
    alone.write_bytes(b"".join(self_contained_lines(path)))

    short, whole = read_log(path).records, read_log(alone).records

    assert [(one.line, one.chain, one.written) for one in short] == [
        (one.line, one.chain, one.in_file) for one in whole
    ]
    chain = ""
    for record in short:
        assert record.line == encode(record.event)  # type: ignore[arg-type]
        chain = chained(chain, record.line)
        assert record.chain == chain
    assert slots_of(folded(path, []).run) == slots_of(fold(one.event for one in whole))
    assert check(path, None).verdict == check(alone, None).verdict == "whole"
    assert replay(path).verdict == replay(alone).verdict


def test_a_log_from_before_with_its_texts_in_it_goes_on_as_it_is(tmp_path: Path) -> None:
    lines, chain = [], ""
    for event in (started(), replied(1, MEGABYTE)):
        line = encode(event)
        chain = chained(chain, line)
        lines.append(sealed(line, chain))
    (tmp_path / "runs").mkdir()
    path = tmp_path / "runs" / "r.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    with Store(tmp_path) as store, RunLog(store, "r") as log:
        log.recorded()
        log.record(replied(2, MEGABYTE))

    assert path.read_bytes().splitlines()[:2] == lines
    assert said(path) == [MEGABYTE, MEGABYTE]
    with Store(tmp_path) as store:
        assert check(path, store.kept("r")).store == "agrees"


def test_SQLite_puts_back_lines_with_their_texts(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        path = written(store, "r", "first", MEGABYTE, MEGABYTE)
        before = path.read_bytes()
        path.write_bytes(b"".join(before.splitlines(keepends=True)[:2]))
        with RunLog(store, "r") as log:
            assert len(log.recorded().records) == 4
            assert log.repair.restored == 2

    assert path.read_bytes() == before


@pytest.mark.parametrize("harm", ["missing", "changed"])
def test_a_lost_text_is_told_at_its_seq_with_its_digest(harm: str, tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        path = written(store, "r", "first", MEGABYTE, "last")
    ((digest, content),) = kept(tmp_path).items()
    text = tmp_path / "runs" / "texts" / digest
    text.unlink() if harm == "missing" else text.write_bytes(content.replace(b"report", b"retort", 1))

    found = check(path, None)

    assert found.verdict == "damaged"
    assert [(one.seq, digest in one.why, harm in one.why) for one in found.findings] == [(2, True, True)]
    with pytest.raises(DamagedLog, match=digest):
        read_log(path)
    with Store(tmp_path) as store:
        written(store, "again", MEGABYTE)
    assert check(path, None).verdict == "whole"


def test_a_pipe_in_place_of_a_text_is_not_waited_for_and_gives_way_to_the_text(tmp_path: Path) -> None:
    # `show` of such a run never came back.
    with Store(tmp_path) as store:
        path = written(store, "r", MEGABYTE)
    (text,) = (tmp_path / "runs" / "texts").iterdir()
    text.unlink()
    os.mkfifo(text)

    (found,) = check(path, None).findings
    assert "can't be read: it is no ordinary file" in found.why
    with Store(tmp_path) as store:
        written(store, "again", MEGABYTE)
    assert check(path, None).verdict == "whole"


def test_nobody_but_the_owner_may_write_a_text_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Store(tmp_path) as store:
            written(store, "r", MEGABYTE)
    finally:
        os.umask(before)

    (text,) = (tmp_path / "runs" / "texts").iterdir()
    assert (text.stat().st_mode & 0o777, text.parent.stat().st_mode & 0o777) == (0o644, 0o755)


def test_a_lost_text_can_be_given_up_for_good(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        path = written(store, "r", MEGABYTE, "last")
    ((digest, _),) = kept(tmp_path).items()
    (tmp_path / "runs" / "texts" / digest).unlink()

    resealed = reseal(path, "the text is gone")

    assert resealed is not None
    assert check(path, None).verdict == "whole"
    assert said(path) == [f"\ufdd0={digest}", "last"]


def test_a_snapshot_does_not_hide_that_a_text_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepfold.engine.runtime.snapshots.LONG", 1)
    with Store(tmp_path) as store, RunLog(store, "r") as log:
        log.record(started(goal=MEGABYTE))
    path = store.path_of("r")
    for _ in range(2):
        assert folded(path, []).run.config == config(goal=MEGABYTE)
    (text,) = (tmp_path / "runs" / "texts").iterdir()
    text.unlink()

    assert folded(path, []).run.config == config(goal=f"\ufdd0={text.name}")


def test_a_text_that_can_not_be_written_leaves_the_log_whole(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        path = written(store, "r", "first")
        (tmp_path / "runs" / "texts").write_bytes(b"")
        with pytest.raises(LogError, match="a large text can't be written"), RunLog(store, "r") as log:
            log.recorded()
            log.record(replied(2, MEGABYTE))
            log.flush()

    assert said(path) == ["first"]


def test_a_text_is_on_the_disk_before_the_line_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    sync, write = os.fsync, os.write

    def noted_sync(file: int) -> None:
        order.append("sync")
        sync(file)

    def noted_write(file: int, data: bytes) -> int:
        order.append("line")
        return write(file, data)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "write", noted_write)
    with Store(tmp_path) as store:
        written(store, "r", MEGABYTE)

    assert order.index("sync") < order.index("line")
    assert order.count("sync") == 3


def test_runs_in_many_threads_keep_the_same_text(tmp_path: Path) -> None:
    folder = TextFolder(tmp_path / "r.jsonl")
    line = encode(replied(1, MEGABYTE))
    with ThreadPoolExecutor(8) as pool:
        short = list(pool.map(lambda _: folder.put_aside([line]), range(32)))

    assert {restored(one, folder.text_of) for (one,) in short} == {line}
    assert len(list(folder.folder.iterdir())) == 1


def lines_of(events: Sequence[AnyEvent]) -> list[bytes]:
    return [encode(event) for event in events]


def test_a_tool_result_and_a_reply_of_the_same_text_are_one(tmp_path: Path) -> None:
    result = ToolReturned(1, "r", 2, 1, "2026-01-01T00:00:00.000000Z", "tool:1.0", content=MEGABYTE)
    folder = TextFolder(tmp_path / "r.jsonl")

    short = folder.put_aside(lines_of([replied(1, MEGABYTE), result]))

    assert len(list(folder.folder.iterdir())) == 1
    assert [decode(restored(line, folder.text_of)) for line in short] == [replied(1, MEGABYTE), result]
