"""Running the trials of a suite, several at a time, and going on where an evaluation was cut off.

The truth is the store: each trial's log under its own id, and beside it `evals/SUITE/hidden.jsonl`, where
what its hidden checks said stands with the last seal of the log that they judged. All else is folded
from these two. A trial whose log stops before an end is begun anew: a run that was taken up again hears
of it, and would not be one like the others.
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from stepfold.engine.capabilities.sandbox import probe
from stepfold.engine.models.protocol import Model
from stepfold.engine.runtime.configured import loop_of
from stepfold.engine.runtime.settings import Settings, SettingsError
from stepfold.engine.studies.final_state import judged, lay_out
from stepfold.engine.studies.scores import HiddenResult, Score, got_no_reply
from stepfold.engine.studies.suite import Suite, Trial
from stepfold.events.journal import Journal, LogError, read_log
from stepfold.events.run_store import SUITES, RunStore
from stepfold.events.texts import self_contained_lines
from stepfold.projections.outcome import LoopOutcome, outcome
from stepfold.projections.run import fold

NOT_AN_END = ("unfinished", "cancelled", "paused")
"""Statuses of a trial that has to be run again: nobody let it come to its end."""


class Judged(Struct, frozen=True):
    """A line of `hidden.jsonl`: the log that was judged, by its last seal, and what was said."""

    run_id: str
    chain: str
    hidden: tuple[HiddenResult, ...]


class Evaluation:
    """One suite in one store. Use as a context manager: while it is open nobody else runs the suite here.

    `model_of` gives a trial its model, `jobs` are run at a time, `told` hears of each trial as it ends.
    """

    def __init__(self, suite: Suite, store: RunStore) -> None:
        """Open the suite's folder in the store. Raises LogError when another process evaluates it."""
        self._suite = suite
        self._store = store
        self.folder = folder_of(suite, store)
        self._journal = Journal(self.folder / "hidden.jsonl")
        # What a killed process has left of a last line must not swallow the next one.
        self._journal.end_last_line()
        self._judged = recorded_judgements(self.folder)
        self._backends: dict[str, str] = {}

    @property
    def suite(self) -> Suite:
        """What is evaluated."""
        return self._suite

    def __enter__(self) -> "Evaluation":
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.close()

    async def run(
        self,
        trials: Sequence[Trial],
        *,
        model_of: Callable[[str | None, Settings], Model],
        jobs: int,
        told: Callable[[Score], None],
    ) -> tuple[Score, ...]:
        """Run what was not run yet, and judge it; the scores of all trials, in their order.

        Raises what a run raises; what had ended by then is recorded. Cancelling ends the runs at once.
        """
        self._refuse_without_sandbox(trials)
        scores: dict[str, Score] = {}

        async def run_one(trial: Trial) -> None:
            score = await self._score(trial, model_of)
            scores[trial.run_id] = score
            told(score)

        await _side_by_side(run_one, trials, jobs)
        return tuple(scores[trial.run_id] for trial in trials)

    def known(self, trial: Trial) -> Score | None:
        """The score of a trial that need not be run again."""
        return self._settled(trial, ended_run(trial, self._store))

    def _settled(self, trial: Trial, ended: tuple[LoopOutcome, str] | None) -> Score | None:
        score = score_of(trial, ended, self._judged)
        return None if score is None or score.outcome is None or got_no_reply(score.outcome) else score

    async def _score(self, trial: Trial, model_of: Callable[[str | None, Settings], Model]) -> Score:
        ended = ended_run(trial, self._store)
        known = self._settled(trial, ended)
        if known is not None:
            return known
        project = self.project_of(trial)
        if ended is None or got_no_reply(ended[0]) or not project.is_dir():
            self._clear_away(trial, project)
            await asyncio.to_thread(lay_out, self._suite, trial.task, project)
            loop = loop_of(
                trial.settings,
                project,
                model_of(trial.model or None, trial.settings),
                self._store,
                watch=None,
            )
            await loop.run_async(trial.task.goal, run_id=trial.run_id)
            ended = ended_run(trial, self._store)
            assert ended is not None, "a run that has come back has ended"
        return await self._judge(trial, *ended, project)

    async def _judge(self, trial: Trial, ended: LoopOutcome, chain: str, project: Path) -> Score:
        backend = self._backends[trial.settings.sandbox.backend]
        hidden = await judged(trial.task, project, ended.summary, backend, trial.settings)
        self._note(Judged(trial.run_id, chain, hidden))
        score = Score(trial, ended, hidden)
        if score.verdict == "passed":
            shutil.rmtree(project.parent, ignore_errors=True)
        return score

    def _note(self, line: Judged) -> None:
        self._journal.append(msgspec.json.encode(line) + b"\n")
        self._judged[line.run_id] = line

    def judgement(self, trial: Trial) -> Judged:
        """What was judged of a trial that was run."""
        return self._judged[trial.run_id]

    def take_in(self, trial: Trial, logs: Mapping[str, Sequence[bytes]], judgement: Judged) -> Score:
        """Record a trial that was run elsewhere: the lines of its run and its workers', and the verdict."""
        self._clear_away(trial, self.project_of(trial))
        for run_id, lines in logs.items():
            writer = self._store.writer(run_id)
            try:
                writer.begin()
                writer.append(lines)
                writer.rest()
            finally:
                writer.close()
        self._note(judgement)
        score = score_of(trial, ended_run(trial, self._store), self._judged)
        assert score is not None, "what was just recorded and judged has a score"
        return score

    def project_of(self, trial: Trial) -> Path:
        """Where a trial's project lies while it is run, and stays if it did not pass."""
        return self.folder / "projects" / trial.run_id / trial.task.id

    def _clear_away(self, trial: Trial, project: Path) -> None:
        """Put aside what an earlier attempt has left: its log, those of its workers, its project."""
        shutil.rmtree(project.parent, ignore_errors=True)
        aside = self.folder / "cut"
        workers = (run_id for run_id in self._store.run_ids() if run_id.startswith(f"{trial.run_id}."))
        for run_id in (trial.run_id, *workers):
            if (log := self._store.path_of(run_id)).exists():
                aside.mkdir(exist_ok=True)
                with (aside / f"{run_id}.{len(list(aside.iterdir())) + 1}.jsonl").open("wb") as copy:
                    copy.writelines(self_contained_lines(log))
                self._store.remove(run_id)

    def _refuse_without_sandbox(self, trials: Sequence[Trial]) -> None:
        for wanted in {trial.settings.sandbox.backend for trial in trials}:
            found = probe(wanted)
            if not found.backend:
                raise SettingsError(f"no sandbox to run the checks in: {found.why}; see `stepfold doctor`")
            self._backends[wanted] = found.backend


