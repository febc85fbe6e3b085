"""What holds of every run, whatever models, tools, clocks and people do: told from the log alone.

Each rule is written a second time here, as plainly as it can be said, and shares no code with the fold or
the guards that it judges.
"""

import itertools
import json
from collections.abc import Sequence
from typing import Any

from stepfold.engine.runtime.replay import ReplayDiverged, verify
from stepfold.engine.runtime.requests import recorded_request
from stepfold.events import vocabulary as v
from stepfold.events.codec import decode, encode
from stepfold.events.configuration import GoalConfig
from stepfold.events.journal import Recorded
from stepfold.events.vocabulary import Message
from stepfold.projections.prompt import chat_rendering, tools_rendering
from stepfold.projections.state import Accumulator, Run

Events = Sequence[Any]
RAN = (v.ToolStarted, v.CheckStarted)
REFUSED = (v.ActionRejected, v.ToolRejected, v.FinishRejected)


class Broken(AssertionError):
    """A rule that does not hold. `rule` names it, the text says where."""

    def __init__(self, rule: str, where: str) -> None:
        self.rule = rule
        super().__init__(f"{rule}: {where}")


def insist(holds: bool, rule: str, where: object = "") -> None:
    """Raise Broken unless it holds."""
    if not holds:
        raise Broken(rule, " ".join(str(where).split())[:500])


def holds_of_a_log(events: Events) -> None:
    """What holds of both loops, at any moment between two batches. Raises Broken."""
    lines = [encode(event) for event in events]
    for event, line in zip(events, lines, strict=True):
        insist(b"\n" not in line and decode(line) == event, "an event comes back as it was written", line)
    insist([e.seq for e in events] == list(range(len(events))), "seq counts from 0 without a gap")
    times = [event.ts for event in events]
    insist(times == sorted(times), "time never goes back", times)
    try:
        _, count = verify([Recorded(line, event) for line, event in zip(lines, events, strict=True)])
    except ReplayDiverged as difference:
        raise Broken("the log replays byte for byte", str(difference)) from difference
    insist(count == len(events), "the log replays to its end", f"{count} of {len(events)} events")
    _pairs_close(events)


def _pairs_close(events: Events) -> None:
    """Every tool and model call that starts has at most one end, and no end comes without its start."""
    is_open: set[tuple[str, str]] = set()
    for event in events:
        match event:
            case v.ModelStarted():
                insist(not any(kind == "model" for kind, _ in is_open), "one model call at a time", event)
                is_open.add(("model", event.call_id))
            case v.ModelCompleted() | v.ModelFailed():
                insist(("model", event.call_id) in is_open, "a model call ends once, after its start", event)
                is_open.discard(("model", event.call_id))
            case v.ToolStarted():
                insist(("tool", event.key) not in is_open, "a tool call starts once", event)
                is_open.add(("tool", event.key))
            case v.ToolCompleted() | v.ToolFailed():
                insist(("tool", event.key) in is_open, "a tool call ends once, after its start", event)
                is_open.discard(("tool", event.key))
            case v.RunFinished() | v.RunCompleted() | v.RunFailed():
                insist(not is_open, "a run ends with nothing in flight", event)


def same_run(live: Run, told: Run) -> None:
    """The fold of the log (`told`) is the run that was driven. Raises Broken."""
    folded, driven = slots_of(told), slots_of(live)
    for name, value in folded.items():
        if name != "due":
            insist(value == driven[name], "the fold of the log is the live state", name)
    insist(set(folded["due"]) == set(driven["due"]), "the fold knows what is in flight", driven["due"])


def slots_of(value: Any) -> Any:
    """All that an accumulator holds, as values that can be compared."""
    if isinstance(value, Accumulator) or type(value).__name__ == "ConversationHistory":
        return {name: slots_of(getattr(value, name)) for name in value.__slots__}
    if isinstance(value, list):
        return [slots_of(item) for item in value]
    return value


def provider_takes(messages: Sequence[Message]) -> None:
    """Providers refuse a call without its answer, and an answer without its call. Raises Broken."""
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            insist(message.tool_call_id in waiting, "a tool turn follows the call that it answers", message)
            waiting.remove(message.tool_call_id)
            continue
        insist(not waiting, "every call is answered before the next turn", waiting)
        waiting = [call.id for call in message.tool_calls]
    insist(not waiting, "every call is answered before the model is asked again", waiting)


def holds_of_a_goal_run(run: Run, events: Events) -> None:
    """What holds of the strict goal loop beyond `holds_of_a_log`. Raises Broken."""
    config = events[0].config
    insist(isinstance(config, GoalConfig), "a goal run has a goal's configuration")
    insist(run.step <= config.max_steps, "no more steps than max_steps", run.step)
    _each_reply_has_one_verdict(events)
    _refused_ran_nothing(events)
    _only_loaded_capabilities_run(events, config)
    _completed_means_evidence(events, config)
    _guards_trip(events, config)
    _the_end_is_the_end(events)
    _cancelled_starts_nothing(events)
    _observations_reach_the_model(events)
    _retries_are_counted(events, config)
    for step in {event.step for event in events if isinstance(event, v.ModelStarted)}:
        request = recorded_request(events, step)
        insist(request is not None and request.agrees, "a request is rebuilt with its digest", step)


def holds_of_a_request(run: Run) -> None:
    """What a goal run would send now, if it asks. Raises Broken."""
    if run.state == "asking":
        for rendering in (tools_rendering(), chat_rendering()):
            provider_takes([*rendering.items(run.history)])
        _rejected_is_plain_text(run)


def _of_a_step(events: Events) -> dict[int, list[Any]]:
    steps: dict[int, list[Any]] = {}
    for event in events:
        steps.setdefault(event.step, []).append(event)
    return steps


