"""Every view against a plain fold of the same events."""

import json
from datetime import datetime

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepfold.projections.sql.relations import DOCUMENTED, open_relations


def rows(relations, sql):
    table = relations.query(sql)
    return [dict(zip(table.names, row, strict=True)) for row in table.rows]


def when(event):
    return datetime.fromisoformat(event.ts.removesuffix("Z"))


def kind(event):
    return type(event).__name__


def of(log, *kinds):
    return [event for event in log.events if kind(event) in kinds]


def call_of(event):
    """The call a landing answers."""
    return event.key.partition(":")[2].rpartition(":")[0]


def after(log, start, is_answer, is_start):
    """The events that answer this start: from it to the next start of the same call."""
    answers = []
    for event in log.events[start.seq + 1 :]:
        if is_start(event):
            break
        if is_answer(event):
            answers.append(event)
    return answers


def answers(log, start):
    name = getattr(start, "call_id", None) or start.check_id
    family = kind(start).removesuffix("Started").lower()

    def is_answer(event):
        if getattr(event, "key", ""):
            return event.key.startswith(f"{family}:") and call_of(event) == name
        named = getattr(event, "check_id", None) if family == "check" else getattr(event, "call_id", None)
        return named == name

    return after(log, start, is_answer, lambda e: type(e) is type(start) and is_same(e, start))


def is_same(one, other):
    return getattr(one, "call_id", None) == getattr(other, "call_id", None) and getattr(
        one, "check_id", None
    ) == getattr(other, "check_id", None)


LANDINGS = ("ModelReplied", "ModelErred", "ToolReturned", "ToolErred", "EffectLost", "CheckReturned")


def landing(events):
    landed = [event for event in events if kind(event) in LANDINGS]
    return landed[-1] if landed else None


def seconds(start, landed):
    return None if landed is None else (when(landed) - when(start)).total_seconds()


def model_before(log, seq):
    asked = [e for e in log.events[:seq] if kind(e) in ("ModelStarted", "FallbackSelected")]
    return asked[-1].model if asked else None


def reply_text(log, reply):
    return reply.text or "".join(e.text for e in of(log, "ModelDelta") if e.key == reply.key)


def reply_before(log, seq):
    replies = [e for e in log.events[:seq] if kind(e) == "ModelReplied"]
    return reply_text(log, replies[-1]) if replies else None


def written(log, parsed):
    return reply_before(log, parsed.seq)[parsed.start : parsed.end]


# --- the folds --------------------------------------------------------------------------------------

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
    billed = [e for e in of(log, "ModelReplied") if e.cache != "hit"]
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
            "actions": len(of(log, "ActionParsed" if is_goal else "ToolStarted")),
            "rejected": len(of(log, "ActionRejected", "ToolArgumentsRejected", "UnknownToolCalled")),
            "input_tokens": sum(e.input_tokens for e in billed),
            "output_tokens": sum(e.output_tokens for e in billed),
            "events": len(log.events),
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
        "arguments": parsed and written(log, parsed),
        "reply": reply and reply_text(log, reply),
        "error": erred and erred.error,
        "context_tokens": context and context.tokens,
        "input_tokens": sum(e.input_tokens for e in replies),
        "output_tokens": sum(e.output_tokens for e in replies),
        "tools": len([e for e in events if kind(e) == "ToolStarted"]),
        "guard": guard and guard.guard,
        "events": len(events),
    }


def fold_model_calls(log):
    return [fold_model_call(log, start) for start in of(log, "ModelStarted")]


