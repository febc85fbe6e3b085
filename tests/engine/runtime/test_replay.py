"""Replay makes each decided event anew; the first difference is named, and nothing on disk makes it raise."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stepfold.engine.runtime.replay import ReplayDiverged, replay, verify
from stepfold.events.codec import encode
from stepfold.events.configuration import Retry
from stepfold.events.vocabulary import BLANK, AnyEvent, Decided, Observed, WaitEnded
from tests.engine.core.stories import STORIES
from tests.house import FINISH, PROSE, VERIFY, Hands, Story, config, erred, kinds, of_kind, play, recorded

LOGS = {name: make() for name, make in STORIES.items()}
STORY = LOGS["evidence goes stale"]
EVERY_STORY = pytest.mark.parametrize("name", STORIES)
DIFFERENT: dict[type, Any] = {str: "planted", int: 987, float: 9.5, tuple: ("planted",), type(None): 5}


def diverged(events: list[Any]) -> ReplayDiverged:
    with pytest.raises(ReplayDiverged) as caught:
        verify(recorded(events))
    return caught.value


def renumbered(events: list[Any]) -> list[Any]:
    return [replace(event, seq=seq) for seq, event in enumerate(events)]


def written(path: Path, lines: list[bytes], tail: bytes = b"") -> Path:
    path.write_bytes(b"".join(line + b"\n" for line in lines) + tail)
    return path


LINES = [encode(event) for event in STORY]


@EVERY_STORY
def test_every_story_replays_identical_cut_at_every_boundary(name: str) -> None:
    events = LOGS[name]
    for cut in range(1, len(events) + 1):
        run, count = verify(recorded(events[:cut]))

        assert count == cut
        assert run.seq >= cut


def planted_in(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
        return ()
    return DIFFERENT.get(type(value))


@EVERY_STORY
def test_a_planted_change_is_found_where_it_was_planted(name: str) -> None:
    events = LOGS[name]
    done: set[tuple[str, str]] = set()
    for seq, event in enumerate(events):
        kind = type(event).__name__
        if not isinstance(event, Decided):
            continue
        for field in event.__struct_fields__:
            planted = planted_in(getattr(event, field))
            if planted is None or field in {"v", "run_id", "seq"} or (kind, field) in done:
                continue
            if (kind, field) == ("ContextBuilt", "sections") and not event.sections:  # type: ignore[union-attr]
                continue
            done.add((kind, field))

            found = diverged([*events[:seq], replace(event, **{field: planted}), *events[seq + 1 :]])

            assert (found.seq, found.kind, found.field) == (seq, kind, field)
            cause = [earlier for earlier in events[:seq] if isinstance(earlier, Observed)][-1]
            assert found.caused_by == {"seq": cause.seq, "kind": type(cause).__name__, "key": cause.key}
    assert len(done) > 4


def test_a_decided_event_of_another_kind_is_found() -> None:
    (rejected,) = of_kind(STORY, "FinishRejected")
    other = of_kind(STORY, "ChecksJudged")[0]
    seq = rejected.seq

    found = diverged([*STORY[:seq], replace(other, seq=seq), *STORY[seq + 1 :]])

    assert (found.seq, found.field) == (seq, "kind")
    assert (found.recorded, found.computed) == ("ChecksJudged", "FinishRejected")


@pytest.mark.parametrize(
    "name", ["evidence goes stale", "never speaks JSON", "is cancelled while a call flies"]
)
def test_a_missing_decided_line_is_found(name: str) -> None:
    events = LOGS[name]
    for seq, event in enumerate(events[:-1]):
        if isinstance(event, Decided):
            found = diverged(renumbered([*events[:seq], *events[seq + 1 :]]))
            assert found.seq == seq


def test_a_decided_line_too_many_is_found() -> None:
    more = of_kind(STORY, "ModelStarted")[-1]

    found = diverged([*STORY, replace(more, seq=len(STORY))])

    assert (found.seq, found.kind, found.computed) == (len(STORY), "ModelStarted", None)


def test_a_landing_that_answers_nothing_is_found() -> None:
    (landing, *_) = of_kind(STORY, "ModelReplied")

    found = diverged(
        [*STORY[: landing.seq], replace(landing, key="model:model-9:0"), *STORY[landing.seq + 1 :]]
    )

    assert (found.seq, found.field, found.recorded) == (landing.seq, "key", "model:model-9:0")
    assert found.computed == ["model:model-1:0"]


def test_a_landing_that_stands_twice_is_found() -> None:
    seq = of_kind(STORY, "ModelReplied")[0].seq

    found = diverged(renumbered([*STORY[: seq + 1], STORY[seq], *STORY[seq + 1 :]]))

    assert found.seq == seq + 1


def test_a_missing_landing_is_found() -> None:
    seq = of_kind(STORY, "ModelReplied")[0].seq

    found = diverged(renumbered([*STORY[:seq], *STORY[seq + 1 :]]))

    assert (found.seq, found.kind, found.computed) == (seq, "ModelCompleted", None)


def test_a_log_that_does_not_begin_with_its_start_is_found() -> None:
    (landing, *_) = of_kind(STORY, "ModelReplied")

    assert diverged(renumbered(STORY[landing.seq :])).computed == "RunStarted"
    assert diverged(renumbered(STORY[1:])).computed is None


def test_a_backoff_and_the_attempt_after_it_replay_although_they_are_neighbours() -> None:
    story = Story(config(checks=(), retry=Retry(attempts=3, sleep=True)))
    story.lands(erred(retryable=True))
    story.lands(WaitEnded(*BLANK))
    story.lands(FINISH)

    assert kinds(story.events)[5:8] == ["RetryScheduled", "WaitEnded", "ModelReplied"]
    assert verify(recorded(story.events))[1] == len(story.events)


def test_a_line_with_a_field_of_a_later_engine_agrees(tmp_path: Path) -> None:
    lines = [line.replace(b'"v":1', b'"v":1,"mood":"calm"', 1) for line in LINES]
    path = written(tmp_path / "r.jsonl", lines)

    assert replay(path).as_json() == {"trace": str(path), "verdict": "identical", "events": len(STORY)}


def test_an_unknown_kind_in_the_place_of_a_decision_is_unreadable_and_named(tmp_path: Path) -> None:
    seq = of_kind(STORY, "ToolCompleted")[0].seq
    lines = [
        line.replace(b"ToolCompleted", b"FutureKind", 1) if n == seq else line for n, line in enumerate(LINES)
    ]

    verdict = replay(written(tmp_path / "r.jsonl", lines))

    assert (verdict.verdict, verdict.line) == ("unreadable", seq + 1)
    assert verdict.why == f"the kind FutureKind at seq {seq} is of a newer engine: upgrade stepfold"


def test_unknown_kinds_that_nobody_decided_are_carried_along_and_counted(tmp_path: Path) -> None:
    seq = of_kind(STORY, "ModelReplied")[0].seq
    lines = [encode(event) for event in renumbered([*STORY[:seq], STORY[seq], *STORY[seq:]])]
    lines[seq] = lines[seq].replace(b"ModelReplied", b"FutureKind", 1)
    path = written(tmp_path / "r.jsonl", lines)

    verdict = replay(path).as_json()

    assert verdict == {"trace": str(path), "verdict": "identical", "events": len(lines), "unknown_kinds": 1}


def test_the_verdicts_have_the_shapes_that_are_printed(tmp_path: Path) -> None:
    good = written(tmp_path / "good.jsonl", LINES)
    torn = written(tmp_path / "torn.jsonl", LINES[:-1], tail=LINES[-1][:9])
    planted = [encode(replace(event, row="other")) if event.seq == 5 else encode(event) for event in STORY]
    bad = written(tmp_path / "bad.jsonl", planted)
    whole = {"trace": str(good), "verdict": "identical", "events": len(STORY)}

    assert replay(good).as_json() == whole
    assert replay(torn).as_json() == whole | {"trace": str(torn), "events": len(STORY) - 1, "torn_bytes": 9}
    assert replay(bad).as_json() == {
        "trace": str(bad),
        "verdict": "diverged",
        "seq": 5,
        "kind": "ModelCompleted",
        "field": "row",
        "recorded": "other",
        "computed": "complete",
        "caused_by": {"seq": 4, "kind": "ModelReplied", "key": "model:model-1:0"},
        "row": {"recorded": "other", "computed": "complete"},
        "engine": {"recorded": "test", "this": version("stepfold")},
    }
    assert set(replay(written(tmp_path / "empty.jsonl", [])).as_json()) == {"trace", "verdict", "line", "why"}
    assert replay(tmp_path / "none.jsonl").verdict == "unreadable"


def test_nonsense_in_the_place_of_a_time_makes_no_traceback(tmp_path: Path) -> None:
    lines = [encode(replace(event, ts="whenever")) for event in LOGS["tools err and raise"]]

    assert replay(written(tmp_path / "r.jsonl", lines)).verdict == "diverged"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_moved_doubled_and_dropped_lines_never_raise(data: st.DataObject) -> None:
    events: list[AnyEvent] = list(LOGS[data.draw(st.sampled_from(sorted(LOGS)))])
    for _ in range(data.draw(st.integers(1, 3))):
        at, to = data.draw(st.integers(0, len(events) - 1)), data.draw(st.integers(0, len(events) - 1))
        match data.draw(st.sampled_from(["drop", "double", "move"])):
            case "drop" if len(events) > 1:
                del events[at]
            case "double":
                events.insert(to, events[at])
            case _:
                events.insert(to, events.pop(at))

    try:
        verify(recorded(renumbered(events)))
    except ReplayDiverged as found:
        assert "\n" not in str(found)


@pytest.mark.parametrize("cancel_at", range(8))
def test_what_was_driven_live_replays(cancel_at: int) -> None:
    run, events = play(config(memory=True), Hands([PROSE, VERIFY, FINISH]), cancel_at=cancel_at)

    again, count = verify(recorded(events))

    assert count == len(events)
    assert again.status == run.status
