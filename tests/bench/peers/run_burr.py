"""Burr: its application with a state that grows with the conversation, and with one that stays small."""

# /// script
# dependencies = ["burr[tracking]", "aiosqlite"]
# ///
from functools import partial

from burr.core import ApplicationBuilder, State, action, default, expr
from burr.core.persistence import SQLitePersister
from peer import main, result


def run(steps: int, folder: str, *, grows: bool, saved: bool) -> None:
    """One application; saved into SQLite at every action if it is wanted."""

    def kept(state: State, message: dict[str, object]) -> State:
        return state.append(messages=message) if grows else state.update(messages=[message])

    @action(reads=["step", "messages"], writes=["step", "call", "messages"])
    def model(state: State) -> State:
        step = state["step"]
        call = {"name": "look", "arguments": {"i": step}} if step < steps else None
        return kept(state.update(step=step + 1, call=call), {"role": "assistant", "call": call})

    @action(reads=["call", "messages"], writes=["messages"])
    def tool(state: State) -> State:
        return kept(state, {"role": "tool", "content": result(state["call"]["arguments"]["i"])})

    @action(reads=["messages"], writes=["out"])
    def finish(state: State) -> State:
        return state.update(out="done")

    built = (
        ApplicationBuilder()
        .with_actions(model=model, tool=tool, finish=finish)
        .with_transitions(("model", "tool", expr("call is not None")), ("model", "finish", default))
        .with_transitions(("tool", "model"))
        .with_state(step=0, messages=[], call=None)
        .with_entrypoint("model")
        .with_identifiers(app_id="run")
    )
    if saved:
        persister = SQLitePersister(db_path=f"{folder}/states.sqlite", table_name="states")
        persister.initialize()
        built = built.with_state_persister(persister)
    _, _, state = built.build().run(halt_after=["finish"])
    assert state["out"] == "done"


main(
    {
        "memory": partial(run, grows=True, saved=False),
        "memory_small_state": partial(run, grows=False, saved=False),
        "sqlite": partial(run, grows=True, saved=True),
    }
)
