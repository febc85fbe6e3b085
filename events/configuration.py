"""What a run was started with: the settings that `RunStarted` records, and nothing that comes later.

Everything here is part of the wire format. Secrets and the environment never are: an API key is
named by its environment variable in `stepfold.toml`, and no field of these structs can hold one.
"""

from sys import intern
from typing import Literal

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import force_setattr

NULL = Raw(b"null")
"""The default of optional JSON fields: one object, so that `omit_defaults` can leave it out.

Never `Raw | None`: msgspec writes that union and then reads nothing but null back.
"""

Idempotency = Literal["pure", "idempotent", "once"]


class CheckSpec(Struct, frozen=True, gc=False, omit_defaults=True):
    """An acceptance check: a shell command whose exit code 0 is the evidence that a goal is met.

    `timeout` is in seconds.
    """

    id: str
    command: str
    timeout: float = 300.0


class Manifest(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """What is known of a tool before it runs.

    `schema` is the JSON Schema of the arguments, as bytes. `aliases` are pairs (what models write,
    what the schema calls it). `hidden` names arguments that the host injects: a model neither sees
    nor sets them. `idempotency` decides what a resume may do with a call that was cut off: `pure`
    and `idempotent` run again, `once` is reported to the model as an unknown outcome.
    """

    name: str
    description: str
    schema: Raw
    mutates: bool = False
    network: bool = False
    idempotency: Idempotency = "once"
    aliases: tuple[tuple[str, str], ...] = ()
    hidden: tuple[str, ...] = ()
    child: bool = False


class Rule(Struct, frozen=True, gc=False, omit_defaults=True):
    """One line of a policy, of commands or of capabilities, in order; `ask` leaves it to a person."""

    verdict: Literal["allow", "deny", "ask"]
    pattern: str


class Retry(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """Retry policy of a model call. Delays in seconds; `attempts` counts the first one too."""

    attempts: int = 4
    initial: float = 0.2
    multiplier: float = 2.0
    longest: float = 30.0
    longest_hint: float = 120.0
    jitter: bool = False
    sleep: bool = False


def _intern(config: Struct, *names: str) -> None:
    """Make words of a fixed choice the objects that the defaults are.

    msgspec leaves out a field whose value is its default, that very object. A word that came through
    pickle, or was put together, is an equal one: it would be written, and be left out once it was read.
    """
    for name in names:
        word = getattr(config, name)
        # Made in Python, a struct takes any value; whoever reads it back tells what is wrong with it.
        if type(word) is str:
            force_setattr(config, name, intern(word))


class Generation(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """What is asked of the model beside the prompt; None leaves it to the server.

    `response_format` is `none`, `json_object`, `json_schema` (the envelope as a schema) or `actions` (what
    may be said next, in the form that the server keeps to). `logit_bias` are pairs of a token and its bias.
    `stream` asks for the reply in pieces, of which the goal loop keeps the time to the first.
    """

    mode: Literal["text", "chat", "tools"] = "chat"
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    response_format: Literal["none", "json_object", "json_schema", "actions"] = "none"
    logit_bias: tuple[tuple[str, float], ...] = ()
    stream: bool = False

    def __post_init__(self) -> None:
        _intern(self, "mode", "response_format")


class Guards(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """`[guards]`: after how many repetitions a run that goes nowhere fails. 0 turns a guard off.

    `cycle` counts the rounds of a cycle of up to six steps, `rejection` equal rejections in a row,
    `failure` equal failures of one call. 3 is a good threshold of each. `own` names guards from outside.
    """

    cycle: int = 0
    rejection: int = 0
    failure: int = 0
    own: tuple[str, ...] = ()

    @property
    def thresholds(self) -> dict[str, int]:
        """What each guard of repetitions counts to, by its name."""
        return {"cycle": self.cycle, "rejection": self.rejection, "failure": self.failure}


NO_GUARDS = Guards()

WORDING = 3
"""The version of the engine's own sentences that new runs are made with."""

WORDING_OF_MENDS = 2
"""The first version whose repairs offer the mended reply."""

WORDING_OF_WHAT_IS_THERE = 3
"""The first version that speaks only of what there is: tools that can work here, files that are there."""


class Budget(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """`[budget]`: what a run may use up before no further model call is made; None sets no limit.

    `tokens` are prompts and replies together, `cost` is in the unit of the prices, `seconds` are those that
    the run worked: not while it waited for a person, nor between two lives. Workers spend their run's.
    """

    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None


NO_BUDGET = Budget()


def is_allowance(amount: float | None) -> bool:
    """Whether a budget can be set to it: of nothing at all no run could begin."""
    return amount is None or 0 < amount < float("inf")


def is_threshold(repetitions: int) -> bool:
    """Whether a guard can count to it: once is no repetition."""
    return repetitions == 0 or repetitions >= 2


class GoalConfig(
    Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag_field="loop", tag="goal"
):
    """Settings of a strict goal loop. Windows in tokens, timeouts in seconds.

    `wording` is the version of the engine's own sentences (transcript, framing, repair): a fold
    renders them by the version a run was made with, so that new wording never rewrites an old run.
    `preload` names capabilities that are loaded from the start, so that no step is spent on it.
    `unattended`: nobody will answer, so a constrained model is not offered `ask_user`.
    `keep` are patterns of files that `fs.write` and `fs.patch` leave as they are.
    `final_newline`: what `fs.write` writes ends in a line break. `read_first`: a file that is there has to be
    read before `fs.write` may replace it. `verify_changes`: the checks run after each call that changes
    files, and what they say stands below its result.
    `chat`: a person is there, who approves and speaks; `max_steps` are those of one turn.
    `depth` counts the runs above a worker's, and at `worker_depth` a run may dispatch none itself.
    """

    goal: str
    model: str = ""
    project: str = ""
    profile: str = ""
    max_steps: int = 12
    model_request_timeout: float = 120.0
    worker_slots: int = 0
    worker_depth: int = 0
    depth: int = 0
    chat: bool = False
    context_window: int = 262_000
    verification: Literal["commands", "manual"] = "commands"
    checks: tuple[CheckSpec, ...] = ()
    manifests: tuple[Manifest, ...] = ()
    preload: tuple[str, ...] = ()
    unattended: bool = False
    keep: tuple[str, ...] = ()
    final_newline: bool = False
    read_first: bool = False
    verify_changes: bool = False
    policy: tuple[Rule, ...] = ()
    tool_policy: tuple[Rule, ...] = ()
    guards: Guards = NO_GUARDS
    budget: Budget = NO_BUDGET
    sandbox_required: bool = True
    network: bool = False
    memory: bool = True
    generation: Generation = Generation()
    retry: Retry = Retry(attempts=3, sleep=True)
    wording: int = 1

    def __post_init__(self) -> None:
        _intern(self, "verification")


class MiddlewareSpec(Struct, frozen=True, gc=False, omit_defaults=True):
    """A middleware by name, with the hooks it has; wraps run inside the effect and leave no event."""

    name: str
    hooks: tuple[str, ...] = ()
    wraps_tool: bool = False


class ModelSpec(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A model of the fallback list, and what it can do."""

    name: str
    tools: bool = True
    structured: bool = False
    identity: str = ""


class HarnessConfig(
    Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag_field="loop", tag="tools"
):
    """Settings of a tool-calling run, as its policy and run config resolved. Durations in seconds."""

    models: tuple[ModelSpec, ...] = ()
    manifests: tuple[Manifest, ...] = ()
    middleware: tuple[MiddlewareSpec, ...] = ()
    generation: Generation = Generation(mode="tools")
    retry: Retry = Retry()
    retries_per_call: int = 3
    max_model_calls: int = 25
    max_tool_calls: int = 50
    wall_clock: float | None = None
    tool_timeout: float | None = None
    depth: int = 0
    max_depth: int = 8
    on_limit: Literal["error", "stop_with_partial"] = "error"
    unknown_tool: str = "fail"
    invalid_arguments: Literal["return_tool_error", "normalize", "fail"] = "return_tool_error"
    tool_errors: str = "fail"
    truncated_empty_retries: int = 1
    error_on_empty_response: bool = False
    steering: tuple[str, ...] = ()
    cache: bool = False
    stream: bool = False
    record_deltas: bool = False
    no_progress: bool = False
    response_schema: Raw = NULL
    response_name: str = ""
    response_strategy: Literal["none", "provider", "tool"] = "none"
    namespace: str = ""

    def __post_init__(self) -> None:
        _intern(self, "on_limit", "invalid_arguments", "response_strategy")


class ImportedConfig(
    Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag_field="loop", tag="imported"
):
    """Where an imported run comes from: another program's loop made it, and no table of ours decides it.

    `name` is what the file calls the run, `file` the file's name without its folder, `digest` that of its
    whole content. `max_steps` and `guards` are never recorded: `stepfold judge` asks with them.
    """

    format: str
    file: str
    digest: str
    name: str = ""
    goal: str = ""
    model: str = ""
    max_steps: int | None = None
    guards: Guards = NO_GUARDS


Config = GoalConfig | HarnessConfig | ImportedConfig

_decode_config = msgspec.json.Decoder(Config)


def config_from_json(text: bytes) -> Config:
    """Read a configuration as `RunStarted` holds it. Raises msgspec.ValidationError."""
    return _decode_config.decode(text)
