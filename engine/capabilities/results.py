"""What every native hands back: a result, or an error that the model may react to."""

from stepfold.engine.capabilities.output import Capped, cap
from stepfold.events.vocabulary import BLANK, ToolReturned


def returned(text: str, error: str = "") -> ToolReturned:
    """A result, capped for the model."""
    return returned_capped(cap(text.encode("utf-8", "replace")), error)


def returned_capped(capped: Capped, error: str = "", before: str = "") -> ToolReturned:
    """A result that was capped on its way; `before` is a line in front of it.

    Size and digest are recorded where something was left out, for only then they say more than the text.
    """
    content = before + capped.text
    if not capped.truncated:
        return ToolReturned(*BLANK, content=content, error=error)
    return ToolReturned(*BLANK, content=content, error=error, size=capped.size, digest=capped.digest)


def refused(error: str, text: str) -> ToolReturned:
    """An error of a kind, with a sentence that says what would be right."""
    return returned(text, error)
