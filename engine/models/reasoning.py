"""Where a model's thinking ends: blocks before the reply, split off whole or piece by piece."""

BLOCKS = {
    "<think>": "</think>",
    "[THINK]": "[/THINK]",
    "<|channel|>analysis<|message|>": "<|end|>",
    "<|channel|>commentary<|message|>": "<|end|>",
    "<|start|>assistant": "",
    "<|channel|>final<|message|>": "",
}
"""How a block of thinking opens and closes: as most models write it, as Mistral's, and in harmony channels,
which also have marks without a content of their own.
"""

FINAL = "<|channel|>final<|message|>"
ENDS = ("<|return|>", "<|end|>")
"""How the final harmony channel ends, where a server leaves the marks in."""

SPACE = " \t\r\n"


class ReasoningSplitter:
    """Tells thinking from reply in text that comes in pieces.

    `feed` gives back what belongs to the reply; `end` the rest of it, when no more pieces come.
    `reasoning` is what was split off. Only blocks before the first visible character count, for a
    reply may well write about the tag. A block that never closes is all reasoning. White space
    around a block belongs to it. Linear in the length of the text, however it is cut.
    """

    def __init__(self) -> None:
        self._held = ""
        self._close = ""
        self._visible = False
        self._split_one = False
        self._is_final = False
        self._thoughts: list[str] = []
        self._blocks: list[str] = []

    @property
    def reasoning(self) -> str:
        """The blocks so far, trimmed, a line break between two."""
        thoughts = [*self._blocks, "".join(self._thoughts).strip(SPACE)]
        return "\n".join(filter(None, thoughts))

    def feed(self, piece: str) -> str:
        """Take the next piece; give back what of the reply is certain by now."""
        if self._visible:
            return self._before_an_end(piece) if self._is_final else piece
        self._held += piece
        while not self._visible and self._advance():
            pass
        if not self._visible:
            return ""
        text = self._release()
        return self._before_an_end(text) if self._is_final else text

    def end(self) -> str:
        """No more pieces: give back what was held because it might have opened a block."""
        if self._visible:
            return "" if self._held.rstrip(SPACE) in ENDS else self._held
        if self._close:
            self._thoughts.append(self._held)
            self._held = ""
        return self._release()

    def _release(self) -> str:
        text, self._held = self._held, ""
        return text.lstrip(SPACE) if self._split_one else text

    def _before_an_end(self, piece: str) -> str:
        """What is certain not to be a mark at the end of the final channel; the rest is held."""
        text = self._held + piece
        cut = text.rfind("<")
        if cut < 0 or not any(mark.startswith(text[cut:].rstrip(SPACE)) for mark in ENDS):
            cut = len(text)
        self._held = text[cut:]
        return text[:cut]

    def _advance(self) -> bool:
        return self._inside_block() if self._close else self._before_block()

    def _before_block(self) -> bool:
        start = self._held.lstrip(SPACE)
        for opening, closing in BLOCKS.items():
            if start.startswith(opening):
                self._held = start[len(opening) :]
                self._close = closing
                self._is_final = opening == FINAL
                self._split_one = True
                return True
        self._visible = not any(opening.startswith(start) for opening in BLOCKS)
        return False

    def _inside_block(self) -> bool:
        found = self._held.find(self._close)
        if found < 0:
            # Only what could be the start of the closing tag is looked at again.
            keep = len(self._close) - 1
            self._thoughts.append(self._held[:-keep])
            self._held = self._held[-keep:]
            return False
        self._thoughts.append(self._held[:found])
        self._blocks.append("".join(self._thoughts).strip(SPACE))
        self._thoughts = []
        self._held = self._held[found + len(self._close) :]
        self._close = ""
        return True


def split_reasoning(text: str) -> tuple[str, str]:
    """The reply and the thinking before it. Text without a leading block comes back untouched."""
    splitter = ReasoningSplitter()
    shown = splitter.feed(text)
    return shown + splitter.end(), splitter.reasoning
