"""The seal of a line: whatever is changed in a log is found where it was changed, and nothing else is."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.events import chain
from stepfold.events.journal import LogError, damaged_records_of, read_log, records_of

FIXTURES = Path(__file__).parents[2] / "replay_fixtures"
LOGS = {path.parent.name: path.read_bytes() for path in sorted(FIXTURES.glob("*/log.jsonl"))}
SMALLEST = min(LOGS, key=lambda name: len(LOGS[name]))


def found_in(path: Path, content: bytes) -> int | None:
    """The seq at which a log is told to be damaged; that of its torn line; None when it is whole."""
    path.write_bytes(content)
    torn: list[bytes] = []
    read = 0
    try:
        for _ in records_of(path, torn):
            read += 1
    except LogError as error:
        return error.line - 1
    return read if torn else None


def flips(content: bytes, every: int, dice: random.Random) -> Iterator[tuple[int, bytes]]:
    """Copies with one byte changed, and the seq of the line it stands in."""
    for place in range(dice.randrange(every), len(content), every):
        flipped = bytearray(content)
        flipped[place] ^= dice.randrange(1, 256)
        yield content.count(b"\n", 0, place), bytes(flipped)


@pytest.mark.parametrize("name", LOGS)
def test_a_whole_log_is_no_false_alarm(name: str, tmp_path: Path) -> None:
    assert found_in(tmp_path / "log.jsonl", LOGS[name]) is None


@pytest.mark.parametrize("name", LOGS)
def test_a_flipped_byte_is_found_at_its_line(name: str, tmp_path: Path) -> None:
    every = 1 if name == SMALLEST else 61
    for seq, content in flips(LOGS[name], every, random.Random(name)):
        assert found_in(tmp_path / "log.jsonl", content) == seq, content.splitlines()[seq]


@pytest.mark.parametrize("name", LOGS)
def test_a_line_deleted_doubled_swapped_or_cut_is_found_where_it_is(name: str, tmp_path: Path) -> None:
    lines = LOGS[name].splitlines(keepends=True)
    path = tmp_path / "log.jsonl"
    for seq, line in enumerate(lines):
        head, tail = lines[:seq], lines[seq + 1 :]
        if tail:
            assert found_in(path, b"".join([*head, *tail])) == seq
            assert found_in(path, b"".join([*head, tail[0], line, *tail[1:]])) == seq
        assert found_in(path, b"".join([*head, line, line, *tail])) == seq + 1
        assert found_in(path, b"".join([*head, line[: len(line) // 2], b"\n", *tail])) == seq
        assert found_in(path, b"".join([*head, line[: len(line) // 2], *tail])) == seq


def test_one_change_is_told_once_and_what_follows_is_read(tmp_path: Path) -> None:
    lines = LOGS[SMALLEST].splitlines(keepends=True)
    for seq in range(1, len(lines) - 1):
        without_seal = chain.unsealed(lines[seq].rstrip())[0] + b"\n"
        for changed in (lines[seq].replace(b'"step":', b'"step":1'), without_seal):
            path = tmp_path / "log.jsonl"
            path.write_bytes(b"".join([*lines[:seq], changed, *lines[seq + 1 :]]))

            records = list(damaged_records_of(path, []))

            assert [record.event.seq for record in records if record.damage] == [seq]
            assert len(records) == len(lines)


def test_a_line_that_was_sealed_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(LOGS[SMALLEST])

    assert b"".join(record.written + b"\n" for record in read_log(path).records) == LOGS[SMALLEST]


@given(st.lists(st.binary(min_size=1).map(lambda text: b'{"x":"' + text.hex().encode() + b'"}'), max_size=8))
def test_sealing_can_be_taken_back_and_agrees_exactly_where_the_prefix_does(lines: list[bytes]) -> None:
    sealed = list(chain.sealed_anew(lines))

    assert [chain.unsealed(line)[0] for line in sealed] == lines
    chains = [chain.unsealed(line)[1] for line in sealed]
    other = [chain.unsealed(line)[1] for line in chain.sealed_anew([b"{}", *lines[1:]])]
    assert not set(chains) & set(other)
    assert len(set(chains)) == len(chains)
