"""A project, and the command line in this process."""

from pathlib import Path

import pytest

from tests.engine.cli.projects import Command, Project


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own configuration reaches a test."""
    for name in ("STEPFOLD_STORE", "OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_API_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def stepfold(capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    return Command(capfdbinary)


@pytest.fixture
def project(tmp_path: Path, stepfold: Command) -> Project:
    return Project(tmp_path / "project", stepfold)
