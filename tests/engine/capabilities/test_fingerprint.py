"""The digest of a project's files: the same for the same files, another for any change that counts."""

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stepfold.engine.capabilities.context import CallContext
from stepfold.engine.capabilities.fingerprint import READ_AT_MOST, fingerprint
from stepfold.engine.capabilities.sandbox import probe
from stepfold.engine.capabilities.workspace import Workspace


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a.txt").write_text("one\n")
    (folder / "deep" / "er" / "b.txt").write_text("two\n")
    (folder / "large").write_bytes(b"0" * (READ_AT_MOST + 1))
    (folder / "link").symlink_to("a.txt")
    (folder / "way").symlink_to("deep")
    return folder


def digest(project: Path) -> str:
    context = CallContext(workspace=Workspace(project), sandbox="")
    return asyncio.run(fingerprint(context, project / "kept runs"))


def _put_back(path: Path) -> None:
    before = path.stat()
    path.write_bytes(b"1" * (READ_AT_MOST + 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda root: (root / "a.txt").write_text("oNe\n"),
    "deep content": lambda root: (root / "deep/er/b.txt").write_text("Two\n"),
    "large content": lambda root: (root / "large").write_bytes(b"1" * (READ_AT_MOST + 1)),
    "a new file": lambda root: (root / "c").write_text(""),
    "a file less": lambda root: (root / "a.txt").unlink(),
    "another name": lambda root: (root / "a.txt").rename(root / "b.txt"),
    "may be executed": lambda root: (root / "a.txt").chmod(0o755),
    "where a link leads": lambda root: ((root / "link").unlink(), (root / "link").symlink_to("large")),
    "where a link to a folder leads": lambda root: (
        (root / "way").unlink(),
        (root / "way").symlink_to("deep/er"),
    ),
    "large content, its time put back": lambda root: _put_back(root / "large"),
}
NO_CHANGES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda root: None,
    "the same again": lambda root: (root / "a.txt").write_text("one\n"),
    "a cache": lambda root: ((root / "__pycache__").mkdir(), (root / "__pycache__/x.pyc").write_text("x")),
    "the store": lambda root: ((root / "kept runs").mkdir(), (root / "kept runs/x").write_text("x")),
    "a store of the usual name": lambda root: (
        (root / ".stepfold").mkdir(),
        (root / ".stepfold/x").write_text("x"),
    ),
    "an empty folder": lambda root: (root / "empty").mkdir(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_what_counts_changes_the_digest(project: Path, change: Callable[[Path], object]) -> None:
    before = digest(project)

    change(project)

    assert digest(project) != before


@pytest.mark.parametrize("change", NO_CHANGES.values(), ids=list(NO_CHANGES))
def test_what_does_not_count_keeps_the_digest(project: Path, change: Callable[[Path], object]) -> None:
    before = digest(project)

    change(project)

    assert digest(project) == before


def test_a_file_that_git_knows_and_that_is_gone_is_a_state_too(project: Path) -> None:
    subprocess.run(["git", "init", "-q", project], check=True)
    subprocess.run(["git", "-C", project, "add", "."], check=True)
    context = CallContext(workspace=Workspace(project), sandbox=probe("auto").backend)
    before = asyncio.run(fingerprint(context, project / "kept runs"))

    (project / "a.txt").unlink()

    assert asyncio.run(fingerprint(context, project / "kept runs")) != before


def test_a_name_that_is_no_text_is_a_name_too(project: Path) -> None:
    (project.joinpath(b"\xff".decode("utf-8", "surrogateescape"))).write_text("x")
    before = digest(project)
    (project / "a.txt").unlink()
    (project / "a.txt").mkdir()

    assert digest(project) != before


def test_a_project_in_a_store_is_looked_at(project: Path) -> None:
    context = CallContext(workspace=Workspace(project), sandbox="")
    before = asyncio.run(fingerprint(context, project.parent))
    (project / "a.txt").write_text("another")

    assert asyncio.run(fingerprint(context, project.parent)) != before


def test_a_repository_inside_the_project_counts_file_by_file(project: Path) -> None:
    for folder in (project, project / "deep"):
        subprocess.run(["git", "init", "-q", folder], check=True)
    found = probe("auto")
    context = CallContext(workspace=Workspace(project), sandbox=found.backend)
    before = asyncio.run(fingerprint(context, project / ".stepfold"))

    (project / "deep/er/b.txt").write_text("Two\n")

    assert asyncio.run(fingerprint(context, project / ".stepfold")) != before
