"""`stepfold fork`: branch off a recorded run, under other settings, another model or an edited reply."""

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stepfold.engine.cli.model import model_for
from stepfold.engine.cli.narration import narrator
from stepfold.engine.cli.output import note
from stepfold.engine.cli.reading import chosen_store, existing_store, trace_file
from stepfold.engine.cli.run import project_folder, report
from stepfold.engine.models.keys import secrets_of
from stepfold.engine.models.protocol import Model
from stepfold.engine.models.recorded import RECORDING_SPENT
from stepfold.engine.models.resolve import resolve
from stepfold.engine.runtime.configured import loop_of
from stepfold.engine.runtime.continued import Continued
from stepfold.engine.runtime.fork import TOOLS_ELSEWHERE, CannotFork, served_mutations
from stepfold.engine.runtime.settings import Settings
from stepfold.engine.runtime.settings_file import read_settings
from stepfold.events.configuration import GoalConfig
from stepfold.events.journal import Recorded, read_log
from stepfold.events.run_store import RunStore
from stepfold.events.vocabulary import RunStarted
from stepfold.projections.outcome import LoopOutcome
from stepfold.projections.outcome import outcome as outcome_of
from stepfold.projections.run import fold

if TYPE_CHECKING:
    from stepfold.engine.runtime.harness import AgentHarness

NAMED_AT_MOST = 5


@click.command(epilog="Example: stepfold fork last --at 40 --set loop.max_steps=30")
@click.argument("run_id", metavar="RUN")
@click.option("--at", type=int, required=True, metavar="SEQ", help="The first event that may differ.")
@click.option("--model", metavar="MODEL", help="Who goes on: URL#NAME, script:FILE or trace:FILE.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="From SEQ on; repeatable.")
@click.option("--reply", metavar="TEXT", help="What the model said at SEQ instead.")
@click.option("--harness", metavar="MODULE:NAME", help="Your AgentHarness, for a tool-calling run.")
@click.option("--project", default=".", metavar="DIR", help="The project to go on in [the current folder].")
@click.option("--store", metavar="DIR", help="Where runs are kept [STEPFOLD_STORE, else .stepfold].")
@click.option("--json", "for_machines", is_flag=True, help="One JSON object on stdout.")
def fork(
    run_id: str,
    at: int,
    model: str | None,
    settings: tuple[str, ...],
    reply: str | None,
    harness: str | None,
    project: str,
    store: str | None,
    for_machines: bool,
) -> int:
    """Branch off RUN at an event (see `stepfold log`), and go on from there as a run of its own.

    RUN is an id, its start, `last`, or a trace file. What was recorded serves as long as the fork
    decides the same; calls served that way are not run again. Without --model the recorded replies go
    on to serve by the number of their call, and [model] takes over when they are spent. Exit codes: as
    those of `run`.
    """
    folder = project_folder(project)
    configured = read_settings(folder)
    file = trace_file(run_id)
    with (chosen_store if file else existing_store)(store, folder) as opened:
        trace = file or opened.path_of(opened.find(run_id))
        source = read_log(trace).records
        if harness is not None:
            if model:
                raise click.UsageError("--model: the models are those of --harness; leave one of the two out")
            forked, kept = _fork_by(harness, opened, trace, at, settings, reply)
            _tell_what_was_served(source, read_log(kept.path_of(forked.run_id)).records)
            return report(forked, kept, for_machines)
        answers = resolve_model(model, configured, source)
        loop = loop_of(configured, folder, answers, opened, watch=narrator(sys.stderr.isatty()))
        outcome = loop.fork(trace, at=at, changes=settings, reply=reply)
        _tell_what_was_served(source, read_log(opened.path_of(outcome.run_id)).records)
        if outcome.error == RECORDING_SPENT:
            step = outcome.steps
            note(f"the recording is spent at step {step}: name a model with --model or [model] to go on")
        return report(outcome, opened, for_machines)


def _fork_by(
    named: str, store: RunStore, trace: Path, at: int, settings: tuple[str, ...], reply: str | None
) -> tuple[LoopOutcome, RunStore]:
    """Fork a tool-calling run by the user's own harness, into its own store if it has one."""
    from stepfold.engine.runtime.agent_run import HarnessError

    harness = _harness_named(named)
    harness.adopt(store)
    kept = harness.store or store
    try:
        run = harness.fork_sync(trace, at=at, changes=settings, reply=reply).run
    except HarnessError as error:
        run = error.run
    return outcome_of(fold(run.events)), kept


def _harness_named(named: str) -> "AgentHarness":
    from stepfold.engine.runtime.harness import AgentHarness

    module, _, name = named.partition(":")
    # As `python -m` does: what lies in the current folder can be named.
    sys.path.insert(0, "")
    try:
        found = getattr(import_module(module), name, None)
    except (ImportError, ValueError) as error:
        raise click.UsageError(f"--harness {named!r}: {error}; name it as MODULE:NAME") from error
    if not isinstance(found, AgentHarness):
        raise click.UsageError(f"--harness {named!r}: no AgentHarness is there; name it as MODULE:NAME")
    return found


def resolve_model(spec: str | None, settings: Settings, source: tuple[Recorded, ...]) -> Model:
    """`--model`, else the source's own replies with `[model]` after them."""
    if spec:
        return model_for(spec, settings)
    start = source[0].event
    config = (start.forked or start.config) if isinstance(start, RunStarted) else None
    if not isinstance(config, GoalConfig):
        raise CannotFork(TOOLS_ELSEWHERE)
    wanted = settings.model
    if not wanted.base_url:
        return Continued(source, config.model, None)
    named, timeout = f"{wanted.base_url}#{wanted.name}", settings.loop.model_request_timeout
    return Continued(
        source,
        config.model,
        lambda: resolve(named, api_key_env=wanted.api_key_env, timeout=timeout),
        secrets_of(wanted.api_key_env, wanted.base_url),
    )


def _tell_what_was_served(source: tuple[Recorded, ...], forked: tuple[Recorded, ...]) -> None:
    served = served_mutations(source, forked)
    if not served:
        return
    more = f" and {len(served) - NAMED_AT_MOST} more" if len(served) > NAMED_AT_MOST else ""
    note(
        f"not run again, so the project may lack what they changed in the source's: "
        f"{', '.join(served[:NAMED_AT_MOST])}{more}"
    )
