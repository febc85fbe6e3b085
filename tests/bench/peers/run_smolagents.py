"""smolagents: its tool-calling agent, in memory. It records nothing by itself."""

# /// script
# dependencies = ["smolagents"]
# ///
import json
from typing import Any

from peer import main, result
from smolagents import Model, Tool, ToolCallingAgent
from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole


class Scripted(Model):
    """Asks for one tool call after another."""

    def __init__(self, steps: int) -> None:
        super().__init__(model_id="scripted")
        self.steps, self.step = steps, 0

    def generate(self, messages: Any, **named: Any) -> ChatMessage:
        """At once."""
        step, self.step = self.step, self.step + 1
        name, arguments = ("look", {"i": step}) if step < self.steps else ("final_answer", {"answer": "done"})
        function = ChatMessageToolCallFunction(name=name, arguments=json.dumps(arguments))
        call = ChatMessageToolCall(id=f"call_{step}", type="function", function=function)
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call])


class Look(Tool):
    """Reads one line."""

    name = "look"
    description = "Read one line."
    inputs = {"i": {"type": "integer", "description": "line"}}  # noqa: RUF012
    output_type = "string"

    def forward(self, i: int) -> str:
        """The line."""
        return result(i)


def memory(steps: int, folder: str) -> None:
    """One run."""
    agent = ToolCallingAgent(tools=[Look()], model=Scripted(steps), verbosity_level=0, max_steps=steps + 5)
    assert agent.run("go") == "done"


main({"memory": memory})
