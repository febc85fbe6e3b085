"""Scripted goal runs that between them fire every row of the goal table, each a log made by the engine."""

from collections.abc import Callable
from typing import Any

from stepfold.engine.core.own_guards import provide
from stepfold.events.configuration import Budget, Guards, Retry
from stepfold.events.vocabulary import (
    BLANK,
    AnyEvent,
    ApprovalAnswered,
    CallUndone,
    CancelRequested,
    CheckReturned,
    EffectLost,
    MemoryRecalled,
    ToolErred,
    ToolReturned,
    UserAnswered,
    UserLoaded,
    WaitEnded,
    WorkspaceChanged,
)
from stepfold.projections.state import Run
from tests.house import (
    ASK,
    ASKING,
    CHAT,
    CHECKS,
    FINISH,
    LOAD,
    PROSE,
    REMEMBER,
    SEARCH,
    VERIFY,
    WORKER,
    WORKERS,
    Hands,
    Story,
    action,
    call,
    config,
    erred,
    load,
    play,
)

CANCEL = CancelRequested(*BLANK, reason="test")
RETURNED = ToolReturned(*BLANK, content="text")
RAISED = ToolErred(*BLANK, error="OSError", detail="gone")
LOST = EffectLost(*BLANK)
YES = ApprovalAnswered(*BLANK, approved=True)
NO = ApprovalAnswered(*BLANK, approved=False, text="not that one")
RM = call("shell.run", cmd="rm a.py")
PASSED = CheckReturned(*BLANK, exit_code=0)
FAILED = CheckReturned(*BLANK, exit_code=1, output="1 failed")
NO_CHECKS: dict[str, Any] = {"checks": ()}


def played(*replies: Any, **changes: Any) -> Callable[[], list[AnyEvent]]:
    """A whole run, driven."""
    settings = {
        key: value for key, value in changes.items() if key not in {"tools", "exit_codes", "cancel_at"}
    }
    hands = Hands(replies, changes.get("tools"), changes.get("exit_codes"))
    return lambda: play(config(**settings), hands, cancel_at=changes.get("cancel_at"))[1]


def told(*batches: Any, **changes: Any) -> Callable[[], list[AnyEvent]]:
    """A run made batch by batch: what is forced lands exactly when the story says."""

    def tell() -> list[AnyEvent]:
        story = Story(config(**changes))
        for batch in batches:
            story.lands(*batch) if isinstance(batch, tuple) else story.lands(batch)
        return story.events

    return tell


LOOK = call("look", path="README.md")
CHANGE = call("change", path="a.py")
BIG = call("look", text="x" * 400)


def _refuses_to_look(run: Run, name: str, arguments: dict[str, Any]) -> str:
    return "nobody looks here" if arguments.get("capability") == "look" else ""


provide("refuses_to_look", _refuses_to_look)

ALL_GUARDS = Guards(cycle=3, rejection=3, failure=3)
NOT_FOUND = {"look": lambda arguments: ToolReturned(*BLANK, content="no such file", error="NotFound")}
LONG_LINES = {"look": lambda arguments: ToolReturned(*BLANK, content="wide " * 80, error="TooWide")}
FAILED_CALL = ToolReturned(*BLANK, content="no such file", error="NotFound")

