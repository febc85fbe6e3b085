"""What a run holds: the accumulator that `evolve` adds each event to. No rule lives here."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from msgspec import Struct

from stepfold.events.configuration import Config, GoalConfig, HarnessConfig, ImportedConfig, Manifest
from stepfold.events.vocabulary import (
    NO_CHILD,
    ApprovalAnswered,
    CheckReturned,
    ChildUsage,
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


SectionInputs = tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...], int, tuple[str, ...]]
"""What the framing was made of, see `fold_goal.section_inputs`."""


class Batch(Struct, frozen=True, gc=False):
    """Steering commands that came together. `asked`: they answer a paused run, and come from its owner."""

    commands: tuple[Command, ...]
    asked: bool = False


@dataclass(slots=True, eq=False)
class Slot(Accumulator):
    """One asked-for call of a turn, from its admission to its fold.

    `phase` goes from `asked` over `started` to `done`; a call that never runs goes from `asked` to
    `done`, and one that is the structured answer is `structured` until then. `row` is its answer, which
    waits until all calls before it have theirs. `refusal` is the answer that a `before_tool` hook gave in
    its place, `patch` what an `after_tool` hook made of the result, `spent` what a worker is known to have
    cost so far. The key is made of the step and the
    position in the turn: models give the same call id twice, so the id is only echoed.
    """

    call_id: str
    name: str
    arguments: bytes
    key: str
    phase: str = "asked"
    row: str | None = None
    landed: ToolReturned | ToolErred | EffectLost | None = None
    started_at: str = ""
    landed_at: str = ""
    patch: ToolReturned | None = None
    refusal: str = ""
    before_hooks: int = 0
    after_hooks: int = 0
    announced: bool = False
    child_closed: bool = False
    spent: ChildUsage = NO_CHILD


@dataclass(slots=True, eq=False)
class HarnessState(Accumulator):
    """What only the tool-calling loop needs.

    `hooks_done` counts, for the hook that is due now, the middlewares that have had it. `request` is
    what `before_model` hooks made of this call's request. `inbox` holds steering batches that the
    checkpoint has not reached. `final` and `structured` are the answer so far.
    """

    model_calls: int = 0
    tool_calls: int = 0
    deadline: int | None = None
    tried: tuple[str, ...] = ()
    reply: ModelReplied | None = None
    partial: list[str] = field(default_factory=list)
    usage_recorded: bool = False
    miss_recorded: bool = False
    mixed: bool = False
    empty_retries: int = 0
    wide: int | None = None
    request: bytes = b""
    hook: tuple[str, str, int] = ("", "", -1)
    hook_landed: HookReturned | None = None
    hooks_done: dict[str, int] = field(default_factory=dict)
    control: tuple[str, str] = ("", "")
    inbox: list[Batch] = field(default_factory=list)
    pause: str = ""
    paused_at: int = 0
    limit: str = ""
    stop_reason: str = ""
    final: str | None = None
    structured: bytes = b""
    batch: str = ""
    last_batch: str = ""
    last_failure: str = ""
    same_batches: int = 0
    failures: int = 0
    same_failures: int = 0
    nudged_at: tuple[int, int] = (0, 0)


@dataclass(slots=True, eq=False)
class GoalState(Accumulator):
    """What only the strict goal loop needs.

    `workers` are the calls whose workers have not been collected; `changes` the key and the name of each
    call that may have changed the workspace and was not undone; `turn_step` is where a chat's turn began.
    `idle` are the microseconds in which the run did not work; `limit` the budget that is used up;
    `form` how the server is told what may be said next, and `files` those that may be named then, None for
    any; `was_capped` says that a result was too long to be told whole; `seen` are the files whose content
    the model knows, and `told_files` those that it has read since the last change. `fault` is the last
    rejection, and how often it came.
    `told` are the last steps with what came of them, and `again` the tools of those since which each step
    has been like one of them; both are kept only where the offer is made from them.
    """

    profile: str = ""
    hits: tuple[str, ...] = ()
    context_step: int = 0
    sections: tuple[tuple[str, str], ...] = ()
    section_inputs: SectionInputs | None = None
    texts: dict[str, str] = field(default_factory=dict)
    system: str = ""
    system_digest: str = ""
    transcript: list[str] = field(default_factory=list)
    pending: tuple[str, int] | None = None
    action: Action | None = None
    previous_action: Action | None = None
    actions: int = 0
    rejected: int = 0
    listings: int = 0
    last_steps: tuple[str, ...] = ()
    cycle_runs: tuple[int, ...] = ()
    told: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    rejection: str = ""
    last_rejection: str = ""
    rejections: int = 0
    failures: dict[str, tuple[str, int]] = field(default_factory=dict)
    loaded: dict[str, None] = field(default_factory=dict)
    evidence: dict[str, Evidence] = field(default_factory=dict)
    mutations: int = 0
    checked: list[str] = field(default_factory=list)
    checks_run: int = 0
    check_landed: CheckReturned | EffectLost | None = None
    compacted: tuple[str, ...] = ()
    verdict: str = ""
    summary: str = ""
    answer: str | None = None
    workers: list[Slot] = field(default_factory=list)
    approval: ApprovalAnswered | None = None
    changes: list[tuple[str, str]] = field(default_factory=list)
    turn_step: int = 0
    idle: int = 0
    form: str = ""
    files: tuple[str, ...] | None = None
    files_at_start: tuple[str, ...] = ()
    seen: dict[str, None] = field(default_factory=dict)
    told_files: dict[str, None] = field(default_factory=dict)
    was_capped: bool = False
    fault: tuple[str, int] = ("", 0)
    limit: str = ""


@dataclass(slots=True, eq=False)
class Run(Accumulator):
    """A run, folded from its log so far. Changed only by `stepfold.projections.run.evolve`.

    `due` holds the effects in flight by key; `state` is the state of the table; `ts` is the time of
    the last observed event, and the only clock that decisions know.
    """

    run_id: str = ""
    parent: str = ""
    source: str = ""
    source_seq: int = 0
    engine: str = ""
    fork_seq: int = -1
    fork_config: Config | None = None
    fork_system: str = ""
    loop: str = ""
    config: Config = NOT_STARTED
    manifests: dict[str, Manifest] = field(default_factory=dict)
    state: str = ""
    seq: int = 0
    step: int = 0
    ts: str = ""
    started_ts: str = ""
    due: dict[str, Effect] = field(default_factory=dict)
    cancel: bool = False
    fault: str = ""
    fault_detail: str = ""
    status: str = ""
    backend: str = ""
    history: ConversationHistory = field(default_factory=ConversationHistory)
    usage: Usage = field(default_factory=Usage)
    call: int = 0
    call_id: str = ""
    attempt: int = 0
    tries: int = 0
    asking: tuple[str, int | None] = ("", None)
    model_landed: ModelReplied | ModelErred | None = None
    reply: str = ""
    slots: list[Slot] = field(default_factory=list)
    unknown_kinds: int = 0
    goal: GoalState = field(default_factory=GoalState)
    harness: HarnessState = field(default_factory=HarnessState)

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
