"""The lean machine walks as the shipped one, and every known trap of `transitions` 0.9.3 is closed."""

from enum import StrEnum
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transitions import Machine as ShippedMachine
from transitions import MachineError

from stepfold.engine.core.machine import (
    LeanMachine,
    Row,
    RowTransition,
    TableError,
    build,
    emits,
    rests,
    silent,
)
from stepfold.events.vocabulary import Decided, RunResumed
from stepfold.projections.state import Run

STATES = ("one", "two", "three", "four")
TRIGGERS = ("go", "stop", "turn")
NOBODY = Row("r", ("go",), ("one",), "", (), (), "rests")


def yes(run: Any, given: Any) -> bool:
    return True


def no(run: Any, given: Any) -> bool:
    return False


def emit(run: Run, given: Any, head: Any) -> Decided:
    return RunResumed(*head)


class Asked:
    """A guard whose answer is drawn, and which remembers in what order it was asked."""

    def __init__(self, number: int, answers: dict[int, bool], asked: list[int]) -> None:
        self.number, self.answers, self.asked = number, answers, asked

    def __call__(self, *given: Any) -> bool:
        self.asked.append(self.number)
        return self.answers[self.number]


GUARDS = st.lists(st.integers(0, 4), max_size=3)
DRAWN_ROWS = st.lists(
    st.tuples(st.sampled_from(TRIGGERS), st.sampled_from(STATES), st.sampled_from(STATES), GUARDS, GUARDS),
    max_size=12,
)
WORD = st.tuples(st.sampled_from(TRIGGERS), st.lists(st.booleans(), min_size=5, max_size=5))


@settings(max_examples=300, deadline=None)
@given(DRAWN_ROWS, st.lists(WORD, max_size=12))
def test_random_tables_and_words_walk_alike_in_the_lean_and_the_shipped_machine(
    rows: list[tuple[str, str, str, list[int], list[int]]], words: list[tuple[str, list[bool]]]
) -> None:
    answers: dict[int, bool] = {}
    asked_lean: list[int] = []
    asked_shipped: list[int] = []
    lean, shipped = (
        LeanMachine(STATES, "one"),
        ShippedMachine(None, list(STATES), initial="one", auto_transitions=False),
    )
    for trigger, source, dest, when, unless in rows:
        for machine, asked, extra in ((lean, asked_lean, {"row": NOBODY}), (shipped, asked_shipped, {})):
            machine.add_transition(
                trigger,
                source,
                dest,
                conditions=[Asked(n, answers, asked) for n in when],
                unless=[Asked(n, answers, asked) for n in unless],
                **extra,
            )
    lean_model, shipped_model = SimpleNamespace(state="one"), SimpleNamespace(state="one")
    shipped.add_model(shipped_model)

    for trigger, drawn in words:
        answers.update(enumerate(drawn))
        fired = trigger in lean.events and lean.events[trigger].trigger(lean_model, "run", "given")
        try:
            expected = trigger in shipped.events and shipped.events[trigger].trigger(
                shipped_model, "run", "given"
            )
        except MachineError:
            expected = False

        assert fired == expected
        assert lean_model.state == shipped_model.state
        assert asked_lean == asked_shipped


def row(
    name: str, *, when: Any = (), unless: Any = (), on: str = "go", to: str = "two", sources: str = "one"
) -> Row:
    return emits(name, on, sources, RunResumed, emit, to=to, when=when, unless=unless)


ENDS = rests("ends", "go", "two")


def test_a_table_takes_the_first_row_that_holds_from_top_to_bottom() -> None:
    table = build(
        "t",
        ("one", "two"),
        [row("a", when=[no]), row("b", unless=[yes]), row("c", when=[yes]), row("d"), ENDS],
    )

    assert table.choose("one", "go", Run(), None).name == "c"


def test_any_stands_for_every_word_of_its_state_in_the_place_of_its_row() -> None:
    table = build("t", ("one", "two"), [row("x", on="any", when=[no]), row("a"), row("b", on="stop"), ENDS])

    assert table.words == {"one": ("go", "stop"), "two": ("go",)}
    assert table.choose("one", "stop", Run(), None).name == "b"


REFUSED = {
    "stands twice": [row("a", when=[yes]), row("a"), ENDS],
    "names the undeclared state 'nine'": [row("a", to="nine"), ENDS],
    "names the undeclared state 'ten'": [row("a", sources="one ten"), ENDS],
    "the last row for 'go' in 'one' (a) is guarded": [row("a", when=[yes]), ENDS],
    "the last row for 'go' in 'one' (b) is guarded": [row("a", when=[yes]), row("b", unless=[no]), ENDS],
    "the state 'two' has no row": [row("a")],
    "leads into 'two', which can rest unrecorded": [silent("a", "go", "one", "two"), ENDS],
    "is named by a string": [row("a", when=["os.getcwd"]), row("b"), ENDS],
}


