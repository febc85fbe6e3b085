"""What the model saw at each step: every message is kept once, and a step holds ranges of them."""

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

    A message is `[role, text, call id, calls]` with the text as a number; what else a request holds
    (model, options, tools) is one text of JSON, which hardly ever changes.
    """

    def __init__(self, texts: Texts) -> None:
        self.messages: list[list[Any]] = []
        self._texts = texts
        self._rebuilder = Rebuilder()
        self._numbers: dict[Part, int] = {}
        self._last: tuple[Part, ...] = ()
        self._last_numbers: list[int] = []

    def step(self, run: Run, event: ModelStarted) -> dict[str, Any]:
        """What `event` sent: ranges of messages, the rest of the request, and whether its digest agrees."""
        rebuilt = self._rebuilder.request(run, event)
        self._last_numbers = self._numbers_of(rebuilt)
        self._last = rebuilt.parts
        options = body(rebuilt.request)
        del options["messages"]
        return {
            "ranges": _ranges(self._last_numbers),
            "options": self._texts.number(json.dumps(options, indent=2)),
            "agrees": rebuilt.agrees,
        }

    def _numbers_of(self, rebuilt: RebuiltRequest) -> list[int]:
        """The numbers of a request's messages; only what was not there a step ago is looked at."""
        parts, last = rebuilt.parts, self._last
        # The first one (the system turn) may change while all the others stay.
        kept = max(1, len(last) - 1)
        if len(parts) >= kept > 1 and parts[1:kept] == last[1:kept]:
            known = self._last_numbers[1:kept]
            return [
                self._number(parts[0], rebuilt),
                *known,
                *(self._number(p, rebuilt) for p in parts[kept:]),
            ]
        return [self._number(part, rebuilt) for part in parts]

    def _number(self, part: Part, rebuilt: RebuiltRequest) -> int:
        number = self._numbers.get(part)
        if number is None:
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


def _ranges(numbers: list[int]) -> list[int]:
    """Numbers as pairs of first and last, one after the other in one list."""
    pairs: list[int] = []
    for number in numbers:
        if pairs and number == pairs[-1] + 1:
            pairs[-1] = number
        else:
            pairs += (number, number)
    return pairs
