"""The coverage-guided targets run, over all inputs that ever led somewhere new and some thousand more."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RUNS = 5_000


@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="atheris has no wheel for this Python"
)
@pytest.mark.parametrize("target", ["contract", "codec"])
def test_nothing_is_found_in_some_thousand_runs(target: str, tmp_path: Path) -> None:
    corpus = HERE / f"{target}_corpus"
    new = tmp_path / "new"
    new.mkdir()

    searched = subprocess.run(
        [
            *(sys.executable, HERE / f"{target}.py", f"-runs={RUNS}", "-seed=1"),
            *(f"-artifact_prefix={tmp_path}/", new, corpus),
        ],
        capture_output=True,
        text=True,
    )

    assert searched.returncode == 0, searched.stderr[-2000:]
    assert f"Done {RUNS} runs" in searched.stderr
    assert len(list(corpus.iterdir())) > 20
