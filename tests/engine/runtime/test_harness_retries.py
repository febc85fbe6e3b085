"""Retries, backoff and fallbacks of one model call."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.core.backoff import backoff, delay_of, hint_in, hinted, jittered
from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.run_policy import RunPolicy
from stepfold.engine.testing.moves import Move, Script
from stepfold.engine.testing.plays import play as play_script
from stepfold.events.configuration import HarnessConfig, Retry
from stepfold.events.vocabulary import BLANK, ModelErred, Observed
from tests.harness_house import Counted, Scripted, VirtualClock, calls, erred, play, text

ONE_ATTEMPT = RunPolicy(retry=Retry(attempts=1))


def test_tl_010_backoffs_are_slept_when_the_policy_says_so() -> None:
    clock, moments = VirtualClock(), []

    def fails(_: object) -> ModelErred:
        moments.append(clock.milliseconds)
        return erred()

    model = Scripted(fails)
    policy = RunPolicy(retry=Retry(initial=0.1, attempts=4, sleep=True))
    played = play(AgentHarness(model, policy=policy, clock=clock))
    assert moments == [0, 100, 300, 700]
    retries = played.of("RetryScheduled")
    assert [(r.call_id, r.attempt, r.delay) for r in retries] == [
        ("model-1", 1, 0.1),
        ("model-1", 2, 0.2),
        ("model-1", 3, 0.4),
    ]
    assert (played.kind, played.kinds[-2:]) == ("Model", ["ModelFailed", "RunFailed"])


def test_backoffs_are_computed_and_not_slept_unless_asked_for() -> None:
    clock = VirtualClock()
    played = play(AgentHarness(Scripted(erred(), text("ok")), clock=clock))
    assert (played.run.text, clock.milliseconds, played.of("RetryScheduled")[0].delay) == ("ok", 0, 0.2)


def test_tl_011_a_fallback_follows_spent_retries_within_one_call() -> None:
    primary, backup = Scripted(erred(), name="primary"), Scripted(text("recovered"), name="backup")
    played = play(AgentHarness([primary, backup], policy=RunPolicy(retry=Retry(attempts=2))))
    assert played.run.text == "recovered"
    assert (primary.asked, backup.asked, played.run.model_calls) == (2, 1, 1)
    assert [r.attempt for r in played.of("RetryScheduled")] == [1]
    assert [f.model for f in played.of("FallbackSelected")] == ["backup"]


@pytest.mark.parametrize(("attempts", "cap", "made"), [(5, 1, 2), (3, 10, 3), (3, 1, 2), (3, 0, 1)])
def test_tl_012_the_run_caps_the_retries_of_the_policy(attempts: int, cap: int, made: int) -> None:
    model = Scripted(erred())
    policy = RunPolicy(retry=Retry(attempts=attempts), retries_per_call=cap)
    played = play(AgentHarness(model, policy=policy))
    assert (model.asked, played.kind) == (made, "Model")


def test_tl_013_no_model_is_asked_twice_in_one_call() -> None:
    primary, backup = Scripted(erred(), name="primary"), Scripted(erred(), name="backup")
    played = play(AgentHarness([primary, backup, primary], policy=ONE_ATTEMPT))
    assert (played.kind, primary.asked, backup.asked) == ("Model", 1, 1)


def test_tl_014_backoff_grows_to_a_cap_and_a_hint_only_lengthens_it() -> None:
    retry = Retry()
    assert [backoff(retry, attempt) for attempt in range(4)] == [0.2, 0.4, 0.8, 1.6]
    assert backoff(retry, 50) == backoff(retry, 5000) == 30.0
    assert [jittered(0.8, share) for share in (0.0, 0.5, 1.0, 7.0)] == pytest.approx([0.6, 0.8, 1.0, 1.0])
    assert hinted(0.2, hint_in("HTTP 429, Retry-After: 30"), 120.0) == 30.0
    assert hinted(0.2, 86_400.0, 5.0) == 5.0
    assert hinted(0.2, 0.0, 120.0) == 0.2


def test_a_hint_in_the_text_of_an_error_is_heard() -> None:
    error = ModelErred(*BLANK, error="rate_limited", detail="slow down. Retry-After: 30", retryable=True)
    assert play(AgentHarness(Scripted(error, text("ok")))).of("RetryScheduled")[0].delay == 30.0


@given(st.integers(0, 100), st.floats(0, 1e6), st.text(max_size=5))
def test_jitter_is_bounded_and_drawn_alike_every_time(attempt: int, hint: float, seed: str) -> None:
    retry = Retry(jitter=True)
    plain, delay = backoff(retry, attempt), delay_of(retry, attempt, 0.0, seed)
    assert 0.75 * plain <= delay <= 1.25 * plain
    assert delay_of(retry, attempt, hint, seed) == max(delay, min(hint, 120.0))


@given(st.text())
def test_a_hint_is_read_out_of_any_text(said: str) -> None:
    assert hint_in(said) >= 0


def test_an_error_that_is_not_retryable_goes_straight_to_the_fallback() -> None:
    primary = Scripted(erred(retryable=False, error="auth"), name="primary")
    backup = Scripted(text("ok"), name="backup")
    played = play(AgentHarness([primary, backup]))
    assert (primary.asked, played.run.text) == (1, "ok")
    assert not played.of("RetryScheduled")


def test_a_timeout_of_the_adapter_is_followed_by_no_fallback() -> None:
    primary = Scripted(erred(retryable=False, error="timeout"), name="primary")
    backup = Scripted(text("ok"), name="backup")
    played = play(AgentHarness([primary, backup]))
    assert (played.kind, backup.asked) == ("Timeout", 0)


def test_a_model_that_lacks_what_the_call_needs_is_skipped_with_an_event() -> None:
    primary, backup = Scripted(erred(), name="primary"), Scripted(text("ok"), name="backup")
    mute = Scripted(text("no"), name="mute", supports_tools=False)
    harness = AgentHarness([primary, mute, backup], [Counted("look").tool], policy=ONE_ATTEMPT)
    played = play(harness)
    assert (played.run.text, mute.asked) == ("ok", 0)
    assert [(f.model, f.lacks) for f in played.of("FallbackSkipped")] == [("mute", "tools")]


def test_a_model_that_raises_is_a_failed_attempt() -> None:
    def broken(_: object) -> None:
        raise ConnectionError("gone")

    played = play(AgentHarness([Scripted(broken, name="primary"), Scripted(text("ok"), name="backup")]))
    assert played.run.text == "ok"
    assert played.of("ModelErred")[0].error == "ConnectionError"


def test_a_failed_call_counts_once_and_the_tools_before_it_stay() -> None:
    model = Scripted(calls(("c1", "look")), erred())
    played = play(AgentHarness(model, [Counted("look").tool]))
    assert (played.kind, played.run.model_calls, played.run.tool_calls) == ("Model", 2, 1)
    assert "busy" in str(played.error)


def test_a_deadline_that_passes_with_the_next_attempt_replays() -> None:
    """Found by the fuzzer: replay took the deadline for the backoff's batch, and decided before the reply."""
    settings = HarnessConfig(
        models=(),
        manifests=(),
        retry=Retry(attempts=2, sleep=True),
        wall_clock=30.0,
        max_model_calls=1,
    )
    player = play_script(Script(settings, (Move("err", number=1), Move("jump", number=1))))
    landed = [event.key for event in player.events if isinstance(event, Observed)]
    assert landed[-3:] == ["wait:model-1:1", "clock", "model:model-1:1"]
