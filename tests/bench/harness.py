"""The tool-calling loop in memory: `python tests/bench/harness.py [--peer PYTHON_WITH_LANGGRAPH]`.

Prints µs a step near step 100 and over a run of 1,000 (a scripted model, one async tool), how long two
80 ms tools of one turn take beside one, and, where an interpreter with langgraph is named, the same
thousand steps in its StateGraph, each process in turn.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from typing import Any

from stepfold import AgentHarness, RunConfig, RunPolicy, tool
from stepfold.events.vocabulary import BLANK, ModelErred, ModelReplied, ToolCall

STEPS = 1000
PEER = """
import time
from typing import Annotated, TypedDict
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
class S(TypedDict):
    messages: Annotated[list, add_messages]
box = [0]
def model(s):
    box[0] += 1
    if box[0] > N:
        return {"messages": [AIMessage("done", id="end")]}
    return {"messages": [AIMessage("", id=f"a{box[0]}", tool_calls=[
        {"name": "look", "args": {"line": box[0]}, "id": f"c{box[0]}"}])]}
def tools(s):
    call = s["messages"][-1].tool_calls[0]
    return {"messages": [ToolMessage("a line of a file", tool_call_id=call["id"], id=f"t{box[0]}")]}
g = StateGraph(S)
g.add_node("model", model)
g.add_node("tools", tools)
g.add_edge(START, "model")
g.add_conditional_edges("model", lambda s: "tools" if s["messages"][-1].tool_calls else END)
g.add_edge("tools", "model")
graph = g.compile()
begun = time.perf_counter()
graph.invoke({"messages": [("user", "go")]}, {"recursion_limit": 10 * N})
print((time.perf_counter() - begun) / N * 1e6)
"""


class Looks:
    """Asks for one line of a file `steps` times, then answers."""

    name = "looks"
    reads_messages = False

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self.moments: list[float] = []

    def reply(self, request: Any) -> ModelReplied | ModelErred:
        self.moments.append(time.perf_counter())
        if request.call > self._steps:
            return ModelReplied(*BLANK, text="done")
        call = ToolCall(f"c{request.call}", "look", json.dumps({"line": request.call}))
        return ModelReplied(*BLANK, text="", tool_calls=(call,), input_tokens=1, output_tokens=1)


@tool(idempotency="pure")
async def look(line: int) -> str:
    """One line of a file."""
    return "a line of a file"


def run_of(steps: int) -> list[float]:
    """The moments at which the model was asked in one run."""
    model = Looks(steps)
    policy = RunPolicy(max_model_calls=steps + 1, max_tool_calls=steps)
    AgentHarness(model, [look], policy=policy).invoke_sync(messages=["go"])
    return model.moments


def pause_of(calls: int) -> float:
    """Seconds of a turn that asks for so many tools of 80 ms each."""

    @tool
    async def wait() -> str:
        """Wait a little."""
        await asyncio.sleep(0.08)
        return "waited"

    class Waits:
        name = "waits"

        def reply(self, request: Any) -> ModelReplied:
            asked = tuple(ToolCall(f"c{n}", "wait", "{}") for n in range(calls))
            return ModelReplied(*BLANK, text="", tool_calls=asked if request.call == 1 else ())

    begun = time.perf_counter()
    AgentHarness(Waits(), [wait]).invoke_sync(config=RunConfig(), messages=["go"])
    return time.perf_counter() - begun


def peer_of(python: str) -> float:
    """µs a step of the peer."""
    source = f"N = {STEPS}\n{PEER}"
    return float(subprocess.run([python, "-c", source], capture_output=True, check=True, text=True).stdout)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="an interpreter that has langgraph")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    early, late, whole, peer = [], [], [], []
    for _ in range(chosen.rounds):
        moments = run_of(STEPS)
        early.append((moments[150] - moments[50]) / 100 * 1e6)
        late.append((moments[1000] - moments[900]) / 100 * 1e6)
        whole.append((moments[-1] - moments[0]) / STEPS * 1e6)
        if chosen.peer:
            peer.append(peer_of(chosen.peer))
    ours = statistics.median(whole)
    print(f"step near 100       {statistics.median(early):10.1f} µs")
    print(f"step near 1,000     {statistics.median(late):10.1f} µs")
    print(f"step, whole run     {ours:10.1f} µs")
    print(f"two tools / one     {pause_of(2) / pause_of(1):10.2f}")
    if peer:
        theirs = statistics.median(peer)
        print(f"StateGraph, step    {theirs:10.1f} µs, {theirs / ours:.0f} times ours")


if __name__ == "__main__":
    sys.exit(main())
