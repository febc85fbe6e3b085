"""A project comes back from another machine as it lay there, and nothing of it lands elsewhere."""

import io
import os
import tarfile
import warnings
from pathlib import Path

import pytest

from stepfold.engine.studies import project_tar
from stepfold.engine.studies.project_tar import ProjectLeft, tarred, unpack


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src" / "empty").mkdir(parents=True)
    (folder / "src" / "run.sh").write_bytes(b"#!/bin/sh\n\xff")
    (folder / "src" / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("src/run.sh")
    return folder


def test_files_folders_and_links_come_back(project: Path, tmp_path: Path) -> None:
    place = tmp_path / "trial" / "task"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unpack(tarred(project), place)

    assert (place / "link").read_bytes() == b"#!/bin/sh\n\xff"
    assert (place / "link").is_symlink()
    assert (place / "src" / "empty").is_dir()
    assert os.access(place / "src" / "run.sh", os.X_OK)


def test_what_leads_out_of_the_project_and_what_is_no_file_stays_away(project: Path, tmp_path: Path) -> None:
    (project / "out").symlink_to("/etc/passwd")
    (project / "loop").symlink_to("loop")
    os.mkfifo(project / "pipe")
    place = tmp_path / "trial" / "task"

    with pytest.warns(ProjectLeft, match="trial: out of its project was not brought back"):
        unpack(tarred(project), place)

    assert not (place / "out").is_symlink()
    assert not (place / "pipe").exists()
    assert (place / "src" / "run.sh").exists()


@pytest.mark.parametrize("name", ["../out", "a/../../out"])
def test_a_tar_that_another_machine_made_up_writes_nothing_outside(name: str, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(name))

    with pytest.warns(ProjectLeft, match="was not brought back"):
        unpack(buffer.getvalue(), tmp_path / "trial" / "task")

    assert not list(tmp_path.rglob("out"))


@pytest.mark.parametrize("what", ["bytes", "entries"])
def test_a_project_that_is_too_large_is_told_and_left(
    what: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_tar, "LARGEST_PROJECT", 1 << 20)
    if what == "bytes":
        with (project / "hole").open("wb") as file:
            file.truncate(1 << 40)
    else:
        for number in range(1100):
            (project / str(number)).touch()

    assert tarred(project) == b""
    with pytest.warns(ProjectLeft, match="trial: its project is over 1 MiB and was not brought back"):
        unpack(b"", tmp_path / "trial" / "task")
    assert not (tmp_path / "trial").exists()
