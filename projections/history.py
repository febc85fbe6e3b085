"""The conversation of a run as turns: appended to, chained, compacted; never rebuilt."""

from dataclasses import dataclass, field

import msgspec

from stepfold.events.vocabulary import Message
from stepfold.projections.digest import digest_of

_encode = msgspec.json.Encoder().encode


def _chained(chain: str, turn: Message) -> str:
    # As JSON, so that no mark a model could write parts the fields.
    try:
        return digest_of(_encode((chain, turn)))
    except UnicodeEncodeError:
        return digest_of(f"{chain}{turn!r}")


def _characters(turn: Message) -> int:
    characters = len(turn.content)
    for call in turn.tool_calls:
        characters += len(call.arguments) + len(call.name)
    return characters


@dataclass(slots=True, eq=False)
class ConversationHistory:
    """The turns after the system turn.

    `chains[i]` is the digest of all turns up to the i-th, so that a request's digest costs the same
    at step 1000 as at step 10, and a dropped turn only pops. `generation` counts the compactions: as
    long as it stays, the turns were only added to.
    """

    turns: list[Message] = field(default_factory=list)
    chains: list[str] = field(default_factory=list)
    characters: int = 0
    generation: int = 0

    @property
    def chain(self) -> str:
        """The digest of all turns."""
        return self.chains[-1] if self.chains else ""

    def append(self, turn: Message) -> None:
        """Add one turn at the end."""
        self.chains.append(_chained(self.chain, turn))
        self.turns.append(turn)
        self.characters += _characters(turn)

    def pop(self) -> Message:
        """Take the last turn back (a useless assistant turn that is asked for again)."""
        turn = self.turns.pop()
        self.chains.pop()
        self.characters -= _characters(turn)
        self.generation += 1
        return turn

    def instruct(self, text: str) -> None:
        """Say something else in the system turn that the conversation begins with, and chain it anew."""
        if not self.turns or self.turns[0].role != "system":
            return
        turns = [Message("system", text), *self.turns[1:]]
        self.turns, self.chains, self.characters = [], [], 0
        self.generation += 1
        for turn in turns:
            self.append(turn)

    def drop(self, count: int) -> tuple[Message, ...]:
        """Drop the `count` oldest turns after the first one, and chain the rest anew."""
        dropped = tuple(self.turns[1 : 1 + count])
        kept = [self.turns[0], *self.turns[1 + count :]]
        self.turns, self.chains, self.characters = [], [], 0
        self.generation += 1
        for turn in kept:
            self.append(turn)
        return dropped

    def clone(self) -> "ConversationHistory":
        """An independent copy, for a fork."""
        copy = ConversationHistory()
        copy.turns = self.turns.copy()
        copy.chains = self.chains.copy()
        copy.characters = self.characters
        copy.generation = self.generation
        return copy
