"""How often each guard was asked, and said yes: the decisions of recorded runs taken again, and counted.

A log names the row that fired and not the guards that were asked on the way to it, so a machine of the
same rows, whose guards count, decides anew at each place where the run decided or rested.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from stepfold.engine.core.decide import LOOPS, decide_by
from stepfold.engine.core.machine import Guard, Row, TableError, build
from stepfold.events.vocabulary import AnyEvent, Decided, Unknown
from stepfold.projections.run import evolve
from stepfold.projections.state import Run

Counts = Counter[tuple[str, str]]


class Audit:
    """The counts of one run. `differs_at` is the `seq` where it decided otherwise than this engine would:
    what comes after is not counted; -1 where that never happens.
    """

    def __init__(self) -> None:
        self.run_id = ""
        self.loop = ""
        self.differs_at = -1
        self.evaluated: Counts = Counter()
        self.held: Counts = Counter()
        self.fired: Counter[str] = Counter()

    def rows(self) -> list[tuple[str, str, str, str, int, int]]:
        """Every guard of every row of the run's table, asked or not."""
        return [
            (self.run_id, self.loop, row, guard, self.evaluated[row, guard], self.held[row, guard])
            for row, guard in guarded_rows(self.loop)
        ]


def guarded_rows(loop: str) -> list[tuple[str, str]]:
    """The rows of a loop's table with each of their guards, in order."""
    if loop not in LOOPS:
        return []
    rows = LOOPS[loop].table.rows
    return [(row.name, guard.__name__) for row in rows for guard in (*row.when, *row.unless)]


class Auditor:
    """Tables whose guards count, built once for any number of runs."""

    def __init__(self) -> None:
        self._audit = Audit()
        self._tables: dict[str, Any] = {}

    def audit(self, events: Iterable[AnyEvent | Unknown]) -> Audit:
        """Count over one run, in order."""
        audit = self._audit = Audit()
        run = Run()
        decided_last = False
        for event in events:
            decides = isinstance(event, Decided)
            if audit.differs_at < 0 and (decides or decided_last):
                self._decide(run, event if decides else None)
            evolve(run, event)
            decided_last = decides
        if audit.differs_at < 0 and decided_last:
            self._decide(run, None)
        audit.run_id, audit.loop = run.run_id, run.loop
        return audit

    def _decide(self, run: Run, recorded: Any) -> None:
        try:
            event: Any = decide_by(self._choose(run.loop), LOOPS[run.loop].sees, run)
        except (TableError, KeyError):
            # A state of another engine's table.
            self._audit.differs_at = run.seq
            return
        row = "" if event is None else event.row
        # Where a log was cut, a decision may be missing; a rest is told from one by what stands there.
        if recorded is not None and row != recorded.row:
            self._audit.differs_at = run.seq

    def _choose(self, loop: str) -> Callable[[str, str, Run, Any], Row]:
        if loop not in self._tables:
            table = LOOPS[loop].table
            self._tables[loop] = build(table.name, table.states, [self._counting(row) for row in table.rows])
        table = self._tables[loop]

        def choose(state: str, word: str, run: Run, given: Any) -> Row:
            row: Row = table.choose(state, word, run, given)
            self._audit.fired[row.name] += 1
            return row

        return choose

    def _counting(self, row: Row) -> Row:
        when = tuple(self._counted(row.name, guard) for guard in row.when)
        return replace(row, when=when, unless=tuple(self._counted(row.name, guard) for guard in row.unless))

    def _counted(self, row: str, guard: Guard) -> Guard:
        key = (row, guard.__name__)

        def counted(run: Run, given: Any) -> bool:
            verdict = guard(run, given)
            self._audit.evaluated[key] += 1
            self._audit.held[key] += verdict
            return verdict

        return counted


def total(audits: Iterable[Audit], loop: str) -> Audit:
    """The counts of all runs of one loop, as one."""
    whole = Audit()
    whole.loop = loop
    for audit in audits:
        if audit.loop == loop:
            whole.evaluated.update(audit.evaluated)
            whole.held.update(audit.held)
            whole.fired.update(audit.fired)
    return whole


def never_true(audit: Audit) -> list[str]:
    """The guards that said yes in no row, asked or not."""
    names = list(dict.fromkeys(guard for _, guard in guarded_rows(audit.loop)))
    held = {guard for (_, guard), count in audit.held.items() if count}
    return [name for name in names if name not in held]


def by_guard(audit: Audit) -> list[tuple[str, int, int]]:
    """Each guard with how often it was asked and held, in all rows together."""
    asked: dict[str, list[int]] = {}
    for _, _, _, guard, evaluated, held in audit.rows():
        counts = asked.setdefault(guard, [0, 0])
        counts[0] += evaluated
        counts[1] += held
    return [(guard, evaluated, held) for guard, (evaluated, held) in asked.items()]
