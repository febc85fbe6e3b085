"""The strict goal loop as a table: its states, its rows, and what each state sees.

Read a row as: in `source`, seeing `on`, if the guards hold, record the event and move to `to`. The
first row that fires wins; the last one for each (source, word) is unguarded. Row and state names are
on the wire. `stepfold diagram` draws this table.
"""

from collections.abc import Callable
from typing import Any

from stepfold.engine.core import goal_emits as emit
from stepfold.engine.core import goal_sees as sees
from stepfold.engine.core import guards as g
from stepfold.engine.core.machine import always, build, emits, rests, silent
from stepfold.events import vocabulary as v
from stepfold.projections.state import Run

STATES = (
    "opening",
    "framing",
    "asking",
    "validating",
    "acting",
    "approving",
    "calling",
    "verifying",
    "escalating",
    "closing",
    "awaiting_user",
    "completed",
    "handed_back",
    "exhausted",
    "cancelled",
    "failed",
)

ROWS = (
    emits("infer", "auto", "opening", v.ProfileInferred, emit.profile, to="framing"),
    # Workers, whose outcomes are collected at the next step, or where something waits for them.
    emits("collect", "any", "framing acting closing", v.ToolCompleted, emit.worker_completed, when=[g.worker_returned]),
    emits("collect_failed", "any", "framing acting closing", v.ToolFailed, emit.worker_failed, when=[g.worker_failed]),
    emits("cancel_worker", "auto", "framing closing", v.ToolFailed, emit.worker_cancelled, when=[g.cancel_requested, g.workers_open]),
    emits("drop_worker", "auto", "closing", v.ToolFailed, emit.worker_cancelled, when=[g.workers_open]),
    rests("await_slot", "auto", "framing", when=[g.slots_taken]),
    rests("await_last", "auto", "framing", when=[g.workers_open, g.context_unbuilt, g.steps_spent]),
    # The top of a step, in this order whatever arm came before.
    emits("flush", "auto", "framing closing", v.ObservationRecorded, emit.observation, when=[g.observation_pending]),
    silent("stop", "auto", "framing", "closing", when=[g.cancel_requested]),
    emits("rest", "auto", "closing", v.RunFinished, always(v.RunFinished, status="awaiting_user"), to="awaiting_user", when=[g.chatting]),
    emits("cancel", "auto", "closing", v.RunFinished, always(v.RunFinished, status="cancelled"), to="cancelled", when=[g.cancel_requested]),
    emits("circle", "auto", "framing", v.GuardTripped, always(v.GuardTripped, guard="cycle_repeats"), to="closing", when=[g.context_unbuilt, g.cycle_repeats]),
    emits("same_rejection", "auto", "framing", v.GuardTripped, always(v.GuardTripped, guard="rejection_repeats"), to="closing", when=[g.context_unbuilt, g.rejection_repeats]),
    emits("same_failure", "auto", "framing", v.GuardTripped, always(v.GuardTripped, guard="failure_repeats"), to="closing", when=[g.context_unbuilt, g.failure_repeats]),
    emits("budget_spent", "auto", "framing", v.LimitReached, emit.limit, to="closing", when=[g.context_unbuilt, g.budget_spent]),
    emits("turn_spent", "auto", "framing", v.GuardTripped, always(v.GuardTripped, guard="turn_spent"), to="closing", when=[g.chatting, g.context_unbuilt, g.steps_spent]),
    emits("exhaust", "auto", "framing", v.GuardTripped, always(v.GuardTripped, guard="steps_spent"), to="exhausted", when=[g.context_unbuilt, g.steps_spent]),
    rests("recalling", "auto", "framing", when=[g.memory_unrecalled]),
    emits("pack", "auto", "framing", v.ContextBuilt, emit.context, when=[g.context_unbuilt]),
    emits("compact", "auto", "framing", v.ContextCompacted, emit.compaction, when=[g.over_window]),
    emits("ask", "auto", "framing", v.ModelStarted, emit.ask, to="asking"),
    # One model call.
    emits("complete", "ModelReplied", "asking", v.ModelCompleted, emit.completed, to="validating"),
    emits("cancel_ask", "auto ModelErred", "asking", v.ModelFailed, emit.model_cancelled, to="closing", when=[g.cancel_requested]),
    emits("retry", "ModelErred", "asking", v.RetryScheduled, emit.retry, when=[g.retryable]),
    emits("give_up", "ModelErred", "asking", v.ModelFailed, emit.model_failed, to="closing"),
    rests("asking", "auto", "asking"),
    # The contract.
    emits("repair", "rejected", "validating", v.ActionRejected, emit.rejected, to="framing"),
    emits("accept", "accepted", "validating", v.ActionParsed, emit.accepted, to="acting"),
    # The eight arms.
    silent("drop_action", "any", "acting", "closing", when=[g.cancel_requested]),
    rests("await_workers", "verify finish ask_user", "acting", when=[g.workers_open]),
    rests("await_before_escalating", "capability_search", "acting", when=[g.workers_open, g.action_repeats]),
    emits("own_guard", "any", "acting", v.GuardTripped, emit.own_guard, to="closing", when=[g.own_guard_objects]),
    emits("escalate", "capability_search", "acting", v.GuardTripped, always(v.GuardTripped, guard="search_repeats"), to="escalating", when=[g.action_repeats, g.checks_missing]),
    emits("search_ends", "capability_search", "acting", v.FinishAccepted, emit.finish_accepted("search_repeats"), to="closing", when=[g.action_repeats, g.checks_configured]),
    emits("search", "capability_search", "acting", v.CapabilitiesFound, emit.found, to="framing"),
    emits("load", "capability_load", "acting", v.CapabilitiesLoaded, emit.loaded, to="framing"),
    emits("reject_call", "capability_call", "acting", v.ToolRejected, emit.call_rejected, to="framing", when=[g.call_refused]),
    emits("ask_approval", "capability_call", "acting", v.ApprovalAsked, emit.approval_asked, to="approving", when=[g.needs_approval]),
    emits("call", "capability_call", "acting", v.ToolStarted, emit.call, to="calling"),
    emits("refuse_worker", "worker_dispatch", "acting", v.ToolRejected, emit.worker_refused, to="framing", when=[g.no_worker_free]),
    emits("dispatch", "worker_dispatch", "acting", v.ToolStarted, emit.dispatch, to="framing"),
    emits("hand_back", "verify", "acting", v.GuardTripped, always(v.GuardTripped, guard="verify_repeats"), to="closing", when=[g.action_repeats, g.has_no_automatic_verifier_evidence]),
    emits("verify", "verify", "acting", v.CheckStarted, emit.check_started, to="verifying", when=[g.check_left]),
    emits("verify_nothing", "verify", "acting", v.ChecksJudged, emit.judged, to="framing"),
    emits("remember", "memory_write", "acting", v.ToolStarted, emit.remember, to="calling"),
    emits("ask_user", "ask_user", "acting", v.UserAsked, emit.asked, to="closing"),
    emits("end_turn", "finish", "acting", v.TurnEnded, emit.turn_ended, to="closing", when=[g.chatting]),
    emits("finish", "finish", "acting", v.FinishAccepted, emit.finish_accepted("finish"), to="closing", when=[g.evidence_complete]),
    emits("refuse_finish", "finish", "acting", v.FinishRejected, emit.finish_rejected, to="framing"),
    # A call that waits for a person's yes.
    emits("drop_approval", "auto ApprovalAnswered", "approving", v.ToolRejected, emit.disapproved, to="framing", when=[g.cancel_requested]),
    emits("approved", "ApprovalAnswered", "approving", v.ToolStarted, emit.call, to="calling", when=[g.approved]),
    emits("disapproved", "ApprovalAnswered", "approving", v.ToolRejected, emit.disapproved, to="framing"),
    rests("approving", "auto", "approving"),
    # One tool in flight.
    emits("called_and_verify", "ToolReturned", "calling", v.ToolCompleted, emit.tool_completed, to="verifying", when=[g.changes_verified]),
    emits("called", "ToolReturned", "calling", v.ToolCompleted, emit.tool_completed, to="framing"),
    emits("call_fails", "ToolErred", "calling", v.ToolFailed, emit.tool_failed, to="framing"),
    emits("call_lost", "EffectLost", "calling", v.ToolFailed, emit.tool_lost, to="framing"),
    emits("cancel_call", "auto", "calling", v.ToolFailed, emit.tool_cancelled, to="framing", when=[g.cancel_requested]),
    rests("calling", "auto", "calling"),
    # Acceptance checks, one after the other; `verifying` and `escalating` differ in what is judged after.
    emits("record", "CheckReturned EffectLost", "verifying escalating", v.EvidenceRecorded, emit.evidence),
    emits("cancel_check", "auto", "verifying escalating", v.EvidenceRecorded, emit.evidence, when=[g.cancel_requested, g.check_open]),
    emits("cancel_checks", "auto", "verifying escalating", v.ChecksJudged, emit.judged, to="framing", when=[g.cancel_requested]),
    rests("checking", "auto", "verifying escalating", when=[g.check_open]),
    emits("next_check", "auto", "verifying escalating", v.CheckStarted, emit.check_started, when=[g.check_left]),
    emits("judge", "auto", "verifying", v.ChecksJudged, emit.judged, to="framing"),
    emits("escalated_met", "auto", "escalating", v.FinishAccepted, emit.finish_accepted("search_repeats"), to="closing", when=[g.evidence_complete]),
    emits("escalated_unmet", "auto", "escalating", v.CapabilitiesFound, emit.found_again, to="framing"),
    # The end.
    emits("close_failed", "auto", "closing", v.RunFinished, always(v.RunFinished, status="failed"), to="failed", when=[g.faulted]),
    emits("close_completed", "auto", "closing", v.RunFinished, always(v.RunFinished, status="completed"), to="completed", when=[g.completed]),
    emits("close_asking", "auto", "closing", v.RunFinished, always(v.RunFinished, status="awaiting_user"), to="awaiting_user", when=[g.user_asked]),
    emits("close_unmet", "auto", "closing", v.RunFinished, always(v.RunFinished, status="missing_evidence"), to="handed_back"),
    emits("answered", "UserAnswered", "awaiting_user", v.RunResumed, emit.resumed, to="framing"),
    rests("ended", "auto", "awaiting_user completed handed_back exhausted cancelled failed"),
)  # fmt: skip

SEES: dict[str, Callable[[Run], tuple[str, Any]]] = {
    "opening": sees.nothing,
    "framing": sees.nothing,
    "asking": sees.model_landing,
    "validating": sees.parsed_reply,
    "acting": sees.action,
    "approving": sees.approval_landing,
    "calling": sees.tool_landing,
    "verifying": sees.wanted_check,
    "escalating": sees.missing_check,
    "closing": sees.nothing,
    "awaiting_user": sees.user_landing,
    "completed": sees.nothing,
    "handed_back": sees.nothing,
    "exhausted": sees.nothing,
    "cancelled": sees.nothing,
    "failed": sees.nothing,
}

GOAL = build("goal", STATES, ROWS)
