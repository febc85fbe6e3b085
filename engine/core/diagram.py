"""The table as a Mermaid state diagram: drawn from the rows that run, so it can't tell otherwise."""

from collections.abc import Mapping

from stepfold.engine.core.machine import Row, Table


def mermaid(table: Table, notes: Mapping[str, str] | None = None) -> str:
    """A `stateDiagram-v2` of a table: an arrow a row, with its word, its guards and its event.

    `notes` are added to the labels of the rows that they are named by.
    """
    notes = notes or {}
    lines = ["stateDiagram-v2", f"    [*] --> {table.states[0]}"]
    lines.extend(
        f"    {source} --> {row.dest or source}: {_label(row)}{notes.get(row.name, '')}"
        for row in table.rows
        for source in row.sources
    )
    lines.extend(f"    {state} --> [*]" for state in table.states if _is_final(table, state))
    return "\n".join(lines) + "\n"


def guard_names(row: Row) -> list[str]:
    """A row's conditions as they are read: those that must hold, and those that must not."""
    return [guard.__name__ for guard in row.when] + [f"not {guard.__name__}" for guard in row.unless]


def _label(row: Row) -> str:
    guards = guard_names(row)
    condition = f" [{' and '.join(guards)}]" if guards else ""
    ending = {"emits": f" / {row.event}", "silent": " / (silent)", "rests": " / (rests)"}[row.sort]
    return f"{row.name} on {' or '.join(row.on)}{condition}{ending}"


def _is_final(table: Table, state: str) -> bool:
    return all(row.sort == "rests" for row in table.rows if state in row.sources)