def _each_reply_has_one_verdict(events: Events) -> None:
    for before, event in itertools.pairwise(events):
        if isinstance(before, v.ModelCompleted):
            judged = isinstance(event, (v.ActionParsed, v.ActionRejected))
            insist(judged, "a reply is an action or one named rejection", event)
    for step, inside in _of_a_step(events).items():
        count = sum(isinstance(event, (v.ActionParsed, v.ActionRejected)) for event in inside)
        insist(count <= 1, "a step holds one verdict", step)


def _refused_ran_nothing(events: Events) -> None:
    for inside in _of_a_step(events).values():
        refused = [event for event in inside if isinstance(event, REFUSED)]
        if refused:
            ran = [event for event in inside if isinstance(event, RAN)]
            insist(not ran, "what was refused ran nothing", refused)


def _only_loaded_capabilities_run(events: Events, config: GoalConfig) -> None:
    loaded = set(config.preload)
    for event in events:
        if isinstance(event, v.CapabilitiesLoaded):
            loaded.update(event.loaded)
        if isinstance(event, v.ToolStarted) and event.name != "memory_write":
            insist(event.name in loaded, "only what was loaded runs", event.name)


def _completed_means_evidence(events: Events, config: GoalConfig) -> None:
    changes = {manifest.name for manifest in config.manifests if manifest.mutates}
    wanted = {check.id for check in config.checks} if config.verification == "commands" else set()
    passed: set[str] = set()
    names: dict[str, str] = {}
    exits: dict[str, int | None] = {}
    for event in events:
        match event:
            case v.ToolStarted():
                names[event.key] = event.name
            case v.ToolCompleted() | v.ToolFailed():
                if names.get(event.key) in changes:
                    passed.clear()
            case v.WorkspaceChanged():
                passed.clear()
            case v.CheckReturned():
                exits[event.key] = event.exit_code
            case v.EvidenceRecorded():
                really = exits.get(event.key) == 0
                insist(event.passed == really, "a check passes by its exit code alone", event)
                (passed.add if really else passed.discard)(event.check_id)
            case v.FinishAccepted():
                insist(wanted <= passed, "finish needs fresh evidence of every check", wanted - passed)
            case v.FinishRejected():
                insist(set(event.unmet) == wanted - passed, "a refused finish names what is unmet", event)
            case v.ChecksJudged():
                insist(set(event.unmet) == wanted - passed, "a verdict names what is unmet", event)
            case v.RunFinished(status="completed"):
                insist(wanted <= passed, "completed means evidence", wanted - passed)


def _guards_trip(events: Events, config: GoalConfig) -> None:
    """Twice the same search or, with nothing to verify, twice the same `verify`: a guard takes over."""
    checks = config.checks if config.verification == "commands" else ()
    before: tuple[str, Any] | None = None
    reply = ""
    cancelled = False
    for index, event in enumerate(events):
        cancelled = cancelled or isinstance(event, v.CancelRequested)
        if isinstance(event, v.ModelReplied):
            reply = event.text
        if not isinstance(event, v.ActionParsed):
            continue
        now = (event.name, json.loads(reply[event.start : event.end]))
        follows = events[index + 1] if index + 1 < len(events) else None
        repeats = now == before
        before = now
        if follows is None or cancelled:
            continue
        if event.name == "verify" and not checks:
            tripped = isinstance(follows, v.GuardTripped) and follows.guard == "verify_repeats"
            insist(tripped == repeats, "a verify that can't help is handed back at once", follows)
        if event.name == "capability_search" and repeats and checks:
            led = isinstance(follows, (v.GuardTripped, v.FinishAccepted))
            insist(led, "a repeated search runs the checks", follows)


def _the_end_is_the_end(events: Events) -> None:
    ended = ""
    for event in events:
        insist(not ended or (ended == "awaiting_user" and isinstance(event, v.Observed | v.RunResumed))
               or isinstance(event, v.RunResumed) or _is_a_cancel_at_rest(ended, event),
               "nothing follows the end", event)  # fmt: skip
        match event:
            case v.RunFinished():
                ended = event.status
            case v.GuardTripped(guard="steps_spent"):
                ended = "step_cap"
            case v.RunResumed():
                ended = ""


def _is_a_cancel_at_rest(ended: str, event: Any) -> bool:
    return ended == "awaiting_user" and isinstance(event, v.RunFinished)


def _cancelled_starts_nothing(events: Events) -> None:
    cancelled = False
    for event in events:
        if isinstance(event, v.CancelRequested):
            cancelled = True
        insist(
            not (cancelled and isinstance(event, (*RAN, v.ModelStarted))),
            "a cancelled run starts nothing",
            event,
        )


def _observations_reach_the_model(events: Events) -> None:
    waiting = ""
    for event in events:
        match event:
            case v.ActionParsed() | v.ActionRejected():
                waiting = event.call_id
            case v.ObservationRecorded():
                insist(event.call_id == waiting, "an observation is that of its call", event)
                waiting = ""
            case v.ModelStarted() | v.RunFinished():
                insist(not waiting, "what a step gave reaches the model", event)


def _retries_are_counted(events: Events, config: GoalConfig) -> None:
    count = 0
    for event in events:
        if isinstance(event, v.ModelStarted):
            count = 0
        if isinstance(event, v.RetryScheduled):
            count += 1
            insist(count < config.retry.attempts, "no more attempts than the policy gives", event)


def _rejected_is_plain_text(run: Run) -> None:
    calls = sum(bool(turn.tool_calls) for turn in run.history.turns)
    dropped = len(run.goal.compacted) > 0
    insist(dropped or calls == run.goal.actions, "only actions are calls in the history", calls)
