"""`stepfold replay`: what it says of each trace, of many, and which exit code it gives."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.cli.replay import ALONE_AT_MOST, replay
from stepfold.engine.runtime.replay import first_difference

LINES = (
    (Path(__file__).parents[3] / "replay_fixtures" / "fixes_a_failing_test" / "log.jsonl")
    .read_bytes()
    .splitlines()
)
SECTIONS = next(n for n, line in enumerate(LINES) if b'"ContextBuilt"' in line and b'"sections"' in line)


def trace(path: Path, lines: list[bytes] = LINES) -> str:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return str(path)


def planted(path: Path) -> str:
    fields = json.loads(LINES[SECTIONS])
    fields["sections"][2]["digest"] = "planted"
    lines = [*LINES]
    lines[SECTIONS] = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    return trace(path, lines)


def said(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(replay, arguments, standalone_mode=False)
    assert result.return_value == code, result.output
    return result


def test_a_change_inside_a_field_is_told_by_its_path_with_the_rows_that_fired(tmp_path: Path) -> None:
    verdict = json.loads(said(planted(tmp_path / "r.jsonl"), "--json", code=3).stdout)

    assert (verdict["seq"], verdict["kind"]) == (SECTIONS, "ContextBuilt")
    assert (verdict["field"], verdict["recorded"]) == ("sections.2.digest", "planted")
    assert verdict["row"] == {"recorded": "pack", "computed": "pack"}
    assert verdict["caused_by"]["seq"] < SECTIONS


def test_people_see_both_sides_and_the_rows(tmp_path: Path) -> None:
    text = said(planted(tmp_path / "r.jsonl"), code=3).stdout

    assert "ContextBuilt.sections.2.digest" in text
    assert '  recorded  "planted"' in text
    assert "  row       recorded pack, computed pack" in text


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b'"v":1', b'"v":99', "newer"),
        (b'"kind":"ModelStarted"', b'"kind":"FutureKind"', "newer"),
        (b'{"kind"', b"kind", "not a JSON object"),
    ],
)
def test_newer_and_damaged_are_told_apart(tmp_path: Path, old: bytes, new: bytes, why: str) -> None:
    at = next(n for n, line in enumerate(LINES) if b'"ModelStarted"' in line)
    lines = [line.replace(old, new, 1) if n == at else line for n, line in enumerate(LINES)]

    verdict = json.loads(said(trace(tmp_path / "r.jsonl", lines), "--json", code=2).stdout)

    assert (verdict["verdict"], verdict["line"]) == ("unreadable", at + 1)
    assert why in verdict["why"]
    assert ("newer" in verdict["why"]) == (why == "newer")


def test_many_traces_are_summed_up_in_order_with_the_worst_exit_code(tmp_path: Path) -> None:
    names = [f"{n:02}.jsonl" for n in range(ALONE_AT_MOST + 3)]
    for name in names[2:]:
        trace(tmp_path / name)
    planted(tmp_path / names[0])
    trace(tmp_path / names[1], [b"nothing"])

    verdicts = [json.loads(line) for line in said(str(tmp_path), "--json", code=3).stdout.splitlines()]
    last = said(str(tmp_path), code=3).stdout.splitlines()[-1]

    assert [Path(verdict["trace"]).name for verdict in verdicts] == names
    assert [verdict["verdict"] for verdict in verdicts[:3]] == ["diverged", "unreadable", "identical"]
    assert last == f"{len(names)} traces: {len(names) - 2} identical, 1 unreadable, 1 diverged"


def test_unreadable_alone_is_2_and_identical_alone_is_0(tmp_path: Path) -> None:
    good = trace(tmp_path / "good.jsonl")

    assert said(good).stdout.startswith("identical")
    assert said(good, trace(tmp_path / "bad.jsonl", [b"nothing"]), code=2)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def followed(value: object, path: str) -> object:
    for name in path.split(".") if path else ():
        match value:
            case dict():
                value = value.get(name)
            case list():
                value = value[int(name)]
    return value


@given(JSON, JSON)
def test_a_path_leads_to_both_sides_of_a_difference(was: object, now: object) -> None:
    path, old, new = first_difference(was, now)

    assert (followed(was, path), followed(now, path)) == (old, new)
    if was != now and path:
        assert old != new or type(old) is not type(new) or None in (old, new)
