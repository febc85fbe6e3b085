"""How the events of the strict goal loop change the run."""

import msgspec
from msgspec import Raw, Struct

from stepfold.events.configuration import CheckSpec, GoalConfig
from stepfold.events.vocabulary import (
    NULL,
    ActionParsed,
    ActionRejected,
    ApprovalAnswered,
    ApprovalAsked,
    CallUndone,
    CapabilitiesFound,
    CapabilitiesLoaded,
    CheckReturned,
    ChecksJudged,
    CheckStarted,
    ConstraintProbed,
    ContextBuilt,
    ContextCompacted,
    EvidenceRecorded,
    FinishAccepted,
    FinishRejected,
    GuardTripped,
    LimitReached,
    MemoryRecalled,
    Message,
    ObservationRecorded,
    Observed,
    ProfileInferred,
    RunFinished,
    RunReopened,
    RunResumed,
    ToolCall,
    ToolCompleted,
    ToolErred,
    ToolFailed,
    ToolRejected,
    ToolReturned,
    ToolStarted,
    TurnEnded,
    UserAnswered,
    UserAsked,
    UserLoaded,
    WorkerSpent,
    WorkspaceChanged,
)
from stepfold.projections import fold_files, fold_shared, transcript
from stepfold.projections import fold_repeats as repeats
from stepfold.projections.digest import digest_of
from stepfold.projections.effects import AskApproval, Listen, RecallMemory, RunCheck
from stepfold.projections.evidence import Evidence
from stepfold.projections.state import NOT_STARTED, Action, GoalState, Run, SectionInputs, Slot, microseconds
from stepfold.projections.usage import not_yet_spent, plus_spent

LISTEN = "user"
"""The key of the effect that waits for a person."""

WORKER = "worker_dispatch"
"""The name of the calls that a worker answers: a run of its own."""

COMPACTED_LINE_CHARACTERS = 200


class _CapabilityCall(Struct):
    capability: str
    arguments: Raw


class _Said(Struct):
    summary: str = ""
    question: str = ""


_decode_call = msgspec.json.Decoder(_CapabilityCall).decode
_decode_said = msgspec.json.Decoder(_Said).decode


def config_of(run: Run) -> GoalConfig:
    """The configuration of a goal run."""
    return run.config if isinstance(run.config, GoalConfig) else NOT_STARTED


def may_change_files(run: Run, name: str) -> bool:
    """Whether a call may change the workspace. A worker may, and its calls are not in this log."""
    manifest = run.manifests.get(name)
    return name == WORKER or (manifest is not None and manifest.mutates)


def worked(run: Run) -> float:
    """The seconds that the run has worked so far: not those of a person, nor those between two lives."""
    return (run.now - microseconds(run.started_ts) - run.goal.idle) / 1_000_000


def _idled(run: Run, event: Observed) -> None:
    """Between the last observed event and this one nobody but a person was at work, or no process was."""
    run.goal.idle += max(0, microseconds(event.ts) - run.now)


def run_reopened(run: Run, event: RunReopened) -> None:
    """A later life of the run; what is due is started again by the shell."""
    _idled(run, event)
    fold_files.forget(run.goal)


def constraint_probed(run: Run, event: ConstraintProbed) -> None:
    """The requests from here on carry the constraint in this form."""
    run.goal.form = event.form


def profile_inferred(run: Run, event: ProfileInferred) -> None:
    """The profile is known; memory is asked for what fits the goal."""
    config = config_of(run)
    run.goal.profile = event.profile
    if config.memory:
        run.due["memory"] = RecallMemory("memory", config.goal)


def memory_recalled(run: Run, event: MemoryRecalled) -> None:
    """The hits stand in the framing from now on."""
    run.goal.hits = event.hits


def observation_recorded(run: Run, event: ObservationRecorded) -> None:
    """All that the transcript gained since the mark becomes the tool turn of its call."""
    goal = run.goal
    if goal.pending is None:
        return
    call_id, mark = goal.pending
    goal.pending = None
    observation = "\n".join(goal.transcript[mark:])
    run.history.append(Message("tool", observation, tool_call_id=call_id))
    repeats.step_ended(run, observation)


def section_inputs(goal: GoalState) -> SectionInputs:
    """All that the framing depends on beside the configuration: the same inputs, the same sections."""
    return (goal.profile, goal.hits, tuple(goal.loaded), goal.compacted, goal.listings, goal.files_at_start)


