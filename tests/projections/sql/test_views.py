"""The other views against a plain fold of the same events."""

import json
from datetime import datetime

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepfold.projections.sql.relations import DOCUMENTED, open_relations


def when(event):
    return datetime.fromisoformat(event.ts.removesuffix("Z"))


def kind(event):
    return type(event).__name__


def seconds(start, landed):
    return None if landed is None else (when(landed) - when(start)).total_seconds()


def call_of(event):
    """The call a landing answers."""
    return event.key.partition(":")[2].rpartition(":")[0]


def call_of_tool(log, event):
    """The call whose result this is: a tool's landing is paired with its start by the key."""
    return next(start.call_id for start in log.of("ToolStarted") if start.key == event.key)


ENDINGS = {
    "capped": ("missing_evidence", "step_cap"),
    "cut": (None, "unfinished"),
    "waiting": (None, "unfinished"),
    "answered": (None, "unfinished"),
    "t-done": ("completed", "completed"),
    "t-cancelled": ("cancelled", "cancelled"),
    "t-broken": ("failed", "failed"),
    "t-paused": (None, "paused"),
    "t-resumed": (None, "unfinished"),
    "good": ("completed", "completed"),
    "repeats": ("missing_evidence", "missing_evidence"),
    "asks": ("awaiting_user", "awaiting_user"),
    "failed": ("failed", "failed"),
}


def fold_runs(log):
    start, is_goal = log.events[0], hasattr(log.events[0].config, "goal")
    billed = [e for e in log.of("ModelReplied") if e.cache != "hit"]
    finish, status = ENDINGS[log.run_id]
    return [
        {
            "run_id": log.run_id,
            "loop": "goal" if is_goal else "tools",
            "parent": start.parent or None,
            "goal": start.config.goal if is_goal else "weather?",
            "model": start.config.model if is_goal else "m-3",
            "engine": "0.1.0",
            "started": when(start),
            "ended": when(log.events[-1]),
            "finish": finish,
            "status": status,
            "steps": max(e.step for e in log.events),
            "actions": len(log.of("ActionParsed" if is_goal else "ToolStarted")),
            "rejected": len(log.of("ActionRejected", "ToolArgumentsRejected", "UnknownToolCalled")),
            "input_tokens": sum(e.input_tokens for e in billed),
            "output_tokens": sum(e.output_tokens for e in billed),
            "events": len(log.events),
            "cost": sum(e.cost for e in billed),
            "source": None,
            "source_seq": None,
        }
    ]


def fold_events(log):
    envelope = ("v", "run_id", "seq", "step", "ts", "kind")
    return [
        {
            "run_id": e.run_id,
            "seq": e.seq,
            "step": e.step,
            "ts": when(e),
            "kind": kind(e),
            "data": {k: v for k, v in json.loads(msgspec.json.encode(e)).items() if k not in envelope},
        }
        for e in log.events
    ]


def fold_steps(log):
    return [fold_step(log, step) for step in range(1, log.events[-1].step + 1)]


def fold_step(log, step):
    events = [e for e in log.events if e.step == step]

    def last(*kinds):
        found = [e for e in events if kind(e) in kinds]
        return found[-1] if found else None

    judged, failed, completed = (
        last("ActionParsed", "ActionRejected"),
        last("ModelFailed"),
        last("ModelCompleted"),
    )
    outcome = {"ActionParsed": "action", "ActionRejected": "rejected"}.get(kind(judged)) or (
        "failed" if failed else "replied" if completed else "unfinished"
    )
    parsed, asked, reply = (
        last("ActionParsed"),
        last("ModelStarted", "FallbackSelected"),
        last("ModelReplied"),
    )
    replies = [e for e in events if kind(e) == "ModelReplied"]
    context, guard, erred = last("ContextBuilt"), last("GuardTripped"), last("ActionRejected", "ModelFailed")
    return {
        "run_id": log.run_id,
        "step": step,
        "started": when(events[0]),
        "ended": when(events[-1]),
        "seconds": seconds(events[0], events[-1]),
        "model": asked and asked.model,
        "outcome": outcome,
        "action": parsed and parsed.name,
        "call_id": judged and judged.call_id,
        "arguments": parsed and log.written(parsed),
        "reply": reply and log.text_of(reply),
        "error": erred and erred.error,
        "context_tokens": context and context.tokens,
        "input_tokens": sum(e.input_tokens for e in replies),
        "output_tokens": sum(e.output_tokens for e in replies),
        "tools": len([e for e in events if kind(e) == "ToolStarted"]),
        "guard": guard and guard.guard,
        "events": len(events),
    }


