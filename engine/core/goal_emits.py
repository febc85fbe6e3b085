"""What each row of the goal table records: one event, built from the run and what its state saw."""

from typing import Any

from msgspec import Raw

from stepfold.engine.capabilities.lifecycle import Admitted, Refused
from stepfold.engine.capabilities.router import search as search_capabilities
from stepfold.engine.contract.envelope import ActionParseError
from stepfold.engine.contract.repair import repair_after, repair_for
from stepfold.engine.contract.schemas import TOP_LEVEL
from stepfold.engine.core import guards
from stepfold.engine.core.backoff import delay_of
from stepfold.engine.core.framing import changed_sections, estimated_tokens
from stepfold.engine.core.goal_sees import Acting, Checking, taken_arguments
from stepfold.engine.core.machine import Emit, Head
from stepfold.engine.core.own_guards import objection
from stepfold.engine.core.profile import infer_profile_from_goal
from stepfold.events import vocabulary as v
from stepfold.events.configuration import WORDING_OF_MENDS
from stepfold.projections.digest import digest_of
from stepfold.projections.evidence import unmet
from stepfold.projections.fold_goal import WORKER, approval_key, checks_of, config_of, fault_of
from stepfold.projections.prompt import request_digest
from stepfold.projections.state import Run, Slot, decided_config, microseconds


def profile(run: Run, given: Any, head: Head) -> v.Decided:
    """The caller's profile, or the one that the goal's words suggest."""
    config = config_of(run)
    if config.profile:
        return v.ProfileInferred(*head, profile=config.profile, source="caller")
    return v.ProfileInferred(*head, profile=infer_profile_from_goal(config.goal), source="goal")


def observation(run: Run, given: Any, head: Head) -> v.Decided:
    """The pending observation becomes a turn."""
    call_id, _ = run.goal.pending or ("", 0)
    return v.ObservationRecorded(*head, call_id=call_id)


def limit(run: Run, given: Any, head: Head) -> v.Decided:
    """Which budget is used up."""
    return v.LimitReached(*head, limit=guards.spent_budget(run))


def context(run: Run, given: Any, head: Head) -> v.Decided:
    """Opens the next step: the framing, as far as it changed."""
    version, run_id, seq, step, ts, row, to = head
    sections = changed_sections(run)
    return v.ContextBuilt(
        version, run_id, seq, step + 1, ts, row, to, sections=sections, tokens=estimated_tokens(run, sections)
    )


def compaction(run: Run, given: Any, head: Head) -> v.Decided:
    """How many turns go, and how many stay."""
    count = guards.turns_to_drop(run)
    return v.ContextCompacted(*head, dropped=count, kept=len(run.history.turns) - count)


def ask(run: Run, given: Any, head: Head) -> v.Decided:
    """The intent to ask the model, with the digest of exactly what it is asked."""
    config = config_of(run)
    return v.ModelStarted(
        *head,
        call_id=f"model-{run.call + 1}",
        model=config.model,
        digest=request_digest(run, config.generation.max_tokens),
        max_tokens=config.generation.max_tokens,
    )


def completed(run: Run, given: Any, head: Head) -> v.Decided:
    """The reply is taken."""
    return v.ModelCompleted(*head, call_id=run.call_id)


def retry(run: Run, given: v.ModelErred, head: Head) -> v.Decided:
    """The next attempt, and how long until then."""
    delay = delay_of(decided_config(run).retry, run.attempt, given.retry_after, run.call_id)
    return v.RetryScheduled(*head, call_id=run.call_id, attempt=run.attempt + 1, delay=delay, why=given.error)


def model_failed(run: Run, given: v.ModelErred, head: Head) -> v.Decided:
    """No reply came of this call."""
    return v.ModelFailed(*head, call_id=run.call_id, error=given.error)


def model_cancelled(run: Run, given: Any, head: Head) -> v.Decided:
    """The call is given up because the run is."""
    return v.ModelFailed(*head, call_id=run.call_id, error="cancelled")


def rejected(run: Run, given: Any, head: Head) -> v.Decided:
    """The reply is no action; the repair is recorded where its text is new."""
    text = _repair(run, given)
    digest = digest_of(text)
    repair = v.Section("repair", digest, "" if digest in run.goal.texts else text)
    return v.ActionRejected(
        *head, call_id=f"call_{run.call}", error=given.error, detail=given.detail, repair=repair
    )