def folder_of(suite: Suite, store: RunStore) -> Path:
    """Where what belongs to a suite lies in a store."""
    return store.folder / SUITES / suite.name


def recorded_judgements(folder: Path) -> dict[str, Judged]:
    """What hidden checks have said, the last word on each run. What a killed process left torn is skipped."""
    file = folder / "hidden.jsonl"
    found: dict[str, Judged] = {}
    for line in file.read_bytes().split(b"\n") if file.exists() else ():
        try:
            read = msgspec.json.decode(line, type=Judged)
        except msgspec.DecodeError:
            continue
        found[read.run_id] = read
    return found


def ended_run(trial: Trial, store: RunStore) -> tuple[LoopOutcome, str] | None:
    """The outcome of a trial's log and its last seal; None when it isn't there, or stops before an end."""
    path = store.path_of(trial.run_id)
    if not path.exists():
        return None
    try:
        log = read_log(path)
    except LogError:
        return None
    ended = outcome(fold(record.event for record in log.records))
    return None if ended.status in NOT_AN_END or log.torn else (ended, log.chain)


def score_of(
    trial: Trial, ended: tuple[LoopOutcome, str] | None, judgements: dict[str, Judged]
) -> Score | None:
    """The score of a trial that was run and judged, from what `ended_run` says of it; None for another."""
    line = judgements.get(trial.run_id)
    if ended is None or line is None or line.chain != ended[1]:
        return None
    return Score(trial, ended[0], line.hidden)


async def _side_by_side(work: Callable[[Trial], Awaitable[None]], trials: Sequence[Trial], jobs: int) -> None:
    """Do the work for each trial, so many at a time. The first error ends the rest."""
    left = iter(trials)

    async def worker() -> None:
        for trial in left:
            await work(trial)

    workers = [asyncio.create_task(worker()) for _ in range(min(jobs, len(trials)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for one in workers:
            one.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
