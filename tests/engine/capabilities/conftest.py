"""A real project to work on, and the sandboxes that this machine has."""

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepfold.engine.capabilities.context import CallContext, Network
from stepfold.engine.capabilities.memory import Memory
from stepfold.engine.capabilities.native import call
from stepfold.engine.capabilities.sandbox import BACKENDS, probe
from stepfold.engine.capabilities.workspace import Workspace

FOUND = {name: probe(name) for name in BACKENDS}
AVAILABLE = tuple(name for name, found in FOUND.items() if found.backend)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend in turn; skipped where the machine lacks it."""
    if request.param not in AVAILABLE:
        pytest.skip(FOUND[request.param].why)
    return str(request.param)


@pytest.fixture
def sandbox() -> str:
    """The backend that a run would take here."""
    if not AVAILABLE:
        pytest.skip("this machine has no sandbox")
    return AVAILABLE[0]


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder that an ordinary user can reach, which pytest's own is not when root runs it."""
    folder = Path(tempfile.mkdtemp(prefix="stepfold-escape-")).resolve()
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def witnesses(base: Path) -> Path:
    """Where the planted programs leave their names. Everybody may."""
    (base / "witnesses").mkdir()
    (base / "witnesses").chmod(0o777)
    return base / "witnesses"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "main.py").write_text("def answer():\n    return 41\n")
    (root / "notes.txt").write_text("one\ntwo\nthree\n")
    return root


@pytest.fixture
def repository(project: Path) -> Path:
    """The project as a git repository with one commit."""
    for words in (
        ["init", "-q", "-b", "main"],
        ["add", "-A"],
        ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "start"],
    ):
        subprocess.run(["git", *words], cwd=project, check=True)
    return project


class Hands:
    """Calls natives on a project, awaiting those that take time."""

    def __init__(self, context: CallContext) -> None:
        self.context = context

    def __call__(self, name: str, **arguments: Any) -> Any:
        landing = call(name, arguments, self.context)
        return asyncio.run(_awaited(landing)) if isinstance(landing, Awaitable) else landing


async def _awaited(landing: Awaitable[Any]) -> Any:
    return await landing


@pytest.fixture
def hands(project: Path, tmp_path: Path) -> Hands:
    """Natives without a sandbox: those that run no command don't need one."""
    return Hands(CallContext(workspace=Workspace(project), memory=Memory(tmp_path / "memory.sqlite")))


@pytest.fixture
def boxed(project: Path, sandbox: str) -> Hands:
    """Natives with the sandbox of this machine."""
    return Hands(CallContext(workspace=Workspace(project), sandbox=sandbox, network=Network(on=True)))
