"""The invariants hold for many examples: a few hundred here, 100,000 with `make nightly`."""

import os

import pytest

from stepfold.testing import search

EXAMPLES = int(os.environ.get("STEPFOLD_EXAMPLES", "0"))
"""How many examples of each target; 0 for the few that every run of the suite can afford."""

FEW = {"contract": 1_000, "codec": 500, "goal": 60, "harness": 40}
BATCH = 1_000


@pytest.mark.parametrize("target", FEW)
def test_nothing_is_found(target: str) -> None:
    wanted = EXAMPLES or FEW[target]
    for number, done in enumerate(range(0, wanted, BATCH), start=100):
        found = search(target, examples=min(BATCH, wanted - done), start=number)

        assert found is None, found
