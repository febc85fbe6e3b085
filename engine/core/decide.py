"""`decide`: what follows from the log so far. One row, one event; asked again until it rests."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from stepfold.engine.core.goal_table import GOAL
from stepfold.engine.core.goal_table import SEES as GOAL_SEES
from stepfold.engine.core.machine import Row, Table, TableError
from stepfold.engine.core.tools_table import SEES as TOOLS_SEES
from stepfold.engine.core.tools_table import TOOLS
from stepfold.events.vocabulary import VERSION, Decided
from stepfold.projections.state import Run

Sees = Mapping[str, Callable[[Run], tuple[str, Any]]]
"""For each state: the one word it sees, and what guards and emitters are given with it."""

Choose = Callable[[str, str, Run, Any], Row]
"""The row that fires from a state, on a word, for a run and what its eye gave."""

SILENT_ROWS_AT_MOST = 20
"""No decision passes through more silent rows than this; a table that loops in silence is an error."""


class Loop(Struct, frozen=True):
    """A loop: its table and its eyes. Nothing else differs between loops."""

    table: Table
    sees: Sees


LOOPS: dict[str, Loop] = {"goal": Loop(GOAL, GOAL_SEES), "tools": Loop(TOOLS, TOOLS_SEES)}


def decide(run: Run) -> Decided | None:
    """The next event that follows from the run, or None while it must wait.

    Pure: the run is read and not changed, and the same run gives the same event. Each state sees one
    word, read once a decision, so that guards and emitters agree on what they were given.
    """
    loop = LOOPS.get(run.loop)
    return None if loop is None else decide_by(loop.table.choose, loop.sees, run)


def decide_by(choose: Choose, sees: Sees, run: Run) -> Decided | None:
    """The same by another way to choose a row: how often a guard is asked is counted so."""
    state = run.state
    for _ in range(SILENT_ROWS_AT_MOST):
        word, given = sees[state](run)
        row = choose(state, word, run, given)
        if row.sort == "rests":
            return None
        if row.emit is not None:
            dest = row.dest or state
            to = dest if dest != run.state else ""
            return row.emit(run, given, (VERSION, run.run_id, run.seq, run.step, run.ts, row.name, to))
        state = row.dest
    raise TableError(f"{run.loop}: silent rows lead round in a circle at {state!r}")
