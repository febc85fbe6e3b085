"""What a tool-calling run costs, by a table of prices."""

import asyncio
from typing import Any

from stepfold.engine.models.prices import Price
from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.response_cache import MemoryCache
from stepfold.events.vocabulary import ModelReplied
from tests.harness_house import Scripted, Streaming, erred, play, text

PRICES = {"primary": Price(input=2.0, output=8.0, cached=1.0)}


def counted(said: str, **more: Any) -> ModelReplied:
    return text(said, given=1_000_000, taken=500_000, **more)


def test_each_reply_is_recorded_with_its_cost_and_the_run_adds_up() -> None:
    model = Scripted(counted("hi", cached_tokens=500_000), name="primary")

    played = play(AgentHarness(model, prices=PRICES))

    assert played.run.usage.cost == 0.5 * 2.0 + 0.5 * 1.0 + 0.5 * 8.0


def test_a_reply_that_comes_in_pieces_is_priced_alike() -> None:
    harness = AgentHarness(Streaming(counted("hi"), name="primary"), prices=PRICES)

    async def streamed() -> list[Any]:
        return [item async for item in harness.stream(messages=["hi"])]

    *_, ended = asyncio.run(streamed())

    assert ended.run.usage.cost == 6.0


def test_a_model_without_a_price_costs_nothing_and_one_that_names_its_cost_keeps_it() -> None:
    other = play(AgentHarness(Scripted(counted("hi"), name="other"), prices=PRICES))
    own = play(AgentHarness(Scripted(counted("hi", cost=7.0), name="primary"), prices=PRICES))

    assert (other.run.usage.cost, own.run.usage.cost) == (0.0, 7.0)


def test_the_one_that_answered_is_paid_for() -> None:
    models = [Scripted(erred(), erred(), erred(), name="free"), Scripted(counted("hi"), name="primary")]

    played = play(AgentHarness(models, prices=PRICES))

    assert played.run.usage.cost == 2.0 + 4.0


def test_an_answer_from_the_cache_was_paid_for_when_it_was_made() -> None:
    cache, model = MemoryCache(), Scripted(counted("hi"), name="primary")

    first, second = (play(AgentHarness(model, cache=cache, prices=PRICES)) for _ in range(2))

    assert (first.run.usage.cost, second.run.usage.cost) == (6.0, 0.0)
