"""openai-agents: its runner, in memory and with its SQLite session."""

# /// script
# dependencies = ["openai-agents"]
# ///
import json
import os
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, SQLiteSession, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from peer import main, result

os.environ["OPENAI_API_KEY"] = "none"


class Scripted(Model):
    """Asks for one tool call after another."""

    def __init__(self, steps: int) -> None:
        self.steps, self.step = steps, 0

    async def get_response(self, *given: Any, **named: Any) -> ModelResponse:
        """At once."""
        step, self.step = self.step, self.step + 1
        if step == self.steps:
            text = ResponseOutputText(type="output_text", text="done", annotations=[])
            said: Any = ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text]
            )
        else:
            said = ResponseFunctionToolCall(
                type="function_call", call_id=f"call_{step}", name="look", arguments=json.dumps({"i": step})
            )
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *given: Any, **named: Any) -> Any:
        """Not asked for."""
        raise NotImplementedError


@function_tool
def look(i: int) -> str:
    """Read one line."""
    return result(i)


def run(steps: int, session: Any) -> None:
    """One run."""
    agent = Agent(name="a", model=Scripted(steps), tools=[look])
    settings = RunConfig(tracing_disabled=True)
    ended = Runner.run_sync(agent, "go", max_turns=steps + 5, session=session, run_config=settings)
    assert ended.final_output == "done"


main(
    {
        "memory": lambda steps, folder: run(steps, None),
        "sqlite": lambda steps, folder: run(steps, SQLiteSession("s", f"{folder}/session.sqlite")),
    }
)
