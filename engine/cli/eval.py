"""`stepfold eval run`: a suite of tasks over models, repeats and seeds, and how much of it passed."""

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from stepfold.engine.cli.output import note, say
from stepfold.engine.cli.reading import chosen_store, existing_store
from stepfold.engine.cli.replay import EXIT_CODES, ON, with_progress
from stepfold.engine.runtime.configured import chosen_model
from stepfold.engine.runtime.replay import replay as replay_trace
from stepfold.engine.runtime.settings import SettingsError
from stepfold.engine.studies.evaluating_on_ray import run_on_ray
from stepfold.engine.studies.evaluation import Evaluation, ended_run, folder_of, recorded_judgements, score_of
from stepfold.engine.studies.scores import Rate, Score, rates_by_model
from stepfold.engine.studies.spread import Place, over_traces
from stepfold.engine.studies.suite import SUITE_FILE, Suite, Trial, read_suite, trials_of
from stepfold.events.run_store import RunStore

NOT_ENOUGH = 1
_COLOURS = {"passed": "green", "false_completion": "red", "no_reply": "magenta"}


@click.group(name="eval", epilog="Example: stepfold eval run small --model http://localhost:8080/v1#qwen")
def evaluate() -> None:
    """Suites of tasks, run many times and judged by checks that no model sees."""


@evaluate.command(
    name="run", epilog="Example: stepfold eval run small --model http://localhost:8080/v1#qwen --repeats 5"
)
@click.argument("suite", metavar="SUITE")
@click.option("--model", "models", multiple=True, metavar="MODEL", help="Instead of the suite's; repeatable.")
@click.option("--task", "tasks", multiple=True, metavar="ID", help="Only this task; repeatable.")
@click.option("--repeats", type=click.IntRange(1), metavar="N", help="Runs of each [what the suite says].")
@click.option(
    "--jobs", type=click.IntRange(1), metavar="N", help="Runs at a time [1; on Ray one for each processor]."
)
@ON
@click.option("--replay", is_flag=True, help="Judge the recorded traces: no model, no project.")
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Exit code 1 when a model passes less.",
)
@click.option("--store", metavar="DIR", help="Where runs are kept [STEPFOLD_STORE, else .stepfold].")
@click.option("--json", "for_machines", is_flag=True, help="One JSON object on stdout.")
def run(
    suite: str,
    models: tuple[str, ...],
    tasks: tuple[str, ...],
    repeats: int | None,
    jobs: int | None,
    place: Place,
    replay: bool,
    fail_under: float | None,
    store: str | None,
    for_machines: bool,
) -> int:
    """Run each task of SUITE with each model, as often as it says, and tell how much of it passed.

    SUITE is a file, a folder with a suite.toml, or the name of one that ships with stepfold: small, study.
    What was run already is not run again, so an evaluation that was cut off goes on where it was. Exit
    codes: 0 all was run, 1 less passed than --fail-under asks or a run is missing or got no reply, 2 the
    suite or a trace can't be used, 3 with --replay a trace diverged.
    """
    read = read_suite(_located(suite))
    trials = trials_of(read, models=models, tasks=tasks, repeats=repeats)
    if replay:
        scores, code = _replayed(read, trials, store, place)
    else:
        with chosen_store(store) as opened:
            scores, code = _run(read, trials, opened, jobs, place), 0
    rates = rates_by_model(scores)
    if for_machines:
        _print_json(read, scores, rates)
    else:
        _show(scores, rates)
    return code or _code_of(scores, rates, fail_under)


def _located(suite: str) -> Path:
    """The suite's file or folder: what stands there, else one of those that ship. Raises SettingsError."""
    path = Path(suite)
    if path.exists():
        return path
    import stepfold.engine.suites as shipped

    names = sorted(found.parent.name for found in Path(shipped.__path__[0]).glob(f"*/{SUITE_FILE}"))
    if suite in names:
        return Path(shipped.__path__[0]) / suite
    raise SettingsError(
        f"no suite {suite!r}: name its file, or one that ships with stepfold: {', '.join(names)}"
    )