@pytest.mark.parametrize(("why", "rows"), REFUSED.items(), ids=REFUSED)
def test_a_mistake_in_a_table_is_found_when_it_is_built(why: str, rows: list[Row]) -> None:
    with pytest.raises(TableError) as caught:
        build("t", ("one", "two"), rows)
    assert why in str(caught.value)


# --- the traps of transitions 0.9.3 -----------------------------------------------------------------


def test_trap_all_guards_refuse_in_silence() -> None:
    shipped = ShippedMachine(SimpleNamespace(), ["one", "two"], initial="one", auto_transitions=False)
    shipped.add_transition("go", "one", "two", conditions=[lambda: False])
    assert shipped.models[0].go() is False

    table = build("t", ("one", "two"), [row("a"), ENDS])
    for state, word in (("one", "stop"), ("two", "stop"), ("nine", "go")):
        with pytest.raises(TableError, match=f"no row for '{word}' in the state '{state}'"):
            table.choose(state, word, Run(), None)


def test_trap_a_queue_says_true_whatever_happened() -> None:
    with pytest.raises(TypeError):
        LeanMachine(STATES, "one", queued=True)  # type: ignore[call-arg]


def test_trap_an_undeclared_state_fails_only_when_it_is_fired() -> None:
    ShippedMachine(None, ["one"], initial="one").add_transition("go", "one", "nine")
    for source, dest in (("one", "nine"), ("nine", "one")):
        with pytest.raises(TableError, match="the state 'nine' is not declared"):
            LeanMachine(STATES, "one").add_transition("go", source, dest, row=NOBODY)


@pytest.mark.parametrize("answer", [None, 1, 0, "yes", [], "False"], ids=repr)
@pytest.mark.parametrize("side", ["conditions", "unless"])
def test_trap_a_guard_that_returns_no_bool_fires_nothing(answer: Any, side: str) -> None:
    machine = LeanMachine(STATES, "one")
    machine.add_transition("go", "one", "two", row=NOBODY, **{side: [lambda *given: answer]})

    assert machine.events["go"].choose("one", None, None) is None


def test_trap_automatic_transitions_pass_by_every_guard() -> None:
    assert "to_two" in ShippedMachine(None, list(STATES), initial="one").events
    assert set(build("t", ("one", "two"), [row("a"), ENDS]).machine.events) == {"go"}


def test_trap_a_string_guard_is_imported_by_its_dotted_path() -> None:
    for side in ("conditions", "unless"):
        with pytest.raises(TableError, match="named by a string; give the function itself"):
            LeanMachine(STATES, "one").add_transition("go", "one", "two", row=NOBODY, **{side: ["os.getcwd"]})


@pytest.mark.parametrize("callback", ["before", "after", "prepare"])
def test_trap_what_a_callback_raises_may_be_swallowed(callback: str) -> None:
    with pytest.raises(TableError, match="callbacks are left out; emit an event"):
        LeanMachine(STATES, "one").add_transition("go", "one", "two", row=NOBODY, **{callback: [print]})
    with pytest.raises(TypeError):
        LeanMachine(STATES, "one", finalize_event=[print])  # type: ignore[call-arg]


def test_trap_state_callbacks_would_never_be_called() -> None:
    with pytest.raises(TableError, match="a state is a name"):
        LeanMachine([{"name": "one", "on_enter": print}, "two"], "one")  # type: ignore[list-item]


def test_trap_an_internal_transition_has_no_destination() -> None:
    with pytest.raises(TableError):
        LeanMachine(STATES, "one").add_transition("go", "one", None, row=NOBODY)


def test_trap_members_of_an_enumeration_register_under_their_name() -> None:
    class Named(StrEnum):
        ONE = "one"
        TWO = "two"

    assert list(ShippedMachine(None, list(Named), initial=Named.ONE, auto_transitions=False).states) == [
        "ONE",
        "TWO",
    ]
    with pytest.raises(TableError, match="a state is a name"):
        LeanMachine(list(Named), Named.ONE)


def test_trap_named_arguments_reach_no_lean_guard() -> None:
    machine = LeanMachine(STATES, "one")
    machine.add_transition("go", "one", "two", row=NOBODY)

    with pytest.raises(TableError, match="no named arguments"):
        machine.events["go"].trigger(SimpleNamespace(state="one"), given=1)


def test_every_transition_knows_its_row() -> None:
    table = build("t", ("one", "two"), [row("a"), ENDS])

    (transition,) = table.machine.events["go"].transitions["one"]

    assert isinstance(transition, RowTransition)
    assert transition.row is table.rows[0]