def context_built(run: Run, event: ContextBuilt) -> None:
    """Opens a step. Sections are listed only when one of them changed."""
    goal = run.goal
    goal.context_step = event.step
    if not event.sections:
        return
    for section in event.sections:
        if section.text:
            goal.texts[section.digest] = section.text
    goal.section_inputs = section_inputs(goal)
    goal.sections = tuple((section.name, section.digest) for section in event.sections)
    goal.system = "\n\n".join(goal.texts.get(digest, "") for _, digest in goal.sections)
    goal.system_digest = digest_of(goal.system)


def context_compacted(run: Run, event: ContextCompacted) -> None:
    """The oldest turns leave the prompt; the first line of each stays in the framing."""
    dropped = run.history.drop(event.dropped)
    lines = tuple(_first_line(turn) for turn in dropped if turn.role == "tool")
    run.goal.compacted = (*run.goal.compacted, *lines)[-20:]
    fold_files.forget(run.goal)


def _first_line(turn: Message) -> str:
    head, _, _ = turn.content.partition("\n")
    return f"{turn.tool_call_id}: {head[:COMPACTED_LINE_CHARACTERS]}"


def action_parsed(run: Run, event: ActionParsed) -> None:
    """The action of the step; from here on the transcript belongs to its observation."""
    goal = run.goal
    arguments = run.reply[event.start : event.end]
    goal.previous_action = goal.action
    goal.action = Action(event.name, arguments)
    goal.actions += 1
    goal.fault = ("", 0)
    goal.checked = []
    run.history.append(
        Message("assistant", run.reply, tool_calls=(ToolCall(event.call_id, event.name, arguments),))
    )
    name, inner = called(goal.action)
    run.slots = [Slot(event.call_id, name, inner, f"tool:{event.step}.0")]
    goal.transcript.append(transcript.action_line(event.call_id, event.name, arguments))
    goal.pending = (event.call_id, len(goal.transcript))


def fault_of(error: str, detail: str) -> str:
    """What makes two rejections the same to a model: the error and its sentence, wherever it was."""
    return f"{error}: {detail.partition('(')[0]}"


def action_rejected(run: Run, event: ActionRejected) -> None:
    """The reply stays as plain text beside its error: a malformed call in the turns is refused for ever."""
    goal = run.goal
    goal.rejected += 1
    kind, count = goal.fault
    fault = fault_of(event.error, event.detail)
    goal.fault = (fault, count + 1 if kind == fault else 1)
    repeats.rejected(run, event.error, event.detail)
    if event.repair.text:
        goal.texts[event.repair.digest] = event.repair.text
    run.history.append(Message("assistant", run.reply, tool_call_id=event.call_id))
    goal.transcript.append(transcript.rejected_line(event.call_id, event.error))
    goal.pending = (event.call_id, len(goal.transcript))
    goal.transcript.append(goal.texts.get(event.repair.digest, event.detail))


def capabilities_found(run: Run, event: CapabilitiesFound) -> None:
    """The search result."""
    run.goal.transcript.append(transcript.found_lines(event.names, run.manifests))


def capabilities_loaded(run: Run, event: CapabilitiesLoaded) -> None:
    """What is loaded may be called."""
    run.goal.loaded.update(dict.fromkeys(event.loaded))
    run.goal.transcript.append(transcript.loaded_lines(event.loaded, event.failed, tuple(run.manifests)))


def tool_rejected(run: Run, event: ToolRejected) -> None:
    """The call did not run."""
    repeats.rejected(run, event.name, event.hop, event.reason)
    run.goal.approval = None
    if run.slots:
        run.due.pop(approval_key(run.slots[0]), None)
    run.goal.transcript.append(transcript.refused_line(event.name, event.hop, event.reason))


def approval_key(slot: Slot) -> str:
    """The key of the question whether a call may run."""
    return f"approval:{slot.key.removeprefix('tool:')}"


def approval_asked(run: Run, event: ApprovalAsked) -> None:
    """The call waits for a person's yes."""
    written = run.slots[0].arguments if run.slots else b"{}"
    arguments = written if event.arguments is NULL else bytes(event.arguments)
    run.due[event.key] = AskApproval(event.key, event.name, event.rule, arguments)


def approval_answered(run: Run, event: ApprovalAnswered) -> None:
    """The answer waits to be taken up."""
    _idled(run, event)
    run.goal.approval = event


