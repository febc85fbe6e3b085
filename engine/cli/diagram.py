"""`stepfold diagram`: the state machine, drawn from the table that runs."""

import click

from stepfold.engine.core.decide import LOOPS
from stepfold.engine.core.diagram import mermaid


@click.command(epilog="Example: stepfold diagram --loop goal > goal.mmd")
@click.option("--loop", type=click.Choice(list(LOOPS)), default="goal", show_default=True)
def diagram(loop: str) -> None:
    """The state machine of a loop as Mermaid text: every row with its word, guards and event."""
    click.echo(mermaid(LOOPS[loop].table), nl=False)