STORIES: dict[str, Callable[[], list[AnyEvent]]] = {
    "finishes with evidence": played(SEARCH, LOAD, LOOK, CHANGE, VERIFY, FINISH),
    "uses up its tokens": played(LOAD, LOOK, CHANGE, VERIFY, FINISH, budget=Budget(tokens=30)),
    "chats, and the money is spent": told(
        SEARCH, UserAnswered(*BLANK, text="again"), budget=Budget(tokens=12), **CHAT
    ),
    "finishes without any check": played(FINISH, **NO_CHECKS),
    "finish is refused until the checks pass": played(FINISH, VERIFY, FINISH),
    "evidence goes stale": played(LOAD, VERIFY, CHANGE, FINISH, VERIFY, FINISH),
    "checks fail": played(VERIFY, FINISH, FINISH, max_steps=3, exit_codes={"b": 1}),
    "a check could not run": played(VERIFY, FINISH, max_steps=2, exit_codes={"a": None}),
    "verify names checks": played(action("verify", checks=["b", "nine"]), max_steps=1),
    "verify names nothing that exists": played(action("verify", checks=["nine"]), max_steps=1),
    "never speaks JSON": played(PROSE, PROSE, "", "[]", max_steps=4),
    "repeats verify with nothing to verify": played(VERIFY, PROSE, VERIFY, **NO_CHECKS),
    "repeats a search and all passes": played(SEARCH, SEARCH),
    "repeats a search and something fails": played(SEARCH, SEARCH, SEARCH, exit_codes={"a": 1}, max_steps=3),
    "repeats a search with the evidence there": played(VERIFY, SEARCH, SEARCH),
    "repeats a search with nothing to verify": played(SEARCH, SEARCH, FINISH, **NO_CHECKS),
    "calls what is not loaded, and workers": played(LOOK, call("nine"), WORKER, max_steps=3),
    "loads what is not there": played(load("nine", "look", "look"), LOOK, VERIFY, FINISH),
    "hands a task to a worker": told(WORKER, RETURNED, FINISH, **WORKERS),
    "has two workers, and finishes when both have": told(
        WORKER, WORKER, (RETURNED,), FINISH, RETURNED, **WORKERS | {"worker_slots": 2}
    ),
    "asks for a worker of a kind that is not": told(
        action("worker_dispatch", task="count", profile="nine"), FINISH, **WORKERS
    ),
    "loses a worker": told(WORKER, LOST, FINISH, **WORKERS),
    "a worker raises": told(WORKER, RAISED, FINISH, **WORKERS),
    "is cancelled while a worker works": told(WORKER, CANCEL, **WORKERS),
    "fails while a worker works": told(WORKER, erred(retryable=False), **WORKERS | {"worker_slots": 2}),
    "uses up its steps while a worker works": told(
        WORKER, RETURNED, **WORKERS | {"worker_slots": 2, "max_steps": 1}
    ),
    "takes its last step while a worker works": told(
        WORKER, SEARCH, RETURNED, **WORKERS | {"worker_slots": 2, "max_steps": 2}
    ),
    "repeats a search while a worker works": told(
        WORKER, SEARCH, SEARCH, RETURNED, PASSED, PASSED, **WORKERS | {"worker_slots": 2, "checks": CHECKS}
    ),
    "chats": told(
        UserLoaded(*BLANK, names=("look", "nine")),
        FINISH,
        CallUndone(*BLANK, call="tool:1.0", name="fs.write", path="a.py", what="restored"),
        UserAnswered(*BLANK, text="and now?"),
        ASK,
        UserAnswered(*BLANK, text="the small one"),
        **CHAT,
    ),
    "chats, and a turn takes too long": told(
        SEARCH, UserAnswered(*BLANK, text="again"), FINISH, **CHAT | {"max_steps": 1}
    ),
    "chats, and a turn has taken too long": told(SEARCH, **CHAT | {"max_steps": 1}),
    "chats, and a change is undone": told(
        LOAD,
        *(CHANGE, RETURNED, CHANGE, RETURNED, FINISH),
        CallUndone(*BLANK, call="tool:2.0", name="change", path="a.py", what="restored"),
        **CHAT,
    ),
    "chats, goes in a circle, and then the model fails": told(
        *(PROSE, PROSE, UserAnswered(*BLANK, text="again"), erred(retryable=False)),
        **CHAT | {"guards": Guards(rejection=2)},
    ),
    "chats, and a worker is done as the model fails": told(
        *(WORKER, (erred(retryable=False), RETURNED), UserAnswered(*BLANK, text="again"), FINISH),
        **WORKERS | CHAT | {"worker_slots": 2},
    ),
    "chats, and the model fails": told(erred(retryable=False), UserAnswered(*BLANK, text="again"), **CHAT),
    "chats, and is stopped": told(CANCEL, UserAnswered(*BLANK, text="again"), CANCEL, **CHAT),
    "chats, and is stopped while the memory is asked": told(CANCEL, **CHAT | {"memory": True}),
    "asks a person for a yes": told(load("shell.run"), RM, YES, RETURNED, RM, NO, FINISH, **ASKING),
    "asks for a yes once more after a no": told(
        load("shell.run"), RM, NO, RM, YES, RETURNED, FINISH, **ASKING
    ),
    "asks for a yes to what it wrote as it should": told(
        load("shell.run"), call("shell.run", command="rm a.py"), YES, RETURNED, FINISH, **ASKING
    ),
    "is stopped while a person is asked for a yes": told(load("shell.run"), RM, CANCEL, **ASKING),
    "is stopped as a person says yes": told(load("shell.run"), RM, (YES, CANCEL), **ASKING),
    "nobody is there to say yes": told(load("shell.run"), RM, FINISH, **ASKING | {"chat": False}),
    "remembers": played(REMEMBER, VERIFY, FINISH, memory=True),
    "tools err and raise": played(
        LOAD,
        LOOK,
        CHANGE,
        VERIFY,
        FINISH,
        tools={
            "look": lambda arguments: ToolReturned(*BLANK, content="no such file", error="NotFound"),
            "change": lambda arguments: RAISED,
        },
    ),
    "a guard from outside objects": played(LOAD, LOOK, guards=Guards(own=("refuses_to_look",)), **NO_CHECKS),
    "goes in a circle": played(LOAD, *[LOOK, SEARCH] * 9, guards=ALL_GUARDS, **NO_CHECKS),
    "is rejected for the same reason": played(*[PROSE] * 9, guards=ALL_GUARDS),
    "fails in the same way": played(
        LOAD, LOOK, VERIFY, LOOK, SEARCH, LOOK, LOOK, guards=ALL_GUARDS, tools=NOT_FOUND
    ),
    "calls in vain for the same reason": played(*[call("nine")] * 4, guards=Guards(rejection=2)),
    "finishes in vain for the same reason": played(*[FINISH] * 4, guards=Guards(rejection=2)),
    "finishes in vain for two reasons": played(
        FINISH, VERIFY, FINISH, FINISH, exit_codes={"b": 1}, guards=Guards(rejection=2)
    ),
    "workers fail in the same way": told(
        WORKER, RAISED, WORKER, RAISED, **WORKERS | {"guards": Guards(failure=2)}
    ),
    "a worker may have helped": told(
        *(LOAD, LOOK, FAILED_CALL, WORKER, RETURNED, LOOK, FAILED_CALL, LOOK, FAILED_CALL),
        **WORKERS | {"guards": Guards(failure=2)},
    ),
    "has its changes verified": told(
        *(
            LOAD,
            CHANGE,
            RETURNED,
            PASSED,
            PASSED,
            CHANGE,
            FAILED_CALL,
            FINISH,
            CHANGE,
            RETURNED,
            PASSED,
            PASSED,
        ),
        *(FINISH,),
        verify_changes=True,
    ),
    "somebody else changes the files": told(
        *(VERIFY, PASSED, PASSED, WorkspaceChanged(*BLANK, workspace="fedcba9876543210")),
        *(FINISH, VERIFY, PASSED, PASSED, FINISH),
    ),
    "compacts wide lines, and many of them": played(
        LOAD, *[LOOK] * 30, VERIFY, FINISH, tools=LONG_LINES, max_steps=40, context_window=900
    ),
    "compacts": played(LOAD, *[BIG] * 12, VERIFY, FINISH, max_steps=20, context_window=900),
    "asks a person and is answered": told(
        ASK, UserAnswered(*BLANK, text="the small one"), VERIFY, PASSED, PASSED, FINISH
    ),
    "asks a person": told(ASK),
    "is cancelled while it waits for a person": told(ASK, CANCEL),
    "retries, waits, and goes on": told(
        erred(retryable=True), WaitEnded(*BLANK), FINISH, checks=(), retry=Retry(attempts=3, sleep=True)
    ),
    "retries until it gives up": told(erred(retryable=True), erred(retryable=True)),
    "gives up at once": told(erred(retryable=False)),
    "is cancelled with the first batch": played(cancel_at=0),
    "is cancelled while the memory is asked": told(CANCEL, memory=True),
    "recalls": told(MemoryRecalled(*BLANK, hits=("one",)), FINISH, memory=True, checks=()),
    "is cancelled while the model is asked": told(CANCEL),
    "is cancelled as the model fails": told((erred(retryable=True), CANCEL)),
    "is cancelled as the model answers": told((SEARCH, CANCEL)),
    "is cancelled while it waits to retry": told(
        erred(retryable=True), CANCEL, retry=Retry(attempts=3, sleep=True)
    ),
    "is cancelled while a call flies": told(LOAD, CHANGE, CANCEL),
    "is cancelled as a call lands": told(LOAD, CHANGE, (RETURNED, CANCEL)),
    "loses a call": told(LOAD, CHANGE, LOST, VERIFY, PASSED, PASSED, FINISH),
    "loses a check": told(VERIFY, LOST, PASSED, FINISH),
    "is cancelled while a check runs": told(VERIFY, CANCEL),
    "is cancelled as a check lands": told(VERIFY, (PASSED, CANCEL)),
    "is cancelled between the checks of an escalation": told(SEARCH, SEARCH, FAILED, CANCEL),
    "is cancelled as the last check of an escalation lands": told(SEARCH, SEARCH, PASSED, (PASSED, CANCEL)),
    "loses a check of an escalation": told(SEARCH, SEARCH, LOST, PASSED, FINISH),
}