def called(action: Action) -> tuple[str, bytes]:
    """The tool that an action runs, and its arguments as the model wrote them.

    A capability's arguments lie inside those of `capability_call`.
    """
    arguments = action.arguments.encode("utf-8", "surrogatepass")
    if action.name != "capability_call":
        return action.name, arguments
    try:
        call = _decode_call(arguments)
    except msgspec.DecodeError:
        return action.name, arguments
    return call.capability, bytes(call.arguments)


def _said(action: Action | None) -> _Said:
    try:
        return _Said() if action is None else _decode_said(action.arguments)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return _Said()


def tool_started(run: Run, event: ToolStarted) -> None:
    """A call is due. A worker's may go on beside the steps that follow."""
    fold_shared.tool_started(run, event)
    run.goal.approval = None
    if event.name != WORKER:
        return
    goal = run.goal
    goal.workers += run.slots
    run.slots = []
    if config_of(run).worker_slots > 1:
        goal.transcript.append(transcript.dispatched_line(event.call_id))


def tool_ended(run: Run, event: ToolCompleted | ToolFailed) -> None:
    """The result is observed; a call that changes the workspace makes older evidence stale."""
    slot = fold_shared.slot_of(run, event.key)
    if slot is None:
        return
    goal = run.goal
    run.due.pop(slot.key, None)
    if may_change_files(run, slot.name):
        goal.mutations += 1
        goal.changes.append((slot.key, slot.name))
        fold_files.forget(goal)
    fold_files.call_ended(run, slot, event)
    repeats.call_ended(run, slot, event)
    lines = transcript.result_lines(slot.name, slot.landed, event.error)
    goal.transcript.append(lines)
    if slot.name != WORKER:
        return
    goal.workers.remove(slot)
    if isinstance(slot.landed, ToolReturned | ToolErred):
        run.usage = run.usage.plus_child(not_yet_spent(slot.landed.child, slot.spent))
    if goal.pending is None:
        # No call of this step will carry it to the model: it landed while the run waited for a person.
        run.history.append(Message("user", lines))


def worker_spent(run: Run, event: WorkerSpent) -> None:
    """It counts at once, whatever becomes of the worker."""
    run.usage = run.usage.plus_child(event.child)
    slot = fold_shared.slot_of(run, event.worker)
    if slot is not None:
        slot.spent = plus_spent(slot.spent, event.child)


def check_started(run: Run, event: CheckStarted) -> None:
    """One check is due."""
    run.goal.checks_run += 1
    run.due[event.key] = RunCheck(event.key, event.check_id)
    run.goal.checked.append(event.check_id)


def check_returned(run: Run, event: CheckReturned) -> None:
    """A check's result waits to be recorded."""
    run.goal.check_landed = event


def workspace_changed(run: Run, event: WorkspaceChanged) -> None:
    """Somebody else changed the files: what the checks showed before is about other ones."""
    run.goal.mutations += 1
    fold_files.forget(run.goal)
    run.goal.transcript.append(transcript.WORKSPACE_CHANGED)


def evidence_recorded(run: Run, event: EvidenceRecorded) -> None:
    """What the check showed, as of the workspace now."""
    goal = run.goal
    landed = goal.check_landed
    run.due = {key: effect for key, effect in run.due.items() if not isinstance(effect, RunCheck)}
    exit_code, digest = (landed.exit_code, landed.digest) if isinstance(landed, CheckReturned) else (None, "")
    workspace = landed.workspace if isinstance(landed, CheckReturned) else ""
    if any(item.is_about_other_files(workspace, goal.mutations) for item in goal.evidence.values()):
        # This check (or somebody beside it) changed the files: the earlier checks must look again.
        goal.mutations += 1
        fold_files.forget(goal)
    command = next((check.command for check in checks_of(run) if check.id == event.check_id), "")
    goal.evidence[event.check_id] = Evidence(
        event.check_id, command, exit_code, digest, event.step, goal.mutations, workspace
    )
    goal.transcript.append(transcript.evidence_lines(event.check_id, landed))
    goal.check_landed = None


def checks_of(run: Run) -> tuple[CheckSpec, ...]:
    """The acceptance checks of the run; none under manual verification."""
    config = config_of(run)
    return config.checks if config.verification == "commands" else ()


def checks_judged(run: Run, event: ChecksJudged) -> None:
    """Where the goal stands."""
    ids = [check.id for check in checks_of(run)]
    run.goal.transcript.append(
        transcript.judged_lines(event.unmet, event.unknown, ids, config_of(run).wording)
    )


