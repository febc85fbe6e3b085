"""What the model was sent, rebuilt from the log alone."""

from collections.abc import Iterable

from msgspec import Struct

from stepfold.engine.models.protocol import Request
from stepfold.engine.runtime.goal_effects import request_of
from stepfold.engine.runtime.harness_effects import harness_request, tools_offered
from stepfold.events.vocabulary import AnyEvent, ModelStarted, Unknown
from stepfold.projections.effects import AskModel
from stepfold.projections.fold_goal import config_of
from stepfold.projections.prompt import GoalPrompt, harness_request_digest, request_digest
from stepfold.projections.run import evolve
from stepfold.projections.state import Run


class RebuiltRequest(Struct, frozen=True):
    """A request as it was sent. `agrees`: its digest is the one that the log recorded."""

    run_id: str
    digest: str
    agrees: bool
    request: Request


def recorded_request(events: Iterable[AnyEvent | Unknown], step: int) -> RebuiltRequest | None:
    """The request of a step, from the events up to its `ModelStarted`; None when that step asked nothing."""
    run = Run()
    for event in events:
        if isinstance(event, ModelStarted) and event.step == step:
            return _rebuilt(run, event)
        evolve(run, event)
    return None


def _rebuilt(run: Run, event: ModelStarted) -> RebuiltRequest:
    effect = AskModel("", event.call_id, run.call + 1, 0, event.model, event.max_tokens)
    if run.loop == "tools":
        digest = harness_request_digest(run, event.max_tokens)
        request = harness_request(run, effect, tools_offered(run))
    else:
        digest = request_digest(run, event.max_tokens)
        request = request_of(run, effect, GoalPrompt(config_of(run).generation))
    return RebuiltRequest(run.run_id, event.digest, digest == event.digest, request)
