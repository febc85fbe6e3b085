"""What a run holds: the accumulator that `evolve` adds each event to. No rule lives here."""

from datetime import UTC, datetime, timedelta
from typing import Any, Self

from msgspec import Struct

from stepfold.events.configuration import Config, GoalConfig, HarnessConfig, ImportedConfig, Manifest
from stepfold.events.vocabulary import (
    NO_CHILD,
    ApprovalAnswered,
    CheckReturned,
    Command,
    EffectLost,
    HookReturned,
    ModelErred,
    ModelReplied,
    ToolErred,
    ToolReturned,
)
from stepfold.projections.effects import Effect
from stepfold.projections.evidence import Evidence
from stepfold.projections.history import ConversationHistory
from stepfold.projections.usage import Usage

NOT_STARTED = GoalConfig(goal="")


class Action(Struct, frozen=True, gc=False):
    """The action of a step: the tool's name and its arguments as JSON text."""

    name: str
    arguments: str


class Accumulator:
    """Mutable state that can be forked: `clone` copies every slot, and lists and dicts one level deep."""

    __slots__ = ()

    def clone(self) -> Self:
        """An independent copy. Events and other frozen values are shared."""
        copy = type(self).__new__(type(self))
        names: tuple[str, ...] = self.__slots__
        for name in names:
            setattr(copy, name, _copied(getattr(self, name)))
        return copy


def _copied(value: Any) -> Any:
    match value:
        case Accumulator() | ConversationHistory():
            return value.clone()
        case list():
            return [_copied(item) for item in value]
        case dict() | set():
            return value.copy()
        case _:
            return value


class Batch(Struct, frozen=True, gc=False):
    """Steering commands that came together. `asked`: they answer a paused run, and come from its owner."""

    commands: tuple[Command, ...]
    asked: bool = False


class Slot(Accumulator):
    """One asked-for call of a turn, from its admission to its fold.

    `phase` goes from `asked` over `started` to `done`; a call that never runs goes from `asked` to
    `done`, and one that is the structured answer is `structured` until then. `row` is its answer, which
    waits until all calls before it have theirs. `refusal` is the answer that a `before_tool` hook gave in
    its place, `patch` what an `after_tool` hook made of the result, `spent` what a worker is known to have
    cost so far. The key is made of the step and the
    position in the turn: models give the same call id twice, so the id is only echoed.
    """

    __slots__ = (
        "after_hooks",
        "announced",
        "arguments",
        "before_hooks",
        "call_id",
        "child_closed",
        "key",
        "landed",
        "landed_at",
        "name",
        "patch",
        "phase",
        "refusal",
        "row",
        "spent",
        "started_at",
    )

    def __init__(self, call_id: str, name: str, arguments: bytes, key: str) -> None:
        self.call_id = call_id
        self.name = name
        self.arguments = arguments
        self.key = key
        self.phase = "asked"
        self.row: str | None = None
        self.landed: ToolReturned | ToolErred | EffectLost | None = None
        self.started_at = ""
        self.landed_at = ""
        self.patch: ToolReturned | None = None
        self.refusal = ""
        self.before_hooks = 0
        self.after_hooks = 0
        self.announced = False
        self.child_closed = False
        self.spent = NO_CHILD


class HarnessState(Accumulator):
    """What only the tool-calling loop needs.

    `hooks_done` counts, for the hook that is due now, the middlewares that have had it. `request` is
    what `before_model` hooks made of this call's request. `inbox` holds steering batches that the
    checkpoint has not reached. `final` and `structured` are the answer so far.
    """

    __slots__ = (
        "batch",
        "control",
        "deadline",
        "empty_retries",
        "failures",
        "final",
        "hook",
        "hook_landed",
        "hooks_done",
        "inbox",
        "last_batch",
        "last_failure",
        "limit",
        "miss_recorded",
        "mixed",
        "model_calls",
        "nudged_at",
        "partial",
        "pause",
        "paused_at",
        "reply",
        "request",
        "same_batches",
        "same_failures",
        "stop_reason",
        "structured",
        "tool_calls",
        "tried",
        "usage_recorded",
        "wide",
    )

    def __init__(self) -> None:
        self.model_calls = 0
        self.tool_calls = 0
        self.deadline: int | None = None
        self.tried: tuple[str, ...] = ()
        self.reply: ModelReplied | None = None
        self.partial: list[str] = []
        self.usage_recorded = False
        self.miss_recorded = False
        self.mixed = False
        self.empty_retries = 0
        self.wide: int | None = None
        self.request: bytes = b""
        self.hook: tuple[str, str, int] = ("", "", -1)
        self.hook_landed: HookReturned | None = None
        self.hooks_done: dict[str, int] = {}
        self.control: tuple[str, str] = ("", "")
        self.inbox: list[Batch] = []
        self.pause = ""
        self.paused_at = 0
        self.limit = ""
        self.stop_reason = ""
        self.final: str | None = None
        self.structured: bytes = b""
        self.batch = ""
        self.last_batch = ""
        self.last_failure = ""
        self.same_batches = 0
        self.failures = 0
        self.same_failures = 0
        self.nudged_at = (0, 0)


