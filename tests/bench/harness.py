"""What a step of the tool-calling loop costs, how it grows, and whether two tools of a turn overlap.

    python tests/bench/harness.py

With STEPFOLD_LANGGRAPH set to a Python that has langgraph, the same steps as a StateGraph beside it.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.run_policy import RunConfig, RunPolicy
from stepfold.engine.runtime.tools import tool
from stepfold.events.vocabulary import BLANK, ModelReplied, ToolCall

REPEATS = 5
STEPS = (100, 1_000)
TOOL_SECONDS = 0.08
UNLIMITED = RunPolicy(max_model_calls=1_000_000, max_tool_calls=1_000_000)


class Inline:
    """Answers at once: a call of `look` each step, and words after the last."""

    name = "inline"
    reads_messages = False

    def __init__(self, steps: int, *tools: str) -> None:
        self._steps = steps
        self._tools = tools or ("look",)

    def reply(self, request: Any) -> ModelReplied:
        """The reply of this call."""
        if request.call > self._steps:
            return ModelReplied(*BLANK, text="done")
        asked = tuple(
            ToolCall(f"c{request.call}-{name}", name, f'{{"i":{request.call}}}') for name in self._tools
        )
        return ModelReplied(*BLANK, text="", tool_calls=asked, input_tokens=10, output_tokens=5)


@tool(idempotency="pure")
async def look(i: int) -> str:
    """Reads one line."""
    return f"line {i:05d}: the quick brown fox jumps over the lazy dog"


def sleeping(name: str) -> Any:
    """A tool that takes a while."""

    async def wait(i: int) -> str:
        await asyncio.sleep(TOOL_SECONDS)
        return "rested"

    return tool(wait, name=name, idempotency="pure")


async def seconds_of(steps: int, *tools: Any) -> float:
    """How long a run takes."""
    harness = AgentHarness(Inline(steps, *(t.name for t in tools)), tools, policy=UNLIMITED)
    began = time.perf_counter()
    run = await harness.invoke(config=RunConfig(run_id="bench"), messages=["go"])
    spent = time.perf_counter() - began
    assert run.tool_calls == steps * len(tools), run.tool_calls
    return spent


def microseconds_a_step(steps: int) -> float:
    """The median of a few runs."""
    return statistics.median(asyncio.run(seconds_of(steps, look)) / steps * 1e6 for _ in range(REPEATS))


def overlap() -> float:
    """Two slow tools in one turn, as a multiple of one."""
    one = asyncio.run(seconds_of(1, sleeping("a")))
    return asyncio.run(seconds_of(1, sleeping("a"), sleeping("b"))) / one


LANGGRAPH = """
import sys, time
from typing import Annotated, TypedDict
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

steps = int(sys.argv[1])

class State(TypedDict):
    messages: Annotated[list, add_messages]

asked = 0

def model(state):
    global asked
    asked += 1
    if asked > steps:
        return {"messages": [AIMessage(content="done", id=f"a{asked}")]}
    call = {"name": "look", "args": {"i": asked}, "id": f"c{asked}"}
    return {"messages": [AIMessage(content="", id=f"a{asked}", tool_calls=[call])]}

def tools(state):
    call = state["messages"][-1].tool_calls[0]
    text = f"line {call['args']['i']:05d}: the quick brown fox jumps over the lazy dog"
    return {"messages": [ToolMessage(content=text, tool_call_id=call["id"], id=f"t{call['id']}")]}

graph = StateGraph(State)
graph.add_node("model", model)
graph.add_node("tools", tools)
graph.add_edge(START, "model")
graph.add_conditional_edges("model", lambda s: "tools" if s["messages"][-1].tool_calls else END)
graph.add_edge("tools", "model")
compiled = graph.compile()
began = time.perf_counter()
out = compiled.invoke({"messages": [HumanMessage("go", id="h")]}, {"recursion_limit": 2 * steps + 20})
spent = time.perf_counter() - began
assert len(out["messages"]) == 2 * steps + 2
print(spent / steps * 1e6)
"""


def langgraph(python: str, steps: int) -> float:
    """Microseconds a step of the same work in a StateGraph, in its own process."""
    done = subprocess.run([python, "-c", LANGGRAPH, str(steps)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> int:
    """Print the figures; 1 when the cost of a step grows with the run, or the tools don't overlap."""
    asyncio.run(seconds_of(50, look))
    ours = {steps: microseconds_a_step(steps) for steps in STEPS}
    for steps, cost in ours.items():
        print(f"{steps:>6} steps: {cost:7.1f} µs a step")
    growth, ratio = ours[STEPS[1]] / ours[STEPS[0]], overlap()
    print(f"growth from {STEPS[0]} to {STEPS[1]} steps: {growth:.2f}")
    print(f"two tools of {TOOL_SECONDS * 1000:g} ms in one turn: {ratio:.2f} times one")
    python = os.environ.get("STEPFOLD_LANGGRAPH")
    if python:
        for steps in STEPS:
            theirs = langgraph(python, steps)
            share = theirs / ours[steps]
            print(f"{steps:>6} steps: LangGraph {theirs:9.1f} µs a step, ours 1/{share:.1f} of it")
    return 1 if growth > 1.5 or ratio > 1.3 else 0


if __name__ == "__main__":
    sys.exit(main())