def _repair(run: Run, error: ActionParseError) -> str:
    if config_of(run).wording < WORDING_OF_MENDS:
        return repair_for(error)
    kind, count = run.goal.fault
    before = count if kind == fault_of(error.error, error.detail) else 0
    return repair_after(error, run.reply, before, TOP_LEVEL)


def accepted(run: Run, given: Any, head: Head) -> v.Decided:
    """The reply is an action; its arguments stay where they lie, in the reply."""
    return v.ActionParsed(
        *head, call_id=f"call_{run.call}", name=given.name, start=given.start, end=given.end
    )


def found(run: Run, given: Acting, head: Head) -> v.Decided:
    """The ranked capabilities."""
    names = search_capabilities(given.arguments["query"], tuple(run.manifests.values()))
    return v.CapabilitiesFound(*head, call_id=given.call_id, names=names)


def found_again(run: Run, given: Checking, head: Head) -> v.Decided:
    """The search result that stands when the escalation found the goal unmet."""
    return found(run, Acting(given.call_id, taken_arguments(run)), head)


def loaded(run: Run, given: Acting, head: Head) -> v.Decided:
    """The valid names, each once, and the others."""
    names = dict.fromkeys(given.arguments["names"])
    return v.CapabilitiesLoaded(
        *head,
        call_id=given.call_id,
        loaded=tuple(name for name in names if name in run.manifests),
        failed=tuple(name for name in names if name not in run.manifests),
    )


def call_rejected(run: Run, given: Acting, head: Head) -> v.Decided:
    """The hop that refused, and what would be right."""
    refused = given.admission
    assert isinstance(refused, Refused)
    return v.ToolRejected(
        *head, call_id=given.call_id, name=refused.name, hop=refused.hop, reason=refused.reason
    )


def worker_refused(run: Run, given: Acting, head: Head) -> v.Decided:
    """No worker is to be had for this task."""
    reason = guards.worker_refusal(run, given)
    return v.ToolRejected(*head, call_id=given.call_id, name=WORKER, hop="dispatch", reason=reason)


def dispatch(run: Run, given: Acting, head: Head) -> v.Decided:
    """The intent to hand a task to a worker."""
    return v.ToolStarted(*head, call_id=given.call_id, name=WORKER, key=run.slots[0].key)


def worker_completed(run: Run, given: Any, head: Head) -> v.Decided:
    """The first worker that has an outcome, in the order of their dispatch."""
    slot = next(slot for slot in run.goal.workers if isinstance(slot.landed, v.ToolReturned))
    assert isinstance(slot.landed, v.ToolReturned)
    return _completed(slot, slot.landed, head)


def worker_failed(run: Run, given: Any, head: Head) -> v.Decided:
    """The first worker that ended without an outcome."""
    slot = next(slot for slot in run.goal.workers if isinstance(slot.landed, v.ToolErred | v.EffectLost))
    return _failed(slot, slot.landed.error if isinstance(slot.landed, v.ToolErred) else "lost", head)


def worker_cancelled(run: Run, given: Any, head: Head) -> v.Decided:
    """A worker is given up because its run ends; its own run ends cancelled."""
    return _failed(run.goal.workers[0], "cancelled", head)


def approval_asked(run: Run, given: Acting, head: Head) -> v.Decided:
    """A person is asked whether the call may run."""
    admitted = given.admission
    assert isinstance(admitted, Admitted)
    return v.ApprovalAsked(
        *head,
        call_id=given.call_id,
        name=admitted.name,
        rule=admitted.asks,
        key=approval_key(run.slots[0]),
        arguments=Raw(admitted.arguments) if admitted.changed else v.NULL,
    )


def disapproved(run: Run, given: Acting, head: Head) -> v.Decided:
    """The person said no, or the run is given up before they said anything."""
    answer = run.goal.approval
    said = f": {answer.text}" if answer is not None and answer.text else ""
    reason = f"the user did not approve it{said}. Do it another way, or ask"
    assert isinstance(given.admission, Admitted)
    return v.ToolRejected(
        *head, call_id=given.call_id, name=given.admission.name, hop="approval", reason=reason
    )


def turn_ended(run: Run, given: Acting, head: Head) -> v.Decided:
    """The model has answered the person."""
    return v.TurnEnded(*head, call_id=given.call_id)


