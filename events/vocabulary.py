"""Every event of both loops, as frozen tagged structs: what happened, never what it led to.

An *observed* event came from outside (a reply, a result, the clock, the user) and can't be computed
again. A *decided* event follows from what came before it; it is recorded for reading and computed
anew when a log is verified. Text lies once, in the observed event that brought it.

The names, the fields and the values of `row` and `to` are on the wire: a change to one is a change
of schema, with an upcaster (see `stepfold.events.upcasters`).
"""

from typing import get_args

from msgspec import Raw, Struct

from stepfold.events.configuration import NULL as NULL
from stepfold.events.configuration import Config, Manifest

VERSION = 1
"""The schema version this engine writes. New kinds and fields don't raise it; changed meanings do."""


class Event(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="kind"):
    """The envelope of every line.

    `v` is the schema version, `seq` counts from 0 without a gap, `step` is 0 before the first step,
    `ts` is RFC 3339 in UTC with microseconds (decided events take that of the last observed one).
    """

    v: int
    run_id: str
    seq: int
    step: int
    ts: str


class Observed(Event, frozen=True, gc=False, omit_defaults=True):
    """Came from outside. `key` names the effect it answers; empty when nobody asked."""

    key: str = ""


class Decided(Event, frozen=True, gc=False, omit_defaults=True):
    """Follows from the log. `row` is the row of the table that fired, `to` the new state if it changed."""

    row: str
    to: str = ""


class Section(Struct, frozen=True, gc=False, omit_defaults=True):
    """A named text of the engine's own. `text` is there only where the digest is new in the run."""

    name: str
    digest: str
    text: str = ""


class ToolCall(Struct, frozen=True, gc=False, omit_defaults=True):
    """A call as the model gave it: its own id, and the arguments as the text it wrote."""

    id: str
    name: str
    arguments: str


class Message(Struct, frozen=True, gc=False, omit_defaults=True):
    """One chat message, in the field's terms. `tool_call_id` pairs a `tool` message with its call."""

    role: str
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""


