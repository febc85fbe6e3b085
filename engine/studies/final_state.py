"""The project of a trial: how it is laid out before the run, and how it is judged after it."""

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from stepfold.engine.capabilities.checks import run_check
from stepfold.engine.capabilities.workspace import Workspace
from stepfold.engine.runtime.settings import Settings, SettingsError
from stepfold.engine.studies.scores import HiddenResult
from stepfold.engine.studies.suite import Commit, HiddenCheck, Suite, Task, project_files
from stepfold.events.configuration import CheckSpec

_GIT = ("git", "-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "-c", "core.autocrlf=false")
_SOMEBODY = "A. Author"
_FIRST_DAY = datetime(2024, 1, 1, tzinfo=UTC)
_NO_SETTINGS = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
"""The same commits in every copy: their author, their moment, nobody's own settings."""


def lay_out(suite: Suite, task: Task, folder: Path) -> None:
    """Make a task's project in a new folder. Raises SettingsError when git is wanted and can't be had."""
    folder.mkdir(parents=True)
    if task.commits:
        _make_history(task.commits, folder)
    source = suite.folder / task.project
    for path in project_files(source) if task.project else ():
        target = folder / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    _write(folder, task.files)
    if task.git and not (folder / ".git").exists():
        _begin_repository(folder)
        _commit(Commit(message="start", files={}), _FIRST_DAY, folder)


def _make_history(commits: Sequence[Commit], folder: Path) -> None:
    """One commit after the other, a day between them."""
    _begin_repository(folder)
    for days, commit in enumerate(commits):
        _write(folder, commit.files)
        _commit(commit, _FIRST_DAY + timedelta(days), folder)


def _begin_repository(folder: Path) -> None:
    _git(("init", "-q", "-b", "main", "--template="), folder, {})


def _commit(commit: Commit, day: datetime, folder: Path) -> None:
    name = commit.author or _SOMEBODY
    somebody = {"NAME": name, "EMAIL": "author@example.org", "DATE": day.isoformat()}
    people = {
        f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in somebody.items()
    }
    _git(("add", "-A"), folder, {})
    _git(("commit", "-q", "--allow-empty", "-m", commit.message), folder, people)


def _git(words: Iterable[str], folder: Path, people: Mapping[str, str]) -> None:
    environment = {"PATH": os.environ.get("PATH", os.defpath), **_NO_SETTINGS, **people}
    try:
        ended = subprocess.run([*_GIT, *words], cwd=folder, env=environment, capture_output=True, text=True)
    except OSError as error:
        raise SettingsError(
            f"a task wants a git repository, and git can't be run: {error.strerror}"
        ) from error
    if ended.returncode:
        raise SettingsError(f"{folder}: git could not make the task's repository: {ended.stderr.strip()}")


async def judged(
    task: Task, project: Path, summary: str, backend: str, settings: Settings
) -> tuple[HiddenResult, ...]:
    """What the hidden checks say of a final project, each in the sandbox, on a copy of it of its own."""
    return tuple(
        [await _judged_by(check, task, project, summary, backend, settings) for check in task.hidden]
    )


async def _judged_by(
    check: HiddenCheck, task: Task, project: Path, summary: str, backend: str, settings: Settings
) -> HiddenResult:
    if check.summary:
        return HiddenResult(check.id, re.search(check.summary, summary) is not None)
    with tempfile.TemporaryDirectory(prefix="stepfold-eval-", ignore_cleanup_errors=True) as scratch:
        copy = Path(scratch) / project.name
        try:
            shutil.copytree(project, copy, symlinks=True, ignore=_special)
            _write(copy, task.hidden_files)
        except (OSError, shutil.Error) as error:
            return HiddenResult(check.id, False, None, f"not run: the final project can't be copied: {error}")
        shown = await run_check(
            CheckSpec(check.id, check.command, check.timeout),
            Workspace(copy),
            backend,
            settings.sandbox.limits,
            settings.readable(),
        )
    return HiddenResult(check.id, shown.exit_code == 0, shown.exit_code, shown.output)


def _special(folder: str, names: list[str]) -> set[str]:
    """What copying would wait for or choke on: pipes, sockets, devices that a run may have made."""
    return {name for name in names if not _is_ordinary(Path(folder, name).lstat().st_mode)}


def _is_ordinary(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Write files whatever stands in their place: what a run has left there must lead nowhere else."""
    workspace = Workspace(folder)
    for path, content in files.items():
        target = workspace.root
        for part in Path(path).parts:
            target = target / part
            if target.is_symlink() or (target.exists() and not target.is_dir()):
                target.unlink()
        if target.is_dir():
            shutil.rmtree(target)
        workspace.write_bytes(target, content.encode())
