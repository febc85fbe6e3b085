"""How the events that both loops share change the run."""

from stepfold.events.configuration import Config, GoalConfig, HarnessConfig, ImportedConfig, Manifest
from stepfold.events.vocabulary import (
    NULL,
    CancelRequested,
    EffectLost,
    Message,
    ModelCompleted,
    ModelErred,
    ModelFailed,
    ModelReplied,
    ModelStarted,
    RetryScheduled,
    RunReopened,
    RunStarted,
    SandboxProbed,
    ToolErred,
    ToolReturned,
    ToolsListed,
    ToolStarted,
    WaitEnded,
)
from stepfold.projections.effects import AskModel, CallTool, Wait
from stepfold.projections.state import Run, Slot, decided_config, in_microseconds, microseconds

SERVER_PREFIX = "mcp."
"""How the names of all capabilities begin that a server offers, `mcp.<server>.<tool>`."""

BACKOFF = "wait:"
"""How the keys of the waits before a next attempt begin."""


def run_started(run: Run, event: RunStarted) -> None:
    """Take the configuration; every loop begins in the state `opening`."""
    config = event.config
    run.run_id = event.run_id
    run.parent = event.parent
    run.source, run.source_seq = event.source, event.source_seq
    run.engine = event.engine
    run.config = config
    run.started_ts = event.ts
    run.manifests = _own_manifests(config)
    run.state = "opening"
    if event.forked is not None or event.forked_system:
        run.fork_seq, run.fork_config = event.source_seq, event.forked
        run.fork_system = event.forked_system
    if isinstance(config, GoalConfig):
        run.loop = "goal"
        run.goal.loaded.update(dict.fromkeys(config.preload))
        run.history.append(Message("user", config.goal))
        return
    run.loop = "tools" if isinstance(config, HarnessConfig) else "imported"


def _own_manifests(config: Config) -> dict[str, Manifest]:
    if isinstance(config, ImportedConfig):
        return {}
    return {manifest.name: manifest for manifest in config.manifests}


def forked(run: Run) -> None:
    """The events shared with the source are folded: from here on the fork's own configuration holds."""
    if run.fork_system:
        run.history.instruct(run.fork_system)
    if run.fork_config is not None:
        run.config = run.fork_config
        own = _own_manifests(run.config)
        run.manifests = own | {name: known for name, known in run.manifests.items() if _of_a_server(name)}


def run_reopened(run: Run, event: RunReopened) -> None:
    """A later life of the run; what is due is started again by the shell."""


def sandbox_probed(run: Run, event: SandboxProbed) -> None:
    """Remember which sandbox this process has."""
    run.backend = event.backend


def tools_listed(run: Run, event: ToolsListed) -> None:
    """A server's tools take the place of those that it offered before."""
    prefix = f"{SERVER_PREFIX}{event.server}."
    kept = {name: known for name, known in run.manifests.items() if not name.startswith(prefix)}
    listed = {manifest.name: manifest for manifest in event.tools if manifest.name.startswith(prefix)}
    run.manifests = kept | listed
    run.goal.listings += 1


def _of_a_server(name: str) -> bool:
    return name.startswith(SERVER_PREFIX)


def cancel_requested(run: Run, event: CancelRequested) -> None:
    """Rows at the checkpoints and in the waiting states act on it."""
    run.cancel = True


def model_started(run: Run, event: ModelStarted) -> None:
    """One logical call; its first attempt is due."""
    run.call += 1
    run.call_id = event.call_id
    run.attempt = 0
    run.tries = 0
    run.model_landed = None
    ask(run, event.model, event.max_tokens)


def ask(run: Run, model: str, max_tokens: int | None) -> None:
    """One more attempt is due. `tries` counts those of all models of the call, `attempt` this model's."""
    key = f"model:{run.call_id}:{run.tries}"
    run.due[key] = AskModel(key, run.call_id, run.call, run.tries, model, max_tokens)
    run.tries += 1
    run.asking = (model, max_tokens)


def model_replied(run: Run, event: ModelReplied) -> None:
    """A reply waits to be taken; it is paid for whatever becomes of it."""
    run.model_landed = event
    run.usage = run.usage.plus(event)


def model_erred(run: Run, event: ModelErred) -> None:
    """A failed attempt waits to be judged."""
    run.model_landed = event


def retry_scheduled(run: Run, event: RetryScheduled) -> None:
    """The next attempt is due, at once or after the backoff."""
    run.attempt = event.attempt
    run.model_landed = None
    if not decided_config(run).retry.sleep or event.delay <= 0:
        ask(run, *run.asking)
        return
    key = f"{BACKOFF}{run.call_id}:{event.attempt}"
    run.due[key] = Wait(key, microseconds(event.ts) + in_microseconds(event.delay))


def wait_ended(run: Run, event: WaitEnded) -> None:
    """After a backoff the attempt is due."""
    if event.key.startswith(BACKOFF):
        ask(run, *run.asking)


def model_completed(run: Run, event: ModelCompleted) -> None:
    """The reply is the loop's to read."""
    if isinstance(run.model_landed, ModelReplied):
        run.reply = run.model_landed.text
    run.model_landed = None


def model_failed(run: Run, event: ModelFailed) -> None:
    """No reply: what flies for it is given up."""
    run.fault = event.error
    run.fault_detail = run.model_landed.detail if isinstance(run.model_landed, ModelErred) else ""
    run.model_landed = None
    run.due = {key: effect for key, effect in run.due.items() if not key.startswith(("model:", BACKOFF))}


def tool_started(run: Run, event: ToolStarted) -> None:
    """A call is due, with the arguments as the model wrote them unless the gate changed them."""
    slot = slot_of(run, event.key)
    if slot is None:
        return
    slot.name = event.name
    slot.started_at = event.ts
    if event.arguments is not NULL:
        slot.arguments = bytes(event.arguments)
    run.due[slot.key] = CallTool(slot.key, slot.call_id, slot.name, slot.arguments)


def tool_landed(run: Run, event: ToolReturned | ToolErred | EffectLost) -> None:
    """A result waits in its slot until it is folded in call order."""
    slot = slot_of(run, event.key)
    if slot is not None:
        slot.landed = event
        slot.landed_at = event.ts


def slot_of(run: Run, key: str) -> Slot | None:
    """The call with that key: one of this turn, or of a worker that an earlier one dispatched."""
    for slot in (*run.slots, *run.goal.workers):
        if slot.key == key:
            return slot
    return None
