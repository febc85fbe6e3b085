"""The model of a fork that names none: recorded replies by the number of their call, then another model."""

from collections.abc import Awaitable, Callable, Iterable

from msgspec.structs import replace

from stepfold.engine.models.protocol import Model, Request
from stepfold.engine.models.recorded import RECORDING_SPENT, Recording
from stepfold.events.journal import Recorded
from stepfold.events.vocabulary import ModelErred, ModelReplied


class Continued:
    """The recorded model of a run goes on to answer by the number of the call; after it, another one.

    `then` gives that other model when it is needed; without one, the call fails and says so. `secrets`
    are that model's, which may stand in no event.
    """

    reads_messages = True

    def __init__(
        self,
        records: Iterable[Recorded],
        name: str,
        then: Callable[[], Model] | None,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.secrets = secrets
        self._recording = Recording((record.event for record in records), name)
        self._then = then
        self._model: Model | None = None

    def reply(self, request: Request) -> ModelReplied | ModelErred | Awaitable[ModelReplied | ModelErred]:
        """The recorded reply of this call, or that of the model after it."""
        landed = self._recording.reply(request)
        if not isinstance(landed, ModelErred) or landed.error != RECORDING_SPENT:
            return landed
        if self._then is None:
            detail = f"{landed.detail}; name a model with --model or [model] to go on"
            return replace(landed, detail=detail)
        if self._model is None:
            self._model = self._then()
        return self._model.reply(replace(request, model=self._model.name))

    async def close(self) -> None:
        """Close the model that took over, if one did."""
        close = getattr(self._model, "close", None)
        if close is not None:
            await close()
