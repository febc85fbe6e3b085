"""The file of a run: torn ends are reported and cut, faults are named by line, one writer at a time."""

import subprocess
import sys
from pathlib import Path

import pytest

from stepfold.events.codec import encode
from stepfold.events.journal import Journal, LogError, NewerLog, last_line, read_log
from stepfold.events.vocabulary import ModelCompleted, ModelReplied


def line(seq: int, run_id: str = "r") -> bytes:
    return encode(ModelCompleted(1, run_id, seq, 1, "t", "complete", call_id=f"model-{seq}")) + b"\n"


def odd_line(seq: int) -> bytes:
    return encode(ModelReplied(1, "r", seq, 1, "t", text="ü\u2028\u0085 \ud800 end")) + b"\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "r.jsonl"


def test_a_log_is_read_line_by_line_and_split_at_line_feeds_alone(path: Path) -> None:
    path.write_bytes(odd_line(0) + line(1))

    log = read_log(path)

    assert [record.event.seq for record in log.records] == [0, 1]
    assert [record.line + b"\n" for record in log.records] == [odd_line(0), line(1)]
    assert log.torn == b""


@pytest.mark.parametrize("last", [line(1), odd_line(1)], ids=["plain", "odd"])
def test_a_last_line_torn_at_any_byte_is_reported_and_cut(path: Path, last: bytes) -> None:
    for cut in range(1, len(last) - 1):
        path.write_bytes(line(0) + last[:cut])

        log = read_log(path)
        journal = Journal(path)
        journal.cut(log.torn)
        journal.append(last)
        journal.close()

        assert log.torn == last[:cut], cut
        assert path.read_bytes() == line(0) + last


def test_a_last_line_that_lacks_only_its_line_feed_is_whole(path: Path) -> None:
    path.write_bytes(line(0) + line(1).rstrip(b"\n"))

    log = read_log(path)
    journal = Journal(path)
    journal.end_last_line()
    journal.end_last_line()
    journal.close()

    assert (len(log.records), log.torn) == (2, b"")
    assert path.read_bytes() == line(0) + line(1)


def test_ending_the_last_line_of_an_empty_file_adds_nothing(path: Path) -> None:
    journal = Journal(path)
    journal.end_last_line()
    journal.close()

    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    ("content", "number", "why"),
    [
        (line(0) + line(2), 2, "seq 1 is missing: the line after seq 0 is seq 2"),
        (line(1), 1, "seq 0 is missing"),
        (line(0) + line(1) + line(1), 3, "seq 1 stands twice"),
        (line(0) + line(1) + line(2) + line(0), 4, "seq 0 stands where seq 3 belongs"),
        (line(0) + line(1, "other"), 2, "seq 1 belongs to run other, not r"),
        (line(0) + b"{}\n" + line(1), 2, "no event"),
        (line(0) + b"\n" + line(1), 2, "not a JSON object"),
        (line(0) + b'{"kind":"Fut', 0, ""),
        (line(0)[:20] + b"\n" + line(1), 1, "not a JSON object"),
        (b"", 0, "no whole event in it"),
        (b"hello", 0, "no whole event in it"),
    ],
    ids=range(11),
)
def test_a_fault_is_named_with_its_line(path: Path, content: bytes, number: int, why: str) -> None:
    path.write_bytes(content)
    if not why:
        assert read_log(path).torn == content.removeprefix(line(0))
        return

    with pytest.raises(LogError) as caught:
        read_log(path)

    assert caught.value.line == number
    assert why in caught.value.why
    assert str(caught.value).startswith(f"{path}:{number}: " if number else f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_line_of_a_newer_version_is_told_apart(path: Path) -> None:
    path.write_bytes(line(0) + line(1).replace(b'"v":1', b'"v":2'))

    with pytest.raises(NewerLog, match=r":2: schema version 2.*upgrade stepfold"):
        read_log(path)


def test_a_file_that_is_not_there_and_a_folder_in_its_place_are_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="can't be read: No such file"):
        read_log(tmp_path / "none.jsonl")
    with pytest.raises(LogError, match="can't be read: Is a directory"):
        read_log(tmp_path)
    with pytest.raises(LogError, match="can't be written: Is a directory; choose another --store"):
        Journal(tmp_path)


SECOND = """
import sys
from pathlib import Path
from stepfold.events.journal import Journal
Journal(Path(sys.argv[1]))
"""


def test_a_second_writer_is_refused_until_the_first_is_done(path: Path) -> None:
    first = Journal(path)
    with pytest.raises(LogError, match="another process is writing this run; wait for it, or stop it"):
        Journal(path)
    other = subprocess.run(
        [sys.executable, "-c", SECOND, str(path)],
        capture_output=True,
        text=True,
    )
    assert "another process is writing this run" in other.stderr

    first.close()

    Journal(path).close()


FILL = """
import signal, resource, sys
from pathlib import Path
from stepfold.events.journal import Journal, LogError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
journal = Journal(Path(sys.argv[1]))
for number in range(100):
    batch = (b"%03d" % number + b"x" * 40 + b"\\n") * 3
    try:
        journal.append(batch)
    except LogError as error:
        print(number, error)
        break
"""


def test_a_write_that_fails_part_way_leaves_what_was_recorded_whole(path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", FILL, str(path)], capture_output=True, text=True, check=True
    )

    written = path.read_bytes()
    failed, _, message = child.stdout.partition(" ")
    assert len(written) == int(failed) * 3 * 44
    assert written.endswith(b"x\n")
    assert 1000 - len(written) < 3 * 44
    assert message.startswith(f"{path}: can't be written: ")
    assert "File too large; all before it is safe. To go on, raise the limit of a file's size" in message
    assert message.count("\n") == 1


FULL_DISK = """
import sys
from pathlib import Path
from stepfold.events.journal import Journal, LogError
journal = Journal(Path(sys.argv[1]))
for number in range(100):
    try:
        journal.append(b"y" * 999 + b"\\n")
    except LogError as error:
        print(number, error)
        break
"""


def test_a_full_disk_is_told_and_writing_goes_on_once_there_is_space(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(tmp_path)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount a small file system")
    try:
        path = tmp_path / "r.jsonl"
        ballast = tmp_path / "ballast"
        ballast.write_bytes(b"0" * 8192)
        child = subprocess.run(
            [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=True
        )
        failed, _, message = child.stdout.partition(" ")
        whole = path.read_bytes()

        ballast.unlink()
        journal = Journal(path)
        journal.append(b"z\n")
        journal.close()

        assert len(whole) == int(failed) * 1000
        assert "No space left on device; all before it is safe. To go on, free some space" in message
        assert path.read_bytes() == whole + b"z\n"
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.parametrize("size", [1, 100, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, 700_000])
@pytest.mark.parametrize("end", [b"\n", b""])
@pytest.mark.parametrize("before", [b"", b"first\n"])
def test_the_last_line_is_found_from_the_end_however_long_it_is(
    path: Path, size: int, end: bytes, before: bytes
) -> None:
    path.write_bytes(before + b"x" * size + end)

    assert last_line(path) == b"x" * size
