"""`stepfold diagram`: the state machine, drawn from the table that runs."""

import json
from typing import Any

import click

from stepfold.engine.cli.output import counted, note
from stepfold.engine.core.decide import LOOPS
from stepfold.engine.core.diagram import mermaid


@click.command(epilog="Example: stepfold diagram --loop goal > goal.mmd")
@click.option("--loop", type=click.Choice(list(LOOPS)), default="goal", show_default=True)
@click.option("--audit", is_flag=True, help="With counts over all runs of the store.")
@click.option("--store", metavar="DIR", help="Where runs are kept [STEPFOLD_STORE, else .stepfold].")
@click.option("--json", "for_machines", is_flag=True, help="With --audit: the counts as JSON on stdout.")
def diagram(loop: str, audit: bool, store: str | None, for_machines: bool) -> None:
    """The state machine of a loop as Mermaid text: every row with its word, guards and event.

    With --audit each row says how often it fired, and each of its guards how often it held of how often
    it was asked, over all runs of the store; the guards that were never true are listed.
    """
    if for_machines and not audit:
        raise click.UsageError("--json goes with --audit: the diagram itself is Mermaid text")
    if not audit:
        click.echo(mermaid(LOOPS[loop].table), nl=False)
        return
    found = _audit(loop, store)
    if for_machines:
        click.echo(json.dumps(found))
        return
    click.echo(mermaid(LOOPS[loop].table, _notes(found)), nl=False)
    never = ", ".join(found["never_true"]) or "none"
    note(f"{counted(found['runs'], 'run', 'runs')}; guards never true: {never}")
    if found["differing"]:
        note(f"{found['differing']} of them decided otherwise than this engine, and count up to there")


def _audit(loop: str, store: str | None) -> dict[str, Any]:
    from stepfold.engine.cli.audit import audits_of
    from stepfold.engine.cli.reading import existing_store
    from stepfold.engine.studies.audit import never_true, total

    with existing_store(store) as opened:
        traces = [opened.path_of(run_id) for run_id in opened.run_ids()]
    audits = [audit for audit in audits_of(traces) if audit.loop == loop]
    whole = total(audits, loop)
    guards = [
        {"row": row, "guard": guard, "evaluated": evaluated, "held": held}
        for _, _, row, guard, evaluated, held in whole.rows()
    ]
    return {
        "loop": loop,
        "runs": len(audits),
        "differing": sum(audit.differs_at >= 0 for audit in audits),
        "rows": {row.name: whole.fired[row.name] for row in LOOPS[loop].table.rows},
        "guards": guards,
        "never_true": never_true(whole),
    }


def _notes(found: dict[str, Any]) -> dict[str, str]:
    notes = {row: f" / fired {times}" for row, times in found["rows"].items()}
    for guard in found["guards"]:
        notes[guard["row"]] += f" / {guard['guard']} {guard['held']} of {guard['evaluated']}"
    return notes
