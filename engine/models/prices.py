"""What replies cost, by a table of prices: worked out when a reply lands, and recorded with it."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from stepfold.events.vocabulary import ModelReplied

NO_PRICES: Mapping[str, "Price"] = {}

A_MILLION = 1_000_000


class Price(Struct, frozen=True):
    """`[prices."MODEL"]`: what a million tokens of a model cost, in a unit of your choice.

    `cached` is for tokens of the prompt that the server had kept; None: they cost what the others do.
    """

    input: float = 0.0
    output: float = 0.0
    cached: float | None = None

    def of(self, reply: ModelReplied) -> float:
        """What a reply cost, by its token counts, be they the server's or estimates."""
        kept = 0 if self.cached is None else min(reply.cached_tokens or 0, reply.input_tokens)
        given = (reply.input_tokens - kept) * self.input + kept * (self.cached or 0.0)
        return (given + reply.output_tokens * self.output) / A_MILLION


def priced(reply: ModelReplied, asked: str, prices: Mapping[str, Price]) -> ModelReplied:
    """The reply with its cost, by the name that was asked or else the one that answered.

    A cost that the model itself gave stands.
    """
    price = prices.get(asked) or prices.get(reply.model)
    if price is None or reply.cost:
        return reply
    return msgspec.structs.replace(reply, cost=price.of(reply))
