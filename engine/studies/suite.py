"""A suite of tasks, as `SUITE.toml` has it, and the trials that it stands for.

A trial is one run: a task, a model, a seed, a repeat. Its id is made of these and of a digest over all
that the run depends on, so that a run recorded under an id is a run of exactly this trial.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from stepfold.engine.capabilities.paths import STORE, path_fault
from stepfold.engine.runtime.settings import CheckSettings, Settings, SettingsError
from stepfold.engine.runtime.settings_file import FILE_NAME, parse_toml, settings_of, shaped
from stepfold.events.run_store import TRIAL_DIGEST
from stepfold.projections.digest import digest_of
from stepfold.projections.outcome import FINISHES, Finish

SUITE_FILE = "suite.toml"
NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


class HiddenCheck(Struct, frozen=True, kw_only=True):
    """What the model isn't shown, and is judged by. Timeout in seconds.

    A `command` is run in the final project and passes with exit code 0; a `summary` is a regular
    expression that the run's summary must match somewhere.
    """

    id: str
    command: str = ""
    summary: str = ""
    timeout: float = 60.0


class Commit(Struct, frozen=True, kw_only=True):
    """A commit of a task's repository: the files that it writes over those of the commit before."""

    message: str
    files: dict[str, str]
    author: str = ""


class Task(Struct, frozen=True, kw_only=True):
    """A goal in a project of its own, and what is to come of it.

    The project is a copy of the folder `project`, seen from the suite, with `files` written over it;
    `git` makes it a repository with one commit. `commits` make it one with a history, that lies below
    `project` and `files`. `checks` are shown to the model. `ends` are the
    finishes that are right. `hidden_files` are laid over the final project before `hidden` is run.
    """

    id: str
    goal: str
    project: str = ""
    files: dict[str, str] = field(default_factory=dict)
    git: bool = False
    commits: list[Commit] = field(default_factory=list)
    checks: list[CheckSettings] = field(default_factory=list)
    ends: list[Finish] = field(default_factory=lambda: ["completed"])
    hidden: list[HiddenCheck] = field(default_factory=list)
    hidden_files: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


class _File(Struct, frozen=True, kw_only=True):
    """The file itself."""

    name: str = ""
    models: list[str] = field(default_factory=list)
    repeats: int = 1
    seeds: list[int] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)


class Suite(Struct, frozen=True, kw_only=True):
    """A suite and the folder that its paths are seen from."""

    name: str
    folder: Path
    models: tuple[str, ...]
    repeats: int
    seeds: tuple[int, ...]
    settings: dict[str, Any]
    tasks: tuple[Task, ...]


class Trial(Struct, frozen=True, kw_only=True):
    """One run to be made. `model` is a spec as `--model` takes it, "" for what the settings name.

    `label` is the model as people are told of it, `seed` None where the model chooses its own.
    """

    run_id: str
    task: Task
    model: str
    label: str
    seed: int | None
    repeat: int
    settings: Settings


def read_suite(path: Path) -> Suite:
    """Read a suite: its file, or the folder that holds its `suite.toml`. Raises SettingsError."""
    file = path / SUITE_FILE if path.is_dir() else path
    try:
        text = file.read_bytes()
    except OSError as error:
        raise SettingsError(f"{file}: can't be read: {error.strerror}; name a suite's file") from error
    read = shaped(parse_toml(text, str(file)), _File, str(file))
    name = read.name or (file.resolve().parent.name if file.name == SUITE_FILE else file.stem)
    _refuse_nonsense(read, name, str(file))
    return Suite(
        name=name,
        folder=file.resolve().parent,
        models=tuple(_beside(model, file.resolve().parent) for model in read.models),
        repeats=read.repeats,
        seeds=tuple(read.seeds),
        settings=read.settings,
        tasks=tuple(read.tasks),
    )


def trials_of(
    suite: Suite, *, models: Sequence[str] = (), repeats: int | None = None, tasks: Iterable[str] = ()
) -> tuple[Trial, ...]:
    """Every run of a suite, task by task. `models`, `repeats` and `tasks` go before what the suite says.

    Raises SettingsError for a task that there isn't, and for settings that can't be used.
    """
    wanted = _wanted(suite, tuple(tasks))
    specs = tuple(dict.fromkeys(models or suite.models or ("",)))
    labels = _labels(specs)
    count = range(1, (repeats or suite.repeats) + 1)
    places = product(wanted, specs, suite.seeds or (None,), count)
    files = {task.id: _files_below(suite.folder / task.project) if task.project else [] for task in wanted}
    return tuple(
        _trial(suite, task, files[task.id], model, labels[model], seed, repeat)
        for task, model, seed, repeat in places
    )


def _wanted(suite: Suite, names: tuple[str, ...]) -> tuple[Task, ...]:
    known = {task.id: task for task in suite.tasks}
    for name in names:
        if name not in known:
            raise SettingsError(f"the suite {suite.name} has no task {name!r}; it has {', '.join(known)}")
    return tuple(known[name] for name in dict.fromkeys(names)) or suite.tasks


def _labels(specs: Sequence[str]) -> dict[str, str]:
    """A name for each model. Those that would have one in common keep their whole address."""
    short = [label_of(spec) for spec in specs]
    return {
        spec: label if short.count(label) == 1 else spec.rpartition("@")[2]
        for spec, label in zip(specs, short, strict=True)
    }