def call(run: Run, given: Acting, head: Head) -> v.Decided:
    """The intent to run an admitted capability."""
    admitted = given.admission
    assert admitted is not None
    assert not isinstance(admitted, Refused)
    return v.ToolStarted(
        *head,
        call_id=given.call_id,
        name=admitted.name,
        key=run.slots[0].key,
        arguments=Raw(admitted.arguments) if admitted.changed else v.NULL,
        notes=admitted.notes,
    )


def remember(run: Run, given: Acting, head: Head) -> v.Decided:
    """The intent to write into the memory of later runs."""
    return v.ToolStarted(*head, call_id=given.call_id, name="memory_write", key=run.slots[0].key)


def tool_completed(run: Run, given: v.ToolReturned, head: Head) -> v.Decided:
    """The result is folded."""
    return _completed(run.slots[0], given, head)


def tool_failed(run: Run, given: v.ToolErred, head: Head) -> v.Decided:
    """The call raised."""
    return _failed(run.slots[0], given.error, head)


def tool_lost(run: Run, given: Any, head: Head) -> v.Decided:
    """Nobody knows whether the call took effect."""
    return _failed(run.slots[0], "lost", head)


def tool_cancelled(run: Run, given: Any, head: Head) -> v.Decided:
    """The call is given up because the run is."""
    return _failed(run.slots[0], "cancelled", head)


def check_started(run: Run, given: Checking, head: Head) -> v.Decided:
    """The next wanted check."""
    check_id = given.left[0]
    return v.CheckStarted(*head, check_id=check_id, key=check_key(check_id, run.goal.checks_run + 1))


def check_key(check_id: str, number: int) -> str:
    """The key of the run's n-th check."""
    return f"check:{check_id}:{number}"


def evidence(run: Run, given: Checking, head: Head) -> v.Decided:
    """What the last started check showed."""
    landed = run.goal.check_landed
    passed = isinstance(landed, v.CheckReturned) and landed.exit_code == 0
    check_id = run.goal.checked[-1]
    return v.EvidenceRecorded(
        *head, check_id=check_id, passed=passed, key=check_key(check_id, run.goal.checks_run)
    )


def judged(run: Run, given: Checking, head: Head) -> v.Decided:
    """Where the goal stands."""
    still = unmet(checks_of(run), run.goal.evidence, run.goal.mutations)
    return v.ChecksJudged(*head, call_id=given.call_id, unmet=still, unknown=given.unknown)


def finish_accepted(by: str) -> Emit:
    """The goal is met."""

    def emit(run: Run, given: Any, head: Head) -> v.Decided:
        return v.FinishAccepted(*head, call_id=given.call_id, by=by)

    return emit


def finish_rejected(run: Run, given: Acting, head: Head) -> v.Decided:
    """Exactly which checks are unmet."""
    still = unmet(checks_of(run), run.goal.evidence, run.goal.mutations)
    return v.FinishRejected(*head, call_id=given.call_id, unmet=still)


def own_guard(run: Run, given: Any, head: Head) -> v.Decided:
    """Which of the guards from outside objects, and why."""
    name, reason = objection(run)
    return v.GuardTripped(*head, guard=name, detail=reason)


def asked(run: Run, given: Acting, head: Head) -> v.Decided:
    """The model waits for a person."""
    return v.UserAsked(*head, call_id=given.call_id)


def resumed(run: Run, given: Any, head: Head) -> v.Decided:
    """The answer is taken up."""
    return v.RunResumed(*head)


def _completed(slot: Slot, landed: v.ToolReturned, head: Head) -> v.Decided:
    return v.ToolCompleted(
        *head,
        call_id=slot.call_id,
        key=slot.key,
        error=landed.error,
        output_bytes=landed.size or len(landed.content.encode("utf-8", "surrogatepass")),
        duration=_duration(slot),
    )


def _failed(slot: Slot, error: str, head: Head) -> v.Decided:
    return v.ToolFailed(*head, call_id=slot.call_id, key=slot.key, error=error, duration=_duration(slot))


def _duration(slot: Slot) -> float:
    if not slot.landed_at or isinstance(slot.landed, v.EffectLost):
        return 0.0
    return (microseconds(slot.landed_at) - microseconds(slot.started_at)) / 1_000_000
