"""The views of calls against a plain fold of the same events."""

import json
from datetime import datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepfold.projections.sql.relations import open_relations


def when(event):
    return datetime.fromisoformat(event.ts.removesuffix("Z"))


def kind(event):
    return type(event).__name__


def seconds(start, landed):
    return None if landed is None else (when(landed) - when(start)).total_seconds()


def fold_model_calls(log):
    return [fold_model_call(log, start) for start in log.of("ModelStarted")]


def fold_model_call(log, start):
    given = log.answers(start)
    landed, kinds = log.landing(given), {kind(e): e for e in given}
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
        "text": reply and log.text_of(reply),
        "reasoning": (reply and reply.reasoning) or None,
        "digest": start.digest,
        "cached_tokens": reply and reply.cached_tokens,
        "first_token_seconds": (reply and reply.first_token) or None,
        "cost": reply and reply.cost,
    }


REFUSALS = {"ToolRejected": "rejected", "ToolArgumentsRejected": "rejected", "UnknownToolCalled": "rejected"}


def fold_tool_calls(log):
    found = {}
    for event in log.of("ToolStarted", *REFUSALS, "ToolSkipped"):
        found.setdefault((event.step, event.call_id), event)
    return sorted((fold_tool_call(log, event) for event in found.values()), key=lambda row: row["seq"])


def fold_tool_call(log, event):
    given = log.answers(event) if kind(event) == "ToolStarted" else []
    landed = log.landing(given)
    closed = next((e for e in given if kind(e) in ("ToolCompleted", "ToolFailed")), None)
    parsed = next((e for e in log.of("ActionParsed") if e.call_id == event.call_id), None)
    asked = [c for e in log.of("ModelReplied") for c in e.tool_calls if c.id == event.call_id]
    wrote = log.written(parsed) if parsed else asked[-1].arguments if asked else None
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


def fold_checks(log):
    found = []
    for start in log.of("CheckStarted"):
        given = log.answers(start)
        landed = log.landing(given)
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


FOLDS = {
    "model_calls": fold_model_calls,
    "tool_calls": fold_tool_calls,
    "checks": fold_checks,
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


@given(st.lists(st.sampled_from(MOVES), max_size=9))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_run_of_moves_reads_as_its_fold(write, viewed, grown, moves):
    log = grown(moves)
    relations = open_relations(write(log))
    for view, fold in FOLDS.items():
        assert viewed(relations, view) == fold(log), view
    relations.close()