class GoalState(Accumulator):
    """What only the strict goal loop needs.

    `workers` are the calls whose workers have not been collected; `changes` the key and the name of each
    call that may have changed the workspace and was not undone; `turn_step` is where a chat's turn began.
    `idle` are the microseconds in which the run did not work; `limit` the budget that is used up;
    `form` how the server is told what may be said next. `fault` is the last rejection, and how often it came.
    """

    __slots__ = (
        "action",
        "actions",
        "answer",
        "approval",
        "changes",
        "check_landed",
        "checked",
        "checks_run",
        "compacted",
        "context_step",
        "cycle_runs",
        "evidence",
        "failures",
        "fault",
        "form",
        "hits",
        "idle",
        "last_rejection",
        "last_steps",
        "limit",
        "listings",
        "loaded",
        "mutations",
        "pending",
        "previous_action",
        "profile",
        "rejected",
        "rejection",
        "rejections",
        "section_inputs",
        "sections",
        "summary",
        "system",
        "system_digest",
        "texts",
        "transcript",
        "turn_step",
        "verdict",
        "workers",
    )

    def __init__(self) -> None:
        self.profile = ""
        self.hits: tuple[str, ...] = ()
        self.context_step = 0
        self.sections: tuple[tuple[str, str], ...] = ()
        self.section_inputs: tuple[Any, ...] = ()
        self.texts: dict[str, str] = {}
        self.system = ""
        self.system_digest = ""
        self.transcript: list[str] = []
        self.pending: tuple[str, int] | None = None
        self.action: Action | None = None
        self.previous_action: Action | None = None
        self.actions = 0
        self.rejected = 0
        self.listings = 0
        self.last_steps: tuple[str, ...] = ()
        self.cycle_runs: tuple[int, ...] = ()
        self.rejection = ""
        self.last_rejection = ""
        self.rejections = 0
        self.failures: dict[str, tuple[str, int]] = {}
        self.loaded: dict[str, None] = {}
        self.evidence: dict[str, Evidence] = {}
        self.mutations = 0
        self.checked: list[str] = []
        self.checks_run = 0
        self.check_landed: CheckReturned | EffectLost | None = None
        self.compacted: tuple[str, ...] = ()
        self.verdict = ""
        self.summary = ""
        self.answer: str | None = None
        self.workers: list[Slot] = []
        self.approval: ApprovalAnswered | None = None
        self.changes: list[tuple[str, str]] = []
        self.turn_step = 0
        self.idle = 0
        self.form = ""
        self.fault: tuple[str, int] = ("", 0)
        self.limit = ""


class Run(Accumulator):
    """A run, folded from its log so far. Changed only by `stepfold.projections.run.evolve`.

    `due` holds the effects in flight by key; `state` is the state of the table; `ts` is the time of
    the last observed event, and the only clock that decisions know.
    """

    __slots__ = (
        "asking",
        "attempt",
        "backend",
        "call",
        "call_id",
        "cancel",
        "config",
        "due",
        "engine",
        "fault",
        "fault_detail",
        "fork_config",
        "fork_seq",
        "fork_system",
        "goal",
        "harness",
        "history",
        "loop",
        "manifests",
        "model_landed",
        "parent",
        "reply",
        "run_id",
        "seq",
        "slots",
        "source",
        "source_seq",
        "started_ts",
        "state",
        "status",
        "step",
        "tries",
        "ts",
        "unknown_kinds",
        "usage",
    )

    def __init__(self) -> None:
        self.run_id = ""
        self.parent = ""
        self.source = ""
        self.source_seq = 0
        self.engine = ""
        self.fork_seq = -1
        self.fork_config: Config | None = None
        self.fork_system = ""
        self.loop = ""
        self.config: Config = NOT_STARTED
        self.manifests: dict[str, Manifest] = {}
        self.state = ""
        self.seq = 0
        self.step = 0
        self.ts = ""
        self.started_ts = ""
        self.due: dict[str, Effect] = {}
        self.cancel = False
        self.fault = ""
        self.fault_detail = ""
        self.status = ""
        self.backend = ""
        self.history = ConversationHistory()
        self.usage = Usage()
        self.call = 0
        self.call_id = ""
        self.attempt = 0
        self.tries = 0
        self.asking: tuple[str, int | None] = ("", None)
        self.model_landed: ModelReplied | ModelErred | None = None
        self.reply = ""
        self.slots: list[Slot] = []
        self.unknown_kinds = 0
        self.goal = GoalState()
        self.harness = HarnessState()

    @property
    def now(self) -> int:
        """`ts` in microseconds since 1970."""
        return microseconds(self.ts)


def decided_config(run: Run) -> GoalConfig | HarnessConfig:
    """The configuration of a run that our tables decide; an imported run has nothing to be decided by."""
    return NOT_STARTED if isinstance(run.config, ImportedConfig) else run.config


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LONGEST = 10**16


def microseconds(ts: str) -> int:
    """A timestamp of the log in microseconds since 1970; 0 for a text that is none, for folds never fail."""
    try:
        moment = datetime.fromisoformat(ts)
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def in_microseconds(seconds: float) -> int:
    """A duration in whole microseconds; beyond 300 years they are no longer told apart."""
    return round(max(-_LONGEST, min(_LONGEST, seconds * 1_000_000)))
