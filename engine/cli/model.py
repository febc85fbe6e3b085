"""The model that a command asks, and what a person should know of its key."""

from stepfold.engine.cli.output import note
from stepfold.engine.models.protocol import Model
from stepfold.engine.runtime.configured import chosen_model, refuse_unpriced
from stepfold.engine.runtime.settings import Settings


def model_for(spec: str | None, settings: Settings) -> Model:
    """See `chosen_model` and `refuse_unpriced`. A key that others can read is worth a line on stderr."""
    model = chosen_model(spec, settings)
    refuse_unpriced(model, settings)
    if warning := getattr(model, "warning", ""):
        note(f"stepfold: warning: {warning}")
    return model
