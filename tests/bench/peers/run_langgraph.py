"""LangGraph: a StateGraph and its prebuilt agent, in memory, with SqliteSaver, and with a DeltaChannel."""

# /// script
# dependencies = ["langgraph", "langgraph-checkpoint-sqlite", "langchain"]
# ///
import sqlite3
import warnings
from contextlib import closing
from typing import Annotated, Any, TypedDict

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from peer import main, result

warnings.filterwarnings("ignore")


def asks(step: int, steps: int) -> AIMessage:
    """What the model says at a step."""
    if step == steps:
        return AIMessage(content="done", id=f"a{step}")
    call = {"name": "look", "args": {"i": step}, "id": f"call_{step}"}
    return AIMessage(content="", id=f"a{step}", tool_calls=[call])


class Scripted(BaseChatModel):
    """A chat model that asks for one tool call after another."""

    steps: int
    step: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **named: Any) -> "Scripted":
        """It knows its tool."""
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **named: Any) -> ChatResult:
        said = asks(self.step, self.steps)
        self.step += 1
        return ChatResult(generations=[ChatGeneration(message=said)])


@tool
def look(i: int) -> str:
    """Read one line."""
    return result(i)


def graph(steps: int, saver: Any, channel: Any = add_messages) -> Any:
    """A graph of two nodes, as one writes it by hand."""

    class Messages(TypedDict):
        messages: Annotated[list, channel]

    numbers = iter(range(steps + 1))

    def model(state: Messages) -> Any:
        return {"messages": [asks(next(numbers), steps)]}

    def tools(state: Messages) -> Any:
        call = state["messages"][-1].tool_calls[0]
        step = call["args"]["i"]
        return {"messages": [ToolMessage(content=result(step), tool_call_id=call["id"], id=f"t{step}")]}

    built = StateGraph(Messages)
    built.add_node("model", model)
    built.add_node("tools", tools)
    built.add_edge(START, "model")
    built.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    built.add_edge("tools", "model")
    return built.compile(checkpointer=saver)


def prebuilt(steps: int, saver: Any) -> Any:
    """The agent that comes with the library."""
    from langgraph.prebuilt import create_react_agent

    return create_react_agent(Scripted(steps=steps), [look], checkpointer=saver)


def delta(steps: int, saver: Any) -> Any:
    """The graph with a channel that keeps what is new alone."""
    from langgraph.channels.delta import DeltaChannel

    def joined(state: Any, writes: Any) -> Any:
        return [*state, *(one for write in writes for one in (write if isinstance(write, list) else [write]))]

    return graph(steps, saver, DeltaChannel(joined, list))


def invoked(built: Any, steps: int) -> None:
    """Run it to its end."""
    settings = {"recursion_limit": 2 * steps + 20, "configurable": {"thread_id": "t"}}
    ended = built.invoke({"messages": [HumanMessage("go", id="h")]}, settings)
    assert len(ended["messages"]) == 2 * steps + 2


def saved(build: Any, steps: int, folder: str) -> None:
    """The same with its checkpoints in SQLite."""
    from langgraph.checkpoint.sqlite import SqliteSaver

    with closing(sqlite3.connect(f"{folder}/checkpoints.sqlite", check_same_thread=False)) as database:
        invoked(build(steps, SqliteSaver(database)), steps)


main(
    {
        "graph_memory": lambda steps, folder: invoked(graph(steps, None), steps),
        "graph_sqlite": lambda steps, folder: saved(graph, steps, folder),
        "delta_sqlite": lambda steps, folder: saved(delta, steps, folder),
        "agent_sqlite": lambda steps, folder: saved(prebuilt, steps, folder),
    }
)
