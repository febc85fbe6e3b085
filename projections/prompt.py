"""The request of a model call, built from the run alone: its turns, its flat form, its digest."""

import msgspec

from stepfold.events.configuration import Generation
from stepfold.events.vocabulary import Message
from stepfold.projections.digest import digest_of
from stepfold.projections.history import ConversationHistory
from stepfold.projections.state import Run

NEXT_ACTION = "\n\nNext action (one JSON object):\n"
_TITLES = {"user": "User", "assistant": "Assistant", "tool": "Result"}
_encode = msgspec.json.Encoder().encode


def request_digest(run: Run, max_tokens: int | None) -> str:
    """The digest of all that makes the request: system turn, turns, model and options. O(1) a step."""
    options = _encode((run.config.generation, max_tokens)).decode()
    return digest_of(f"{run.goal.system_digest}\x1e{run.history.chain}\x1e{options}")


def flat_turn(turn: Message) -> str:
    """One turn of the flat form, with the blank lines before it."""
    title = _TITLES.get(turn.role, turn.role)
    if turn.role == "tool" and turn.tool_call_id:
        title = f"{title} of {turn.tool_call_id}"
    return f"\n\n{title}:\n{turn.content}"


def render_history_as_prompt(system: str, history: ConversationHistory) -> str:
    """The flat form for text-only models: the system turn first and verbatim, then every turn."""
    return system + "".join(map(flat_turn, history.turns)) + NEXT_ACTION


class FlatPrompt:
    """The flat form, extended by what is new instead of rendered anew each step."""

    def __init__(self) -> None:
        self._turns: list[str] = []
        self._generation = -1

    def render(self, system: str, history: ConversationHistory) -> str:
        """Equal to `render_history_as_prompt`; renders only the turns since the last call."""
        if self._generation != history.generation or len(self._turns) > len(history.turns):
            self._turns = []
            self._generation = history.generation
        self._turns.extend(map(flat_turn, history.turns[len(self._turns) :]))
        return system + "".join(self._turns) + NEXT_ACTION


def structured_turns(history: ConversationHistory, mode: str) -> list[Message]:
    """The turns as chat messages.

    `tools`: an action is a structured call, its observation the `tool` message paired to it; a
    rejected reply stays plain text, and what the model reads about it comes as a user turn. `chat`:
    servers without tools get user and assistant turns only.
    """
    paired: set[str] = set()
    messages = []
    for turn in history.turns:
        if mode == "tools" and turn.role == "assistant" and turn.tool_calls:
            paired.update(call.id for call in turn.tool_calls)
            messages.append(Message("assistant", "", turn.tool_calls))
        elif turn.role == "tool" and not (mode == "tools" and turn.tool_call_id in paired):
            messages.append(Message("user", f"Result of {turn.tool_call_id}:\n{turn.content}"))
        elif turn.role == "assistant":
            messages.append(Message("assistant", turn.content))
        else:
            messages.append(turn)
    return messages


def goal_messages(run: Run, generation: Generation, flat: FlatPrompt) -> tuple[Message, ...]:
    """What the model of a goal run is sent at this moment."""
    system = run.goal.system
    if generation.mode == "text":
        return (Message("user", flat.render(system, run.history)),)
    return (Message("system", system), *structured_turns(run.history, generation.mode))
