"""Recorded runs decided again, for the commands that count their guards."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from stepfold.engine.cli.output import note
from stepfold.engine.cli.reading import read_noting
from stepfold.engine.studies.audit import Audit, Auditor
from stepfold.events.journal import LogError

RUNS_BETWEEN_NOTES = 100


def audits_of(traces: Iterable[Path]) -> Iterator[Audit]:
    """The counts of each trace; one that can't be read is noted and left out."""
    auditor = Auditor()
    watched = sys.stderr.isatty()
    for number, trace in enumerate(traces, 1):
        try:
            yield auditor.audit(record.event for record in read_noting(trace))
        except LogError as error:
            note(str(error))
        if watched and number % RUNS_BETWEEN_NOTES == 0:
            note(f"{number} runs decided again")
