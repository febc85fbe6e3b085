"""The laws of a store: what `stepfold.events.run_store` promises in words, as checks that any store can take.

Each law is given a function that opens the store, which is empty at first; it may open it more than once,
as processes do. It returns nothing, or raises AssertionError saying what was broken.
"""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stepfold.engine.models.scripted import Script
from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.replay import replay
from stepfold.engine.runtime.run_log import RunLog
from stepfold.events.chain import BEGINNING, chained, sealed, unsealed
from stepfold.events.codec import encode
from stepfold.events.integrity import check
from stepfold.events.journal import LogError, read_log
from stepfold.events.run_store import RunStore, StoreError
from stepfold.events.vocabulary import AnyEvent, ModelCompleted

Opened = Callable[[], RunStore]
"""Opens the store under test; what one opening has written, the next one sees."""

Law = Callable[[Opened], None]

WRITERS = 4
EVENTS_EACH = 25
NO_RUN_IDS = ("", ".", "..", "a/b", "../r", "a\\b", "a\0b")


def what_is_written_is_read_back_byte_for_byte(opened: Opened) -> None:
    """Lines come back as they were, in their order, from this opening and from another one."""
    lines = lines_of("r", 12, text='tab\t, line\u2028separator, \U0001f600, NUL \0, quote " and \\')
    with opened() as store:
        writer = store.writer("r")
        writer.begin()
        writer.append(lines[:1])
        writer.append(lines[1:7])
        assert _read(store, "r") == lines[:7], "a batch is not there as soon as `append` has returned"
        writer.append(lines[7:])
        writer.rest()
        writer.close()
        assert _read(store, "r") == lines, "`path_of` gives other bytes than were appended"
        assert list(store.kept("r")) == lines, "`kept` gives other bytes than were appended"
    with opened() as store:
        assert _read(store, "r") == lines, "another opening reads other bytes than were appended"


def a_run_has_one_writer_at_a_time(opened: Opened) -> None:
    """A second writer is refused, by the same opening and by another, until the first one is closed."""
    with opened() as one, opened() as other:
        writer = one.writer("r")
        for store in (one, other):
            assert store.is_being_written("r"), "a run that a writer holds counts as at rest"
            _refused(lambda store=store: store.writer("r"), "a run was given to two writers at once")  # type: ignore[misc]
            _refused(lambda store=store: store.remove("r"), "a run was removed under its writer")  # type: ignore[misc]
        other.writer("s").close()
        writer.append(lines_of("r", 1))
        writer.close()
        assert not other.is_being_written("r"), "a run whose writer was closed counts as being written"
        other.writer("r").close()


def a_recorded_id_is_not_begun_again(opened: Opened) -> None:
    """`begin` refuses an id under which anything is recorded, and leaves what is."""
    with opened() as store:
        writer = store.writer("r")
        writer.begin()
        writer.append(lines_of("r", 3))
        writer.close()
        again = store.writer("r")
        _refused(again.begin, "a second run was begun under a recorded id")
        again.close()
        assert _read(store, "r") == lines_of("r", 3), "a refused `begin` has changed the run"


def a_run_goes_on_behind_its_last_line(opened: Opened) -> None:
    """A later writer reads all that there is, and what it appends follows it."""
    lines = lines_of("r", 9)
    for upto in (3, 6, 9):
        with opened() as store:
            writer = store.writer("r")
            if upto > 3:
                log, _ = writer.recorded()
                assert [one.written for one in log.records] == lines[: upto - 3], "`recorded` lacks lines"
            writer.append(lines[upto - 3 : upto])
            writer.step_ended()
            writer.close()
    with opened() as store:
        assert _read(store, "r") == lines, "what a later writer appended does not follow what there was"


def writers_of_many_runs_do_not_mix(opened: Opened) -> None:
    """Many writers at once, each with its own opening and its own runs: no line is lost or out of place."""

    def write(number: int) -> None:
        with opened() as store:
            logs = [RunLog(store, f"run-{number}-{place}") for place in range(3)]
            for seq in range(EVENTS_EACH):
                for place, log in enumerate(logs):
                    log.record(_event(f"run-{number}-{place}", seq, f"of {number}"))
                    log.flush()
            for log in logs:
                log.close()

    with ThreadPoolExecutor(WRITERS) as pool:
        for done in [pool.submit(write, number) for number in range(WRITERS)]:
            done.result()
    expected = sorted(f"run-{number}-{place}" for number in range(WRITERS) for place in range(3))
    with opened() as store:
        assert store.run_ids() == expected, "runs are missing, or not in order"
        for run_id in expected:
            number = run_id.split("-")[1]
            assert _read(store, run_id) == lines_of(run_id, EVENTS_EACH, f"of {number}"), "runs were mixed"


