"""Real processes killed at random moments: what may run once runs once, and every log goes on and replays."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from stepfold.engine.runtime.replay import replay
from stepfold.events.journal import read_log
from stepfold.projections.run import fold
from tests.harness_house import assert_answered, unpaired

WORKER = Path(__file__).parent / "harness_worker.py"
KILLS_AT_MOST = 8


@pytest.mark.parametrize("number", range(2))
def test_a_killed_run_goes_on_in_another_process_and_runs_nothing_twice(tmp_path: Path, number: int) -> None:
    chance = random.Random(number)
    store, state = tmp_path / "store", tmp_path / "state"
    log = store / "runs/r.jsonl"
    killed = 0
    for _ in range(KILLS_AT_MOST):
        how = "resume" if log.exists() and log.stat().st_size else "begin"
        before = log.stat().st_size if log.exists() else 0
        if not _killed(store, state, how, before + chance.randint(0, 6000)):
            break
        killed += 1
    else:
        _finished(store, state)
    assert killed, "the run ended before it could be killed"
    runs = [path for path in (store / "runs").iterdir() if path.suffix == ".jsonl"]
    assert len(runs) == 1 + 6
    for path in runs:
        assert replay(path).verdict == "identical"
        events = [record.event for record in read_log(path).records]
        assert fold(events).status == "completed"
        assert not unpaired(events)
        assert_answered(events)
    noted = Counter(line for line in state.read_text().splitlines() if line.startswith("once "))
    assert [line for line, count in noted.items() if count > 1] == []
    assert len(noted) > 6


def _killed(store: Path, state: Path, how: str, size: int) -> bool:
    """Start the worker and kill it when its log has grown to `size`; whether it was killed in time."""
    process = subprocess.Popen([sys.executable, str(WORKER), str(store), str(state), how])
    log = store / "runs/r.jsonl"
    while process.poll() is None:
        if log.exists() and log.stat().st_size >= size:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.0005)
    return process.wait() != 0


def _finished(store: Path, state: Path) -> None:
    subprocess.run([sys.executable, str(WORKER), str(store), str(state), "resume"], check=True)
