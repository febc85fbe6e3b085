"""What a reply costs by the table of prices."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.models.prices import Price, priced
from stepfold.events.vocabulary import BLANK, ModelReplied

counts = st.integers(0, 10**7)
amounts = st.floats(0, 1000)


def reply(given: int, taken: int, cached: int | None = None, **more: Any) -> ModelReplied:
    counts = {"input_tokens": given, "output_tokens": taken, "cached_tokens": cached}
    return ModelReplied(*BLANK, text="", **counts, **more)


@pytest.mark.parametrize(
    ("price", "said", "cost"),
    [
        (Price(2.0, 8.0), reply(1_000_000, 500_000), 6.0),
        (Price(2.0, 8.0, 0.5), reply(1_000_000, 0, 1_000_000), 0.5),
        (Price(2.0, 8.0, 0.0), reply(1_000_000, 0, 500_000), 1.0),
        (Price(2.0, 8.0), reply(1_000_000, 0, 1_000_000), 2.0),
        # A server that says that it had more in its cache than there was.
        (Price(2.0, 8.0, 0.5), reply(1_000_000, 0, 9_000_000), 0.5),
    ],
)
def test_a_price_is_that_of_a_million_tokens(price: Price, said: ModelReplied, cost: float) -> None:
    assert price.of(said) == pytest.approx(cost)


@given(counts, counts, counts, amounts, amounts, amounts)
def test_a_cost_is_never_below_nothing(a: int, b: int, c: int, x: float, y: float, z: float) -> None:
    assert Price(x, y, z).of(reply(a, b, c)) >= 0


def test_the_name_that_was_asked_goes_before_the_one_that_answered() -> None:
    prices = {"asked": Price(1.0, 0.0), "answered": Price(2.0, 0.0)}
    said = reply(1_000_000, 0, model="answered")

    assert priced(said, "asked", prices).cost == 1.0
    assert priced(said, "other", prices).cost == 2.0
    assert priced(said, "other", {}).cost == 0.0


def test_a_cost_that_the_model_gave_stands() -> None:
    assert priced(reply(10, 10, cost=7.0), "m", {"m": Price(1.0, 1.0)}).cost == 7.0