class ChildUsage(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a sub-agent's run has cost, for its parent to add to its own."""

    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


NO_CHILD = ChildUsage()
"""The default of tools that are no sub-agents: one object, so that `omit_defaults` leaves it out."""


class Found(Struct, frozen=True, gc=False, omit_defaults=True):
    """What an import noticed: its kind, how often, where (the first few places), and a word on it."""

    what: str
    count: int = 1
    where: tuple[str, ...] = ()
    detail: str = ""


class Tally(Struct, frozen=True, gc=False, omit_defaults=True):
    """How many of something."""

    what: str
    count: int


class Score(Struct, frozen=True, gc=False, omit_defaults=True):
    """A verdict on a run that was given after it, by another program: never the run's status."""

    name: str
    value: str


class Command(Struct, frozen=True, gc=False, omit_defaults=True):
    """A steering command: `pause`, `resume`, `cancel`, `inject` or `redirect`, with its text."""

    name: str
    text: str = ""


# --- observed ---------------------------------------------------------------------------------------


class Reseal(Struct, frozen=True, gc=False, omit_defaults=True):
    """A log that was edited by hand and sealed anew: the first `seq` that differs, and the reason given."""

    seq: int
    why: str


class RunStarted(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The first event of every log. `parent` is the run that started this one, if any.

    A fork names its `source`, and shares that run's events below `source_seq`; from there on `forked`
    is the configuration, where it differs, and `forked_system` the text of the system turn.
    """

    config: Config
    engine: str
    input: tuple[Message, ...] = ()
    parent: str = ""
    parent_call: str = ""
    source: str = ""
    source_seq: int = 0
    forked: Config | None = None
    forked_system: str = ""
    resealed: tuple[Reseal, ...] = ()


class RunReopened(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A later process took the run up again; the time between does not count against a deadline."""


class LogRepaired(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """What a crash had left unequal and a later life has mended, before it went on.

    A torn last line of `torn_bytes` was cut; `restored` lines that only SQLite held are back in the
    journal; `indexed` lines were copied into SQLite, and `dropped` from it.
    """

    torn_bytes: int = 0
    restored: int = 0
    indexed: int = 0
    dropped: int = 0


class SandboxProbed(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """Which sandbox this process found: `bubblewrap`, `landlock`, `none` (waived) or empty (missing)."""

    backend: str
    why: str = ""


class ConstraintProbed(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """Under which form this life's server keeps to what may be said next; `none`, with `why`, under no one.

    `union` and `nested` are JSON Schemas, `grammar` is GBNF; see `stepfold.engine.models.constraints`.
    """

    form: str
    why: str = ""


class ProjectListed(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The files that a constrained model may name: all there are at first, then what came and what is `gone`.

    `whole` is False where there are too many to be told: from there on a path is any text.
    """

    files: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    whole: bool = True


class ToolsListed(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The tools that an MCP server offers from here on, all of them; none, with `error`, when it is gone.

    `left_out` are tools that can't be used, each with why.
    """

    server: str
    tools: tuple[Manifest, ...] = ()
    error: str = ""
    left_out: tuple[str, ...] = ()


class ModelReplied(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A reply as it landed, byte for byte, valid or not. `cache` is `hit`, `miss` or empty.

    `estimated` says that the token counts are ours, because the server gave none. `cached_tokens` are those
    of the prompt that the server had kept from before; None where it doesn't say. `first_token` is the time
    to the first piece of a stream, in seconds. `agent` is who spoke, in an imported trace of several agents.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""
    model: str = ""
    reasoning: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False
    cache: str = ""
    streamed: bool = False
    cost: float = 0.0
    agent: str = ""
    cached_tokens: int | None = None
    first_token: float = 0.0


class ModelErred(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """An attempt failed. `error` is a kind, `detail` what a person reads; `retry_after` in seconds."""

    error: str
    detail: str = ""
    retryable: bool = False
    retry_after: float = 0.0
    status: int = 0


class ModelDelta(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A piece of a streamed reply; recorded only when asked for."""

    text: str


class ToolReturned(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A result, durable as soon as it lands. `size` and `digest` are of the whole when it was capped.

    `call_id` is there where no call of the log has it: an imported result whose call is not in its file.
    """

    content: str
    error: str = ""
    size: int = 0
    digest: str = ""
    child: ChildUsage = NO_CHILD
    call_id: str = ""


class ToolErred(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A tool raised. `fatal` marks what no policy may turn into a result."""

    error: str
    detail: str = ""
    fatal: bool = False
    child: ChildUsage = NO_CHILD


class EffectLost(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """On resume: the effect was in flight when the process died, and may not run twice."""


class WorkerSpent(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """What one reply to a worker has cost. `worker` is the key of the worker's call.

    The landing of the call has the sum, of which only what was not told by then is added. So a worker that
    is given up has its cost in its parent's, and a budget counts what workers spend while they do.
    """

    worker: str
    child: ChildUsage


class CheckReturned(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A check ended. `exit_code` is None when it could not run; `digest` is of the whole output.

    `workspace` is the digest of the project's files after it: what the evidence is about.
    """

    exit_code: int | None
    output: str = ""
    digest: str = ""
    workspace: str = ""


class WorkspaceChanged(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The project's files are not those that the evidence is about, and no call of this run changed them."""

    workspace: str


class MemoryRecalled(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """What earlier runs of the project left that fits the goal, best first."""

    hits: tuple[str, ...] = ()


class HookReturned(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A middleware hook ended: the change it made (JSON), the control it raised, or its error."""

    change: Raw = NULL
    control: str = ""
    reason: str = ""
    error: str = ""
    detail: str = ""


class WaitEnded(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A backoff is over, or the deadline rang (`key` tells which)."""


class SteeringReceived(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One batch of steering commands; applied at the next checkpoint, whole or not at all."""

    commands: tuple[Command, ...]


class CancelRequested(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """Somebody wants the run to end: Ctrl-C, a token, a parent."""

    reason: str = ""


class UserAnswered(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The answer to `ask_user`; in a chat, what the person says next."""

    text: str


class UserLoaded(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The person of a chat loaded capabilities themselves."""

    names: tuple[str, ...]


class ApprovalAnswered(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """Whether a person lets a call run. `text` is what they said, or why nobody was asked."""

    approved: bool
    text: str = ""


class CallUndone(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A person took back what a call did to a file. `call` is the call's key, `what` was done about it."""

    call: str
    name: str
    path: str
    what: str


# --- observed, imported runs ------------------------------------------------------------------------

NO_TIME = "1970-01-01T00:00:00.000000Z"
"""The `ts` of what an imported file gives no time for. SQL shows NULL."""


class MessageRecorded(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """Somebody who is neither the model nor a tool said something in the middle of an imported run."""

    role: str
    text: str


class ToolCalled(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """An imported file says that this was called. `answer_key` is that of its result, if there is one.

    `arguments` are those of a call that no reply of the log holds; `call_id` is the file's own, or
    `answer_key` where the file has none.
    """

    call_id: str
    name: str
    answer_key: str
    arguments: str = ""


class RejectionRecorded(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The other program refused a `reply`, or a `call` before its tool ran. `error` is its own word."""

    subject: str
    error: str
    detail: str = ""
    call_id: str = ""
    name: str = ""


class TraceEnded(Observed, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The imported file has nothing more on this run: how it says that it ended, and what was noticed.

    `end_as_recorded` is in the file's words. `status` is ours, empty where the file tells too little;
    `inferred` says from what we concluded it, where the file doesn't say it itself. `unmapped` counts what
    has no place in our events.
    """

    end_as_recorded: str = ""
    status: str = ""
    inferred: str = ""
    error: str = ""
    scores: tuple[Score, ...] = ()
    findings: tuple[Found, ...] = ()
    unmapped: tuple[Tally, ...] = ()


# --- decided, both loops ----------------------------------------------------------------------------


class ModelStarted(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One logical model call begins. `digest` is of the exact request, which the log can rebuild."""

    call_id: str
    model: str
    digest: str
    max_tokens: int | None = None


class ModelCompleted(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The reply of this call is taken. Its text and usage lie in `ModelReplied`."""

    call_id: str


class ModelFailed(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The call ended without a reply. `error` is a kind; the detail lies in `ModelErred`."""

    call_id: str
    error: str


class RetryScheduled(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """Another attempt follows after `delay` seconds: the last one failed, or said nothing (`why`)."""

    call_id: str
    attempt: int
    delay: float
    why: str


class ToolStarted(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The intent to run a tool. `arguments` only where they differ from what the model wrote.

    `key` is that of the landing: step and position, because models give one call id to several calls.
    """

    call_id: str
    name: str
    key: str
    arguments: Raw = NULL
    notes: tuple[str, ...] = ()


class ToolCompleted(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The result is folded, in call order. Its text lies in `ToolReturned`.

    `error` is set when the result is an error that the model may react to; `duration` in seconds.
    """

    call_id: str
    key: str = ""
    error: str = ""
    output_bytes: int = 0
    duration: float = 0.0


class ToolFailed(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The call ended without a result. `error` is a kind; the detail lies in `ToolErred`."""

    call_id: str
    error: str
    key: str = ""
    duration: float = 0.0


# --- decided, goal loop -----------------------------------------------------------------------------


class ProfileInferred(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The kind of task: read off the goal, or set by the caller."""

    profile: str
    source: str


class ObservationRecorded(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """All that the transcript gained since the call's mark became its tool turn."""

    call_id: str


class ContextBuilt(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """Opens a step. The framing as named sections, texts only where new; `tokens` of the whole request."""

    tokens: int
    sections: tuple[Section, ...] = ()


class ContextCompacted(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The oldest `dropped` turns left the prompt; `kept` stay. The log keeps them all."""

    dropped: int
    kept: int


class ActionParsed(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The reply is an action. Its arguments are `reply[start:end]`, counted in characters."""

    call_id: str
    name: str
    start: int
    end: int


class ActionRejected(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The reply is no action. `error` is one of the nine names; `repair` is what the model reads next."""

    call_id: str
    error: str
    detail: str
    repair: Section


class CapabilitiesFound(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The ranked answer to a search."""

    call_id: str
    names: tuple[str, ...]


class CapabilitiesLoaded(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """What a load gave: the valid names, and the others."""

    call_id: str
    loaded: tuple[str, ...]
    failed: tuple[str, ...] = ()


class ToolRejected(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A hop of the lifecycle refused the call. `reason` says what would be right."""

    call_id: str
    name: str
    hop: str
    reason: str


class CheckStarted(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The intent to run an acceptance check. `key` is that of the landing."""

    check_id: str
    key: str


class EvidenceRecorded(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """What a check showed. Stale as soon as a later call changes the workspace."""

    check_id: str
    passed: bool
    key: str = ""


class ChecksJudged(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """Where a `verify` left the goal: the ids still unmet, and the asked-for ids that don't exist."""

    call_id: str
    unmet: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class GuardTripped(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A loop guard took over. `detail` is the reason that a guard from outside gave."""

    guard: str
    detail: str = ""


class FinishAccepted(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The goal is met: by the model's `finish`, or by what a guard found."""

    call_id: str
    by: str


class FinishRejected(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """`finish` without the evidence."""

    call_id: str
    unmet: tuple[str, ...]


class ApprovalAsked(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A call waits for a person's yes, by a `rule` of the policy. `key` is that of the answer.

    `arguments` only where what would run differs from what the model wrote.
    """

    call_id: str
    name: str
    rule: str
    key: str
    arguments: Raw = NULL


class TurnEnded(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """In a chat, `finish` ends the turn and not the run: its summary is the answer to the person."""

    call_id: str


class UserAsked(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The model asks; the question lies in the action."""

    call_id: str


class RunResumed(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The answer arrived; the run goes on after its `RunFinished(awaiting_user)`."""


class RunFinished(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The goal run ended. `status` is one of `stepfold.projections.outcome.STATUSES`."""

    status: str


# --- decided, tools loop ----------------------------------------------------------------------------


class UsageRecorded(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The usage of this call is billed; the figures lie in `ModelReplied`."""

    call_id: str


class FallbackSelected(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The next model of the list takes the call over."""

    call_id: str
    model: str


class FallbackSkipped(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A model of the list can't take the call: it lacks a capability."""

    call_id: str
    model: str
    lacks: str


class CacheHit(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The reply came from the response cache; it is not billed again."""

    call_id: str


class CacheMissed(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The response cache was asked and had nothing."""

    call_id: str


class UnknownToolCalled(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The model named a tool that isn't there. `recovery` is `fail`, `tool_error` or `rewrite:NAME`."""

    call_id: str
    name: str
    recovery: str


class ToolArgumentsRejected(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The arguments are not what the schema asks. `fatal` under the policy `fail`.

    `key` tells which call is meant where a model gave one id to several.
    """

    call_id: str
    name: str
    reason: str
    fatal: bool = False
    key: str = ""


class ToolSkipped(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """An asked-for call that never ran, so that its id still has an answer. `why` is `refused` by a hook."""

    call_id: str
    why: str


class MiddlewareStarted(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A hook is called."""

    hook: str
    name: str
    call_id: str = ""


class MiddlewareCompleted(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A hook is over; what it did lies in `HookReturned`."""

    hook: str
    name: str
    call_id: str = ""
    error: str = ""


class Steered(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A steering command reached the checkpoint."""

    command: str
    accepted: bool


class ControlApplied(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A control took effect: `stop_with_final`, `interrupt`, `paused`, `structured_with_tool_calls`."""

    control: str


class LimitReached(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A cap is used up: `model_calls`, `tool_calls`, `wall_clock`; of a goal run `tokens`, `cost` too."""

    limit: str


class SubAgentStarted(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A child run begins inside its tool's pair. `depth` counts from 1 below the root."""

    call_id: str
    child: str
    depth: int


class SubAgentCompleted(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The child run completed; its log is a run of its own."""

    call_id: str
    child: str
    depth: int


class SubAgentFailed(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The child run failed or was cut off."""

    call_id: str
    child: str
    depth: int
    error: str = ""


class NoProgress(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The run repeats itself: a `nudge` that the model reads, or a `stop`."""

    verdict: str
    message: str


class RunPaused(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The run rests until it is resumed; `checkpoint` counts its model calls so far."""

    checkpoint: int


class RunCompleted(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The tool-calling run ended well. `stop_reason` says why it stopped where it did."""

    stop_reason: str = ""


class RunFailed(Decided, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The tool-calling run ended in an error, by its kind."""

    error: str


class Unknown(Struct, frozen=True, gc=False):
    """A line of a kind that this engine doesn't know: carried along, folded over, never lost."""

    v: int
    run_id: str
    seq: int
    step: int
    ts: str
    kind: str


ObservedEvent = (
    RunStarted
    | RunReopened
    | LogRepaired
    | SandboxProbed
    | ConstraintProbed
    | ProjectListed
    | ToolsListed
    | ModelReplied
    | ModelErred
    | ModelDelta
    | ToolReturned
    | ToolErred
    | EffectLost
    | WorkerSpent
    | CheckReturned
    | WorkspaceChanged
    | MemoryRecalled
    | HookReturned
    | WaitEnded
    | SteeringReceived
    | CancelRequested
    | UserAnswered
    | UserLoaded
    | ApprovalAnswered
    | CallUndone
    | MessageRecorded
    | ToolCalled
    | RejectionRecorded
    | TraceEnded
)
DecidedEvent = (
    ModelStarted
    | ModelCompleted
    | ModelFailed
    | RetryScheduled
    | ToolStarted
    | ToolCompleted
    | ToolFailed
    | ProfileInferred
    | ObservationRecorded
    | ContextBuilt
    | ContextCompacted
    | ActionParsed
    | ActionRejected
    | CapabilitiesFound
    | CapabilitiesLoaded
    | ToolRejected
    | CheckStarted
    | EvidenceRecorded
    | ChecksJudged
    | GuardTripped
    | FinishAccepted
    | FinishRejected
    | ApprovalAsked
    | TurnEnded
    | UserAsked
    | RunResumed
    | RunFinished
    | UsageRecorded
    | FallbackSelected
    | FallbackSkipped
    | CacheHit
    | CacheMissed
    | UnknownToolCalled
    | ToolArgumentsRejected
    | ToolSkipped
    | MiddlewareStarted
    | MiddlewareCompleted
    | Steered
    | ControlApplied
    | LimitReached
    | SubAgentStarted
    | SubAgentCompleted
    | SubAgentFailed
    | NoProgress
    | RunPaused
    | RunCompleted
    | RunFailed
)
AnyEvent = ObservedEvent | DecidedEvent
"""The one union of the wire: `Unknown` is not in it, for it is what is left when none of these fits."""

OBSERVED: tuple[type[Observed], ...] = get_args(ObservedEvent)
DECIDED: tuple[type[Decided], ...] = get_args(DecidedEvent)
KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in (*OBSERVED, *DECIDED)}

BLANK = (VERSION, "", 0, 0, "")
"""The envelope of an observed event before it is stamped: handlers build `ToolReturned(*BLANK, …)`."""
