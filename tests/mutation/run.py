"""`python tests/mutation/run.py`: change what decides and folds, one thing at a time, and see who notices.

Each mutant gets a process of its own: forked from one that has imported all but stepfold, it imports the
mutant in place of the module, replays the fixtures, and runs the tests that are about that module. The
usual tools (mutmut, Cosmic Ray) change no data outside of functions, which the tables are, and find
modules by their path, which here isn't the name that is imported.

A mutant that nobody notices is a survivor. Those in `survivors.toml` are known, each with the reason; any
other makes this exit with 1, and so does one listed there that is caught by now.
"""

import argparse
import importlib.util
import os
import resource
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.mutation.mutants import BOTH, GOAL, ROOT, TOOLS, Mutant, all_mutants

SURVIVORS = Path(__file__).with_name("survivors.toml")
CPU_SECONDS = 60
"""What a mutant may compute. One that takes longer runs for ever, which is noticed too."""

WALL_SECONDS = 600
"""What it may take, computing or not: it may also wait for ever. Not less, for on a busy machine a mutant
that nobody notices waits for its turn, and must not pass for one that is caught."""

QUICKEST = "tests/test_decisions.py"
SHARED_TESTS = (
    "tests/test_fixtures.py",
    "tests/projections/test_run.py",
    "tests/projections/test_outcome.py",
)
GOAL_TESTS = (
    "tests/engine/core/test_guards.py",
    "tests/engine/core/test_goal_table.py",
    "tests/engine/core/test_budgets.py",
    "tests/engine/core/test_offer.py",
    "tests/engine/core/test_repairs.py",
    "tests/projections/test_fold_goal.py",
    "tests/projections/test_transcript.py",
    "tests/projections/test_evidence.py",
    "tests/projections/test_repeats.py",
    "tests/engine/runtime/test_workers.py",
)
TOOLS_TESTS = (
    "tests/engine/core/test_tools_guards.py",
    "tests/engine/core/test_tools_edges.py",
    "tests/engine/core/test_tools_table.py",
    "tests/projections/test_fold_calls.py",
    "tests/projections/test_fold_hooks.py",
    "tests/projections/test_fold_progress.py",
    "tests/projections/test_fold_tools.py",
    *sorted(
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests" / "engine" / "runtime").glob("test_harness_*.py")
        if path.stem
        not in (
            "test_harness_kill",
            "test_harness_killed_anywhere",
            "test_harness_properties",
            "test_harness_escapes",
        )
    ),
)
BOTH_TESTS = (
    "tests/projections/test_fold_shared.py",
    *GOAL_TESTS,
    *TOOLS_TESTS,
    "tests/engine/cli/test_fork.py",
)
TOO_SLOW = "folding_is_total or survives_events or (test_run and not test_a_run and every_run)"
CAUGHT, SURVIVED = 0, 3


class Mutated(MetaPathFinder, Loader):
    """Imports one module from another text."""

    def __init__(self, name: str, path: Path, code: CodeType) -> None:
        self._name = name
        self._path = path
        self._code = code

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        """The one module, and no other."""
        if name != self._name:
            return None
        return importlib.util.spec_from_loader(name, self, origin=str(self._path))

    def exec_module(self, module: ModuleType) -> None:
        """Run the text."""
        module.__file__ = str(self._path)
        exec(self._code, module.__dict__)


class Result(NamedTuple):
    """What became of a mutant, and how long that took in seconds."""

    mutant: Mutant
    survived: bool
    seconds: float


def tests_about(path: str) -> tuple[str, ...]:
    """The tests that a mutant of this file has to pass by, the quickest first."""
    about = {GOAL: GOAL_TESTS, TOOLS: TOOLS_TESTS, BOTH: BOTH_TESTS}
    wanted = next(tests for modules, tests in about.items() if path in modules)
    return (QUICKEST, *wanted, *SHARED_TESTS)


def is_noticed(mutant: Mutant | None, path: str) -> bool:
    """Whether the fixtures or the tests of a file notice a mutant of it; None is the file as it is."""
    if mutant is not None:
        file = ROOT / mutant.path
        code = compile(mutant.source(file.read_text()), str(file), "exec")
        sys.meta_path.insert(0, Mutated(mutant.module, file, code))
    return not (_fixtures_replay() and _tests_pass(tests_about(path)))


def _fixtures_replay() -> bool:
    from stepfold.engine.runtime.replay import replay

    traces = sorted((ROOT / "replay_fixtures").glob("*/log.jsonl"))
    return all(replay(trace).verdict == "identical" for trace in traces)


def _tests_pass(tests: Sequence[str]) -> bool:
    import pytest
    from hypothesis import settings

    settings.register_profile("mutants", database=None, derandomize=True, max_examples=15)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile=mutants"]
    ended = pytest.main(
        [*options, "-k", f"not ({TOO_SLOW})", "--rootdir", str(ROOT), *(str(ROOT / test) for test in tests)]
    )
    return ended == pytest.ExitCode.OK


