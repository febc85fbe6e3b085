"""A process that the kill tests start: a harness with a store, two tools and a sub-agent, begun or resumed.

    python harness_worker.py STORE STATE begin|resume

Each run of a tool is written down in STATE before it does anything, so that a second one shows.
"""

import asyncio
import os
import sys
from pathlib import Path

from stepfold.engine.models.protocol import Request
from stepfold.engine.runtime.agent_run import HarnessError
from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.middleware import RunContext
from stepfold.engine.runtime.run_policy import RunConfig, RunPolicy
from stepfold.engine.runtime.sub_agents import sub_agent
from stepfold.engine.runtime.tools import tool
from stepfold.events.vocabulary import BLANK, ModelReplied, ToolCall

TURNS = 6


class Asking:
    """Asks for the same tools every turn, and is done after the last."""

    reads_messages = False

    def __init__(self, *tools: str) -> None:
        self.name = "asking"
        self._tools = tools

    async def reply(self, request: Request) -> ModelReplied:
        """The turn of this call."""
        await asyncio.sleep(0.002)
        if request.call > TURNS:
            return ModelReplied(*BLANK, text="done")
        asked = tuple(ToolCall(f"c{n}", name, '{"input":"x"}') for n, name in enumerate(self._tools))
        return ModelReplied(*BLANK, text="", tool_calls=asked)


def worker(store: Path, state: Path) -> AgentHarness:
    """The harness: the same in every process."""

    def note(name: str, context: RunContext) -> None:
        place = context.child_run_id or context.run_id
        descriptor = os.open(state, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{name} {place}\n".encode())
        os.close(descriptor)

    @tool(idempotency="once")
    async def once(input: str, context: RunContext) -> str:
        """May not run twice."""
        note("once", context)
        await asyncio.sleep(0.003)
        return "once"

    @tool(idempotency="pure")
    async def again(input: str, context: RunContext) -> str:
        """May run as often as it likes."""
        note("again", context)
        await asyncio.sleep(0.001)
        return "again"

    policy = RunPolicy(tool_errors="return_to_model")
    child = AgentHarness(Asking("once"), [once], policy=policy)
    kid = sub_agent(child, name="kid", description="a child")
    return AgentHarness(Asking("once", "again", "kid"), [once, again, kid], policy=policy, store=store)


async def main(store: Path, state: Path, how: str) -> None:
    """Begin the run, or take it up again."""
    harness = worker(store, state)
    try:
        if how == "begin":
            await harness.invoke(config=RunConfig(run_id="r"), messages=["go"])
        else:
            await harness.resume("r")
    except HarnessError as error:
        print(error)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
