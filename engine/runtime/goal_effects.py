"""The hands of a goal run: which adapter carries out which effect."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from stepfold.engine.capabilities.boxes import Limits
from stepfold.engine.capabilities.checks import run_check
from stepfold.engine.capabilities.context import NO_NETWORK, CallContext, Network
from stepfold.engine.capabilities.files import kept, unread
from stepfold.engine.capabilities.fingerprint import fingerprint
from stepfold.engine.capabilities.lifecycle import WRITING
from stepfold.engine.capabilities.memory import Memory
from stepfold.engine.capabilities.native import call
from stepfold.engine.capabilities.project_files import news_of
from stepfold.engine.capabilities.servers import Servers
from stepfold.engine.capabilities.workspace import Workspace
from stepfold.engine.contract.schemas import envelope_schema
from stepfold.engine.core.offer import offered
from stepfold.engine.models.constraints import constraint
from stepfold.engine.models.envelope import as_action
from stepfold.engine.models.prices import NO_PRICES, Price, priced
from stepfold.engine.models.protocol import Model, Request, StreamingModel
from stepfold.engine.runtime.live import Landing
from stepfold.engine.runtime.undo import KEEPS, Undo
from stepfold.events.vocabulary import (
    BLANK,
    NULL,
    ApprovalAnswered,
    CheckReturned,
    MemoryRecalled,
    ModelDelta,
    ModelErred,
    ModelReplied,
    ToolErred,
    ToolReturned,
    WorkspaceChanged,
)
from stepfold.projections.effects import AskApproval, AskModel, CallTool, RecallMemory, RunCheck
from stepfold.projections.evidence import workspace_of
from stepfold.projections.fold_goal import WORKER, checks_of, config_of, may_change_files
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
        prices: Mapping[str, Price] = NO_PRICES,
    ) -> None:
        self._model = model
        self._prices = prices
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
            case CallTool() if may_change_files(run, effect.name):
                return self._then_list(self._tool(effect, run), run)
            case CallTool():
                return self._tool(effect, run)
            case AskApproval():
                return self._approve(effect)
            case RunCheck():
                return self._then_list(self._check(effect, run), run)
            case RecallMemory():
                return self._recall(effect)
            case _:
                raise TypeError(f"a goal run has no effect {type(effect).__name__}")

    def _then_list(self, landing: Landing | Awaitable[Landing], run: Run) -> Landing | Awaitable[Landing]:
        """Before the landing of what may have made files, tell of them, if the model is to name no others."""
        return landing if run.goal.files is None else self._listed(landing, run)

    async def _listed(self, landing: Landing | Awaitable[Landing], run: Run) -> Landing:
        landed = await landing if isawaitable(landing) else landing
        news = await asyncio.to_thread(news_of, self._workspace, run.goal.files)
        if news is not None:
            self._tell(news)
        return landed

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
        request = request_of(run, effect, self._prompt)
        reply: ModelReplied | ModelErred | Awaitable[ModelReplied | ModelErred]
        if request.generation.stream and hasattr(self._model, "stream"):
            reply = _whole(cast("StreamingModel", self._model), request)
        else:
            reply = self._model.reply(request)
        timeout = config_of(run).model_request_timeout
        take = partial(_taken, asked=effect.model, prices=self._prices)
        landing = _within(reply, timeout, take) if isawaitable(reply) else take(reply)
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
        refusal = self._refusal(effect.name, arguments, run)
        return call(effect.name, arguments, self._context(run)) if refusal is None else refusal

    def _refusal(self, name: str, arguments: dict[str, Any], run: Run) -> ToolReturned | None:
        """What of the settings only a look at the files can tell: the lifecycle has judged the rest."""
        config = config_of(run)
        refusal = None
        if name in WRITING and config.keep:
            refusal = kept(arguments["path"], config.keep, self._workspace)
        if name == "fs.write" and config.read_first:
            refusal = refusal or unread(arguments["path"], run.goal.seen, self._workspace)
        return refusal

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


async def _whole(model: StreamingModel, request: Request) -> ModelReplied | ModelErred:
    """A reply that came in pieces, when its last has come."""
    async for piece in model.stream(request):
        if not isinstance(piece, ModelDelta):
            return piece
    detail = "the stream ended without a reply"
    return ModelErred(*BLANK, error="bad_response", detail=detail, retryable=True)


async def _within(
    reply: Awaitable[ModelReplied | ModelErred],
    seconds: float,
    take: Callable[[ModelReplied | ModelErred], ModelReplied | ModelErred],
) -> ModelReplied | ModelErred:
    try:
        return take(await asyncio.wait_for(reply, seconds))
    except TimeoutError:
        return ModelErred(
            *BLANK,
            error="timeout",
            detail=f"no reply within {seconds:g} s; raise loop.model_request_timeout, or ask a faster model",
        )


def _taken(
    landed: ModelReplied | ModelErred, *, asked: str, prices: Mapping[str, Price]
) -> ModelReplied | ModelErred:
    """As it is recorded: a structured call as the text that the strict parser judges, and with its cost."""
    return priced(as_action(landed), asked, prices) if isinstance(landed, ModelReplied) else landed


def request_of(run: Run, effect: AskModel, prompt: GoalPrompt | None) -> Request:
    """The request of a model call, exactly: what `stepfold prompt` shows is built here too.

    Without a `prompt` it comes without messages, for models that don't read them.
    """
    generation = config_of(run).generation
    schema, grammar = _constraint(run, generation.response_format)
    return Request(
        model=effect.model,
        messages=() if prompt is None else prompt.messages(run),
        generation=generation,
        max_tokens=effect.max_tokens,
        characters=len(run.goal.system) + run.history.characters,
        response_schema=schema,
        response_name="" if schema is NULL else "action",
        grammar=grammar,
        call=effect.call,
        attempt=effect.attempt,
    )


def _constraint(run: Run, wanted: str) -> tuple[msgspec.Raw, str]:
    """The JSON Schema and the grammar that the reply is held to: one of the two, or neither."""
    match wanted:
        case "json_schema":
            return msgspec.Raw(envelope_schema()), ""
        case "actions":
            return constraint(run.goal.form, offered(run))
        case _:
            return NULL, ""
