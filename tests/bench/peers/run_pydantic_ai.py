"""pydantic-ai: its agent, in memory. It records nothing by itself."""

# /// script
# dependencies = ["pydantic-ai-slim"]
# ///
from typing import Any

from peer import main, result
from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart, UsageLimits
from pydantic_ai.models import Model


class Scripted(Model):
    """Asks for one tool call after another."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps, self.step = steps, 0

    async def request(self, messages: Any, settings: Any, parameters: Any) -> ModelResponse:
        """At once."""
        step, self.step = self.step, self.step + 1
        if step == self.steps:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("look", {"i": step}, tool_call_id=f"call_{step}")])

    @property
    def model_name(self) -> str:
        """Any."""
        return "scripted"

    @property
    def system(self) -> str:
        """Any."""
        return "scripted"


def memory(steps: int, folder: str) -> None:
    """One run."""
    agent = Agent(Scripted(steps))

    @agent.tool_plain
    def look(i: int) -> str:
        return result(i)

    assert agent.run_sync("go", usage_limits=UsageLimits(request_limit=None)).output == "done"


main({"memory": memory})