def guard_tripped(run: Run, event: GuardTripped) -> None:
    """A guard took over; what it says is part of the transcript."""
    match event.guard:
        case "verify_repeats":
            run.goal.transcript.append(transcript.VERIFY_GUARD)
        case "search_repeats":
            run.goal.transcript.append(transcript.SEARCH_GUARD)
        case "turn_spent":
            run.goal.summary = f"all {config_of(run).max_steps} steps of this turn are used up"
        case "steps_spent":
            run.status = "step_cap"
        case guard:
            run.goal.verdict = "guard"
            run.fault, run.fault_detail = guard, event.detail or repeats.GUARDS.get(guard, guard)


def limit_reached(run: Run, event: LimitReached) -> None:
    """A budget is used up. What is said of it is the run's summary; in a chat, its answer to the person."""
    budget = config_of(run).budget
    run.goal.limit = event.limit
    match event.limit:
        case "tokens":
            run.goal.summary = f"the budget of {budget.tokens} tokens is used up"
        case "cost":
            run.goal.summary = f"the budget of {budget.cost or 0:g} is spent"
        case _:
            run.goal.summary = f"the {budget.seconds or 0:g} s of the budget are over"


def finish_accepted(run: Run, event: FinishAccepted) -> None:
    """The run may end as completed."""
    goal = run.goal
    goal.verdict = "completed"
    if event.by == "finish":
        goal.summary = _said(goal.action).summary
    goal.transcript.append(transcript.finish_accepted_line(event.by, goal.summary))


def finish_rejected(run: Run, event: FinishRejected) -> None:
    """The model reads which checks are unmet."""
    repeats.rejected(run, "finish", *event.unmet)
    run.goal.transcript.append(transcript.finish_rejected_line(event.unmet, config_of(run).wording))


def turn_ended(run: Run, event: TurnEnded) -> None:
    """The summary is what the person reads."""
    goal = run.goal
    goal.summary = _said(goal.action).summary
    goal.transcript.append(f"answered: {goal.summary}")


def user_loaded(run: Run, event: UserLoaded) -> None:
    """What the person loaded may be called, as far as it exists."""
    _idled(run, event)
    names = [name for name in event.names if name in run.manifests]
    run.goal.loaded.update(dict.fromkeys(names))
    run.goal.transcript.append(f"user loaded: {', '.join(names)}")


def call_undone(run: Run, event: CallUndone) -> None:
    """The model reads that its change is gone; what was verified before is stale."""
    _idled(run, event)
    goal = run.goal
    goal.changes = [change for change in goal.changes if change[0] != event.call]
    goal.mutations += 1
    fold_files.forget(goal)
    line = f"user undid {event.name}: {event.what} {event.path}"
    goal.transcript.append(line)
    run.history.append(Message("user", line))


def user_asked(run: Run, event: UserAsked) -> None:
    """The question is the run's summary until it is answered."""
    goal = run.goal
    goal.verdict = "awaiting_user"
    goal.summary = _said(goal.action).question
    goal.transcript.append(f"ask_user: {goal.summary}")


def user_answered(run: Run, event: UserAnswered) -> None:
    """The answer waits to be taken up."""
    _idled(run, event)
    run.goal.answer = event.text


def run_resumed(run: Run, event: RunResumed) -> None:
    """The answer becomes a user turn; the run is open again, and nobody saw what was done meanwhile."""
    goal = run.goal
    fold_files.forget(goal)
    answer = goal.answer or ""
    goal.answer = None
    if goal.verdict == "guard":
        # It has said so. Counting on, it would stop every turn from here on before the model is asked.
        repeats.count_anew(goal)
    goal.told, goal.again = (), ()
    goal.verdict = ""
    goal.summary = ""
    run.status = ""
    if config_of(run).chat:
        # What stopped the last turn, be it the person or the model's server, does not stop this one.
        run.cancel, run.fault, run.fault_detail = False, "", ""
        goal.turn_step = run.step
    goal.transcript.append(f"user: {answer}")
    run.history.append(Message("user", answer))


def run_finished(run: Run, event: RunFinished) -> None:
    """The end, or the rest until somebody answers."""
    run.status = event.status
    run.due.clear()
    if event.status == "awaiting_user":
        run.due[LISTEN] = Listen(LISTEN)
