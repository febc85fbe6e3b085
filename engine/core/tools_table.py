"""The tool-calling loop as a table: its states, its rows, and what each state sees.

Read as the goal table. Everything that needs a turn's calls looks at them in call order, so that what
lands in another order is folded in that one. `stepfold diagram --loop tools` draws this table.
"""

from collections.abc import Callable
from typing import Any

from stepfold.engine.core import tools_emits as emit
from stepfold.engine.core import tools_guards as g
from stepfold.engine.core import tools_sees as sees
from stepfold.engine.core.machine import always, build, emits, rests, silent
from stepfold.events import vocabulary as v
from stepfold.projections.state import Run

STATES = (
    "opening",
    "checking",
    "requesting",
    "asking",
    "replied",
    "deciding",
    "admitting",
    "acting",
    "skipping",
    "hooking",
    "finishing",
    "pausing",
    "paused",
    "completed",
    "failed",
)

ROWS = (
    emits("greet", "auto", "opening", v.MiddlewareStarted, emit.hook("before_agent"), to="hooking", when=[g.before_agent_left], unless=[g.faulted, g.cancel_requested]),
    silent("enter", "auto", "opening", "checking"),
    # The edges: what ends or redirects a run, at the top of an iteration and where a turn is given up.
    emits("skip", "auto", "skipping", v.ToolSkipped, emit.skipped, when=[g.call_unanswered]),
    emits("fail", "auto", "checking skipping requesting finishing", v.RunFailed, emit.run_failed(), to="failed", when=[g.faulted]),
    emits("cancel", "auto", "checking skipping requesting", v.RunFailed, emit.run_failed("Cancelled"), to="failed", when=[g.cancel_requested]),
    emits("refuse_steering", "auto", "checking paused", v.Steered, emit.steering_refused, when=[g.command_waiting, g.command_forbidden]),
    emits("steer", "auto", "checking paused", v.Steered, emit.steered, when=[g.command_waiting]),
    emits("pause", "auto", "checking", v.RunPaused, emit.paused, to="pausing", when=[g.pause_asked]),
    emits("control", "any", "checking skipping requesting deciding admitting finishing", v.ControlApplied, emit.control, when=[g.control_pending]),
    silent("stop", "any", "checking requesting deciding admitting", "skipping", when=[g.stopped]),
    emits("clock_out", "auto", "checking requesting", v.LimitReached, always(v.LimitReached, limit="wall_clock"), to="skipping", when=[g.deadline_passed]),
    emits("cap_out", "auto", "checking", v.LimitReached, always(v.LimitReached, limit="model_calls"), to="skipping", when=[g.model_calls_spent]),
    silent("build", "auto", "checking", "requesting"),
    # One model call, with its retries and fallbacks.
    emits("before_model", "auto", "requesting", v.MiddlewareStarted, emit.hook("before_model"), to="hooking", when=[g.before_model_left]),
    emits("no_model", "auto", "requesting", v.RunFailed, emit.run_failed("ModelNotFound"), to="failed", when=[g.no_model]),
    emits("ask", "auto", "requesting", v.ModelStarted, emit.ask, to="asking"),
    silent("replied", "ModelReplied", "asking", "replied"),
    emits("cancel_ask", "auto ModelErred", "asking", v.ModelFailed, emit.model_given_up("Cancelled"), to="checking", when=[g.cancel_requested]),
    emits("clock_ask", "auto ModelErred", "asking", v.ModelFailed, emit.model_given_up("Timeout"), to="checking", when=[g.deadline_passed]),
    emits("retry", "ModelErred", "asking", v.RetryScheduled, emit.retry, when=[g.retryable]),
    emits("skip_fallback", "ModelErred", "asking", v.FallbackSkipped, emit.skip_fallback, when=[g.fallback_unfit], unless=[g.fallback_barred]),
    emits("fall_back", "ModelErred", "asking", v.FallbackSelected, emit.fall_back, when=[g.fallback_left], unless=[g.fallback_barred]),
    emits("give_up", "ModelErred", "asking", v.ModelFailed, emit.model_failed, to="checking"),
    rests("asking", "auto", "asking"),
    # The reply, before it is taken.
    emits("after_model", "auto", "replied", v.MiddlewareStarted, emit.hook("after_model"), to="hooking", when=[g.after_model_left], unless=[g.faulted, g.cancel_requested]),
    emits("cached", "auto", "replied", v.CacheHit, emit.cache_hit, when=[g.from_cache]),
    emits("missed", "auto", "replied", v.CacheMissed, emit.cache_missed, when=[g.cache_missed]),
    emits("bill", "auto", "replied", v.UsageRecorded, emit.bill, when=[g.usage_unrecorded]),
    emits("complete", "auto", "replied", v.ModelCompleted, emit.completed, to="deciding"),
    # What the reply asks for.
    silent("give_in", "auto", "deciding", "skipping", when=[g.faulted]),
    emits("recover", "auto", "deciding", v.RetryScheduled, emit.retry_empty, to="checking", when=[g.truncated_empty, g.empty_retries_left]),
    emits("empty", "auto", "deciding", v.RunFailed, emit.run_failed("EmptyResponse"), to="failed", when=[g.empty_is_error]),
    emits("reject_structured", "auto", "deciding", v.ToolArgumentsRejected, emit.structured_rejected, when=[g.structured_call_invalid]),
    emits("note_structured", "auto", "deciding", v.ControlApplied, always(v.ControlApplied, control="structured_with_tool_calls"), when=[g.structured_mixed]),
    silent("admit", "auto", "deciding", "admitting", when=[g.calls_asked]),
    silent("ask_again", "auto", "deciding", "checking", when=[g.calls_answered]),
    emits("bad_structure", "auto", "deciding", v.RunFailed, emit.run_failed("StructuredOutput"), to="failed", when=[g.structured_text_invalid]),
    silent("answer", "auto", "deciding", "finishing"),
    # Admission, in call order; nothing is announced before all are admitted.
    silent("admit_cancelled", "any", "admitting", "skipping", when=[g.cancel_requested]),
    silent("admit_faulted", "any", "admitting", "skipping", when=[g.faulted]),
    emits("admit_clock", "any", "admitting", v.LimitReached, always(v.LimitReached, limit="wall_clock"), to="skipping", when=[g.deadline_passed]),
    emits("admit_cap", "any", "admitting", v.LimitReached, always(v.LimitReached, limit="tool_calls"), to="skipping", when=[g.tool_calls_spent]),
    emits("before_tool", "hook_due", "admitting", v.MiddlewareStarted, emit.before_tool, to="hooking"),
    emits("refused", "refused", "admitting", v.ToolSkipped, emit.refused),
    emits("rewrite", "unknown", "admitting", v.UnknownToolCalled, emit.rewritten, when=[g.unknown_rewrites]),
    emits("unknown", "unknown", "admitting", v.UnknownToolCalled, emit.unknown),
    emits("invalid", "invalid", "admitting", v.ToolArgumentsRejected, emit.invalid),
    emits("launch", "admitted", "admitting", v.ToolStarted, emit.start, to="acting", when=[g.may_start]),
    silent("none_left", "admitted", "admitting", "skipping"),
    # Execution and fold.
    emits("announce", "auto", "acting", v.SubAgentStarted, emit.announce, when=[g.child_unannounced]),
    emits("start", "auto", "acting", v.ToolStarted, emit.start, when=[g.may_start], unless=[g.cancel_requested, g.deadline_passed]),
    emits("after_tool", "ToolReturned ToolErred", "acting", v.MiddlewareStarted, emit.after_tool, to="hooking", when=[g.after_tool_left], unless=[g.faulted, g.cancel_requested]),
    emits("child_done", "ToolReturned", "acting", v.SubAgentCompleted, emit.child_done, when=[g.child_open], unless=[g.child_erred]),
    emits("child_failed", "ToolReturned ToolErred", "acting", v.SubAgentFailed, emit.child_failed(""), when=[g.child_open]),
    emits("returned", "ToolReturned", "acting", v.ToolCompleted, emit.tool_completed),
    emits("error_row", "ToolErred", "acting", v.ToolCompleted, emit.tool_completed, when=[g.error_is_result]),
    emits("tool_fails", "ToolErred", "acting", v.ToolFailed, emit.tool_failed),
    emits("child_lost", "EffectLost", "acting", v.SubAgentFailed, emit.child_failed("Lost"), when=[g.child_open]),
    emits("lost_row", "EffectLost", "acting", v.ToolCompleted, emit.tool_completed, when=[g.error_is_result]),
    emits("lost", "EffectLost", "acting", v.ToolFailed, emit.tool_given_up("Lost")),
    emits("cancel_child", "auto", "acting", v.SubAgentFailed, emit.child_failed("Cancelled"), when=[g.cancel_requested, g.child_open]),
    emits("cancel_call", "auto", "acting", v.ToolFailed, emit.tool_given_up("Cancelled"), when=[g.cancel_requested, g.call_open]),
    emits("clock_child", "auto", "acting", v.SubAgentFailed, emit.child_failed("Timeout"), when=[g.deadline_passed, g.child_open]),
    emits("clock_call", "auto", "acting", v.ToolFailed, emit.tool_given_up("Timeout"), when=[g.deadline_passed, g.call_open]),
    rests("acting", "auto", "acting", when=[g.call_open]),
    silent("folded", "auto", "acting", "skipping"),
    # The turn is over.
    emits("halt", "auto", "skipping", v.NoProgress, emit.halt, when=[g.going_nowhere]),
    emits("clocked", "auto", "skipping", v.RunFailed, emit.run_failed("Timeout"), to="failed", when=[g.limit_fails, g.clock_is_limit]),
    emits("over", "auto", "skipping", v.RunFailed, emit.limit_failed, to="failed", when=[g.limit_fails]),
    silent("skip_finish", "auto", "skipping", "finishing", when=[g.ended_early]),
    emits("nudge", "auto", "skipping", v.NoProgress, emit.nudge, when=[g.needs_nudge]),
    silent("go_on", "auto", "skipping", "checking"),
    # Middleware: one state for all hooks; the log says which one is in flight.
    emits("hooked_agent", "hook_over", "hooking", v.MiddlewareCompleted, emit.hooked, to="opening", when=[g.hook_is("before_agent")]),
    emits("hooked_request", "hook_over", "hooking", v.MiddlewareCompleted, emit.hooked, to="requesting", when=[g.hook_is("before_model")]),
    emits("hooked_reply", "hook_over", "hooking", v.MiddlewareCompleted, emit.hooked, to="replied", when=[g.hook_is("after_model")]),
    emits("hooked_call", "hook_over", "hooking", v.MiddlewareCompleted, emit.hooked, to="admitting", when=[g.hook_is("before_tool")]),
    emits("hooked_result", "hook_over", "hooking", v.MiddlewareCompleted, emit.hooked, to="acting", when=[g.hook_is("after_tool")]),
    emits("hooked_end", "hook_over", "hooking", v.MiddlewareCompleted, emit.hooked, to="finishing", when=[g.hook_is("after_agent")]),
    emits("hooked_error", "hook_over", "hooking", v.MiddlewareCompleted, emit.hooked, to="failed"),
    rests("hooking", "auto", "hooking"),
    # The ends and the rests.
    emits("farewell", "auto", "finishing", v.MiddlewareStarted, emit.hook("after_agent"), to="hooking", when=[g.after_agent_left], unless=[g.cancel_requested]),
    emits("done", "auto", "finishing", v.RunCompleted, emit.run_completed, to="completed"),
    emits("rest", "auto", "pausing", v.ControlApplied, always(v.ControlApplied, control="paused"), to="paused"),
    emits("cancel_paused", "auto", "paused", v.RunFailed, emit.run_failed("Cancelled"), to="failed", when=[g.cancel_requested]),
    rests("paused", "auto", "paused", when=[g.pause_asked]),
    silent("unpause", "auto", "paused", "checking"),
    emits("tell", "auto", "failed", v.MiddlewareStarted, emit.hook("on_error"), to="hooking", when=[g.on_error_left]),
    rests("ended", "auto", "failed completed"),
)  # fmt: skip

SEES: dict[str, Callable[[Run], tuple[str, Any]]] = {
    "opening": sees.nothing,
    "checking": sees.nothing,
    "requesting": sees.nothing,
    "asking": sees.model_landing,
    "replied": sees.nothing,
    "deciding": sees.reply_read,
    "admitting": sees.admission,
    "acting": sees.tool_landing,
    "skipping": sees.nothing,
    "hooking": sees.hook_word,
    "finishing": sees.nothing,
    "pausing": sees.nothing,
    "paused": sees.nothing,
    "completed": sees.nothing,
    "failed": sees.nothing,
}

TOOLS = build("tools", STATES, ROWS)