def _trial(
    suite: Suite,
    task: Task,
    files: list[tuple[str, str]],
    model: str,
    label: str,
    seed: int | None,
    repeat: int,
) -> Trial:
    spec = model
    for word, value in (("task", task.id), ("seed", seed), ("repeat", repeat)):
        spec = spec.replace(f"{{{word}}}", str(value))
    tree = _tree(suite, task, seed)
    settings = settings_of(tree, f"the task {task.id}")
    depends = (
        _told(task),
        files,
        # A file counts by what it says, so that a suite can be moved.
        label,
        _content_of(spec) or model,
        tree,
    )
    digest = digest_of(msgspec.json.encode(depends))[:TRIAL_DIGEST]
    place = f"{'' if seed is None else f's{seed}'}r{repeat}"
    run_id = f"{suite.name}-{task.id}-{_plain(label)}-{place}-{digest}"
    return Trial(
        run_id=run_id, task=task, model=spec, label=label, seed=seed, repeat=repeat, settings=settings
    )


def _told(task: Task) -> dict[str, Any]:
    """A task as its digest is made of it. What came into the format later counts where it is used only."""
    told: dict[str, Any] = msgspec.to_builtins(task)
    if not task.commits:
        del told["commits"]
    return told


def label_of(model: str) -> str:
    """A model as people are told of it: a server's model by its name, a file by its own."""
    scheme, _, rest = model.partition(":")
    if scheme in ("script", "trace"):
        path = Path(rest)
        return f"{scheme}:{path.parent.name if '{' in path.name else path.name}"
    address, _, name = model.partition("#")
    return name or address.rpartition("@")[2] or "configured"


def _plain(label: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "_", label.removesuffix(".jsonl")).strip("._")[-40:]


def _tree(suite: Suite, task: Task, seed: int | None) -> dict[str, Any]:
    """The settings of a trial: the project's, then the suite's, then the task's.

    Without memory, unless one of the last two wants it: runs side by side would learn from each other.
    """
    own = task.files.get(FILE_NAME, "").encode()
    file = suite.folder / task.project / FILE_NAME
    if task.project and not own and file.is_file():
        own = file.read_bytes()
    tree = parse_toml(own, f"the task {task.id}, {FILE_NAME}")
    for over in ({"memory": {"enabled": False}}, suite.settings, task.settings):
        tree = _merged(tree, over)
    if task.checks:
        tree = {**tree, "checks": msgspec.to_builtins(task.checks)}
    return tree if seed is None else _merged(tree, {"model": {"seed": seed}})


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = {
        name: _merged(under[name], value)
        for name, value in over.items()
        if isinstance(value, dict) and isinstance(under.get(name), dict)
    }
    return {**under, **over, **both}


def _beside(model: str, folder: Path) -> str:
    scheme, _, rest = model.partition(":")
    return f"{scheme}:{folder / rest}" if scheme in ("script", "trace") and rest else model


def _content_of(spec: str) -> str:
    """The digest of what a recorded model will say. Raises SettingsError for a file that isn't there."""
    scheme, _, rest = spec.partition(":")
    if scheme not in ("script", "trace"):
        return ""
    try:
        return digest_of(Path(rest).read_bytes())
    except OSError as error:
        raise SettingsError(f"{rest}: can't be read: {error.strerror}; the suite's model names it") from error


def _files_below(folder: Path) -> list[tuple[str, str]]:
    return [
        (path.relative_to(folder).as_posix(), digest_of(path.read_bytes())) for path in project_files(folder)
    ]


def project_files(folder: Path) -> Iterator[Path]:
    """The regular files of a task's project, in order, without what runs leave behind."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and {STORE, "__pycache__"}.isdisjoint(path.relative_to(folder).parts):
            yield path


def _refuse_nonsense(read: _File, name: str, where: str) -> None:
    if not NAME.fullmatch(name):
        raise SettingsError(f"{where}: the suite's name is {name!r}; take 1 to 40 letters, digits, - or _")
    if not read.tasks:
        raise SettingsError(f"{where}: no [[tasks]] in it: a suite has at least one")
    if read.repeats < 1:
        raise SettingsError(f"{where}: repeats is {read.repeats}; it must be at least 1")
    seen: set[str] = set()
    for task in read.tasks:
        place = f"{where}: the task {task.id!r}"
        if not NAME.fullmatch(task.id):
            raise SettingsError(f"{place}: an id is 1 to 40 letters, digits, - or _")
        if task.id in seen:
            raise SettingsError(f"{place} stands twice")
        seen.add(task.id)
        _refuse_broken_task(task, Path(where).parent, place)


def _refuse_broken_task(task: Task, folder: Path, place: str) -> None:
    if not task.goal.strip():
        raise SettingsError(f"{place} has no goal: say what is to be done")
    if task.project and not (folder / task.project).is_dir():
        raise SettingsError(f"{place}: its project {task.project!r} is no folder beside the suite")
    if not task.ends:
        raise SettingsError(f"{place}: ends is empty; name at least one of {', '.join(FINISHES)}")
    committed = [path for commit in task.commits for path in commit.files]
    for path in (*committed, *task.files, *task.hidden_files):
        fault = path_fault(path)
        if fault or not Path(path).name:
            raise SettingsError(f"{place}: {fault or f'{path!r} names no file'}")
    for check in task.hidden:
        if bool(check.command.strip()) == bool(check.summary):
            raise SettingsError(
                f"{place}: the hidden check {check.id!r} needs a command or a summary, not both"
            )
        if "\0" in check.command or check.timeout <= 0:
            raise SettingsError(f"{place}: the hidden check {check.id!r} has a NUL or no time to run in")
        try:
            re.compile(check.summary)
        except re.error as error:
            raise SettingsError(
                f"{place}: the hidden check {check.id!r}: no regular expression: {error}"
            ) from error
