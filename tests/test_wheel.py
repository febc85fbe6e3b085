"""The wheel holds what the tree holds, under one name, and runs where only the wheel is."""

import subprocess
import sys
import zipfile
from email import message_from_bytes
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMESPACED = {"engine": "stepfold/engine", "events": "stepfold/events", "projections": "stepfold/projections"}


def tracked() -> list[Path]:
    """The files of the tree that belong to the project, as git knows them (new ones included)."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return [Path(name) for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def installed_as(path: Path) -> str:
    """Where the wheel should hold a file of the tree."""
    if path.parts[:2] == ("engine", "package"):
        return f"stepfold/{path.name}"
    return "/".join([NAMESPACED[path.parts[0]], *path.parts[1:]])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built from a copy, so that nothing of an earlier build can slip in."""
    copy = tmp_path_factory.mktemp("tree")
    for path in tracked():
        if path.parts[0] in {*NAMESPACED, "pyproject.toml", "README.md", "LICENSE"}:
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            (copy / path).write_bytes((ROOT / path).read_bytes())
    # The backend of this environment when it is new enough, else one that pip fetches for the build.
    isolation = ["--no-isolation"] if int(version("setuptools").split(".")[0]) >= 77 else []
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", *isolation, "--outdir", str(copy / "dist"), str(copy)],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    (file,) = (copy / "dist").glob("*.whl")
    return zipfile.ZipFile(file)


def content(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def test_every_module_of_the_tree_is_in_the_wheel_and_no_other(wheel: zipfile.ZipFile) -> None:
    # What lies under a demo's project is data that happens to be Python.
    tree = {installed_as(path) for path in tracked() if path.parts[0] in NAMESPACED and path.suffix == ".py"}

    assert {name for name in content(wheel) if name.endswith(".py")} == tree


def test_the_types_and_the_data_are_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    tree = {installed_as(path) for path in tracked() if path.parts[0] in NAMESPACED}

    assert content(wheel) == tree
    assert "stepfold/py.typed" in content(wheel)


def test_nothing_lies_at_the_top_level_but_the_package(wheel: zipfile.ZipFile) -> None:
    assert {name.split("/")[0] for name in content(wheel)} == {"stepfold"}


def test_its_data_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    data = message_from_bytes(wheel.read(name))

    assert (data["Name"], data["License-Expression"]) == ("stepfold", "Apache-2.0")
    assert data["Version"] == version("stepfold")
    assert data["Requires-Python"] == ">=3.11"


def test_it_runs_as_it_was_shipped(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    program = (
        "import stepfold, stepfold.events.codec as codec\n"
        "print(stepfold.__file__, codec.__file__, stepfold.parse_action('').error)"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    package, codec, error = ran.stdout.split()
    assert Path(package) == tmp_path / "stepfold" / "__init__.py"
    assert Path(codec) == tmp_path / "stepfold" / "events" / "codec.py"
    assert error == "Empty"


def test_the_suite_that_ships_is_found_where_only_the_wheel_is(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    wheel.extractall(tmp_path / "wheel")
    (tmp_path / "here").mkdir()
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'wheel')!r})\n"
        "from stepfold.engine.cli.main import main\n"
        "main(['eval', 'run', 'small', '--task', 'corrects_a_typo', '--fail-under', '100'])"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path / "here", capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stderr
    assert "100.0%" in ran.stdout
