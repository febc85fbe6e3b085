"""What the shell must do next, as data. An effect is due from its started event to its landing.

`key` names the effect in the landing that answers it, and is unique within a run.
"""

from msgspec import Raw, Struct

from stepfold.events.vocabulary import NULL


class AskModel(Struct, frozen=True, gc=False, omit_defaults=True, tag=True):
    """One attempt of a model call. The request itself is built from the run, when an adapter asks."""

    key: str
    call_id: str
    call: int
    attempt: int
    model: str
    max_tokens: int | None


class CallTool(Struct, frozen=True, gc=False, omit_defaults=True, tag=True):
    """Run a tool with exactly these arguments (JSON)."""

    key: str
    call_id: str
    name: str
    arguments: bytes


class RunCheck(Struct, frozen=True, gc=False, omit_defaults=True, tag=True):
    """Run an acceptance check of the configuration."""

    key: str
    check_id: str


class RecallMemory(Struct, frozen=True, gc=False, omit_defaults=True, tag=True):
    """Ask the memory of earlier runs."""

    key: str
    query: str


class CallHook(Struct, frozen=True, gc=False, omit_defaults=True, tag=True):
    """Call one middleware hook."""

    key: str
    hook: str
    name: str
    call_id: str
    subject: Raw = NULL


class Wait(Struct, frozen=True, gc=False, omit_defaults=True, tag=True):
    """Let time pass until `until`, in microseconds since 1970 (a backoff, the deadline)."""

    key: str
    until: int


class AskApproval(Struct, frozen=True, gc=False, omit_defaults=True, tag=True):
    """Ask a person whether a call may run, with exactly these arguments (JSON)."""

    key: str
    name: str
    rule: str
    arguments: bytes


class Listen(Struct, frozen=True, gc=False, omit_defaults=True, tag=True):
    """Somebody may answer or resume; a shell with nobody there returns."""

    key: str


Effect = AskModel | CallTool | RunCheck | RecallMemory | CallHook | Wait | AskApproval | Listen
