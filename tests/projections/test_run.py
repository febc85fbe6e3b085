"""What holds for every goal run, whatever the model says, the tools do and whenever somebody cancels."""

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stepfold.engine.runtime.replay import verify
from stepfold.events import vocabulary as v
from stepfold.events.configuration import HarnessConfig
from stepfold.projections.fold_goal import checks_of
from stepfold.projections.run import evolve, fold
from stepfold.projections.state import Run, microseconds
from tests.engine.core.stories import STORIES
from tests.events.test_codec import structs_of
from tests.house import (
    ASK,
    FINISH,
    LOAD,
    PROSE,
    REMEMBER,
    SEARCH,
    VERIFY,
    WORKER,
    Hands,
    action,
    call,
    config,
    erred,
    go_on,
    kinds,
    load,
    of_kind,
    play,
    recorded,
    slots_of,
)

PARTNERS = {
    "ModelStarted": ("ModelCompleted", "ModelFailed"),
    "ToolStarted": ("ToolCompleted", "ToolFailed"),
    "CheckStarted": ("EvidenceRecorded",),
}
ENDS = {"completed", "handed_back", "exhausted", "cancelled", "failed", "awaiting_user"}


def looked(arguments: bytes) -> Any:
    """What a tool does is drawn through its arguments, so that hands stay functions of the effect."""
    if b"raise" in arguments:
        raise OSError("no such\nfile")
    if b"err" in arguments:
        return v.ToolReturned(*v.BLANK, content="refused", error="NotFound")
    if b"fail" in arguments:
        return v.ToolErred(*v.BLANK, error="Broken", detail="d")
    return v.ToolReturned(*v.BLANK, content=arguments.decode())


WHAT = st.sampled_from(["fine", "raise", "err", "fail", "\u2028 \ufdd0"])
VALID = st.one_of(
    st.sampled_from([SEARCH, LOAD, VERIFY, FINISH, REMEMBER, WORKER, ASK]),
    st.builds(
        lambda name, what: call(name, what=what), st.sampled_from(["look", "change", "Look", "nine"]), WHAT
    ),
    st.builds(
        lambda names: load(*names),
        st.lists(st.sampled_from(["look", "change", "nine"]), min_size=1, max_size=3),
    ),
    st.builds(
        lambda ids: action("verify", checks=ids), st.lists(st.sampled_from(["a", "b", "nine"]), max_size=3)
    ),
)
MALFORMED = st.sampled_from(
    [
        PROSE,
        "",
        "[]",
        "{}",
        '{"name":"finish"}',
        '{"name":"fs.read","arguments":{}}',
        FINISH + FINISH,
        "[" * 5000,
    ]
)
ODD = st.sampled_from(
    [
        '{"name":"finish","arguments":{"summary":"\\ud800"}}',
        '{"name":"finish","arguments":{"summary":"\ud800"}}',
        '{"name":"capability_call","arguments":{"capability":"look","arguments":{"n":123456789012345678901234567890}}}',
        '{"name":"capability_call","arguments":{"capability":"look","arguments":{"n":1e308}}}',
        '{"name":"capability_call","arguments":{"capability":"look","arguments":{"n":-0.0}}}',
        '{"name":"capability_call","arguments":{"capability":"look","arguments":{"t":"\\udfff\ufdd0"}}}',
        '{"name":"capability_search","arguments":{"query":"\\u0000\u2028"}}',
        f"```json\n{FINISH}\n```",
        f"  \r\n{SEARCH}\t",
        '{"arguments":{"query":"look at files"},"name":"capability_search"}',
        '{"name":"memory_write","arguments":{"text":"\\u2028"}}',
    ]
)
SAID = st.one_of(
    VALID, VALID, VALID, MALFORMED, ODD, st.builds(lambda again: erred(retryable=again), st.booleans())
)
CONFIGS = st.builds(
    lambda steps, window, checks, memory, mode: config(
        max_steps=steps,
        context_window=window,
        memory=memory,
        verification=mode,
        **({} if checks else {"checks": ()}),
    ),
    st.integers(1, 10),
    st.sampled_from([262_000, 262_000, 800]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["commands", "commands", "commands", "manual"]),
)
SCRIPTS = st.lists(SAID, max_size=10)
CODES = st.fixed_dictionaries({"a": st.sampled_from([0, 0, 1, None]), "b": st.sampled_from([0, 0, 0, 2])})
CANCELS = st.one_of(st.none(), st.none(), st.integers(0, 25))


def hands_for(script: Sequence[Any], codes: dict[str, int | None]) -> Hands:
    return Hands(script, {"look": looked, "change": looked}, codes)


def pairs_are_whole(events: Sequence[v.AnyEvent]) -> None:
    open_names: dict[str, str] = {}
    workers: set[str] = set()
    for event in events:
        name = type(event).__name__
        subject = getattr(event, "call_id", "") or getattr(event, "check_id", "")
        if name in PARTNERS:
            worker = getattr(event, "name", "") == "worker_dispatch"
            workers |= {subject} if worker else set()
            assert worker or name not in open_names, "one of a sort at a time, but for workers"
            open_names |= {} if worker else {name: subject}
        for started, ends in PARTNERS.items():
            if name in ends and subject in workers:
                workers.remove(subject)
            elif name in ends:
                assert open_names.pop(started) == subject
    assert not open_names
    assert not workers


