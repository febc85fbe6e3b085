"""The mutants are what they say, and a few of them are put to the test; the nightly run takes all."""

import ast
import subprocess
import sys
from pathlib import Path

from tests.mutation.mutants import MODULES, ROOT, all_mutants, mutants_of
from tests.mutation.run import known_survivors, sample_of

MODULE = '''
STATES = ("one", "two")
LIMIT: int = 3
ROWS = (
    emits("go", "auto", "one", Event, build, to="two", when=[first, second], unless=[third]),
    silent("stay", "auto", "two", "one"),
)


def guard(run: Run, given: int = 0) -> bool:
    """Says 1 == 2."""
    assert run is not None
    if run.step >= 2 and not run.cancel:
        run.count += 1
        run.names.clear()
    return run.state in STATES
'''


def test_what_is_changed_in_a_table_and_in_a_guard() -> None:
    names = {mutant.name.removeprefix("m.py ") for mutant in mutants_of(MODULE, "m.py")}

    assert names == {
        "module: 3 -> 4",
        "module: row go -> to one",
        "module: row go -> when without first",
        "module: row go -> when without second",
        "module: row go -> unless without third",
        "module: row stay -> to two",
        "guard: if run.step >= 2 and (not run.cancel) -> if not (run.step >= 2 and (not run.cancel))",
        "guard: run.step >= 2 and (not run.cancel) -> run.step >= 2 or not run.cancel",
        "guard: run.step >= 2 and (not run.cancel) -> without run.step >= 2",
        "guard: run.step >= 2 and (not run.cancel) -> without not run.cancel",
        "guard: run.step >= 2 -> run.step > 2",
        "guard: 2 -> 3",
        "guard: run.count += 1 -> pass",
        "guard: 1 -> 2",
        "guard: run.names.clear() -> pass",
        "guard: run.state in STATES -> run.state not in STATES",
    }


def test_every_mutant_of_a_text_compiles_and_is_another_text() -> None:
    texts = [mutant.source(MODULE) for mutant in mutants_of(MODULE, "m.py")]

    assert len({*texts, ast.unparse(ast.parse(MODULE))}) == len(texts) + 1
    for text in texts:
        compile(text, "m.py", "exec")


def test_no_two_mutants_have_one_name_and_the_known_survivors_are_mutants() -> None:
    names = [mutant.name for mutant in all_mutants()]

    assert len(set(names)) == len(names) > 1000
    assert {mutant.path for mutant in all_mutants()} == set(MODULES)
    assert set(known_survivors()) <= set(names)


def test_an_edit_elsewhere_draws_no_other_sample() -> None:
    mutants = all_mutants()
    drawn = sample_of(mutants, 5, "a")

    assert sample_of([mutant for mutant in mutants if mutant in drawn or mutant.line % 2], 5, "a") == drawn
    assert sample_of(mutants, 5, "b") != drawn


def test_a_few_mutants_are_noticed() -> None:
    program = Path(__file__).with_name("run.py")
    few = ["--sample", "3"]

    ran = subprocess.run([sys.executable, program, *few], cwd=ROOT, capture_output=True, text=True)

    assert ran.returncode == 0, ran.stdout + ran.stderr
