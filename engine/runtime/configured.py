"""From settings to what they describe: the model that is meant, and the loop that runs under them."""

from pathlib import Path

from stepfold.engine.models.protocol import Model
from stepfold.engine.models.resolve import resolve
from stepfold.engine.runtime.agent_loop import AgentLoop
from stepfold.engine.runtime.run_log import Watch
from stepfold.engine.runtime.settings import Settings, SettingsError
from stepfold.events.run_store import RunStore


def chosen_model(spec: str | None, settings: Settings) -> Model:
    """`--model`, else `[model]`, else OPENAI_BASE_URL, else a local server that answers.

    Raises SettingsError, saying what to start, when there is none.
    """
    wanted = settings.model
    key, timeout = wanted.api_key_env, settings.loop.model_request_timeout
    if spec:
        return resolve(spec, api_key_env=key, timeout=timeout)
    if wanted.base_url:
        return resolve(f"{wanted.base_url}#{wanted.name}", api_key_env=key, timeout=timeout)
    from stepfold.engine.models.discovery import find_local

    for found in find_local():
        name = wanted.name or (found.models[0] if found.models else "")
        if name:
            return resolve(f"{found.base_url}#{name}", api_key_env=key, timeout=timeout)
    raise SettingsError(
        "no model: none is named with --model or [model], OPENAI_BASE_URL is not set, and no local server "
        "answers; start one (`ollama serve`, or `llama-server -m MODEL.gguf`), or see `stepfold demo`"
    )


def refuse_unpriced(model: Model, settings: Settings) -> None:
    """Raises SettingsError for a budget of money and a model without a price: it would hold nothing."""
    if settings.budget.cost is not None and model.name not in settings.prices:
        raise SettingsError(
            f'budget.cost is set, and [prices] has no {model.name!r}: add [prices."{model.name}"] '
            "with input and output"
        )


def loop_of(
    settings: Settings,
    folder: Path,
    model: Model,
    store: RunStore,
    *,
    watch: Watch | None,
    max_steps: int | None = None,
    profile: str | None = None,
) -> AgentLoop:
    """The loop that a project's settings describe; `max_steps` and `profile` go before what they say.

    Raises SettingsError as `refuse_unpriced` does.
    """
    refuse_unpriced(model, settings)
    return AgentLoop(
        model=model,
        project=folder,
        max_steps=max_steps or settings.loop.max_steps,
        model_request_timeout=settings.loop.model_request_timeout,
        worker_slots=settings.loop.worker_slots,
        worker_depth=settings.loop.worker_depth,
        context_window=settings.loop.context_window,
        checks=settings.check_specs() or None,
        profile=profile or settings.loop.profile,
        preload=settings.loop.preload,
        unattended=settings.loop.unattended,
        keep=settings.loop.keep,
        final_newline=settings.loop.final_newline,
        read_first=settings.loop.read_first,
        verify_changes=settings.loop.verify_changes,
        store=store,
        generation=settings.generation(),
        policy=settings.rules(),
        sandbox=settings.sandbox.backend,
        limits=settings.sandbox.limits,
        network=settings.sandbox.network,
        memory=settings.memory.enabled,
        durability=settings.loop.durability,
        tool_policy=settings.tool_rules(),
        guards=settings.guards,
        web=settings.web_limits(),
        readable=settings.readable(),
        servers=settings.servers(),
        budget=settings.budget,
        prices=settings.prices,
        watch=watch,
    )
