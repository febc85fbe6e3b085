"""Traces and finds are test items; a divergence is told, and rewritten when that is asked for."""

import json
import shutil
from pathlib import Path

import pytest

from stepfold.events.chain import sealed_anew, unsealed

pytest_plugins = ["pytester"]
FIXTURE = Path(__file__).parents[3] / "replay_fixtures" / "hits_the_cap"


@pytest.fixture
def project(pytester: pytest.Pytester) -> Path:
    pytester.makepyprojecttoml(
        '[tool.pytest.ini_options]\nstepfold_traces = ["traces"]\ntestpaths = ["tests"]\n'
    )
    (pytester.path / "tests").mkdir()
    (pytester.path / "tests" / "test_one.py").write_text("def test_one(): pass\n")
    shutil.copytree(FIXTURE, pytester.path / "traces" / "cap")
    shutil.copy(FIXTURE / "log.jsonl", pytester.path / "traces" / "cap.trace.jsonl")
    return pytester.path


def change(trace: Path) -> None:
    """Another decision than today's: the run was given another profile."""
    lines = [unsealed(line)[0] for line in trace.read_bytes().splitlines()]
    changed = [line.replace(b'"source":"goal"', b'"source":"caller"') for line in lines]
    assert changed != lines
    trace.write_bytes(b"".join(line + b"\n" for line in sealed_anew(changed)))


def test_every_trace_below_the_folders_is_a_test(pytester: pytest.Pytester, project: Path) -> None:
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=3)


def test_a_divergence_is_explained(pytester: pytest.Pytester, project: Path) -> None:
    change(project / "traces" / "cap.trace.jsonl")

    result = pytester.runpytest_subprocess()

    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["*diverged at seq*ProfileInferred.source*", '*recorded*"caller"*', '*computed*"goal"*']
    )


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_accepting_shows_the_difference_and_rewrites(
    pytester: pytest.Pytester, project: Path, workers: tuple[str, ...]
) -> None:
    trace = project / "traces" / "cap.trace.jsonl"
    whole = trace.read_bytes()
    change(trace)

    result = pytester.runpytest_subprocess("--stepfold-accept", *workers)

    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*stepfold accepted*", "*rewritten*", '*recorded*"caller"*'])
    assert trace.read_bytes() == whole


def test_a_find_fails_until_it_is_mended(pytester: pytest.Pytester, project: Path) -> None:
    find = project / "traces" / "contract-0.fuzz.json"
    case = {"raw": "prose", "expected": ["Empty"]}
    find.write_text(json.dumps({"target": "contract", "rule": "", "why": "", "case": case}))

    failed = pytester.runpytest_subprocess()
    find.write_text(find.read_text().replace("Empty", "NotJson"))
    mended = pytester.runpytest_subprocess()

    failed.assert_outcomes(passed=3, failed=1)
    failed.stdout.fnmatch_lines(["*malformed reply is answered by its error*NotJson*"])
    mended.assert_outcomes(passed=4)
