"""The hands of a goal run: which adapter carries out which effect."""

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from stepfold.engine.capabilities.boxes import Limits
from stepfold.engine.capabilities.checks import run_check
from stepfold.engine.capabilities.context import NO_NETWORK, CallContext, Network
from stepfold.engine.capabilities.fingerprint import fingerprint
from stepfold.engine.capabilities.memory import Memory
from stepfold.engine.capabilities.native import call
from stepfold.engine.capabilities.servers import Servers
from stepfold.engine.capabilities.workspace import Workspace
from stepfold.engine.contract.schemas import envelope_schema
from stepfold.engine.models.envelope import as_action
from stepfold.engine.models.protocol import Model, Request
from stepfold.engine.runtime.live import Landing
from stepfold.engine.runtime.undo import KEEPS, Undo
from stepfold.events.vocabulary import (
    BLANK,
    NULL,
    ApprovalAnswered,
    CheckReturned,
    MemoryRecalled,
    ModelErred,
    ModelReplied,
    ToolErred,
    ToolReturned,
    WorkspaceChanged,
)
from stepfold.projections.effects import AskApproval, AskModel, CallTool, RecallMemory, RunCheck
from stepfold.projections.evidence import workspace_of
from stepfold.projections.fold_goal import WORKER, checks_of, config_of
from stepfold.projections.fold_shared import SERVER_PREFIX
from stepfold.projections.prompt import GoalPrompt
from stepfold.projections.state import Run

HITS_AT_MOST = 3
"""How many memories of earlier runs enter the framing."""


Dispatch = Callable[[CallTool, Run], Awaitable[Landing]]
"""Runs a worker to its end."""


Approve = Callable[[AskApproval], Landing | Awaitable[Landing]]
"""Asks a person whether a call may run."""


def nobody_there(effect: AskApproval) -> ApprovalAnswered:
    """The answer in a process without a person: a chat that is resumed unattended."""
    return ApprovalAnswered(*BLANK, approved=False, text="nobody was there to be asked")


