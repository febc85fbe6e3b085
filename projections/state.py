"""What a run holds: the accumulator that `evolve` adds each event to. No rule lives here."""

from datetime import datetime
from typing import Any, Self

from msgspec import Struct

from stepfold.events.configuration import Config, GoalConfig, Manifest
from stepfold.events.vocabulary import CheckReturned, EffectLost, ModelErred, ModelReplied, ToolErred, ToolReturned
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
        for name in self.__slots__:
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


class Slot(Accumulator):
    """One asked-for call of a turn, from its start to its fold.

    The key is made of the step and the position in the turn: models give the same call id twice, so
    the id is only echoed.
    """

    __slots__ = ("arguments", "call_id", "key", "landed", "landed_at", "name", "started_at")

    def __init__(self, call_id: str, name: str, arguments: bytes, key: str) -> None:
        self.call_id = call_id
        self.name = name
        self.arguments = arguments
        self.key = key
        self.landed: ToolReturned | ToolErred | EffectLost | None = None
        self.started_at = ""
        self.landed_at = ""


class GoalState(Accumulator):
    """What only the strict goal loop needs."""

    __slots__ = (
        "action",
        "actions",
        "answer",
        "check_landed",
        "checked",
        "checks_run",
        "compacted",
        "context_step",
        "evidence",
        "hits",
        "loaded",
        "mutations",
        "pending",
        "previous_action",
        "profile",
        "recalled",
        "rejected",
        "section_inputs",
        "sections",
        "summary",
        "system",
        "system_digest",
        "texts",
        "transcript",
        "verdict",
    )

    def __init__(self) -> None:
        self.profile = ""
        self.recalled = False
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
        "goal",
        "history",
        "loop",
        "manifests",
        "model_landed",
        "parent",
        "reply",
        "run_id",
        "seq",
        "slots",
        "started_ts",
        "state",
        "status",
        "step",
        "ts",
        "unknown_kinds",
        "usage",
    )

    def __init__(self) -> None:
        self.run_id = ""
        self.parent = ""
        self.engine = ""
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
        self.status = ""
        self.backend = ""
        self.history = ConversationHistory()
        self.usage = Usage()
        self.call = 0
        self.call_id = ""
        self.attempt = 0
        self.asking: tuple[str, int | None] = ("", None)
        self.model_landed: ModelReplied | ModelErred | None = None
        self.reply = ""
        self.slots: list[Slot] = []
        self.unknown_kinds = 0
        self.goal = GoalState()

    @property
    def now(self) -> int:
        """`ts` in microseconds since 1970."""
        return microseconds(self.ts)


def microseconds(ts: str) -> int:
    """A timestamp of the log in microseconds since 1970."""
    moment = datetime.fromisoformat(ts)
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond
