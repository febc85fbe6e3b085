"""What a trace can say, whatever its format: the small vocabulary between the formats and the recorder.

A format module reads one kind of file and yields these in the order of the file. It decides nothing:
numbering, pairing of calls with results, and counting are the recorder's.
"""

from msgspec import Struct

from stepfold.events.vocabulary import Score


class Began(Struct, frozen=True):
    """A run begins. `name` is what the file calls it; `model` the model, where one is named for the run."""

    name: str
    model: str = ""
    goal: str = ""


class Spoke(Struct, frozen=True):
    """Neither the model nor a tool said something: `role` is `system` or `user`."""

    role: str
    text: str
    at: str = ""


class Call(Struct, frozen=True):
    """A call: the id that the file gives it, if any, and when it started, if the file says so."""

    name: str
    arguments: str
    id: str = ""
    at: str = ""


class Replied(Struct, frozen=True, kw_only=True):
    """A model's reply, with the calls that it asks for. Tokens and cost are 0 where the file has none."""

    text: str
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    finish_reason: str = ""
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    agent: str = ""
    at: str = ""


class Called(Struct, frozen=True):
    """A call of which the file has no reply that asked for it."""

    call: Call


class Answered(Struct, frozen=True, kw_only=True):
    """A result. It belongs to the open call of that `id`, or of that `name`, else to the oldest open one.

    `error` is set when the result is an error, in a word; `refused` when the tool never ran. `repeats`
    says that the text lies in a reply already, so that only its digest is kept.
    """

    text: str
    id: str | None = None
    name: str | None = None
    error: str = ""
    refused: bool = False
    repeats: bool = False
    at: str = ""


class Refused(Struct, frozen=True):
    """The other program refused a reply."""

    error: str
    detail: str = ""
    at: str = ""


class Erred(Struct, frozen=True):
    """A model call gave no reply."""

    error: str
    detail: str = ""
    at: str = ""


class Noticed(Struct, frozen=True):
    """Something that whoever reads the run should know: a kind, where in the file, a word on it."""

    what: str
    where: str = ""
    detail: str = ""


class Unplaced(Struct, frozen=True):
    """Something in the file that has no place in our events."""

    what: str
    count: int = 1


class Ended(Struct, frozen=True, kw_only=True):
    """The file has nothing more on this run. See `TraceEnded`."""

    recorded: str = ""
    status: str = ""
    inferred: str = ""
    error: str = ""
    scores: tuple[Score, ...] = ()
    at: str = ""


Said = Began | Spoke | Replied | Called | Answered | Refused | Erred | Noticed | Unplaced | Ended