def writers_of_one_run_have_one_order(opened: Opened) -> None:
    """Many writers that want the same run get it one after the other: each seq once, none left out."""

    def write(number: int) -> int:
        written = 0
        with opened() as store:
            while written < EVENTS_EACH:
                try:
                    log = RunLog(store, "r")
                except LogError:
                    continue
                with log:
                    seq = len(log.recorded().records) if store.holds("r") else 0
                    log.record(_event("r", seq, f"of {number}"))
                written += 1
        return written

    with ThreadPoolExecutor(WRITERS) as pool:
        counts = [done.result() for done in [pool.submit(write, number) for number in range(WRITERS)]]
    with opened() as store:
        records = read_log(store.path_of("r")).records
    assert len(records) == sum(counts), f"{sum(counts)} events were written, {len(records)} are there"


def a_real_run_is_replayed_and_resumed_from_it(opened: Opened) -> None:
    """A recorded run replays to the same bytes, wherever it was cut, and is whole when it was taken up."""
    events = _real_run()
    for cut in (1, len(events) // 2, len(events)):
        run_id = events[0].run_id
        with opened() as store:
            with RunLog(store, run_id) as log:
                log.begin()
                for event in events[:cut]:
                    log.record(event)
                    log.flush()
            with RunLog(store, run_id) as log:
                assert len(log.recorded().records) == cut
                for event in events[cut:]:
                    log.record(event)
            verdict = replay(store.path_of(run_id))
            assert verdict.verdict == "identical", f"a run from this store does not replay: {verdict.why}"
            store.remove(run_id)


def what_holds_nothing_is_no_run(opened: Opened) -> None:
    """An id that was only opened, or removed, is not listed, found or held, and can be begun."""
    with opened() as store:
        store.writer("opened").close()
        _write(store, "removed", 2)
        store.remove("removed")
        store.remove("never was")
        assert store.run_ids() == [] or store.run_ids() == ["opened"]
        for run_id in ("opened", "removed", "never was"):
            assert not store.holds(run_id), f"{run_id!r} is held, and nothing of it is recorded"
        _write(store, "removed", 1)
        assert _read(store, "removed") == lines_of("removed", 1), "what was removed has come back"


def a_run_is_found_by_what_people_write(opened: Opened) -> None:
    """By its id, by a start that no other run has, and the one written last by `last`."""
    with opened() as store:
        for run_id in ("20260101-a", "20260202-c", "20260101-b", "20260101-b.1"):
            _write(store, run_id, 1)
        assert store.find("20260202") == "20260202-c"
        assert store.find("20260101-a") == "20260101-a"
        assert store.find("20260101-b.1") == "20260101-b.1"
        assert store.find("last") == "20260101-b", "`last` is the run written last that no other one started"
        for text in ("20260101", "", "x"):
            _unknown(lambda text=text: store.find(text), f"{text!r} names no run, and one was found")  # type: ignore[misc]


def an_id_that_is_no_file_name_is_refused(opened: Opened) -> None:
    """No id leads out of a folder, whatever it was copied from."""
    with opened() as store:
        for run_id in NO_RUN_IDS:
            for use in (store.path_of, store.holds, store.writer, store.remove):
                _unknown(lambda use=use, run_id=run_id: use(run_id), f"{run_id!r} was taken for a run id")  # type: ignore[misc]


def a_summary_holds_until_its_run_grows(opened: Opened) -> None:
    """A summary that was kept is given back, and no longer once there are more events."""
    with opened() as store:
        _write(store, "r", 2)
        assert store.summary("r") is None
        store.keep_summary("r", '"two"')
        assert store.summary("r") == '"two"'
        writer = store.writer("r")
        writer.recorded()
        writer.append(lines_of("r", 3)[2:])
        writer.close()
        assert store.summary("r") is None, "a summary outlived what it was made from"


def every_run_is_a_file_for_duckdb(opened: Opened) -> None:
    """`logs` gives a folder with each run's lines, and no others."""
    with opened() as store:
        _write(store, "a", 2)
        _write(store, "b", 3)
        folder = store.logs() / "runs"
        assert {path.name for path in folder.glob("*.jsonl")} == {"a.jsonl", "b.jsonl"}
        store.remove("a")
        _write(store, "c", 1)
        folder = store.logs() / "runs"
        found = {path.name: _lines_of(path) for path in folder.glob("*.jsonl")}
        assert found == {"b.jsonl": lines_of("b", 3), "c.jsonl": lines_of("c", 1)}


def a_large_text_is_read_back_byte_for_byte(opened: Opened) -> None:
    """However a store keeps a text of megabytes, who reads the log finds the lines that were appended."""
    lines = lines_of("r", 3, text="a line of a large file\n" * 50_000)
    with opened() as store:
        for run_id in ("r", "s"):
            writer = store.writer(run_id)
            writer.begin()
            writer.append(lines if run_id == "r" else lines_of("s", 1, text="\ufdd0=" * 50_000))
            writer.close()
    with opened() as store:
        path = store.path_of("r")
        assert [one.written for one in read_log(path).records] == lines, "a log lacks its large texts"
        assert check(path, store.kept("r")).store == "agrees", "`kept` is not what the file holds"
        writer = store.writer("r")
        assert [one.written for one in writer.recorded()[0].records] == lines, "`recorded` lacks its texts"
        writer.append(lines_of("r", 4, text="a line of a large file\n" * 50_000)[3:])
        writer.close()
        assert len(read_log(store.path_of("r")).records) == 4, "a run with large texts can't go on"
        read_log(store.path_of("s"))


STORE_LAWS: tuple[Law, ...] = (
    what_is_written_is_read_back_byte_for_byte,
    a_large_text_is_read_back_byte_for_byte,
    a_run_has_one_writer_at_a_time,
    a_recorded_id_is_not_begun_again,
    a_run_goes_on_behind_its_last_line,
    writers_of_many_runs_do_not_mix,
    writers_of_one_run_have_one_order,
    a_real_run_is_replayed_and_resumed_from_it,
    what_holds_nothing_is_no_run,
    a_run_is_found_by_what_people_write,
    an_id_that_is_no_file_name_is_refused,
    a_summary_holds_until_its_run_grows,
    every_run_is_a_file_for_duckdb,
)
"""All laws. Give each a store of its own that is empty."""


def _real_run() -> Sequence[AnyEvent]:
    def look(line: int) -> str:
        """One line of a file."""
        return f"line {line}"

    functions = [{"name": "look", "arguments": json.dumps({"line": line})} for line in (1, 2)]
    calls = [{"id": f"c{place}", "function": one} for place, one in enumerate(functions)]
    replies = [*({"message": {"tool_calls": [call]}} for call in calls), {"text": "done"}]
    script = "\n".join(map(json.dumps, replies))
    return AgentHarness(Script.parse(script.encode()), [look]).invoke_sync(messages=["look"]).events


def _event(run_id: str, seq: int, text: str = "") -> ModelCompleted:
    return ModelCompleted(1, run_id, seq, seq // 5, "t", "complete", call_id=f"model-{seq}{text}")


def lines_of(run_id: str, count: int, text: str = "") -> list[bytes]:
    """So many sealed lines of a run, the same ones each time."""
    lines, chain = [], BEGINNING
    for seq in range(count):
        line = encode(_event(run_id, seq, text))
        chain = chained(chain, line)
        lines.append(sealed(line, chain))
    return lines


def _write(store: RunStore, run_id: str, count: int) -> None:
    writer = store.writer(run_id)
    writer.begin()
    for line in lines_of(run_id, count):
        writer.append([line])
    writer.close()


def _read(store: RunStore, run_id: str) -> list[bytes]:
    return _lines_of(store.path_of(run_id))


def _lines_of(path: Path) -> list[bytes]:
    lines = path.read_bytes().split(b"\n")
    assert lines.pop() == b"", f"{path} does not end with a line feed"
    assert all(unsealed(line)[1] for line in lines)
    return lines


def _refused(attempt: Callable[[], object], otherwise: str) -> None:
    try:
        attempt()
    except LogError:
        return
    raise AssertionError(otherwise)


def _unknown(attempt: Callable[[], object], otherwise: str) -> None:
    try:
        attempt()
    except StoreError:
        return
    raise AssertionError(otherwise)