def fold_model_call(log, start):
    given = answers(log, start)
    landed, kinds = landing(given), {kind(e): e for e in given}
    failed, completed = kinds.get("ModelFailed"), kinds.get("ModelCompleted")
    reply = landed if kind(landed) == "ModelReplied" else None
    erred = landed if kind(landed) == "ModelErred" else None
    fallback = kinds.get("FallbackSelected")
    return {
        "run_id": log.run_id,
        "seq": start.seq,
        "step": start.step,
        "call_id": start.call_id,
        "model": fallback.model if fallback else start.model,
        "started": when(start),
        "seconds": seconds(start, landed),
        "attempts": len([e for e in given if kind(e) in ("ModelReplied", "ModelErred")]),
        "outcome": "completed" if completed else "failed" if failed else "unfinished",
        "error": None if completed else failed.error if failed else erred and erred.error,
        "detail": None if completed else erred and erred.detail,
        "input_tokens": reply and reply.input_tokens,
        "output_tokens": reply and reply.output_tokens,
        "estimated": reply and reply.estimated,
        "cache": (reply and reply.cache) or None,
        "finish_reason": reply and reply.finish_reason,
        "text": reply and reply_text(log, reply),
        "reasoning": (reply and reply.reasoning) or None,
        "digest": start.digest,
    }


REFUSALS = {"ToolRejected": "rejected", "ToolArgumentsRejected": "rejected", "UnknownToolCalled": "rejected"}


def fold_tool_calls(log):
    found = {}
    for event in of(log, "ToolStarted", *REFUSALS, "ToolSkipped"):
        found.setdefault((event.step, event.call_id), event)
    return sorted((fold_tool_call(log, event) for event in found.values()), key=lambda row: row["seq"])


def fold_tool_call(log, event):
    given = answers(log, event) if kind(event) == "ToolStarted" else []
    landed = landing(given)
    closed = next((e for e in given if kind(e) in ("ToolCompleted", "ToolFailed")), None)
    parsed = next((e for e in of(log, "ActionParsed") if e.call_id == event.call_id), None)
    asked = [c for e in of(log, "ModelReplied") for c in e.tool_calls if c.id == event.call_id]
    wrote = written(log, parsed) if parsed else asked[-1].arguments if asked else None
    if kind(event) != "ToolStarted":
        outcome = REFUSALS.get(kind(event), "skipped")
        error = {"UnknownToolCalled": "unknown_tool", "ToolArgumentsRejected": "arguments"}.get(kind(event))
        error = error or getattr(event, "hop", None) or event.why
    elif closed is None:
        outcome, error = "unfinished", None
    else:
        outcome = "failed" if kind(closed) == "ToolFailed" else "error" if closed.error else "completed"
        error = closed.error or None
    return {
        "run_id": log.run_id,
        "seq": event.seq,
        "step": event.step,
        "call_id": event.call_id,
        "name": getattr(event, "name", None),
        "arguments": own_arguments(event, parsed, wrote),
        "written": wrote,
        "started": when(event),
        "seconds": seconds(event, landed),
        "outcome": outcome,
        "error": error,
        "detail": landed.detail if kind(landed) == "ToolErred" else getattr(event, "reason", None),
        "result": landed.content if kind(landed) == "ToolReturned" else None,
        # A default is not on the wire.
        "output_bytes": getattr(closed, "output_bytes", None) or None,
    }


def own_arguments(event, parsed, wrote):
    changed = bytes(getattr(event, "arguments", b"null"))
    if changed != b"null":
        return json.loads(changed)
    try:
        decoded = json.loads(wrote)
    except ValueError:
        return wrote
    return decoded["arguments"] if parsed and parsed.name == "capability_call" else decoded


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
            "model": model_before(log, e.seq),
            "subject": subjects[kind(e)],
            "call_id": e.call_id,
            "name": getattr(e, "name", None),
            "error": errors.get(kind(e)) or getattr(e, "error", None) or e.hop,
            "detail": ", ".join(e.unmet)
            if kind(e) == "FinishRejected"
            else getattr(e, "detail", None) or getattr(e, "reason", None) or e.recovery,
            "reply": reply_before(log, e.seq),
        }
        for e in of(log, *subjects)
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
        for e in of(log, "GuardTripped", "LimitReached", "NoProgress")
    ]


