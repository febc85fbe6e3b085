"""Guards of the goal table: conditions on the run, read after "if". Each returns a real bool.

`given` is what the state's eye gave with its word (see `goal_sees`). Thresholds and
caps come from the run's configuration.
"""

from typing import Any

import msgspec

from stepfold.engine.capabilities.lifecycle import Admitted, Refused
from stepfold.engine.core.framing import CHARACTERS_A_TOKEN
from stepfold.engine.core.own_guards import objection
from stepfold.engine.core.profile import PROFILES
from stepfold.events.vocabulary import EffectLost, ModelErred, ToolErred, ToolReturned
from stepfold.projections.evidence import unmet
from stepfold.projections.fold_goal import checks_of, config_of, may_change_files, worked
from stepfold.projections.fold_repeats import guards_of, rounds_of
from stepfold.projections.state import Run, decided_config


def observation_pending(run: Run, given: Any) -> bool:
    """An arm has run and its observation is not in the history yet.

    Earned by arms that left the loop early: their result was in the transcript and the model never
    saw it. So the flush stands above every other row, at the top of a step and at the end.
    """
    return run.goal.pending is not None


def cancel_requested(run: Run, given: Any) -> bool:
    """Somebody wants the run to end. Stands above whatever a state could start."""
    return run.cancel


def own_guard_objects(run: Run, given: Any) -> bool:
    """A guard that somebody brought from outside objects to the action.

    Earned by rules that only a project knows: a model that edits the lock file, or asks for the same
    record of a database for the hundredth time under another name.
    """
    return bool(objection(run)[0])


def steps_spent(run: Run, given: Any) -> bool:
    """All steps are used up. A model that never speaks JSON stops here too, for rejections use steps."""
    return run.step - run.goal.turn_step >= config_of(run).max_steps


def spent_budget(run: Run) -> str:
    """The first of the run's budgets that is used up: `tokens`, `cost`, `wall_clock` or empty."""
    budget, usage = config_of(run).budget, run.usage
    if budget.tokens is not None and usage.total_tokens >= budget.tokens:
        return "tokens"
    if budget.cost is not None and usage.cost >= budget.cost:
        return "cost"
    return "wall_clock" if budget.seconds is not None and worked(run) >= budget.seconds else ""


def budget_spent(run: Run, given: Any) -> bool:
    """A budget of the run is used up: its tokens, its money or its time.

    Earned by runs that steps alone did not bound: twelve long prompts cost what eighty short ones do.
    """
    return bool(spent_budget(run))


def memory_unrecalled(run: Run, given: Any) -> bool:
    """The memory of earlier runs has been asked and has not answered yet."""
    return "memory" in run.due


def context_unbuilt(run: Run, given: Any) -> bool:
    """This step's context is still to be built: the last one built belongs to a call already made."""
    return run.goal.context_step <= run.call


def over_window(run: Run, given: Any) -> bool:
    """The request is larger than the model's window, and there are old turns that can go.

    Earned by servers that cut a long prompt at the front without a word, framing first.
    """
    tokens = (len(run.goal.system) + run.history.characters) // CHARACTERS_A_TOKEN
    return tokens > config_of(run).context_window and turns_to_drop(run) > 0


def turns_to_drop(run: Run) -> int:
    """How many of the oldest turns (whole pairs, the seed turn stays) bring the request to half a window."""
    history = run.history
    room = config_of(run).context_window * CHARACTERS_A_TOKEN // 2 - len(run.goal.system)
    characters = history.characters
    droppable = max(0, len(history.turns) - 3)
    count = 0
    while count < droppable and characters > room:
        characters -= len(history.turns[1 + count].content)
        count += 1
    # A tool turn without its call confuses a model, and providers refuse it: the pair goes whole.
    while 0 < count < len(history.turns) - 1 and history.turns[1 + count].role == "tool":
        count += 1
    return count


def retryable(run: Run, given: Any) -> bool:
    """The failed attempt may be tried again: the server said so, and attempts are left.

    Earned by runs of an hour that a single 503 ended.
    """
    error = run.model_landed
    if not isinstance(error, ModelErred) or not error.retryable:
        return False
    return run.attempt + 1 < decided_config(run).retry.attempts


def action_repeats(run: Run, given: Any) -> bool:
    """The same action as the last one, whatever the order of its keys.

    A rejected reply in between breaks nothing: the model has still done the same twice.
    """
    now, before = run.goal.action, run.goal.previous_action
    if now is None or before is None or now.name != before.name:
        return False
    return now.arguments == before.arguments or _sorted(now.arguments) == _sorted(before.arguments)


def _sorted(arguments: str) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(arguments), order="sorted")


def has_no_automatic_verifier_evidence(run: Run, given: Any) -> bool:
    """No command-backed check could ever produce evidence.

    Earned by a model that could not satisfy a check that nobody could run, and called `verify` until
    the steps were gone, hoping that the answer would change. Better to hand the run back.
    """
    return not checks_of(run)


def checks_missing(run: Run, given: Any) -> bool:
    """Some acceptance check has no fresh passing evidence."""
    return bool(unmet(checks_of(run), run.goal.evidence, run.goal.mutations))


def evidence_complete(run: Run, given: Any) -> bool:
    """Every acceptance check has fresh passing evidence; so does a goal without any check.

    Earned by small models that say "done" as soon as a repair confuses them.
    """
    return not checks_missing(run, given)


