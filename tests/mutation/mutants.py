"""The mutants of a module: its source with one small thing changed, each under a name that outlives edits.

Purely on syntax, and without importing what it changes: whoever runs a mutant imports it in place of the
module. Types, docstrings and assertions (which are there for the type checker) are left alone.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

GOAL = (
    "engine/core/guards.py",
    "engine/core/goal_table.py",
    "projections/fold_goal.py",
    "projections/fold_repeats.py",
)
TOOLS = (
    "engine/core/tools_guards.py",
    "engine/core/tools_table.py",
    "projections/fold_tools.py",
    "projections/fold_hooks.py",
    "projections/fold_calls.py",
    "projections/fold_progress.py",
)
BOTH = ("projections/run.py", "projections/fold_shared.py")
MODULES = (*GOAL, *TOOLS, *BOTH)
"""What decides and what folds: the modules that all else relies on."""

SHORT = 90

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}
Change = Callable[[ast.AST], None]


class Mutant(NamedTuple):
    """One change. `name` says where and what, without a line number, so that it outlives most edits.

    `place` is that of the changed node in its file, `number` that of the change among those of the node.
    """

    path: str
    name: str
    line: int
    place: int
    number: int

    @property
    def module(self) -> str:
        """The module as it is imported."""
        return f"stepfold.{self.path.removesuffix('.py').replace('/', '.')}"

    def source(self, original: str) -> str:
        """The text of the file with this change."""
        tree = ast.parse(original)
        node, scope, states = next(islice(_visited(tree), self.place, None))
        _, _, change = next(islice(_changes_of(node, scope, states), self.number, None))
        change(node)
        return ast.unparse(ast.fix_missing_locations(tree))


def all_mutants() -> list[Mutant]:
    """Every mutant of every module that is put to the test."""
    return [mutant for path in MODULES for mutant in mutants_of((ROOT / path).read_text(), path)]


def mutants_of(source: str, path: str) -> list[Mutant]:
    """Every mutant of a text, in the order of its lines; equal ones are counted."""
    seen: Counter[str] = Counter()
    found = []
    for place, (node, scope, states) in enumerate(_visited(ast.parse(source))):
        for number, (before, after, _) in enumerate(_changes_of(node, scope, states)):
            what = f"{path} {scope or 'module'}: {_short(before)} -> {_short(after)}"
            seen[what] += 1
            name = what if seen[what] == 1 else f"{what} ({seen[what]})"
            found.append(Mutant(path, name, node.lineno, place, number))
    return found


def _visited(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str, tuple[str, ...]]]:
    """What may be changed, with the function it is in, and the states that the module's table names."""
    states: tuple[str, ...] = ()
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "STATES":
            states = tuple(ast.literal_eval(statement.value))
    yield from ((node, scope, states) for node, scope in _walked(tree, ""))


def _walked(node: ast.AST, scope: str) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "args") and not isinstance(node, ast.Call):
            continue
        if isinstance(node, ast.ClassDef) and name == "keywords":
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _is_left_alone(child):
                continue
            inner = scope
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{scope}.{child.name}".lstrip(".")
            if isinstance(child, ast.expr | ast.stmt):
                yield child, scope
            yield from _walked(child, inner)


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.JoinedStr() | ast.Raise():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case _:
            return False


def _changes_of(
    node: ast.expr | ast.stmt, scope: str, states: tuple[str, ...]
) -> Iterator[tuple[str, str, Change]]:
    """Before and after, as text, and what turns the one into the other."""
    text = ast.unparse(node)
    match node:
        case ast.Compare(ops=[op], left=left, comparators=[right]) if type(op) in COMPARISONS:
            other = COMPARISONS[type(op)]()
            yield text, ast.unparse(ast.Compare(left, [other], [right])), _sets("ops", [other])
        case ast.BoolOp(op=op, values=values):
            swapped = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield text, ast.unparse(ast.BoolOp(swapped, values)), _sets("op", swapped)
            for number, value in enumerate(values):
                yield text, f"without {ast.unparse(value)}", _drops("values", number)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            head = ast.unparse(test)
            yield f"if {head}", f"if not ({head})", _negates
        case ast.Constant(value=bool(value)):
            yield text, str(not value), _sets("value", not value)
        case ast.Constant(value=int(value)):
            yield text, str(value + 1), _sets("value", value + 1)
        case ast.BinOp(op=op) if type(op) in ARITHMETIC:
            other_operator = ARITHMETIC[type(op)]()
            yield text, type(other_operator).__name__, _sets("op", other_operator)
        case ast.Call(func=ast.Name(id="emits" | "silent" | "rests")) if states:
            yield from _of_a_row(node, states)
        case ast.Return(value=None) | ast.Assign() | ast.AugAssign() | ast.AnnAssign(value=ast.expr()) if (
            scope
        ):
            yield text, "pass", _removes
        case ast.Expr(value=ast.Call()) | ast.Delete() | ast.Continue() | ast.Break() if scope:
            yield text, "pass", _removes
        case _:
            pass


def _of_a_row(row: ast.Call, states: tuple[str, ...]) -> Iterator[tuple[str, str, Change]]:
    """Of a row of a table: each guard left out, and each of the states that it could lead to by mistake."""
    label = f"row {ast.literal_eval(row.args[0])}"
    for place, keyword in enumerate(row.keywords):
        if isinstance(keyword.value, ast.List):
            for number, guard in enumerate(keyword.value.elts):
                yield label, f"{keyword.arg} without {ast.unparse(guard)}", _guard_dropper(place, number)
        elif keyword.arg == "to" and isinstance(keyword.value, ast.Constant):
            other = states[(states.index(keyword.value.value) + 1) % len(states)]
            yield label, f"to {other}", _leads_to(place, other)
    if ast.unparse(row.func) == "silent":
        other = states[(states.index(ast.literal_eval(row.args[3])) + 1) % len(states)]
        yield label, f"to {other}", _leads_silently_to(other)


def _sets(name: str, value: object) -> Change:
    return lambda node: setattr(node, name, value)


def _drops(name: str, number: int) -> Change:
    def drop(node: ast.AST) -> None:
        values = getattr(node, name)
        del values[number]

    return drop


def _negates(node: ast.AST) -> None:
    assert isinstance(node, ast.If | ast.While | ast.IfExp)
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _removes(node: ast.AST) -> None:
    """In place, for the parent isn't known here: a statement that does nothing."""
    node.__class__ = ast.Pass  # type: ignore[assignment]


def _guard_dropper(place: int, number: int) -> Change:
    def drop(node: ast.AST) -> None:
        assert isinstance(node, ast.Call)
        guards = node.keywords[place].value
        assert isinstance(guards, ast.List)
        del guards.elts[number]

    return drop


def _leads_to(place: int, state: str) -> Change:
    def lead(node: ast.AST) -> None:
        assert isinstance(node, ast.Call)
        node.keywords[place].value = ast.Constant(state)

    return lead


def _leads_silently_to(state: str) -> Change:
    def lead(node: ast.AST) -> None:
        assert isinstance(node, ast.Call)
        node.args[3] = ast.Constant(state)

    return lead


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHORT else f"{line[:SHORT]}…"
