"""What the model was sent, rebuilt from the log alone."""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from stepfold.engine.models.protocol import Request
from stepfold.engine.runtime.goal_effects import request_of
from stepfold.engine.runtime.harness_effects import harness_request, tools_offered
from stepfold.events.vocabulary import AnyEvent, Message, ModelStarted, Unknown
from stepfold.projections.effects import AskModel
from stepfold.projections.fold_goal import config_of
from stepfold.projections.prompt import GoalPrompt, harness_request_digest, request_digest
from stepfold.projections.run import evolve
from stepfold.projections.state import Run


class RebuiltRequest(Struct, frozen=True):
    """A request as it was sent. `agrees`: its digest is the one that the log recorded.

    `parts` are its messages; of the flat form for text-only models, the pieces that its one text is made of.
    """

    run_id: str
    digest: str
    agrees: bool
    request: Request
    parts: tuple[Message | str, ...]

    @property
    def whole(self) -> Request:
        """The request with its messages."""
        messages = tuple(part for part in self.parts if isinstance(part, Message))
        texts = [part for part in self.parts if isinstance(part, str)]
        return replace(self.request, messages=(Message("user", "".join(texts)),) if texts else messages)


class Rebuilder:
    """Rebuilds the requests of one run in the order they were sent, and renders only what is new in each."""

    def __init__(self) -> None:
        self._prompt: GoalPrompt | None = None
        self._generation: object = None

    def request(self, run: Run, event: ModelStarted) -> RebuiltRequest:
        """The request that `event` opens, `run` being folded up to the event before it.

        It comes without messages: they are in `parts`, so that it costs what is new in it.
        """
        effect = AskModel("", event.call_id, run.call + 1, 0, event.model, event.max_tokens)
        parts: tuple[Message | str, ...]
        if run.loop == "tools":
            digest = harness_request_digest(run, event.max_tokens)
            request = harness_request(run, effect, tools_offered(run))
            parts, request = request.messages, replace(request, messages=())
        else:
            digest = request_digest(run, event.max_tokens)
            request = request_of(run, effect, None)
            parts = self._prompt_of(run).parts(run)
        return RebuiltRequest(run.run_id, event.digest, digest == event.digest, request, parts)

    def _prompt_of(self, run: Run) -> GoalPrompt:
        generation = config_of(run).generation
        if self._prompt is None or generation != self._generation:
            self._prompt, self._generation = GoalPrompt(generation), generation
        return self._prompt


def recorded_request(events: Iterable[AnyEvent | Unknown], step: int) -> RebuiltRequest | None:
    """The request of a step, from the events up to its `ModelStarted`; None when that step asked nothing."""
    run = Run()
    for event in events:
        if isinstance(event, ModelStarted) and event.step == step:
            rebuilt = Rebuilder().request(run, event)
            return replace(rebuilt, request=rebuilt.whole)
        evolve(run, event)
    return None
