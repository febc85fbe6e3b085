"""The trials of a suite over a Ray cluster: each is run and judged whole on one machine, and sent back.

A machine has neither the suite's files nor the store. So a trial takes along what it needs, is run in a
store of its own that is thrown away, and comes back as the lines of its logs, what was judged, and the
project if it did not pass. A trial whose machine dies is begun anew on another one.
"""

import asyncio
import io
import tarfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct
from msgspec.structs import replace

from stepfold.engine.models.protocol import Model
from stepfold.engine.runtime.settings import Settings
from stepfold.engine.studies.evaluation import Evaluation, Judged
from stepfold.engine.studies.project_tar import tarred, unpack
from stepfold.engine.studies.scores import Score
from stepfold.engine.studies.suite import Suite, Trial, project_files
from stepfold.events.journal import read_log
from stepfold.events.store import Store
from stepfold.events.texts import self_contained_lines

ModelOf = Callable[[str | None, Settings], Model]


class Parcel(Struct, frozen=True):
    """A trial with the files that it is made from: its task's project as a tar, its model's script."""

    suite: Suite
    trial: Trial
    project: bytes
    script: bytes | None


class Returned(Struct, frozen=True):
    """The lines of a trial's run and of its workers' runs, what was judged, and the project as a tar: None
    when it passed, empty when the project is too large.
    """

    logs: dict[str, list[bytes]]
    judgement: Judged
    project: bytes | None


def run_on_ray(
    evaluation: Evaluation,
    trials: Sequence[Trial],
    *,
    model_of: ModelOf,
    jobs: int | None,
    told: Callable[[Score], None],
) -> tuple[Score, ...]:
    """As `Evaluation.run`, over the cluster; `jobs` trials at a time, None means one a processor."""
    from stepfold.engine.studies.ray_cluster import Cluster

    scores: dict[str, Score] = {}
    left: list[Trial] = []
    for trial in trials:
        known = evaluation.known(trial)
        if known is None:
            left.append(trial)
        else:
            scores[trial.run_id] = known
            told(known)
    tasks = (partial(run_elsewhere, packed(evaluation.suite, trial), model_of) for trial in left)
    for number, came in Cluster(jobs).as_they_end(tasks) if left else ():
        trial = left[number]
        score = scores[trial.run_id] = evaluation.take_in(trial, came.logs, came.judgement)
        if came.project is not None:
            unpack(came.project, evaluation.project_of(trial))
        told(score)
    return tuple(scores[trial.run_id] for trial in trials)


def packed(suite: Suite, trial: Trial) -> Parcel:
    """Read what a trial needs."""
    buffer = io.BytesIO()
    source = suite.folder / trial.task.project
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in project_files(source) if trial.task.project else ():
            tar.add(path, str(path.relative_to(source)))
    scheme, _, rest = trial.model.partition(":")
    # Of a trace its texts go along; in a script no line names one.
    script = b"".join(self_contained_lines(Path(rest))) if scheme in ("script", "trace") and rest else None
    return Parcel(suite, trial, buffer.getvalue(), script)


def run_elsewhere(parcel: Parcel, model_of: ModelOf) -> Returned:
    """Run and judge a trial in a folder of this machine that is gone afterwards."""
    with TemporaryDirectory(prefix="stepfold-trial-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        trial = _unpacked(parcel, folder)
        suite = replace(parcel.suite, folder=folder / "suite")
        with Store(folder / "store") as store, Evaluation(suite, store) as evaluation:
            work = evaluation.run([trial], model_of=model_of, jobs=1, told=lambda score: None)
            asyncio.run(work)
            logs = {
                run_id: [record.written for record in read_log(store.path_of(run_id)).records]
                for run_id in store.run_ids()
            }
            project = evaluation.project_of(trial)
            kept = tarred(project) if project.is_dir() else None
            return Returned(logs, evaluation.judgement(trial), kept)


def _unpacked(parcel: Parcel, folder: Path) -> Trial:
    trial = parcel.trial
    if trial.task.project:
        with tarfile.open(fileobj=io.BytesIO(parcel.project)) as tar:
            tar.extractall(folder / "suite" / trial.task.project, filter="data")
    if parcel.script is None:
        return trial
    scheme, _, rest = trial.model.partition(":")
    script = folder / Path(rest).name
    script.write_bytes(parcel.script)
    return replace(trial, model=f"{scheme}:{script}")
