import asyncio
import hashlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepfold.engine.capabilities.boxes import Limits
from stepfold.engine.capabilities.sandbox import Completed, SandboxBroken, probe, run
from stepfold.engine.capabilities.workspace import Workspace

SMALL = Limits(cpu_seconds=2, address_space=512 * 1024**2, file_size=1024**2, output=256 * 1024, kept=1024)


def ran(command: str, project: Path, backend: str, timeout: float = 20, limits: Limits = SMALL) -> Completed:
    return asyncio.run(
        run(command, workspace=Workspace(project), backend=backend, timeout=timeout, limits=limits)
    )


def processes_with(mark: str) -> list[str]:
    """Command lines of this machine's processes that hold `mark`."""
    return [line for line in command_lines() if mark in line]


def command_lines() -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue


async def gone(mark: str) -> bool:
    """The kernel takes a moment to end a whole process namespace: wait for it, and not for ever."""
    for _ in range(100):
        if not processes_with(mark):
            return True
        await asyncio.sleep(0.02)
    return False


def test_a_probe_says_what_it_found_and_never_falls_back_to_nothing() -> None:
    assert probe("none").backend == "none"
    assert probe("docker").backend == ""
    assert "no such backend" in probe("docker").why


def test_an_empty_backend_runs_nothing(project: Path) -> None:
    with pytest.raises(ValueError, match="probe"):
        ran("touch ran", project, "")
    assert not (project / "ran").exists()


def test_a_command_runs_in_the_project_and_writes_there(project: Path, backend: str) -> None:
    completed = ran("pwd; cat notes.txt; echo new > made.txt; exit 3", project, backend)
    assert completed.exit_code == 3
    assert completed.output.decode() == f"{project.resolve()}\none\ntwo\nthree\n"
    assert (project / "made.txt").read_text() == "new\n"


def test_the_running_python_is_there(project: Path, backend: str) -> None:
    completed = ran("python -c 'import msgspec, pytest; print(1 + 1)'", project, backend, limits=Limits())
    assert completed.output == b"2\n"


def test_the_environment_holds_nothing_of_the_callers(
    project: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-mine")
    completed = ran("env; cat /proc/*/environ", project, backend)
    assert b"sk-secret-of-mine" not in completed.output
    assert re.search(rb"^HOME=(/run/home|/tmp/stepfold-[0-9a-f]+/home)$", completed.output, re.MULTILINE)


def test_home_and_tmp_are_private_and_empty(project: Path, backend: str) -> None:
    making = 'echo x > ~/a; echo x > "$TMPDIR/b"; echo x 2>/dev/null > /tmp/stepfold-private; '
    completed = ran(f'{making} ls -A "$HOME"; pwd -P; cat "$TMPDIR/b"', project, backend)
    assert completed.output.splitlines()[0] == b"a"
    assert completed.output.splitlines()[-1] == b"x"
    assert not Path("/tmp/stepfold-private").exists()
    assert ran('ls -A "$HOME"; cat "$TMPDIR/b" 2>/dev/null', project, backend).output == b""


def test_a_flood_is_ended_and_only_its_ends_are_held(project: Path, backend: str) -> None:
    completed = ran("yes", project, backend)
    assert completed.flooded
    assert completed.exit_code is None
    assert completed.size > SMALL.output
    assert len(completed.output) < 2 * SMALL.kept


def test_a_long_output_is_capped_and_its_digest_is_of_the_whole(project: Path, backend: str) -> None:
    completed = ran("seq 1 2000", project, backend)
    whole = "".join(f"{number}\n" for number in range(1, 2001)).encode()
    assert completed.exit_code == 0
    assert completed.truncated
    assert completed.size == len(whole)
    assert completed.digest == hashlib.sha256(whole).hexdigest()


@pytest.mark.parametrize(
    "command",
    [
        "sleep {}",
        "sleep {} & sleep {}",
        "setsid sleep {} & sleep {}",
        "trap '' TERM; while :; do sleep {}; done",
        "(setsid nohup sleep {} >/dev/null 2>&1 &) ; sleep {}",
    ],
)
def test_the_time_limit_leaves_no_process(project: Path, backend: str, command: str) -> None:
    mark = f"7{os.getpid()}.125"
    completed = ran(command.replace("{}", mark), project, backend, timeout=0.4)
    assert completed.timed_out
    assert completed.exit_code is None
    assert asyncio.run(gone(mark))


def test_a_command_that_ends_leaves_no_process_behind(project: Path, backend: str) -> None:
    mark = f"8{os.getpid()}.125"
    completed = ran(f"setsid sleep {mark} & echo hi", project, backend)
    assert completed.output == b"hi\n"
    assert asyncio.run(gone(mark))


@pytest.mark.parametrize("where", ["sandbox", "none"])
def test_cancellation_leaves_no_process(project: Path, sandbox: str, where: str) -> None:
    mark = f"9{os.getpid()}.125"
    backend = sandbox if where == "sandbox" else "none"

    async def cancelled() -> bool:
        task = asyncio.ensure_future(run(f"sleep {mark}", workspace=Workspace(project), backend=backend))
        while not processes_with(mark):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await gone(mark)

    assert asyncio.run(cancelled())


def test_a_command_cannot_name_a_process_for_us_to_kill(project: Path, backend: str) -> None:
    with subprocess.Popen(["sleep", "60"]) as bystander:
        claim = f'"child-pid": {bystander.pid}'
        forging = f"for f in /proc/*/fd/*; do echo '{claim}' > $f; done; sleep 30"
        assert ran(forging, project, backend, timeout=0.7).timed_out
        assert bystander.poll() is None
        bystander.kill()


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 21, 34])
def test_cancellation_while_the_box_is_being_built_leaves_no_process(
    project: Path, backend: str, turns: int
) -> None:
    mark = f"6{os.getpid()}.{turns}25"

    async def cancelled() -> bool:
        task = asyncio.ensure_future(run(f"sleep {mark}", workspace=Workspace(project), backend=backend))
        for _ in range(turns):
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await gone(mark)

    assert asyncio.run(cancelled())


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("head -c 5000000 /dev/zero > big; stat -c %s big", b"1048576"),
        ("python -c 'bytearray(2_000_000_000)'", b"MemoryError"),
    ],
)
def test_limits_hold(project: Path, backend: str, command: str, said: bytes) -> None:
    assert said in ran(command, project, backend).output


