"""Whatever becomes of a trace on its way here: runs with findings, or one line that says why not."""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepfold.engine.studies.imports.formats import FORMATS
from stepfold.engine.studies.imports.importing import Imported, ImportFailed, import_file
from stepfold.events.journal import read_log
from stepfold.events.store import Store
from stepfold.projections.outcome import outcome
from stepfold.projections.run import fold

TRACES = Path(__file__).parent / "traces"
SMALL = {
    "sweagent": "sweagent/scikit-learn__scikit-learn-13439.traj",
    "mini_swe_agent": "mini_swe_agent/pvlib-1606.server_error.traj.json",
    "inspect": "inspect/popularity_cancelled.json",
    "tau_bench": "tau_bench/gpt-4o-airline.a.json",
    "toolbench": "toolbench/G1_69_ChatGPT_DFS.json",
    "who_when": "who_when/hand_crafted_11.json",
    "openhands": "openhands/pr_review_events.jsonl",
    "pi": "pi/large-session.jsonl",
    "codex_tui": "codex_tui/binary-size-head.jsonl",
    "burr": "burr/chat-6-errors.log.jsonl",
}
DOCUMENTS = ("sweagent", "mini_swe_agent", "inspect", "tau_bench", "toolbench", "who_when")
SHORT = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

odd = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        [10**400, -(10**30), 1e308, -0.0, 2**63, "", "assistant", "\x1b[2J", "\u202e\u2028", "\ud800"]
    ),
    st.text(max_size=8),
    st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=3)), max_size=3),
    st.dictionaries(st.text(max_size=4), st.one_of(st.none(), st.text(max_size=3)), max_size=3),
)


def shrunk(value: Any, depth: int = 0) -> Any:
    """The same trace, small enough to be changed and read many times over."""
    match value:
        case str():
            return value[:60]
        case list():
            return [shrunk(item, depth + 1) for item in value[:6]]
        case dict():
            return {name: shrunk(item, depth + 1) for name, item in value.items()}
        case _:
            return value


def small(name: str) -> Any:
    text = (TRACES / SMALL[name]).read_text()
    if name in DOCUMENTS:
        return shrunk(json.loads(text))
    return [shrunk(json.loads(line)) for line in text.split("\n") if line][:40]


def written(name: str, value: Any) -> bytes:
    if name in DOCUMENTS or not isinstance(value, list):
        return json.dumps(value).encode()
    return b"\n".join(json.dumps(line).encode() for line in value)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    match value:
        case dict():
            for name, item in value.items():
                yield from places(item, (*path, name))
        case list():
            for number, item in enumerate(value):
                yield from places(item, (*path, number))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    first, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[first] = changed(value[first], tuple(rest), new)
    return copy


def imports_or_says_why(content: bytes, name: str) -> list[Imported]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "trace"
        file.write_bytes(content)
        with Store(Path(folder) / "store", synchronous="OFF") as store:
            try:
                runs = list(import_file(store, file, name))
            except ImportFailed as error:
                assert "\n" not in str(error)
                return []
        for run in runs:
            json.dumps(run.as_json())
            records = read_log(Path(run.trace)).records
            folded = fold(record.event for record in records)
            assert folded.unknown_kinds == 0
            assert len(records) == run.counts.events
            assert outcome(folded).actions == run.counts.calls
            assert run.counts.calls - run.counts.inflight == run.counts.results - run.counts.orphans
        return runs


@pytest.mark.parametrize("name", SMALL)
def test_a_field_of_any_type_anywhere(name: str) -> None:
    whole = small(name)
    everywhere = list(places(whole))

    @SHORT
    @given(st.lists(st.tuples(st.sampled_from(everywhere), odd), min_size=1, max_size=3))
    def holds(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
        value = whole
        for path, new in changes:
            try:
                value = changed(value, path, new)
            except (KeyError, IndexError, TypeError):
                continue
        imports_or_says_why(written(name, value), name)

    holds()


@pytest.mark.parametrize("name", [*SMALL, "react_text"])
def test_bytes_that_are_cut_out_put_in_or_repeated(name: str) -> None:
    if name == "react_text":
        content = (TRACES / "react_text/hotpotqa_base_trial1_tail.txt").read_bytes()[:6000]
    else:
        content = written(name, small(name))

    @SHORT
    @given(
        st.integers(0, len(content)),
        st.integers(0, 200),
        st.one_of(
            st.binary(max_size=8),
            st.sampled_from([b'"', b"{", b"\n", b"}{", b"NaN", b"\xff\xfe", b"\\ud800"]),
        ),
        st.sampled_from([name, "auto"]),
    )
    def holds(place: int, length: int, put_in: bytes, told: str) -> None:
        imports_or_says_why(content[:place] + put_in + content[place + length :], told)

    holds()


@settings(SHORT, max_examples=50)
@given(st.binary(max_size=200), st.sampled_from(["auto", *FORMATS]))
def test_any_bytes(content: bytes, name: str) -> None:
    imports_or_says_why(content, name)


@pytest.mark.parametrize("name", FORMATS)
def test_a_trace_of_any_other_format_is_read_without_a_traceback(name: str) -> None:
    for other in SMALL:
        imports_or_says_why(written(other, small(other)), name)


@pytest.mark.parametrize("name", FORMATS)
def test_nesting_that_no_recursion_survives(name: str) -> None:
    deep = "[" * 20_000 + "]" * 20_000
    imports_or_says_why(f'{{"type":"session","messages":{deep},"tree":{{"tree":{deep}}}}}'.encode(), name)
    imports_or_says_why(deep.encode(), name)