def _run(
    suite: Suite, trials: Sequence[Trial], store: RunStore, jobs: int | None, place: Place
) -> tuple[Score, ...]:
    told = _narrator(len(trials))
    with Evaluation(suite, store) as evaluation:
        if place == "ray":
            return run_on_ray(evaluation, trials, model_of=chosen_model, jobs=jobs, told=told)
        return asyncio.run(evaluation.run(trials, model_of=chosen_model, jobs=jobs or 1, told=told))


def _narrator(count: int) -> Callable[[Score], None]:
    """A line for each run that has ended, where somebody watches."""
    if not sys.stderr.isatty():
        return lambda score: None
    ended = iter(range(1, count + 1))
    width = len(str(count))

    def tell(score: Score) -> None:
        note(
            f"{next(ended):>{width}} of {count}  {_words(score):<17}  {score.trial.run_id}",
            fg=_COLOURS.get(score.verdict, "yellow"),
        )

    return tell


def _replayed(
    suite: Suite, trials: Sequence[Trial], store: str | None, place: Place
) -> tuple[tuple[Score, ...], int]:
    """Each recorded trace, replayed; the scores of what they recorded, and the exit code of the worst."""
    with existing_store(store) as opened:
        judgements = recorded_judgements(folder_of(suite, opened))
        found = [score_of(trial, ended_run(trial, opened), judgements) for trial in trials]
        scores = tuple(
            score if score is not None else Score(trial, None)
            for trial, score in zip(trials, found, strict=True)
        )
        traces = [opened.path_of(trial.run_id) for trial in trials if opened.holds(trial.run_id)]
    if not traces:
        raise SettingsError(
            f"{suite.name}: none of its {len(trials)} runs is recorded here; run it without --replay"
        )
    code = 0
    for verdict in with_progress(over_traces(place, replay_trace, traces), len(traces)):
        code = max(code, EXIT_CODES[verdict.verdict])
        if verdict.verdict != "identical":
            why = verdict.why or f"at seq {verdict.seq}, {verdict.kind}.{verdict.field}"
            note(f"{verdict.verdict}: {verdict.trace}: {why}", fg="red")
    return scores, code


def _print_json(suite: Suite, scores: Sequence[Score], rates: dict[str, Rate]) -> None:
    tree = {
        "suite": suite.name,
        "models": {label: rate.as_json() for label, rate in rates.items()},
        "runs": [score.as_json() for score in scores],
    }
    click.echo(json.dumps(tree))


def _show(scores: Sequence[Score], rates: dict[str, Rate]) -> None:
    labels = list(rates)
    width = max([5, *map(len, labels)])
    say(f"{'model':<{width}}  runs  passed    rate  95 % interval  false  no reply  steps  tokens", bold=True)
    for label, rate in rates.items():
        low, high = (f"{100 * end:.0f}" for end in rate.interval)
        say(
            f"{label:<{width}}  {rate.runs:>4}  {rate.passed:>6}  {100 * rate.passed / rate.runs:>5.1f}%"
            f"  {f'{low} to {high}%':>13}  {rate.false_completions:>5}  {rate.no_reply:>8}"
            f"  {rate.steps:>5.1f}  {rate.tokens:>6.0f}"
        )
    others = [score for score in scores if score.verdict != "passed"]
    if others:
        say()
    for score in others:
        say(
            f"{_words(score):<17}  {score.trial.run_id}  {_why(score)}",
            fg=_COLOURS.get(score.verdict, "yellow"),
        )


def _words(score: Score) -> str:
    return {"false_completion": "false completion", "no_reply": "no reply"}.get(score.verdict, score.verdict)


def _why(score: Score) -> str:
    ended = score.outcome
    if ended is None:
        return "not recorded"
    unmet = ", ".join(item.id for item in score.hidden if not item.passed)
    how = ended.status if score.verdict != "no_reply" else ended.reason
    return f"{how} after {ended.steps} steps{f'; hidden checks that fail: {unmet}' if unmet else ''}"


def _code_of(scores: Sequence[Score], rates: dict[str, Rate], fail_under: float | None) -> int:
    if any(score.verdict in ("no_reply", "missing") for score in scores):
        return NOT_ENOUGH
    too_few = fail_under is not None and any(
        100 * rate.passed < fail_under * rate.runs for rate in rates.values()
    )
    return NOT_ENOUGH if too_few else 0