def observations_are_paired(events: Sequence[v.AnyEvent]) -> None:
    asked = [event.call_id for event in of_kind(events, "ActionParsed", "ActionRejected")]
    answered = [event.call_id for event in of_kind(events, "ObservationRecorded")]
    assert asked == answered
    assert len(set(asked)) == len(asked)


def nothing_starts_after_a_cancel(events: Sequence[v.AnyEvent]) -> None:
    for number, event in enumerate(events):
        if isinstance(event, v.CancelRequested):
            # In a chat it ends the turn, and the next words begin another.
            turn = takewhile(lambda event: not isinstance(event, v.UserAnswered), events[number:])
            assert not of_kind(tuple(turn), *PARTNERS, "RetryScheduled", "ContextBuilt")


def finish_has_fresh_evidence(run: Run, events: Sequence[v.AnyEvent]) -> None:
    met: dict[str, bool] = {}
    tool = ""
    for event in events:
        match event:
            case v.ToolStarted():
                tool = event.name
            case v.ToolCompleted() | v.ToolFailed():
                if tool == "change":
                    met.clear()
            case v.WorkspaceChanged():
                met.clear()
            case v.EvidenceRecorded():
                met[event.check_id] = event.passed
            case v.FinishAccepted():
                assert all(met.get(check.id) for check in checks_of(run))
            case v.FinishRejected():
                assert event.unmet == tuple(check.id for check in checks_of(run) if not met.get(check.id))


def is_legal(run: Run, events: Sequence[v.AnyEvent]) -> None:
    assert [event.seq for event in events] == list(range(len(events)))
    assert slots_of(fold(events)) == slots_of(run)
    assert verify(recorded(events))[1] == len(events)
    assert run.state in ENDS
    assert run.status
    assert run.goal.pending is None
    assert not run.due or run.state == "awaiting_user"
    assert run.step <= run.config.max_steps  # type: ignore[union-attr]
    assert sum(kind == "RunFinished" for kind in kinds(events)) == (run.state != "exhausted")
    assert [event.ts for event in events] == sorted(event.ts for event in events)
    pairs_are_whole(events)
    observations_are_paired(events)
    nothing_starts_after_a_cancel(events)
    finish_has_fresh_evidence(run, events)


@settings(max_examples=150, deadline=None)
@given(CONFIGS, SCRIPTS, CODES, CANCELS)
def test_every_run_is_legal_and_its_log_is_all_of_it(
    chosen: Any, script: list[Any], codes: dict[str, int | None], cancel_at: int | None
) -> None:
    run, events = play(chosen, hands_for(script, codes), cancel_at=cancel_at)

    is_legal(run, events)


@settings(max_examples=15, deadline=None)
@given(CONFIGS, SCRIPTS, CODES, CANCELS)
def test_a_run_cut_at_any_event_goes_on_to_a_legal_end(
    chosen: Any, script: list[Any], codes: dict[str, int | None], cancel_at: int | None
) -> None:
    hands = hands_for(script, codes)
    _, events = play(chosen, hands, cancel_at=cancel_at)

    for cut in range(1, len(events)):
        run, whole = go_on(events[:cut], hands)

        assert whole[:cut] == events[:cut]
        is_legal(run, whole)


@settings(max_examples=30, deadline=None)
@given(CONFIGS, SCRIPTS, CODES)
def test_a_run_that_was_cut_ends_as_if_it_had_not_been(
    chosen: Any, script: list[Any], codes: dict[str, int | None]
) -> None:
    hands = hands_for(script, codes)
    run, events = play(chosen, hands)

    again, _ = go_on(events[: len(events) // 2], hands)

    assert again.goal.transcript == run.goal.transcript
    assert (again.state, again.step, again.history.chain) == (run.state, run.step, run.history.chain)


@pytest.mark.parametrize("name", STORIES)
def test_every_story_is_a_legal_log_as_far_as_it_goes(name: str) -> None:
    events = STORIES[name]()
    run = fold(events)

    nothing_starts_after_a_cancel(events)
    finish_has_fresh_evidence(run, events)
    assert verify(recorded(events))[1] == len(events)
    if run.state in ENDS:
        pairs_are_whole(events)
        observations_are_paired(events)


@pytest.mark.parametrize("loop", ["goal", "tools", ""])
def test_folding_is_total_whatever_comes_in_whatever_order(loop: str) -> None:
    first = {
        "goal": [v.RunStarted(1, "r", 0, 0, "t", config=config(), engine="e")],
        "tools": [v.RunStarted(1, "r", 0, 0, "t", config=HarnessConfig(), engine="e")],
        "": [],
    }[loop]
    any_event = st.one_of([structs_of(kind) for kind in (*v.KINDS.values(), v.Unknown)])

    @settings(max_examples=150, deadline=None)
    @given(st.lists(any_event, max_size=20))
    def total(events: list[Any]) -> None:
        run = fold([*first, *events])

        run.clone()
        assert isinstance(run.now, int)

    total()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of([structs_of(kind) for kind in v.KINDS.values() if kind is not v.RunStarted]), max_size=12
    )
)
def test_a_goal_run_in_mid_flight_survives_events_that_do_not_belong(events: list[Any]) -> None:
    run = fold(STORIES["finishes with evidence"]()[:30])

    for event in events:
        evolve(run, event)