def fold_checks(log):
    found = []
    for start in of(log, "CheckStarted"):
        given = answers(log, start)
        landed = landing(given)
        evidence = next((e for e in given if kind(e) == "EvidenceRecorded"), None)
        found.append(
            {
                "run_id": log.run_id,
                "seq": start.seq,
                "step": start.step,
                "check_id": start.check_id,
                "command": {c.id: c.command for c in log.events[0].config.checks}.get(start.check_id),
                "started": when(start),
                "seconds": seconds(start, landed),
                "passed": evidence and evidence.passed,
                "exit_code": landed and landed.exit_code,
                "output": landed and landed.output,
                "digest": landed and landed.digest,
            }
        )
    return found


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
                say(event, "assistant", reply_text(log, event), call_id=call_of(event), tool_calls=calls)
            case "ToolReturned":
                say(event, "tool", event.content, call_id=call_of(event))
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
            "model": model_before(log, e.seq),
            "input_tokens": e.input_tokens,
            "output_tokens": e.output_tokens,
            "estimated": e.estimated,
            "billed": e.cache != "hit",
        }
        for e in of(log, "ModelReplied")
    ]


FOLDS = {
    "runs": fold_runs,
    "events": fold_events,
    "steps": fold_steps,
    "model_calls": fold_model_calls,
    "tool_calls": fold_tool_calls,
    "rejections": fold_rejections,
    "guards": fold_guards,
    "checks": fold_checks,
    "messages": fold_messages,
    "usage": fold_usage,
}
ORDER = {"runs": "run_id", "steps": "run_id, step", "messages": "run_id, seq, place"}


def viewed(relations, view):
    table = relations.query(f"SELECT * FROM {view} ORDER BY {ORDER.get(view, 'run_id, seq')}")
    return [
        {
            name: json.loads(value) if kind == "JSON" and value is not None else value
            for name, value, kind in zip(table.names, row, table.types, strict=True)
        }
        for row in table.rows
    ]


@pytest.mark.parametrize("view", FOLDS)
def test_a_view_says_what_a_fold_of_the_events_says(view, stories, write):
    relations = open_relations(write(*stories))
    expected = [row for log in sorted(stories, key=lambda log: log.run_id) for row in FOLDS[view](log)]
    assert viewed(relations, view) == expected
    assert expected


def test_every_documented_view_has_its_fold():
    assert {view.name for view in DOCUMENTED} == {*FOLDS, "torn_lines"}


MOVES = {
    "call": lambda log: log.call("fs.read", {"path": "é👍", "n": [1, 2.5]}),
    "changed": lambda log: log.call("fs.read", {"file": "x"}, changed={"path": "x"}),
    "error": lambda log: log.call("fs.read", {}, "error"),
    "erred": lambda log: log.call("shell.run", {}, "erred"),
    "lost": lambda log: log.call("shell.run", {}, "lost"),
    "refused": lambda log: log.call("web.fetch", {}, "rejected"),
    "reject": lambda log: log.reject("📎 no", "NotJson"),
    "search": lambda log: log.act("capability_search", '{"query": "\\ud83d\\ude00 \'"}'),
    "verify": lambda log: log.act("verify", "{}").check("unit", 1).check("a:b", 0).check("unit", 0),
    "retry": lambda log: log.act("verify", "{}", errors=("server",), fallback="m-9"),
    "guard": lambda log: log.guard("search_repeats"),
    "fail": lambda log: log.fail_to_ask("timeout"),
}


@given(st.lists(st.sampled_from(sorted(MOVES)), max_size=9))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_run_of_moves_reads_as_its_fold(write, Story, moves):
    log = Story("cut").goal()
    for move in moves:
        MOVES[move](log)
    relations = open_relations(write(log))
    for view, fold in FOLDS.items():
        assert viewed(relations, view) == fold(log), view
