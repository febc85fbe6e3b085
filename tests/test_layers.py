"""The layer table holds, and the linter that says so does bite."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINT = Path(sys.executable).with_name("lint-imports")


def linted(links: Path) -> subprocess.CompletedProcess[str]:
    """Run the linter over a folder that holds the package."""
    return subprocess.run(
        [str(LINT), "--no-logo", "--no-cache", "--config", str(ROOT / "pyproject.toml")],
        cwd=links,
        env=os.environ | {"PYTHONPATH": str(links)},
        capture_output=True,
        text=True,
    )


def test_the_layer_table_holds() -> None:
    result = linted(ROOT / ".links")

    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 broken" in result.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as plain folders, to plant faults in."""
    folder = tmp_path_factory.mktemp("links")
    shutil.copytree(
        ROOT / ".links" / "stepfold", folder / "stepfold", ignore=shutil.ignore_patterns("__pycache__")
    )
    return folder


PLANTED = {
    "events/codec.py": ("from stepfold.projections import run", "the layer table of ARCHITECTURE.md BROKEN"),
    "engine/contract/envelope.py": (
        "import stepfold.engine.models.protocol",
        "the layer table of ARCHITECTURE.md BROKEN",
    ),
    "engine/runtime/drive.py": ("import duckdb", "only the SQL projections know DuckDB BROKEN"),
    "engine/core/guards.py": ("import time", "the pure part reaches no clock"),
    "projections/fold_goal.py": ("import random", "the pure part reaches no clock"),
    "engine/core/decide.py": ("import transitions", "one module imports transitions BROKEN"),
}


@pytest.mark.parametrize("module", PLANTED)
def test_a_planted_import_breaks_its_contract(copy: Path, module: str) -> None:
    line, contract = PLANTED[module]
    path = copy / "stepfold" / module
    before = path.read_text()
    try:
        path.write_text(f"{before}\n{line}\n")
        result = linted(copy)
    finally:
        path.write_text(before)

    broken = [shown for shown in result.stdout.splitlines() if "BROKEN" in shown]
    assert result.returncode == 1
    assert len(broken) == 1
    assert broken[0].startswith(contract)
