"""What if: a recorded run under other settings ends where that is known, and is unknown where it isn't."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepfold.engine.runtime.changes import GOAL_KEYS, TOOLS_KEYS, ChangeError, changed
from stepfold.engine.studies.judge import Ending, judge
from stepfold.events.configuration import GoalConfig, HarnessConfig
from tests.engine.core.stories import STORIES
from tests.engine.studies.logs import LOGS, of_kind, tools_run
from tests.house import PROSE, Hands, play, recorded
from tests.house import config as settings_of

EVERY_FIXTURE = pytest.mark.parametrize("name", LOGS)
CAPPED = [name for name, log in LOGS.items() if of_kind(log, "GuardTripped")]


@EVERY_FIXTURE
def test_no_change_ends_where_it_did(name: str) -> None:
    found = judge(LOGS[name], [])

    assert (found.changed, found.seq) == (False, -1)
    assert (found.would.finish, found.would.step) == (found.recorded.finish, found.recorded.step)


@pytest.mark.parametrize("name", STORIES)
def test_no_change_holds_for_every_story_cut_anywhere(name: str) -> None:
    records = recorded(STORIES[name]())
    for cut in range(1, len(records) + 1):
        assert not judge(records[:cut], []).changed


@EVERY_FIXTURE
def test_a_smaller_cap_ends_the_run_at_that_step(name: str) -> None:
    steps = judge(LOGS[name], []).recorded.step
    for cap in range(1, steps):
        found = judge(LOGS[name], [f"loop.max_steps={cap}"])

        assert found.would == Ending("missing_evidence", cap, "steps_spent")
        assert found.changed


@pytest.mark.parametrize("name", CAPPED)
def test_a_larger_cap_on_a_capped_run_is_unknown_from_there(name: str) -> None:
    before = judge(LOGS[name], [])
    found = judge(LOGS[name], [f"loop.max_steps={before.recorded.step + 3}"])

    assert found.would == Ending(None, before.recorded.step + 1)
    assert found.changed
    assert found.as_json()["would"] == {
        "finish": None,
        "step": before.recorded.step + 1,
        "guard": None,
        "known": False,
    }


def test_a_larger_cap_on_a_run_that_completed_changes_nothing() -> None:
    assert not judge(LOGS["fixes_a_failing_test"], ["loop.max_steps=500"]).changed


def shell_run() -> list[Any]:
    from stepfold.engine.capabilities.manifests import NATIVE
    from tests.house import FINISH, Hands, call, config, load, play

    shell = next(manifest.name for manifest in NATIVE if "shell" in manifest.name)
    hands = Hands([load(shell), call(shell, command="rm notes.txt"), FINISH])
    return recorded(play(config(checks=(), manifests=NATIVE, sandbox_required=False), hands)[1])


def test_a_deny_rule_makes_the_run_unknown_at_the_refused_call() -> None:
    records = shell_run()
    (started,) = of_kind(records, "ToolStarted")

    found = judge(records, ['policy.shell.deny=["rm"]'])

    assert found.recorded.finish == "completed"
    assert (found.seq, found.would.finish, found.changed) == (started.seq, None, True)
    assert not judge(records, ["policy.shell.deny=curl"]).changed


def test_another_temperature_asks_the_model_something_else() -> None:
    found = judge(LOGS["fixes_a_failing_test"], ["model.temperature=0.9"])

    assert (found.would.finish, found.would.step) == (None, 1)


@pytest.mark.parametrize("cap", [1, 2, 3])
def test_a_smaller_cap_of_model_calls_ends_a_tools_run_there(cap: int) -> None:
    found = judge(tools_run(3), [f"max_model_calls={cap}"])

    assert found.recorded == Ending("completed", 4)
    assert found.would == Ending("failed", cap, "model_calls")


def test_a_smaller_cap_of_tool_calls_ends_a_tools_run_before_the_turn_that_breaks_it() -> None:
    found = judge(tools_run(3), ["max_tool_calls=3", "on_limit=stop_with_partial"])

    assert (found.would.finish, found.would.guard) == ("completed", "tool_calls")


def test_a_larger_cap_on_a_capped_tools_run_is_unknown() -> None:
    records = tools_run(4, max_model_calls=2)

    assert not judge(records, []).changed
    assert judge(records, ["max_model_calls=9"]).would.finish is None


# --- settings ---------------------------------------------------------------------------------------

GOAL, TOOLS = GoalConfig(goal="g"), HarnessConfig()


@pytest.mark.parametrize(
    ("config", "setting", "why"),
    [
        (GOAL, "loop.max_step=3", "did you mean 'loop.max_steps'"),
        (GOAL, "max_steps=3", "did you mean 'loop.max_steps'"),
        (GOAL, "loop.max_steps", "KEY=VALUE"),
        (GOAL, "loop.max_steps=0", "more than 0"),
        (GOAL, "loop.max_steps=many", "Expected `int"),
        (GOAL, "loop.profile=bakery", "one of coding"),
        (GOAL, "loop.keep=/etc/*", "loop.keep has '/etc/*', which no path of the project fits"),
        (GOAL, "loop.preload=fs.mend", "loop.preload has 'fs.mend'; there are fs.list, fs.read"),
        (GOAL, "max_model_calls=3", "this is a goal run"),
        (TOOLS, "loop.max_steps=3", "this is a tool-calling run"),
        (TOOLS, "on_limit=never", "Invalid enum"),
        (GOAL, "zzz=1", "known: loop.max_steps"),
    ],
)
def test_a_setting_that_is_none_is_refused_in_one_line(config: Any, setting: str, why: str) -> None:
    with pytest.raises(ChangeError) as caught:
        changed(config, [setting])

    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_denials_are_asked_first_and_replace_those_of_the_run() -> None:
    config = changed(
        GOAL, ["policy.shell.allow=git", 'policy.shell.deny=["rm", "dd"]', "policy.shell.deny=curl"]
    )

    assert [(rule.verdict, rule.pattern) for rule in config.policy] == [("deny", "curl"), ("allow", "git")]  # type: ignore[union-attr]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([*GOAL_KEYS, *TOOLS_KEYS, "x"]), st.text(max_size=12) | st.integers().map(str))
def test_no_value_makes_a_traceback(key: str, value: str) -> None:
    for config in (GOAL, TOOLS):
        try:
            assert type(changed(config, [f"{key}={value}"])) is type(config)
        except ChangeError as error:
            assert str(error).startswith("--set ")


def test_a_guard_that_was_off_would_have_ended_a_run_that_went_in_circles() -> None:
    records = recorded(play(settings_of(max_steps=12), Hands([PROSE] * 12))[1])

    found = judge(records, ["guards.rejection=4"])

    assert found.recorded == Ending("missing_evidence", 12)
    assert found.would == Ending("failed", 4, "rejection_repeats")


@pytest.mark.parametrize("setting", ["guards.cycle=1", "guards.cycle=-3", "guards.cycle=often"])
def test_a_threshold_that_makes_no_sense_is_refused(setting: str) -> None:
    records = recorded(play(settings_of(max_steps=2), Hands([PROSE] * 2))[1])

    with pytest.raises(ChangeError, match="--set "):
        judge(records, [setting])