class GoalEffects:
    """Carries out the effects of goal runs of one project."""

    def __init__(
        self,
        model: Model,
        project: Path,
        memory: Memory | None,
        limits: Limits,
        dispatch: Dispatch,
        approve: Approve,
        undo: Undo,
        *,
        store: Path,
        tell: Callable[[Landing], None],
        servers: Servers,
        web: Network = NO_NETWORK,
        readable: tuple[str, ...] = (),
    ) -> None:
        self._model = model
        self._workspace = Workspace(project)
        self._memory = memory
        self._limits = limits
        self._dispatch = dispatch
        self._approve = approve
        self._undo = undo
        self._store = store
        self._tell = tell
        self._web = web
        self._readable = readable
        self._servers = servers
        self._prompt: GoalPrompt | None = None

    def perform(self, effect: Any, run: Run) -> Landing | Awaitable[Landing]:
        """Carry out one effect. What this raises lands as a failure of the effect."""
        match effect:
            case AskModel():
                return self._ask(effect, run)
            case CallTool():
                return self._tool(effect, run)
            case AskApproval():
                return self._approve(effect)
            case RunCheck():
                return self._check(effect, run)
            case RecallMemory():
                return self._recall(effect)
            case _:
                raise TypeError(f"a goal run has no effect {type(effect).__name__}")

    def _tool(self, effect: CallTool, run: Run) -> Landing | Awaitable[Landing]:
        if effect.name == "memory_write":
            return self._remember(effect, run)
        if effect.name == WORKER:
            return self._dispatch(effect, run)
        if effect.name in KEEPS and config_of(run).chat:
            return self._change(effect, run)
        return self._call(effect, run)

    def _ask(self, effect: AskModel, run: Run) -> Landing | Awaitable[Landing]:
        if self._prompt is None and getattr(self._model, "reads_messages", True):
            self._prompt = GoalPrompt(config_of(run).generation)
        reply = self._model.reply(request_of(run, effect, self._prompt))
        timeout = config_of(run).model_request_timeout
        landing = _within(reply, timeout) if isawaitable(reply) else _as_text(reply)
        known = workspace_of(run.goal.evidence, run.goal.mutations)
        return self._and_look(landing, known, run) if known else landing

    async def _and_look(self, landing: Landing | Awaitable[Landing], known: str, run: Run) -> Landing:
        """With the reply, see whether the files are still those that were verified: it may be `finish`."""
        landed = await landing if isawaitable(landing) else landing
        found = await fingerprint(self._context(run), self._store)
        if found != known:
            self._tell(WorkspaceChanged(*BLANK, workspace=found))
        return landed

    def _call(self, effect: CallTool, run: Run) -> Landing | Awaitable[Landing]:
        arguments = msgspec.json.decode(effect.arguments)
        if effect.name.startswith(SERVER_PREFIX):
            return self._servers.call(effect.name, arguments)
        return call(effect.name, arguments, self._context(run))

    def _context(self, run: Run) -> CallContext:
        return CallContext(
            workspace=self._workspace,
            sandbox=run.backend,
            memory=self._memory,
            network=self._network(config_of(run).network),
            limits=self._limits,
            readable=self._readable,
        )

    def _network(self, on: bool) -> Network:
        return self._web if self._web.on == on else replace(self._web, on=on)

    def _change(self, effect: CallTool, run: Run) -> Landing | Awaitable[Landing]:
        before = self._undo.before(effect)
        landed = self._call(effect, run)
        self._undo.keep(effect, before)
        return landed

    def _remember(self, effect: CallTool, run: Run) -> ToolReturned | ToolErred:
        if self._memory is None:
            return ToolReturned(*BLANK, content="there is no memory in this run", error="NoMemory")
        text: str = msgspec.json.decode(effect.arguments)["text"]
        self._memory.write(text, run.run_id)
        return ToolReturned(*BLANK, content="remembered for later runs of this project")

    async def _check(self, effect: RunCheck, run: Run) -> CheckReturned:
        spec = next(check for check in checks_of(run) if check.id == effect.check_id)
        shown = await run_check(spec, self._workspace, run.backend, self._limits, self._readable)
        return replace(shown, workspace=await fingerprint(self._context(run), self._store))

    def _recall(self, effect: RecallMemory) -> MemoryRecalled:
        hits = self._memory.recall(effect.query, HITS_AT_MOST) if self._memory is not None else ()
        return MemoryRecalled(*BLANK, hits=tuple(hits))


async def _within(reply: Awaitable[ModelReplied | ModelErred], seconds: float) -> ModelReplied | ModelErred:
    try:
        return _as_text(await asyncio.wait_for(reply, seconds))
    except TimeoutError:
        return ModelErred(
            *BLANK,
            error="timeout",
            detail=f"no reply within {seconds:g} s; raise loop.model_request_timeout, or ask a faster model",
        )


def _as_text(landed: ModelReplied | ModelErred) -> ModelReplied | ModelErred:
    """A structured call becomes the text that the strict parser judges, before it is recorded."""
    return as_action(landed) if isinstance(landed, ModelReplied) and landed.tool_calls else landed


def request_of(run: Run, effect: AskModel, prompt: GoalPrompt | None) -> Request:
    """The request of a model call, exactly: what `stepfold prompt` shows is built here too.

    Without a `prompt` it comes without messages, for models that don't read them.
    """
    generation = config_of(run).generation
    constrained = generation.response_format == "json_schema"
    return Request(
        model=effect.model,
        messages=() if prompt is None else prompt.messages(run),
        generation=generation,
        max_tokens=effect.max_tokens,
        characters=len(run.goal.system) + run.history.characters,
        response_schema=msgspec.Raw(envelope_schema()) if constrained else NULL,
        response_name="action" if constrained else "",
        call=effect.call,
        attempt=effect.attempt,
    )