def fold_rejections(log):
    subjects = {
        "ActionRejected": "reply",
        "ToolRejected": "call",
        "UnknownToolCalled": "tool",
        "ToolArgumentsRejected": "arguments",
        "FinishRejected": "finish",
    }
    errors = {
        "UnknownToolCalled": "unknown_tool",
        "ToolArgumentsRejected": "arguments",
        "FinishRejected": "unmet",
    }
    return [
        {
            "run_id": log.run_id,
            "seq": e.seq,
            "step": e.step,
            "ts": when(e),
            "model": log.model_before(e.seq),
            "subject": subjects[kind(e)],
            "call_id": e.call_id,
            "name": getattr(e, "name", None),
            "error": errors.get(kind(e)) or getattr(e, "error", None) or e.hop,
            "detail": ", ".join(e.unmet)
            if kind(e) == "FinishRejected"
            else getattr(e, "detail", None) or getattr(e, "reason", None) or e.recovery,
            "reply": log.reply_before(e.seq),
        }
        for e in log.of(*subjects)
    ]


def fold_guards(log):
    return [
        {
            "run_id": log.run_id,
            "seq": e.seq,
            "step": e.step,
            "ts": when(e),
            "guard": getattr(e, "guard", None) or getattr(e, "limit", None) or "no_progress",
            "verdict": getattr(e, "verdict", None)
            or {"GuardTripped": "guard", "LimitReached": "limit"}[kind(e)],
            "state": e.to or None,
        }
        for e in log.of("GuardTripped", "LimitReached", "NoProgress")
    ]


def fold_messages(log):
    said = []

    def say(event, role, content, place=0, call_id=None, tool_calls=None):
        row = {"run_id": log.run_id, "seq": event.seq, "place": place, "step": event.step, "ts": when(event)}
        said.append({**row, "role": role, "call_id": call_id, "content": content, "tool_calls": tool_calls})

    for event in log.events:
        match kind(event):
            case "RunStarted" if hasattr(event.config, "goal"):
                say(event, "user", event.config.goal)
            case "RunStarted":
                for place, turn in enumerate(event.input):
                    say(event, turn.role, turn.content, place)
            case "ModelReplied":
                calls = json.loads(msgspec.json.encode(event.tool_calls)) or None
                say(event, "assistant", log.text_of(event), call_id=call_of(event), tool_calls=calls)
            case "ToolReturned":
                say(event, "tool", event.content, call_id=call_of_tool(log, event))
            case "UserAnswered":
                say(event, "user", event.text)
            case "SteeringReceived":
                for place, command in enumerate(event.commands):
                    if command.name in ("inject", "redirect"):
                        say(event, "user", command.text, place)
    return said


def fold_usage(log):
    return [
        {
            "run_id": log.run_id,
            "seq": e.seq,
            "step": e.step,
            "ts": when(e),
            "call_id": call_of(e),
            "model": log.model_before(e.seq),
            "input_tokens": e.input_tokens,
            "output_tokens": e.output_tokens,
            "estimated": e.estimated,
            "billed": e.cache != "hit",
            "cached_tokens": e.cached_tokens,
            "cost": e.cost,
        }
        for e in log.of("ModelReplied")
    ]


FOLDS = {
    "runs": fold_runs,
    "events": fold_events,
    "steps": fold_steps,
    "rejections": fold_rejections,
    "guards": fold_guards,
    "messages": fold_messages,
    "usage": fold_usage,
}
MOVES = [
    "call",
    "changed",
    "error",
    "erred",
    "lost",
    "refused",
    "reject",
    "search",
    "verify",
    "retry",
    "guard",
    "fail",
]


@pytest.mark.parametrize("view", FOLDS)
def test_a_view_says_what_a_fold_of_the_events_says(view, stories, write, viewed):
    relations = open_relations(write(*stories))
    expected = [row for log in sorted(stories, key=lambda log: log.run_id) for row in FOLDS[view](log)]
    assert viewed(relations, view) == expected
    assert expected


def test_every_documented_view_has_its_fold():
    calls = {"model_calls", "tool_calls", "checks"}
    assert {view.name for view in DOCUMENTED} == {*FOLDS, *calls, "guard_audit", "torn_lines"}


@given(st.lists(st.sampled_from(MOVES), max_size=9))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_run_of_moves_reads_as_its_fold(write, viewed, grown, moves):
    log = grown(moves)
    relations = open_relations(write(log))
    for view, fold in FOLDS.items():
        assert viewed(relations, view) == fold(log), view
    relations.close()
