"""Scripts as strategies: a configuration, and moves that lead a run through all that can happen to it."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st

from stepfold.engine.testing.moves import Move, Script
from stepfold.engine.testing.plays import play
from stepfold.engine.testing.said import EIGHT, KINDS, actions, malformed_replies
from stepfold.engine.testing.values import arguments_for
from stepfold.events.configuration import CheckSpec, Generation, GoalConfig, Manifest, Retry

Draw = Callable[[st.SearchStrategy[Any]], Any]

ANY_ARGUMENTS = msgspec.Raw(b'{"type":"object"}')
LOOK = Manifest(name="look", description="looks", schema=ANY_ARGUMENTS, idempotency="pure")
CHANGE = Manifest(name="change", description="changes", schema=ANY_ARGUMENTS, mutates=True)
BOTH = (LOOK, CHANGE)
CHECKS = (CheckSpec("a", "true"), CheckSpec("b", "true"))

TEXTS = st.sampled_from(
    ("", "x", "all checks pass", "loop_guard=", "\ud800", "\x1b[2J", "a\nb", '{"name":"finish"}')
)
LARGE = frozenset(("megabytes", "deep_nest"))


def configs(manifests: tuple[Manifest, ...] = BOTH) -> st.SearchStrategy[GoalConfig]:
    """Goals with and without checks and memory, with few steps, small windows, and every mode."""
    return st.builds(
        GoalConfig,
        goal=st.just("mend it"),
        model=st.just("fuzz"),
        checks=st.sampled_from((CHECKS, CHECKS[:1], ())),
        verification=st.sampled_from(("commands", "commands", "manual")),
        manifests=st.just(manifests),
        memory=st.booleans(),
        max_steps=st.integers(1, 12),
        context_window=st.sampled_from((262_000, 900)),
        generation=st.sampled_from((Generation(), Generation(mode="text"), Generation(mode="tools"))),
        retry=st.builds(Retry, attempts=st.integers(1, 3), sleep=st.booleans()),
    )


def _action(name: str, **arguments: Any) -> Move:
    return Move("say", json.dumps({"name": name, "arguments": arguments}), expected=("",))


def _calls(manifests: tuple[Manifest, ...]) -> st.SearchStrategy[Move]:
    """Calls of the capabilities there are, with arguments that keep their schemas."""
    return st.one_of(
        [
            arguments_for(bytes(manifest.schema)).map(
                lambda arguments, name=manifest.name: _action(  # type: ignore[misc]
                    "capability_call", capability=name, arguments=arguments
                )
            )
            for manifest in manifests
        ]
    )


def moves(manifests: tuple[Manifest, ...] = BOTH) -> st.SearchStrategy[Move]:
    """One move. What leads somewhere comes often, so that most scripts go deep."""
    names = [manifest.name for manifest in manifests]
    loads = st.just(_action("capability_load", names=names))
    usual = st.sampled_from(
        (
            _action("verify"),
            _action("capability_search", query="look"),
            _action("finish", summary="done"),
            _action("ask_user", question="which?"),
            _action("memory_write", text="kept"),
            _action("worker_dispatch", task="count"),
            _action("verify", checks=["b", "nine"]),
            Move("say", "I think we should look first.", expected=("NotJson",)),
        )
    )
    small = tuple(kind for kind in KINDS if kind not in LARGE)
    wrong = malformed_replies(kinds=small).map(lambda m: Move("say", _text(m.reply), expected=_known(m)))
    right = actions(EIGHT).map(lambda spoken: Move("say", spoken.reply, expected=("",)))
    lands = st.builds(Move, st.just("land"), TEXTS, st.sampled_from((0, 0, 0, 0, 1, -1)), st.integers(0, 2))
    rare = st.one_of(
        st.builds(Move, st.just("err"), st.just(""), st.integers(0, 1)),
        st.builds(Move, st.just("fail"), TEXTS, st.just(0), st.integers(0, 1)),
        st.builds(Move, st.sampled_from(("answer", "late")), TEXTS),
        st.builds(Move, st.just("jump"), st.just(""), st.sampled_from((1, 60, -3600, 10**6))),
        st.builds(Move, st.just("die"), st.just(""), st.integers(0, 3)),
        st.builds(Move, st.just("cancel"), TEXTS),
    )
    by_weight = (lands, usual, lands, usual, loads, _calls(manifests), usual, lands, right, wrong, rare)
    # One `one_of` would give every branch below it the same share.
    return st.integers(0, len(by_weight) - 1).flatmap(lambda at: by_weight[at])


def _text(reply: str | bytes) -> str:
    return reply if isinstance(reply, str) else reply.decode("utf-8", "surrogateescape")


def _known(malformed: Any) -> tuple[str, ...]:
    return malformed.expected if isinstance(malformed.reply, str) else ("NotJson",)


def scripts(
    loop: str = "goal", manifests: tuple[Manifest, ...] = BOTH, longest: int = 14
) -> st.SearchStrategy[Script]:
    """Scripts for a loop, to be played by its player."""
    if loop == "tools":
        from stepfold.engine.testing.tool_scripts import tool_scripts

        return tool_scripts(longest)
    return _goal_scripts(manifests, longest)


def courses(manifests: tuple[Manifest, ...] = BOTH) -> st.SearchStrategy[tuple[Move, ...]]:
    """Stretches of a run that lead deep: what is only reached by several right moves in a row."""
    load = _action("capability_load", names=[manifest.name for manifest in manifests])
    look, change = (_action("capability_call", capability=m.name, arguments={}) for m in BOTH)
    lands, verify = Move("land", "done"), _action("verify")
    finish, search = _action("finish", summary="done"), _action("capability_search", query="look")
    verified = (verify, lands, lands)
    known = (
        verified,
        (*verified, finish),
        (verify, verify),
        (verify, _action("verify", checks=["nine"])),
        (search, search),
        (Move("err", number=1), Move("jump", number=3600), Move("err", number=1), Move("jump", number=3600)),
    )
    if manifests is not BOTH:
        return st.sampled_from(known)
    deeper = (
        (load, look, lands),
        (load, change, lands),
        (load, *verified, change, lands, finish),
        (load, look, Move("late", "late"), lands),
        (load, look, Move("cancel", "stop"), Move("late", "late")),
        (*verified, finish, finish),
    )
    return st.sampled_from((*known, *deeper))


@st.composite
def _goal_scripts(draw: Draw, manifests: tuple[Manifest, ...], longest: int) -> Script:
    single = moves(manifests).map(lambda move: (move,))
    parts = st.booleans().flatmap(lambda deep: courses(manifests) if deep else single)
    count = draw(st.integers(0, longest // 2))
    made = draw(st.lists(parts, min_size=count, max_size=count))
    return Script(draw(configs(manifests)), tuple(move for part in made for move in part))


@st.composite
def event_logs(draw: Draw, loop: str = "goal") -> tuple[Any, ...]:
    """Legal logs of a loop, made by the engine itself, cut anywhere."""
    events = play(draw(scripts(loop))).events
    return tuple(events[: draw(st.integers(1, len(events)))])
