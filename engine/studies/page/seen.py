"""What the model saw at each step: every message is kept once, and a step holds how far it saw."""

import json
from typing import Any

from msgspec.structs import replace

from stepfold.engine.models.protocol import body
from stepfold.engine.runtime.requests import Rebuilder, RebuiltRequest
from stepfold.events.vocabulary import Message, ModelStarted
from stepfold.projections.state import Run

Part = Message | str


class Texts:
    """Texts by number, each kept once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The number of a text, a new one if need be."""
        return self._numbers.setdefault(text, len(self._numbers))

    def listed(self) -> list[str]:
        """All texts, in the order of their numbers."""
        return list(self._numbers)


class Conversation:
    """The requests of one run, as they were sent.

    A message is `[role, text, call id, calls]` with the text as a number. A strand is a list of messages
    that is only added to; a new one begins where turns left the prompt. So what a step saw is its first
    message (the system turn, which may change), the beginning of a strand, and what closes the flat form.
    """

    def __init__(self, texts: Texts) -> None:
        self.messages: list[list[Any]] = []
        self.strands: list[list[int]] = []
        self._texts = texts
        self._rebuilder = Rebuilder()
        self._numbers: dict[Part, int] = {}
        self._strand: tuple[Part, ...] = ()

    def step(self, run: Run, event: ModelStarted) -> dict[str, Any]:
        """What `event` sent, the rest of its request, and whether its digest agrees."""
        rebuilt = self._rebuilder.request(run, event)
        parts = rebuilt.parts
        closing = parts[-1:] if parts and isinstance(parts[-1], str) else ()
        middle = parts[1 : len(parts) - len(closing)]
        self._extend(middle, rebuilt)
        options = body(rebuilt.request)
        del options["messages"]
        return {
            "first": [self._number(part, rebuilt) for part in parts[:1]],
            "strand": len(self.strands) - 1,
            "count": len(middle),
            "closing": [self._number(part, rebuilt) for part in closing],
            "options": self._texts.number(json.dumps(options, indent=2)),
            "agrees": rebuilt.agrees,
        }

    def _extend(self, middle: tuple[Part, ...], rebuilt: RebuiltRequest) -> None:
        """Add what is new to the strand, or begin another one from messages that are known."""
        known = len(self._strand)
        if self.strands and middle[:known] == self._strand:
            self.strands[-1] += (self._add(part, rebuilt) for part in middle[known:])
        else:
            self.strands.append([self._number(part, rebuilt) for part in middle])
        self._strand = middle

    def _number(self, part: Part, rebuilt: RebuiltRequest) -> int:
        number = self._numbers.get(part)
        return self._add(part, rebuilt) if number is None else number

    def _add(self, part: Part, rebuilt: RebuiltRequest) -> int:
        number = self._numbers[part] = len(self.messages)
        self.messages.append(self._shown(part, rebuilt))
        return number

    def _shown(self, part: Part, rebuilt: RebuiltRequest) -> list[Any]:
        if isinstance(part, str):
            return ["", self._texts.number(part)]
        (sent,) = body(replace(rebuilt.request, messages=(part,)))["messages"]
        shown = [sent["role"], self._texts.number(sent["content"] or "")]
        if part.tool_call_id or part.tool_calls:
            shown.append(sent.get("tool_call_id", ""))
        if part.tool_calls:
            calls = [(call["id"], call["function"]) for call in sent["tool_calls"]]
            shown.append([[name, f["name"], self._texts.number(f["arguments"])] for name, f in calls])
        return shown