def checks_configured(run: Run, given: Any) -> bool:
    """There is something to verify. Without it, a repeated search is no reason to believe the goal met."""
    return bool(checks_of(run))


def changes_verified(run: Run, given: ToolReturned) -> bool:
    """The call has changed files, and the run wants its checks asked after each such call.

    Earned by models of one or two billion parameters that changed a file, changed it again and read it
    once more until their steps were used up: none of them asked whether it was right. As for `verify`, what
    is judged must not change meanwhile: while a worker is at work, nothing is.
    """
    return (
        config_of(run).verify_changes
        and not given.error
        and not run.goal.workers
        and may_change_files(run, run.slots[0].name)
        and bool(checks_of(run))
    )


def check_left(run: Run, given: Any) -> bool:
    """A wanted check has not run yet under this action."""
    return bool(given.left)


def check_open(run: Run, given: Any) -> bool:
    """A check is running."""
    return any(key.startswith("check:") for key in run.due)


def call_refused(run: Run, given: Any) -> bool:
    """A hop of the call's lifecycle says no."""
    return isinstance(given.admission, Refused)


def needs_approval(run: Run, given: Any) -> bool:
    """The policy leaves this call to a person. In a run without one, the lifecycle refuses it instead."""
    return isinstance(given.admission, Admitted) and bool(given.admission.asks)


def approved(run: Run, given: Any) -> bool:
    """The person said yes to the call that waits."""
    return run.goal.approval is not None and run.goal.approval.approved


def chatting(run: Run, given: Any) -> bool:
    """A person is there: whatever ends the model's turn hands over to them, and nothing ends the run."""
    return config_of(run).chat


def no_worker_free(run: Run, given: Any) -> bool:
    """A worker can't be had: no slot is free, the run is too deep, or its profile is none that exists.

    Earned by runs that dispatched themselves: a model that can't do a task tends to pass it on whole.
    """
    return bool(worker_refusal(run, given))


def worker_refusal(run: Run, given: Any) -> str:
    """Why a worker can't be had, and what to do instead; empty when it can."""
    config = config_of(run)
    profile = given.arguments.get("profile", "")
    if not config.worker_slots or not config.worker_depth:
        return "no worker slot is free (worker_slots = 0): do the task yourself, with capability_call"
    if config.depth >= config.worker_depth:
        return (
            f"this run is a worker itself, and workers go {config.worker_depth} deep (loop.worker_depth): "
            "do the task yourself, with capability_call"
        )
    if len(run.goal.workers) >= config.worker_slots:
        return f"all {config.worker_slots} worker slots are taken: wait for an outcome"
    if profile and profile not in PROFILES:
        return f"there is no profile {profile!r}; there are: {', '.join(PROFILES)}. It may be left out"
    return ""


def workers_open(run: Run, given: Any) -> bool:
    """A worker is still at work. Whatever judges the project waits: the worker may be changing it."""
    return bool(run.goal.workers)


def slots_taken(run: Run, given: Any) -> bool:
    """Every worker slot is taken, so the next step waits for an outcome."""
    return workers_open(run, given) and len(run.goal.workers) >= config_of(run).worker_slots


def worker_returned(run: Run, given: Any) -> bool:
    """A worker's outcome has landed."""
    workers = run.goal.workers
    return bool(workers) and any(isinstance(slot.landed, ToolReturned) for slot in workers)


def worker_failed(run: Run, given: Any) -> bool:
    """A worker ended without an outcome: it could not be run, or nobody saw its end."""
    workers = run.goal.workers
    return bool(workers) and any(isinstance(slot.landed, ToolErred | EffectLost) for slot in workers)


def faulted(run: Run, given: Any) -> bool:
    """The run can't go on: the model failed for good."""
    return bool(run.fault)


def completed(run: Run, given: Any) -> bool:
    """The goal was found met."""
    return run.goal.verdict == "completed"


def user_asked(run: Run, given: Any) -> bool:
    """The model waits for a person."""
    return run.goal.verdict == "awaiting_user"


def cycle_repeats(run: Run, given: Any) -> bool:
    """The last steps went round one cycle of two to six steps `guards.cycle` times. Off unless configured.

    Earned by a model that wrote a file, ran the check, restored the file and ran the check, until the
    steps were gone: no step was like the one before it, so no other guard saw it. Results count, so
    paging through a file is no cycle.
    """
    threshold = guards_of(run).cycle
    return threshold > 0 and rounds_of(run.goal) >= threshold


def rejection_repeats(run: Run, given: Any) -> bool:
    """The same rejection `guards.rejection` times in a row. Off unless configured.

    Earned by small models at temperature 0: a rejected reply and its repair lead to the very same
    reply, step after step, and each costs a whole prompt.
    """
    threshold = guards_of(run).rejection
    return threshold > 0 and run.goal.rejections >= threshold


def failure_repeats(run: Run, given: Any) -> bool:
    """The same call failed in the same way `guards.failure` times, whatever else stood in between.

    Off unless configured. Earned by a model that looked around between its attempts to patch a text
    that was not there: no two steps in a row were alike. A call that changed the project and went well
    begins the count anew, for then trying again makes sense.
    """
    threshold = guards_of(run).failure
    return threshold > 0 and any(count >= threshold for _, count in run.goal.failures.values())