def test_the_time_of_the_processor_is_limited(project: Path, sandbox: str) -> None:
    completed = ran("while :; do :; done", project, sandbox, limits=Limits(cpu_seconds=1))
    assert completed.exit_code not in (0, None)


def test_protected_names_are_free_again_after(project: Path, backend: str) -> None:
    before = sorted(project.iterdir())
    ran("true", project, backend)
    assert sorted(project.iterdir()) == before


def test_settings_that_a_command_makes_are_put_aside_or_refused(project: Path, backend: str) -> None:
    completed = ran("echo '[sandbox]' > stepfold.toml", project, backend)
    assert not (project / "stepfold.toml").exists()
    refused = b"denied" in completed.output
    assert refused == (backend == "seccomp")
    assert (project / "stepfold.toml.proposed").exists() != refused


@pytest.mark.parametrize("name", [".stepfold", "stepfold.toml"])
def test_no_command_runs_where_a_link_could_be_replaced_by_other_settings(
    project: Path, backend: str, name: str
) -> None:
    (project / name).symlink_to("notes.txt" if name == "stepfold.toml" else "src")
    with pytest.raises(SandboxBroken, match="is a link"):
        ran(f"rm -f {name}; echo forged > {name}; echo forged > notes.txt", project, backend)
    assert (project / name).is_symlink()
    assert "forged" not in (project / "notes.txt").read_text()


def test_two_commands_at_once_share_the_guards(project: Path, sandbox: str) -> None:
    async def both() -> list[Completed]:
        workspace = Workspace(project)
        short = run("true", workspace=workspace, backend=sandbox)
        long = run("sleep 0.4; mkdir .git/hooks", workspace=workspace, backend=sandbox)
        return list(await asyncio.gather(short, long))

    _, long = asyncio.run(both())
    assert long.exit_code != 0
    assert not (project / ".git").exists()


def test_a_waived_sandbox_ends_a_command_whose_child_holds_the_pipe(project: Path) -> None:
    completed = ran("sleep 30 & echo hi", project, "none", timeout=15, limits=Limits())
    assert completed.exit_code == 0
    assert completed.output == b"hi\n"


def test_a_command_out_of_time_may_clean_up_before_it_is_killed(project: Path, backend: str) -> None:
    cleaning = "trap 'echo left > left; exit' TERM; while :; do sleep 0.05; done"
    completed = ran(cleaning, project, backend, timeout=0.5)
    assert completed.timed_out
    assert (project / "left").read_text() == "left\n"
