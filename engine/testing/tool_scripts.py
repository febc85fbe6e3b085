"""Scripts for the tool-calling loop: what its model, its tools, its owner and its clock do."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from stepfold.engine.testing.moves import Move, Script
from stepfold.engine.testing.tool_player import STEERED
from stepfold.events.configuration import HarnessConfig, Retry

Draw = Callable[[st.SearchStrategy[Any]], Any]

_NAMES = st.sampled_from(("pure", "once", "pure", "once", "gone", "", "\ud800"))
_ARGUMENTS = st.sampled_from(
    ('{"n":1}', '{"n":1}', "{}", "broken", "[]", '{"n":"x"}', '{"n":1,"n":2}', "null", "\ud800")
)
_CALLS = st.lists(
    st.tuples(st.sampled_from(("same", "c1", "c2", "")), _NAMES, _ARGUMENTS), min_size=1, max_size=4
)
_TEXTS = st.sampled_from(("", "x", "\ud800", "\x1b[2J", "a\nb"))


def tool_configs() -> st.SearchStrategy[HarnessConfig]:
    """Policies of every kind, with low caps."""
    return st.builds(
        HarnessConfig,
        retry=st.builds(Retry, attempts=st.integers(1, 3), sleep=st.booleans()),
        max_model_calls=st.sampled_from((1, 3, 8)),
        max_tool_calls=st.sampled_from((1, 4, 20)),
        wall_clock=st.sampled_from((None, None, 30.0)),
        on_limit=st.sampled_from(("error", "stop_with_partial")),
        unknown_tool=st.sampled_from(("fail", "return_tool_error", "rewrite:pure", "rewrite:gone")),
        invalid_arguments=st.sampled_from(("return_tool_error", "normalize", "fail")),
        tool_errors=st.sampled_from(("fail", "return_to_model", "message:no")),
        error_on_empty_response=st.booleans(),
        no_progress=st.booleans(),
    )


def tool_moves() -> st.SearchStrategy[Move]:
    """One move."""
    call = _CALLS.map(lambda calls: Move("call", json.dumps(calls)))
    land = st.builds(Move, st.just("land"), _TEXTS, st.sampled_from((0, 0, 0, 1)), st.integers(0, 2))
    rare = st.one_of(
        st.builds(Move, st.just("say"), _TEXTS),
        st.builds(Move, st.just("err"), st.just(""), st.integers(0, 1)),
        st.builds(Move, st.just("fail"), _TEXTS, st.just(0), st.integers(0, 2)),
        st.builds(Move, st.just("steer"), st.sampled_from(STEERED)),
        st.builds(Move, st.just("jump"), st.just(""), st.sampled_from((1, 60, -3600))),
        st.just(Move("cancel")),
    )
    by_weight = (call, land, land, call, land, rare)
    return st.integers(0, len(by_weight) - 1).flatmap(lambda at: by_weight[at])


@st.composite
def tool_scripts(draw: Draw, longest: int = 14) -> Script:
    """Scripts for `ToolPlayer`."""
    count = draw(st.integers(0, longest))
    made = draw(st.lists(tool_moves(), min_size=count, max_size=count))
    return Script(draw(tool_configs()), tuple(made))
