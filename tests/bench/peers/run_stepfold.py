"""stepfold: the tool-calling loop in memory, and recorded at two levels of durability."""

import json
import sys
from pathlib import Path

from peer import main, result

sys.path.insert(0, str(Path(__file__).parents[3]))

from stepfold import AgentHarness, RunPolicy, tool
from stepfold.events.store import Store
from stepfold.events.vocabulary import BLANK, ModelReplied, ToolCall
from tests.bench.workload import persisted


class Looks:
    """Looks once a step."""

    name = "looks"

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def reply(self, request) -> ModelReplied:
        """At once."""
        if request.call > self.steps:
            return ModelReplied(*BLANK, text="done")
        call = ToolCall(f"c{request.call}", "look", json.dumps({"i": request.call}))
        return ModelReplied(*BLANK, text="", tool_calls=(call,), input_tokens=1, output_tokens=1)


@tool(idempotency="pure")
def look(i: int) -> str:
    """Read one line."""
    return result(i)


def _tools(steps: int, store: Store | None) -> None:
    policy = RunPolicy(max_model_calls=steps + 1, max_tool_calls=steps)
    AgentHarness(Looks(steps), [look], policy=policy, store=store).invoke_sync(messages=["go"])


def _recorded(steps: int, folder: str) -> None:
    with Store(Path(folder)) as store:
        _tools(steps, store)


main(
    {
        "memory": lambda steps, folder: _tools(steps, None),
        "recorded": _recorded,
        "strict_recorded": lambda steps, folder: persisted(Path(folder), steps) and None,
        "strict_full": lambda steps, folder: persisted(Path(folder), steps, "full") and None,
    }
)
