"""inspect_ai: a task of one sample, with its log as it writes it."""

# /// script
# dependencies = ["inspect_ai", "openai"]
# ///
from typing import Any

from inspect_ai import Task
from inspect_ai import eval as evaluated
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelAPI, ModelOutput, ModelUsage, get_model, modelapi
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool
from peer import main, result


@tool
def look() -> Any:
    """The tool of the run."""

    async def execute(i: int) -> str:
        """Read one line.

        Args:
            i: line
        """
        return result(i)

    return execute


@modelapi("scripted")
class Scripted(ModelAPI):
    """Asks for one tool call after another."""

    def __init__(self, model_name: str, *given: Any, steps: int = 0, **named: Any) -> None:
        super().__init__(model_name)
        self.steps, self.step = steps, 0

    async def generate(self, *given: Any, **named: Any) -> ModelOutput:
        """At once."""
        step, self.step = self.step, self.step + 1
        if step == self.steps:
            said = ModelOutput.from_content("scripted", "done")
        else:
            said = ModelOutput.for_tool_call("scripted", "look", {"i": step}, tool_call_id=f"call_{step}")
        said.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return said


def log(steps: int, folder: str) -> None:
    """One evaluation."""
    task = Task(
        dataset=[Sample(input="go", target="done")], solver=[use_tools(look()), generate(tool_calls="loop")]
    )
    model = get_model("scripted/model", steps=steps, memoize=False)
    (ended,) = evaluated(task, model=model, display="none", log_dir=folder, log_realtime=True)
    assert ended.status == "success", ended.error


main({"log": log})
