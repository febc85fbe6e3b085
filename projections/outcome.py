"""How a run ended, folded from its log: the one owner of the list of statuses and of finishes."""

from collections.abc import Iterator
from typing import Any, Literal, get_args

from msgspec import Struct

from stepfold.projections.evidence import Evidence, listed, unmet
from stepfold.projections.fold_goal import checks_of
from stepfold.projections.fold_tools import answer_of
from stepfold.projections.state import Run
from stepfold.projections.usage import Usage

Finish = Literal["completed", "missing_evidence", "awaiting_user", "cancelled", "failed"]
FINISHES: tuple[Finish, ...] = get_args(Finish)

STATUSES: dict[str, Finish] = {
    "completed": "completed",
    "missing_evidence": "missing_evidence",
    "step_cap": "missing_evidence",
    "awaiting_user": "awaiting_user",
    "paused": "awaiting_user",
    "cancelled": "cancelled",
    "failed": "failed",
    "unfinished": "failed",
    "running": "failed",
    "interrupted": "failed",
}
"""Every status of a run, and the finish that it comes under. `step_cap` has no terminal event;
`unfinished` is a log that simply stops. Who looks at the machine too, and not only at the log, calls that
`running` or `interrupted`."""

EXIT_CODES: dict[Finish, int] = {
    "completed": 0,
    "failed": 1,
    "missing_evidence": 4,
    "awaiting_user": 5,
    "cancelled": 130,
}


class LoopOutcome(Struct, frozen=True):
    """What a goal run came to.

    `steps` counts rejected replies too, `actions` only what was an action. `unmet` are the ids of the
    checks without fresh passing evidence; `evidence` the last result of each check that ran. `chat` says that
    a person is there who speaks next, so that `awaiting_user` is no question.
    """

    run_id: str
    finish: Finish
    status: str
    steps: int
    actions: int
    rejected: int
    summary: str
    unmet: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    transcript: str
    usage: Usage
    mutations: int = 0
    error: str = ""
    detail: str = ""
    guard: str = ""
    loop: str = "goal"
    limit: str = ""
    chat: bool = False

    @property
    def reason(self) -> str:
        """What went wrong: its kind, and in words where there are any."""
        return f"{self.error}: {self.detail}" if self.error and self.detail else self.error

    def as_json(self) -> dict[str, Any]:
        """The shape that `--json` prints; `trace` and `store` are added by whoever knows them."""
        return {
            "run_id": self.run_id,
            "finish": self.finish,
            "status": self.status,
            "steps": self.steps,
            "actions": self.actions,
            "rejected": self.rejected,
            "summary": self.summary,
            "unmet": list(self.unmet),
            "evidence": listed(self.evidence, self.mutations),
            "usage": {
                "model_calls": self.usage.model_calls,
                "input_tokens": self.usage.input_tokens,
                "output_tokens": self.usage.output_tokens,
                "total_tokens": self.usage.total_tokens,
                "estimated": self.usage.estimated,
                # What no server told and nothing cost is left out, not said to be 0.
                **({} if self.usage.cached_tokens is None else {"cached_tokens": self.usage.cached_tokens}),
                **({"cost": self.usage.cost} if self.usage.cost else {}),
            },
        }


def outcome(run: Run) -> LoopOutcome:
    """The outcome of a run as far as its log goes."""
    goal = run.goal
    status = run.status or "unfinished"
    if run.loop in {"tools", "imported"}:
        return _of_turns(run, status)
    return LoopOutcome(
        run_id=run.run_id,
        finish=STATUSES.get(status, "failed"),
        status=status,
        steps=run.step,
        actions=goal.actions,
        rejected=goal.rejected,
        summary=goal.summary,
        unmet=unmet(checks_of(run), goal.evidence, goal.mutations),
        evidence=tuple(goal.evidence.values()),
        transcript="\n".join(goal.transcript),
        usage=run.usage,
        mutations=goal.mutations,
        error=run.fault,
        detail=run.fault_detail,
        guard=run.fault if goal.verdict == "guard" else "",
        limit=goal.limit,
        chat=getattr(run.config, "chat", False),
    )


def _of_turns(run: Run, status: str) -> LoopOutcome:
    """A run without the strict contract, in the same shape: calls are its actions, its answer the summary.

    The summary of an imported run is how its file says that it ended.
    """
    answer = answer_of(run) if run.loop == "tools" and status == "completed" else run.goal.summary
    return LoopOutcome(
        run_id=run.run_id,
        finish=STATUSES.get(status, "failed"),
        status=status,
        steps=run.step,
        actions=run.harness.tool_calls,
        rejected=run.goal.rejected,
        summary=answer,
        unmet=(),
        evidence=(),
        transcript="\n".join(_turn_lines(run)),
        usage=run.usage,
        error=run.fault,
        detail=run.fault_detail,
        loop=run.loop,
    )


def _turn_lines(run: Run) -> Iterator[str]:
    for turn in run.history.turns:
        if turn.content:
            yield f"{turn.role}{f' {turn.tool_call_id}' if turn.tool_call_id else ''}: {turn.content}"
        for call in turn.tool_calls:
            yield f"{turn.role} calls {call.id} {call.name} {call.arguments}"


def goal_of(run: Run) -> str:
    """What a run was asked: its goal; in a tool-calling run, its first user message."""
    asked: str = getattr(run.config, "goal", "")
    return asked or next((turn.content for turn in run.history.turns if turn.role == "user"), "")
