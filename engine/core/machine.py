"""The table as a state machine: rows, their checks, and the one import of `transitions`.

`transitions` executes the table. Its `event_cls` is the documented place to say how a trigger picks
its transition; ours resolves the conditions once and builds no EventData, and refuses at build time
whatever it leaves out (callbacks, queues, nesting, internal transitions, guards by name).
`tests/engine/core/test_machine.py` walks random tables in it and in the class as shipped.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct
from transitions import Event as ShippedEvent
from transitions import Machine as ShippedMachine
from transitions import Transition as ShippedTransition

from stepfold.events.vocabulary import Decided
from stepfold.projections.state import Run

Guard = Callable[[Run, Any], bool]
Head = tuple[int, str, int, int, str, str, str]
"""The envelope of a decided event: v, run_id, seq, step, ts, row, to."""
Emit = Callable[[Run, Any, Head], Decided]
AUTO = "auto"
"""The word of a state that waits for nothing, or for what has not landed."""


class TableError(Exception):
    """A mistake in a table, found when it is built: which row, and what is wrong with it."""


class Row(Struct, frozen=True):
    """One line of a table. `sort` is `emits`, `silent` (moves on unrecorded) or `rests` (decides nothing).

    `on` is a word that the source state sees, or `any`. An empty `dest` stays in the source.
    """

    name: str
    on: tuple[str, ...]
    sources: tuple[str, ...]
    dest: str
    when: tuple[Guard, ...]
    unless: tuple[Guard, ...]
    sort: Literal["emits", "silent", "rests"]
    emit: Emit | None = None
    event: str = ""


def always(event: type[Decided], **fields: Any) -> Emit:
    """The emitter of a row whose event holds the same fields whatever the run is."""

    def emit(run: Run, given: Any, head: Head) -> Decided:
        return event(*head, **fields)

    return emit


def emits(
    name: str,
    on: str,
    sources: str,
    event: type[Decided],
    emit: Emit,
    *,
    to: str = "",
    when: Sequence[Guard] = (),
    unless: Sequence[Guard] = (),
) -> Row:
    """A row that records one event."""
    return Row(
        name, _words(on), _words(sources), to, tuple(when), tuple(unless), "emits", emit, event.__name__
    )


def silent(
    name: str, on: str, sources: str, to: str, *, when: Sequence[Guard] = (), unless: Sequence[Guard] = ()
) -> Row:
    """A row that moves on within the same decision and leaves no trace."""
    return Row(name, _words(on), _words(sources), to, tuple(when), tuple(unless), "silent")


def rests(name: str, on: str, sources: str, *, when: Sequence[Guard] = ()) -> Row:
    """A row that decides nothing until something lands."""
    return Row(name, _words(on), _words(sources), "", tuple(when), (), "rests")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


class RowTransition(ShippedTransition):
    """A transition that knows the row it was drawn from."""

    def __init__(self, *positional: Any, row: Row, **named: Any) -> None:
        super().__init__(*positional, **named)
        self.row = row


class LeanEvent(ShippedEvent):
    """A trigger without EventData: first transition whose guards hold, in the order of the table."""

    def __init__(self, name: str, machine: ShippedMachine) -> None:
        super().__init__(name, machine)
        self._choices: dict[str, list[tuple[tuple[tuple[Guard, bool], ...], Any]]] = defaultdict(list)

    def add_transition(self, transition: ShippedTransition) -> None:
        """Resolve a transition once. Raises TableError for anything this class leaves out."""
        super().add_transition(transition)
        _refuse_what_is_left_out(self.name, transition)
        guards = tuple((_function(self.name, c.func), bool(c.target)) for c in transition.conditions)
        self._choices[transition.source].append((guards, transition))

    def choose(self, state: str, *given: Any) -> Any:
        """The transition that fires from `state`, or None when every guard refuses. Changes nothing."""
        for guards, transition in self._choices.get(state, ()):
            for guard, wanted in guards:
                if guard(*given) is not wanted:
                    break
            else:
                return transition
        return None

    def trigger(self, model: Any, *given: Any, **named: Any) -> bool:
        """As the shipped class: move the model, and say whether anything fired."""
        if named:
            raise TableError(f"{self.name}: a lean trigger takes no named arguments")
        transition = self.choose(model.state, *given)
        if transition is None:
            return False
        model.state = transition.dest
        return True


def _refuse_what_is_left_out(trigger: str, transition: ShippedTransition) -> None:
    if transition.before or transition.after or transition.prepare:
        raise TableError(f"{trigger} from {transition.source}: callbacks are left out; emit an event")
    if transition.dest is None:
        raise TableError(f"{trigger} from {transition.source}: internal transitions are left out; use =")


def _function(trigger: str, guard: object) -> Guard:
    if not callable(guard):
        raise TableError(f"{trigger}: the guard {guard!r} is named by a string; give the function itself")
    return guard


class LeanMachine(ShippedMachine):
    """A machine of lean events, with neither automatic transitions nor a model of its own."""

    event_cls = LeanEvent
    transition_cls = RowTransition

    def __init__(self, states: Sequence[str], initial: str) -> None:
        for state in states:
            # Members of an enumeration would register under another name, callbacks would never be called.
            if type(state) is not str:
                raise TableError(f"the state {state!r}: a state is a name, given as a plain str")
        super().__init__(model=None, states=list(states), initial=initial, auto_transitions=False)

    def add_transition(self, trigger: str, source: Any, dest: Any, **named: Any) -> None:  # type: ignore[override]
        """As shipped, but a source or a destination that isn't declared is an error here and now."""
        for state in (source, dest):
            if state not in self.states:
                raise TableError(f"{trigger}: the state {state!r} is not declared")
        super().add_transition(trigger, source, dest, **named)


