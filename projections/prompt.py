"""The request of a model call, built from the run alone: its turns, its flat form, its digest."""

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from stepfold.events.configuration import Generation
from stepfold.events.vocabulary import Message
from stepfold.projections.digest import digest_of
from stepfold.projections.history import ConversationHistory
from stepfold.projections.state import Run, decided_config

NEXT_ACTION = "\n\nNext action (one JSON object):\n"
_TITLES = {"user": "User", "assistant": "Assistant", "tool": "Result"}
_encode = msgspec.json.Encoder().encode

T = TypeVar("T")


def request_digest(run: Run, max_tokens: int | None) -> str:
    """The digest of all that makes the request: system turn, turns, model and options. O(1) a step.

    A constraint is made of what the system turn lists, so its form is enough.
    """
    options = _encode((decided_config(run).generation, max_tokens)).decode()
    form = f"\x1e{run.goal.form}" if run.goal.form else ""
    return digest_of(f"{run.goal.system_digest}\x1e{run.history.chain}\x1e{options}{form}")


def harness_request_digest(run: Run, max_tokens: int | None) -> str:
    """The same for a tool-calling run: turns, what the hooks made of them, and options."""
    config = decided_config(run)
    options = _encode((config.generation, max_tokens)).decode()
    return digest_of(f"{run.history.chain}\x1e{run.harness.request.decode('utf-8', 'replace')}\x1e{options}")


def flat_turn(turn: Message) -> str:
    """One turn of the flat form, with the blank lines before it."""
    title = _TITLES.get(turn.role, turn.role)
    if turn.role == "tool" and turn.tool_call_id:
        title = f"{title} of {turn.tool_call_id}"
    return f"\n\n{title}:\n{turn.content}"


def render_history_as_prompt(system: str, history: ConversationHistory) -> str:
    """The flat form for text-only models: the system turn first and verbatim, then every turn."""
    return system + "".join(map(flat_turn, history.turns)) + NEXT_ACTION


Render = Callable[[Message], T]


class Rendering(Generic[T]):
    """Turns rendered one by one, as they come: extended by what is new instead of rebuilt each step.

    `start` gives the function that renders one turn; a compaction starts over with a fresh one.
    """

    def __init__(self, start: Callable[[], Render[T]]) -> None:
        self._start = start
        self._render = start()
        self._items: list[T] = []
        self._generation = 0

    def items(self, history: ConversationHistory) -> list[T]:
        """All turns of the history, rendered. The list is this object's own: read it, don't keep it."""
        if self._generation != history.generation:
            self._render = self._start()
            self._items = []
            self._generation = history.generation
        self._items.extend(map(self._render, history.turns[len(self._items) :]))
        return self._items


def flat_rendering() -> Rendering[str]:
    """For text-only models."""
    return Rendering(lambda: flat_turn)


def chat_rendering() -> Rendering[Message]:
    """For chat servers without tools: user and assistant turns only."""
    return Rendering(lambda: _chat_turn)


def tools_rendering() -> Rendering[Message]:
    """For servers with tools: an action is a structured call, its observation the `tool` turn paired to it.

    A rejected reply stays plain text, and what the model reads about it comes as a user turn.
    """
    return Rendering(_tools_turns)


def _chat_turn(turn: Message) -> Message:
    if turn.role == "tool":
        return Message("user", f"Result of {turn.tool_call_id}:\n{turn.content}")
    return Message(turn.role, turn.content)


def _tools_turns() -> Render[Message]:
    structured: set[str] = set()

    def render(turn: Message) -> Message:
        if turn.tool_calls:
            structured.update(call.id for call in turn.tool_calls)
            return Message("assistant", "", turn.tool_calls)
        return turn if turn.tool_call_id in structured else _chat_turn(turn)

    return render


class GoalPrompt:
    """What the model of a goal run is sent, in the mode of its configuration."""

    def __init__(self, generation: Generation) -> None:
        self._flat = flat_rendering() if generation.mode == "text" else None
        self._turns = tools_rendering() if generation.mode == "tools" else chat_rendering()

    def parts(self, run: Run) -> tuple[Message | str, ...]:
        """The request that the run would send now: its messages, or the pieces of the flat form."""
        if self._flat is not None:
            return (run.goal.system, *self._flat.items(run.history), NEXT_ACTION)
        return self._messages(run)

    def messages(self, run: Run) -> tuple[Message, ...]:
        """The messages of the request that the run would send now."""
        if self._flat is None:
            return self._messages(run)
        return (Message("user", run.goal.system + "".join(self._flat.items(run.history)) + NEXT_ACTION),)

    def _messages(self, run: Run) -> tuple[Message, ...]:
        return (Message("system", run.goal.system), *self._turns.items(run.history))
