"""What a run has cost: model calls and tokens, folded from the replies as they land."""

from msgspec import Struct
from msgspec.structs import replace

from stepfold.events.vocabulary import ChildUsage, ModelReplied


class Usage(Struct, frozen=True, gc=False):
    """Totals of a run. `estimated` says that at least one figure is ours and not the server's.

    `cached_tokens` are those of the input that servers had kept; None where none has said.
    """

    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False
    cost: float = 0.0
    cached_tokens: int | None = None

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def plus(self, reply: ModelReplied) -> "Usage":
        """The totals after one more reply. A reply from the response cache is not billed again."""
        if reply.cache == "hit":
            return replace(self, model_calls=self.model_calls + 1)
        return Usage(
            self.model_calls + 1,
            self.input_tokens + reply.input_tokens,
            self.output_tokens + reply.output_tokens,
            self.estimated or reply.estimated,
            self.cost + reply.cost,
            _sum(self.cached_tokens, reply.cached_tokens),
        )

    def plus_child(self, child: ChildUsage) -> "Usage":
        """The totals with those of a sub-agent's run."""
        return replace(
            self,
            model_calls=self.model_calls + child.model_calls,
            input_tokens=self.input_tokens + child.input_tokens,
            output_tokens=self.output_tokens + child.output_tokens,
            cost=self.cost + child.cost,
        )


def plus_spent(one: ChildUsage, other: ChildUsage) -> ChildUsage:
    """Two costs together."""
    return ChildUsage(
        one.model_calls + other.model_calls,
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cost + other.cost,
    )


def not_yet_spent(whole: ChildUsage, counted: ChildUsage) -> ChildUsage:
    """What of a cost is left when some of it is counted already."""
    return ChildUsage(
        whole.model_calls - counted.model_calls,
        whole.input_tokens - counted.input_tokens,
        whole.output_tokens - counted.output_tokens,
        whole.cost - counted.cost,
    )


def _sum(one: int | None, two: int | None) -> int | None:
    return two if one is None else one + (two or 0)
