"""`stepfold run` and `resume`: from what a person typed and configured to a run and its exit code."""

import json
import sys
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from stepfold.engine.cli.model import model_for
from stepfold.engine.cli.narration import narrator
from stepfold.engine.cli.output import counted, note, say
from stepfold.engine.cli.reading import chosen_store, existing_store
from stepfold.engine.core.profile import PROFILES
from stepfold.engine.runtime.configured import loop_of
from stepfold.engine.runtime.reopen import refuse_ended
from stepfold.engine.runtime.settings_file import read_settings
from stepfold.engine.runtime.snapshots import folded_undamaged
from stepfold.events.run_store import RunStore
from stepfold.projections.ending import why
from stepfold.projections.fold_goal import LISTEN
from stepfold.projections.outcome import EXIT_CODES, LoopOutcome
from stepfold.projections.outcome import outcome as outcome_of
from stepfold.projections.usage import Usage

_STORE = click.option("--store", metavar="DIR", help="Where runs are kept [STEPFOLD_STORE, else .stepfold].")
_JSON = click.option("--json", "for_machines", is_flag=True, help="One JSON object on stdout.")


@click.command(
    epilog='Example: stepfold run "make the tests pass" --project . --model http://localhost:8080/v1#qwen'
)
@click.argument("goal")
@click.option("--project", default=".", metavar="DIR", help="The project to work in [the current folder].")
@click.option("--model", metavar="MODEL", help="URL#NAME, script:FILE or trace:FILE.")
@click.option("--max-steps", type=click.IntRange(1), metavar="N", help="Model replies at most [80].")
@click.option("--profile", type=click.Choice(PROFILES), help="The kind of task [read off the goal].")
@_STORE
@_JSON
def run(
    goal: str,
    project: str,
    model: str | None,
    max_steps: int | None,
    profile: str | None,
    store: str | None,
    for_machines: bool,
) -> int:
    """Work towards GOAL in a project, one strict action a step, until the evidence is there.

    Exit codes: 0 completed, 1 failed, 4 missing evidence or step cap, 5 awaiting the user,
    130 cancelled, 2 when nothing could be started.
    """
    if not goal.strip():
        raise click.UsageError("the goal is empty: say what is to be done")
    folder = project_folder(project)
    settings = read_settings(folder)
    # A setting that makes no sense is told before there is a store.
    answering = model_for(model, settings)
    with chosen_store(store, folder) as opened:
        loop = loop_of(
            settings,
            folder,
            answering,
            opened,
            watch=narrator(sys.stderr.isatty()),
            max_steps=max_steps,
            profile=profile,
        )
        return report(loop.run(goal), opened, for_machines)


@click.command(epilog='Example: stepfold resume last --answer "use the main branch"')
@click.argument("run_id", metavar="RUN")
@click.option("--answer", metavar="TEXT", help="The answer to the question that the run ended with.")
@click.option("--project", default=".", metavar="DIR", help="The project of the run [the current folder].")
@click.option("--model", metavar="MODEL", help="URL#NAME, script:FILE or trace:FILE.")
@_STORE
@_JSON
def resume(
    run_id: str, answer: str | None, project: str, model: str | None, store: str | None, for_machines: bool
) -> int:
    """Go on with RUN after a crash or a question. Nothing recorded is lost, and nothing runs twice unasked.

    RUN is an id, its start, or `last`.
    """
    folder = project_folder(project)
    settings = read_settings(folder)
    with existing_store(store, folder) as opened:
        found = opened.find(run_id)
        # First what the log says: who asks for an ended run needs no model to be told so.
        recorded = folded_undamaged(opened.path_of(found))
        refuse_ended(recorded)
        if answer is None and LISTEN in recorded.due:
            return report(outcome_of(recorded), opened, for_machines)
        watch = narrator(sys.stderr.isatty())
        loop = loop_of(settings, folder, model_for(model, settings), opened, watch=watch)
        return report(loop.resume(found, answer=answer), opened, for_machines)


def project_folder(project: str) -> Path:
    """The project's folder. Raises UsageError when it isn't one that can be read."""
    folder = Path(project)
    try:
        # Asking what a path is fails too, where a folder above it is closed.
        if not folder.is_dir():
            what = "is no folder" if folder.exists() else "does not exist"
            raise click.UsageError(
                f"the project {project!r} {what}: name the project's folder with --project"
            )
        next(folder.iterdir(), None)
    except OSError as error:
        raise click.UsageError(
            f"the project {project!r} can't be read: {error.strerror}; open it to this user, or name another"
        ) from error
    return folder.resolve()


def report(outcome: LoopOutcome, store: RunStore, for_machines: bool) -> int:
    """Print an outcome, cache its summary, and give its exit code."""
    trace = store.path_of(outcome.run_id)
    tree = outcome_json(outcome, trace, store.name)
    if for_machines:
        click.echo(json.dumps(tree))
        if outcome.finish == "failed" and outcome.error:
            note(f"stepfold: {outcome.reason}")
    else:
        show_outcome(outcome)
        say(f"log       {trace}")
    return EXIT_CODES[outcome.finish]


OPEN = ("running", "interrupted")
"""What the status of an unfinished run is to somebody who looks at it."""


def open_status(running: bool) -> str:
    """Whether the process of an unfinished run is still at work on it."""
    return OPEN[0] if running else OPEN[1]


def as_it_stands(result: LoopOutcome, running: bool) -> LoopOutcome:
    """The outcome of a recorded run as of now: a log that simply stops is running, or interrupted."""
    return replace(result, status=open_status(running)) if result.status == "unfinished" else result


def outcome_json(outcome: LoopOutcome, trace: Path, store: str) -> dict[str, Any]:
    """The object that `run`, `resume`, `demo` and `show` print with `--json`; `store` is the name of one."""
    return {**outcome.as_json(), "trace": str(trace), "store": store}


_COLOURS = {"completed": "green", "failed": "red", "cancelled": "yellow"}


def show_outcome(outcome: LoopOutcome) -> None:
    """What people read first: why did it end?"""
    word = outcome.status if outcome.status in OPEN else outcome.finish
    say(f"{word:<9} {why(outcome)}", fg=_COLOURS.get(word, "yellow"), bold=True)
    if outcome.summary and outcome.loop != "imported":
        say(f"summary   {outcome.summary}")
    usage = outcome.usage
    say(
        f"steps     {outcome.steps} ({counted(outcome.actions, 'action', 'actions')}, "
        f"{counted(outcome.rejected, 'rejected reply', 'rejected replies')}, "
        f"{_tokens(usage)})"
    )
    if usage.cost:
        say(f"cost      {usage.cost:.6g}")
    for item in outcome.evidence:
        verdict = "passed" if item.passed else f"exit code {item.exit_code}"
        stale = "" if item.is_fresh(outcome.mutations) else ", stale"
        say(f"check     {item.check_id}: {verdict} at step {item.step}{stale}")


def _tokens(usage: Usage) -> str:
    cached = "" if usage.cached_tokens is None else f", {usage.cached_tokens} of them cached"
    estimated = ", estimated" if usage.estimated else ""
    return f"tokens: {usage.input_tokens} of prompts{cached}, {usage.output_tokens} of replies{estimated}"