def test_unknown_kinds_are_counted_and_change_nothing_else() -> None:
    run = fold(STORIES["finishes with evidence"]()[:20])
    before = slots_of(run)

    evolve(run, v.Unknown(1, "r", run.seq, run.step, "later", "FutureKind"))

    after = slots_of(run)
    assert {name for name in after if after[name] != before[name]} == {"seq", "unknown_kinds"}
    assert run.unknown_kinds == before["unknown_kinds"] + 1


@pytest.mark.parametrize("cut", [1, 12, 25, 40])
def test_a_clone_is_independent(cut: int) -> None:
    events = STORIES["evidence goes stale"]()
    run = fold(events[:cut])
    before = slots_of(run)

    copy = run.clone()
    assert slots_of(copy) == before
    for event in events[cut:]:
        evolve(copy, event)

    assert slots_of(run) == before
    assert slots_of(copy) == slots_of(fold(events))


@pytest.mark.parametrize(
    "late", [v.ToolReturned(*v.BLANK, content="late"), v.EffectLost(*v.BLANK)], ids=["result", "lost"]
)
def test_what_lands_after_its_effect_was_cancelled_never_happened(late: v.Observed) -> None:
    events = STORIES["is cancelled while a call flies"]()
    (started,) = of_kind(events, "ToolStarted")
    run = fold(events)
    before = slots_of(run)

    evolve(run, replace(late, seq=run.seq, step=run.step, ts=run.ts, key=started.key))

    after = slots_of(run)
    assert {name for name in after if after[name] != before[name]} == {"seq"}


def test_two_started_calls_of_one_id_are_two_slots() -> None:
    keys = Counter(event.key for event in of_kind(STORIES["tools err and raise"](), "ToolStarted"))

    assert set(keys.values()) == {1}


def test_asking_again_after_an_empty_reply_that_never_came_changes_no_turn() -> None:
    started = v.RunStarted(1, "r", 0, 0, "t", config=HarnessConfig(), engine="e")
    again = v.RetryScheduled(
        1, "r", 1, 0, "t", "recover", call_id="model-1", attempt=1, delay=0.0, why="empty"
    )

    assert fold([started, again]).history.turns == []


def a_call_in_flight() -> Run:
    """A tool-calling run whose one call has started."""
    asked = v.ToolCall("c", "slow", "{}")
    return fold(
        [
            v.RunStarted(1, "r", 0, 0, "t", config=HarnessConfig(), engine="e"),
            v.ModelStarted(1, "r", 1, 1, "t", "ask", call_id="m", model="x", digest=""),
            v.ModelReplied(1, "r", 2, 1, "t", key="model:m:0", text="", tool_calls=(asked,)),
            v.ModelCompleted(1, "r", 3, 1, "t", "complete", call_id="m"),
            v.ToolStarted(1, "r", 4, 1, "t", "launch", call_id="c", name="slow", key="tool:1.0"),
        ]
    )


def a_failure(run: Run) -> v.ToolFailed:
    return v.ToolFailed(
        1, "r", run.seq, 1, "t", "cancel_call", call_id="c", error="Cancelled", key="tool:1.0"
    )


def test_a_call_that_was_given_up_is_no_longer_in_flight() -> None:
    run = a_call_in_flight()
    assert "tool:1.0" in run.due

    evolve(run, a_failure(run))

    assert "tool:1.0" not in run.due


def test_a_sub_agent_that_failed_is_paid_for_by_its_parent() -> None:
    run = a_call_in_flight()
    spent = v.ChildUsage(model_calls=2, input_tokens=30, output_tokens=4)
    before = run.usage

    evolve(run, v.ToolErred(1, "r", 5, 1, "t", key="tool:1.0", error="Broken", child=spent))
    evolve(run, a_failure(run))

    assert run.usage == before.plus_child(spent)
    assert run.usage.input_tokens == before.input_tokens + 30


def test_a_failure_of_no_call_changes_nothing() -> None:
    run = fold([v.RunStarted(1, "r", 0, 0, "t", config=HarnessConfig(), engine="e")])

    evolve(run, a_failure(run))

    assert (run.harness.tool_calls, run.history.turns, run.fault) == (0, [], "")


@pytest.mark.parametrize(
    ("ts", "expected"),
    [
        ("1970-01-01T00:00:01.000002Z", 1_000_002),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:01", 1_000_000),
        ("", 0),
        ("soon", 0),
        ("1969-12-31T23:59:59.999999Z", -1),
    ],
)
def test_a_time_is_read_wherever_the_machine_stands_and_whatever_the_text_is(ts: str, expected: int) -> None:
    assert microseconds(ts) == expected