class Table(Struct, frozen=True):
    """A loop's rows, checked and built. `words` are those that each state sees."""

    name: str
    states: tuple[str, ...]
    rows: tuple[Row, ...]
    words: dict[str, tuple[str, ...]]
    machine: Any

    def choose(self, state: str, word: str, run: Run, given: Any) -> Row:
        """The first row that fires. Raises TableError when none does: a table has no silent refusal."""
        event = self.machine.events.get(word)
        transition = None if event is None else event.choose(state, run, given)
        if transition is None:
            raise TableError(f"{self.name}: no row for {word!r} in the state {state!r}")
        row: Row = transition.row
        return row


def build(name: str, states: Sequence[str], rows: Iterable[Row]) -> Table:
    """Check the rows and build the machine. Raises TableError, naming the row."""
    rows = tuple(rows)
    _check_names(states, rows)
    words = {state: _words_of(state, rows) for state in states}
    machine = LeanMachine(states, states[0])
    for row in rows:
        for source in row.sources:
            for word in words[source] if row.on == ("any",) else row.on:
                machine.add_transition(
                    word,
                    source,
                    row.dest or source,
                    conditions=list(row.when),
                    unless=list(row.unless),
                    row=row,
                )
    table = Table(name, tuple(states), rows, words, machine)
    _check_coverage(table)
    _check_silent(table)
    return table


def _check_names(states: Sequence[str], rows: Sequence[Row]) -> None:
    seen: set[str] = set()
    for row in rows:
        if row.name in seen:
            raise TableError(f"the row {row.name!r} stands twice")
        seen.add(row.name)
        for state in (*row.sources, *([row.dest] if row.dest else [])):
            if state not in states:
                raise TableError(f"the row {row.name!r} names the undeclared state {state!r}")


def _words_of(state: str, rows: Sequence[Row]) -> tuple[str, ...]:
    words = (word for row in rows if state in row.sources for word in row.on if word != "any")
    return tuple(dict.fromkeys(words))


def _check_coverage(table: Table) -> None:
    for state, words in table.words.items():
        if not words:
            raise TableError(f"the state {state!r} has no row")
        for word in words:
            matching = [r for r in table.rows if state in r.sources and (word in r.on or r.on == ("any",))]
            if matching[-1].when or matching[-1].unless:
                raise TableError(f"the last row for {word!r} in {state!r} ({matching[-1].name}) is guarded")


def _check_silent(table: Table) -> None:
    resting = {source for row in table.rows if row.sort == "rests" for source in row.sources}
    for row in table.rows:
        if row.sort == "silent" and row.dest in resting:
            raise TableError(
                f"the silent row {row.name!r} leads into {row.dest!r}, which can rest unrecorded"
            )
