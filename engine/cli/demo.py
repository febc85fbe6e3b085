"""`stepfold demo`: the main job with nothing configured, on a recorded small model; all else is live."""

import json
import shutil
import sys
import tempfile
from importlib.resources import as_file, files
from pathlib import Path

import click

from stepfold.engine.capabilities.sandbox import probe
from stepfold.engine.cli.narration import narrate, quiet
from stepfold.engine.cli.output import say
from stepfold.engine.cli.run import outcome_json, show_outcome
from stepfold.engine.models.recorded import Recording
from stepfold.engine.runtime.agent_loop import AgentLoop
from stepfold.engine.runtime.replay import replay
from stepfold.engine.runtime.settings_file import read_settings
from stepfold.events.store import Store
from stepfold.projections.outcome import EXIT_CODES

GOAL = "Fix the bug in calc.py so that the failing test in test_calc.py passes"
QUESTION = "SELECT step, action, tools, round(seconds, 3) AS seconds, reply FROM steps ORDER BY step"


@click.command(epilog="Example: stepfold demo --into /tmp/demo")
@click.option("--into", metavar="DIR", help="A new folder for the project and its store [a temporary one].")
@click.option("--json", "for_machines", is_flag=True, help="One JSON object on stdout.")
def demo(into: str | None, for_machines: bool) -> int:
    """A failing test, a small model's recorded replies, a verified finish; then replay, then SQL.

    The replies were recorded from a 1.5B model on a CPU. Tools, checks and sandbox are live.
    """
    project = _project(into)
    settings = read_settings(project)
    with Store(project / ".stepfold") as store:
        with as_file(files("stepfold.engine.demo") / "recording.jsonl") as recording:
            model = Recording.load(recording)
        sandbox, note = _sandbox()
        say_if = _silent if for_machines else say
        say_if(f"project   {project}: add() subtracts, and test_calc.py fails")
        say_if(f"goal      {GOAL}")
        say_if(
            f"model     {len(model)} replies recorded from a 1.5B model; tools, checks and sandbox are live"
        )
        say_if(note)
        loop = AgentLoop(
            model=model,
            project=project,
            max_steps=settings.loop.max_steps,
            checks=settings.check_specs(),
            store=store,
            sandbox=sandbox,
            watch=quiet if for_machines else narrate,
        )
        outcome = loop.run(GOAL)
        trace = store.path_of(outcome.run_id)
        verdict = replay(trace)
        if for_machines:
            tree = {**outcome_json(outcome, trace, store.name), "replay": verdict.as_json()}
            click.echo(json.dumps(tree))
            return EXIT_CODES[outcome.finish]
        show_outcome(outcome)
        say()
        say(f"$ stepfold replay {outcome.run_id}")
        say(f"{verdict.verdict}: {verdict.events} events regenerated without the model, byte for byte")
        say()
        say(f'$ stepfold sql "{QUESTION}"')
        _ask(store)
        say()
        say(f"log       {trace}")
        say(f"look      cd {project} && {_command()} show last")
    return EXIT_CODES[outcome.finish] if verdict.verdict == "identical" else 3


def _project(into: str | None) -> Path:
    folder = Path(into).resolve() if into else Path(tempfile.mkdtemp(prefix="stepfold-demo-"))
    if into and folder.exists():
        raise click.UsageError(f"{into} is there already: name a new folder with --into")
    with as_file(files("stepfold.engine.demo") / "project") as source:
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def _sandbox() -> tuple[str, str]:
    found = probe()
    if found.backend:
        return found.backend, f"sandbox   {found.backend}"
    # The replies are ours and the project is new, so here, and only here, nothing is refused for it.
    return "none", f"sandbox   none is to be had ({found.why}); the demo runs its own commands bare"


def _ask(store: Store) -> None:
    from stepfold.engine.cli.sql import table_lines
    from stepfold.projections.sql.relations import open_relations

    relations = open_relations(store.folder)
    try:
        for line in table_lines(relations.query(QUESTION)):
            say(line)
    finally:
        relations.close()


def _command() -> str:
    """The command as this person can type it: by name where it is on the path, else by its file."""
    return "stepfold" if shutil.which("stepfold") else str(Path(sys.argv[0]).resolve())


def _silent(text: str = "") -> None:
    """Say nothing."""