def forked(work: Callable[[], bool]) -> int:
    """Start the work in a process of its own; its exit code says whether it noticed anything."""
    process = os.fork()
    if process:
        return process
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    code = CAUGHT
    try:
        code = CAUGHT if work() else SURVIVED
    except BaseException:
        # What can't even be imported is noticed.
        code = CAUGHT
    finally:
        os._exit(code)


def results_of(mutants: Iterable[Mutant], jobs: int) -> Iterator[Result]:
    """Each mutant's result, as they come; so many at a time."""
    warm_up()
    left = iter(mutants)
    running: dict[int, tuple[Mutant, float]] = {}
    while True:
        while len(running) < jobs and (mutant := next(left, None)) is not None:
            running[forked(lambda mutant=mutant: is_noticed(mutant, mutant.path))] = (
                mutant,
                time.monotonic(),
            )
        if not running:
            return
        yield from _ended(running)


def _ended(running: dict[int, tuple[Mutant, float]]) -> Iterator[Result]:
    for process, (mutant, started) in list(running.items()):
        seconds = time.monotonic() - started
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            del running[process]
            yield Result(mutant, os.waitstatus_to_exitcode(status) == SURVIVED, seconds)
        elif seconds > WALL_SECONDS:
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            del running[process]
            yield Result(mutant, False, seconds)
    time.sleep(0.01)


def warm_up() -> None:
    """Import what every mutant's tests need, but nothing of stepfold."""
    import asyncio  # noqa: F401

    import _pytest.assertion.rewrite
    import duckdb  # noqa: F401
    import fastjsonschema  # noqa: F401
    import hypothesis.strategies
    import jsonschema_rs  # noqa: F401
    import msgspec  # noqa: F401
    import pytest  # noqa: F401
    import transitions  # noqa: F401

    assert _pytest.assertion.rewrite
    assert hypothesis.strategies
    if any(name.partition(".")[0] == "stepfold" for name in sys.modules):
        raise RuntimeError("stepfold is imported already: a mutant would not take its module's place")


def known_survivors() -> dict[str, str]:
    """The survivors that are known, and why each is none that matters."""
    tree = tomllib.loads(SURVIVORS.read_text()) if SURVIVORS.exists() else {}
    return {name: group["reason"] for group in tree.get("survivors", []) for name in group["mutants"]}


def sample_of(mutants: Sequence[Mutant], count: int, seed: str) -> list[Mutant]:
    """Some of them. Each is drawn by its name alone, so that an edit elsewhere draws no others."""
    return sorted(mutants, key=lambda mutant: sha256(f"{seed} {mutant.name}".encode()).digest())[:count]


def main() -> int:
    """Run the mutants that are asked for, and say which survive."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", metavar="WORD", help="only mutants whose name holds all of these")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many, drawn by --seed")
    parser.add_argument("--seed", default="0", help="what they are drawn by [0]")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="at a time [all cores]"
    )
    parser.add_argument("--unchecked", action="store_true", help="don't run the tests without a change first")
    parser.add_argument("--list", action="store_true", help="name the mutants, and run none")
    chosen = parser.parse_args()
    mutants = [mutant for mutant in all_mutants() if all(word in mutant.name for word in chosen.words)]
    if chosen.sample:
        mutants = sample_of(mutants, chosen.sample, chosen.seed)
    if chosen.list:
        print("\n".join(f"{mutant.path}:{mutant.line}: {mutant.name}" for mutant in mutants))
        return 0
    if not chosen.unchecked and not _pass_as_they_are(mutants):
        return 2
    return _report(mutants, chosen.jobs)


def _pass_as_they_are(mutants: Sequence[Mutant]) -> bool:
    """Whether the tests pass without any change: else they could tell nothing."""
    warm_up()
    for path in {tests_about(mutant.path): mutant.path for mutant in mutants}.values():
        _, status = os.waitpid(forked(lambda path=path: is_noticed(None, path)), 0)
        if os.waitstatus_to_exitcode(status) != SURVIVED:
            print(f"{path}: its tests fail without any change, so they can tell nothing: mend them first")
            return False
    return True


def _report(mutants: Sequence[Mutant], jobs: int) -> int:
    known = known_survivors()
    survived, stale, count = [], [], 0
    for count, result in enumerate(results_of(mutants, jobs), start=1):
        if result.survived and result.mutant.name not in known:
            survived.append(result.mutant)
            print(f"survives  {result.mutant.path}:{result.mutant.line}: {result.mutant.name}", flush=True)
        elif not result.survived and result.mutant.name in known:
            stale.append(result.mutant)
            print(f"caught by now, take it off the list: {result.mutant.name}", flush=True)
        if sys.stderr.isatty():
            print(f"\r{count} of {len(mutants)}\x1b[K\r", end="", file=sys.stderr)
    expected = sum(mutant.name in known for mutant in mutants) - len(stale)
    caught = count - len(survived) - expected
    score = 100 * caught / count if count else 100.0
    print(
        f"{count} mutants: {caught} caught ({score:.1f} %), {expected} known survivors, {len(survived)} new"
    )
    return 1 if survived or stale else 0


if __name__ == "__main__":
    sys.exit(main())
