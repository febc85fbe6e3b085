from pathlib import Path
from typing import Any

from stepfold.engine.capabilities.context import CallContext
from stepfold.engine.capabilities.manifests import NATIVE
from stepfold.engine.capabilities.native import IMMEDIATE, LASTING, call
from stepfold.engine.capabilities.workspace import Workspace
from stepfold.events.vocabulary import BLANK, ToolErred
from tests.engine.capabilities.conftest import Hands


def test_every_manifest_has_one_handler() -> None:
    assert sorted([*IMMEDIATE, *LASTING]) == sorted(manifest.name for manifest in NATIVE)


def test_results_carry_a_blank_envelope(hands: Any) -> None:
    result = hands("fs.list")
    assert (result.v, result.run_id, result.seq, result.step, result.ts) == BLANK
    assert result.key == ""


def test_what_nobody_expected_is_an_error_of_the_tool(hands: Any) -> None:
    assert hands("fs.read", wrong="key") == ToolErred(*BLANK, error="KeyError", detail="'path'")


def test_memory_is_recalled_best_first(hands: Any) -> None:
    hands.context.memory.write("the port is 8080", "r1")
    assert hands("memory.recall", query="port").content == "the port is 8080"
    assert hands("memory.recall", query="colour").content == "no note fits"


def test_a_run_without_memory_says_so(project: Path) -> None:
    result = call("memory.recall", {"query": "x"}, CallContext(workspace=Workspace(project)))
    assert getattr(result, "error", "") == "NoMemory"


def test_shell_shows_the_exit_code_and_both_streams(boxed: Any) -> None:
    result = boxed("shell.run", command="echo out; echo err >&2; exit 3")
    assert result.content == "exit_code=3\nout\nerr\n"
    assert result.error == "NonZeroExit"
    assert boxed("shell.run", command="true").error == ""


def test_shell_that_takes_too_long_says_so(boxed: Any) -> None:
    result = boxed("shell.run", command="echo begun; sleep 60", timeout_s=0.4)
    assert result.error == "TimedOut"
    assert "begun" in result.content


def test_shell_without_a_sandbox_runs_nothing(hands: Any, project: Path) -> None:
    assert hands("shell.run", command="touch ran").error == "NoSandbox"
    assert not (project / "ran").exists()


def test_a_waived_sandbox_is_said_on_every_result(project: Path) -> None:
    import asyncio

    from stepfold.engine.capabilities.shell import run_command

    context = CallContext(workspace=Workspace(project), sandbox="none")
    result = asyncio.run(run_command({"command": "echo hi"}, context))
    assert result.content == "sandbox=none\nexit_code=0\nhi\n"


def test_a_command_that_no_kernel_takes_says_how_long_one_may_be(boxed: Any) -> None:
    landed = boxed("shell.run", command="echo " + "x" * 3_000_000)
    assert landed.error == "TooLong"
    assert "3000005 bytes, and 120000 is the most" in landed.content
    assert boxed("shell.run", command="true " + "x" * 119_000).error == ""


def test_a_readable_folder_is_read_and_not_written(project: Path, sandbox: str, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "data.txt").write_text("shared data")
    context = CallContext(workspace=Workspace(project), sandbox=sandbox, readable=(str(shared),))
    hands = Hands(context)
    assert "shared data" in hands("shell.run", command=f"cat {shared}/data.txt").content
    assert hands("shell.run", command=f"echo x > {shared}/data.txt").error == "NonZeroExit"
    assert (
        "shared data"
        not in Hands(CallContext(workspace=Workspace(project), sandbox=sandbox))(
            "shell.run", command=f"cat {shared}/data.txt"
        ).content
    )
