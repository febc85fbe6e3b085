"""`stepfold chat`, through a pipe and on a real terminal: turns, approvals, undo, the run that is left."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.engine.cli.projects import PROGRAM, Project, action, call, load, read

ASKING = '[policy]\nshell.ask = ["touch"]\n[sandbox]\nbackend = "none"\n'
LOAD_ALL = load("fs.write", "shell.run")
SECONDS = 20


def says(text: str) -> str:
    return action("finish", summary=text)


def piped(project: Project, model: str, *lines: str, options: tuple[object, ...] = ()) -> Any:
    """A chat whose standard input is a pipe with these lines."""
    return subprocess.run(
        [PROGRAM, "chat", "--project", project.folder, "--model", model, *map(str, options)],
        input="".join(line + "\n" for line in lines).encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )


class Terminal:
    """A chat on a pseudo-terminal, as a person has it before them."""

    def __init__(self, screen: int, process: "subprocess.Popen[bytes]") -> None:
        self._screen = screen
        self.process = process
        self.shown = ""

    def sees(self, text: str) -> None:
        """Wait until the screen has shown a text, and forget all up to it."""
        deadline = time.monotonic() + SECONDS
        while text not in self.shown:
            assert time.monotonic() < deadline, (text, self.shown)
            if select.select([self._screen], [], [], 0.1)[0]:
                try:
                    self.shown += os.read(self._screen, 65536).decode("utf-8", "replace")
                except OSError:
                    assert text in self.shown, (text, self.shown)
        _, _, self.shown = self.shown.partition(text)

    def types(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def presses(self, key: str, until: str) -> None:
        """Press a key, again if need be: readline shows its prompt a moment before it hears a signal."""
        deadline = time.monotonic() + SECONDS
        while until not in self.shown:
            assert time.monotonic() < deadline, (until, self.shown)
            self.types(key)
            self._reads_for(1.0, until)
        _, _, self.shown = self.shown.partition(until)

    def _reads_for(self, seconds: float, text: str) -> None:
        end = time.monotonic() + seconds
        while text not in self.shown and time.monotonic() < end:
            if select.select([self._screen], [], [], 0.1)[0]:
                self.shown += os.read(self._screen, 65536).decode("utf-8", "replace")


@contextmanager
def terminal(project: Project, model: str, *options: object) -> Iterator[Terminal]:
    screen, keyboard = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, "chat", "--project", project.folder, "--model", model, *map(str, options)],
        stdin=keyboard,
        stdout=keyboard,
        stderr=keyboard,
        start_new_session=True,
        preexec_fn=lambda: _own_terminal(keyboard),
        env={**os.environ, "TERM": "dumb"},
    )
    os.close(keyboard)
    try:
        yield Terminal(screen, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(screen)


def _own_terminal(keyboard: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(keyboard, termios.TIOCSCTTY, 0)


@pytest.fixture
def asking(project: Project) -> Project:
    project.configure(ASKING)
    return project


def test_a_chat_through_a_pipe_is_a_recorded_run(project: Project) -> None:
    model = project.script(says("good day \x1b[31m"), says("all of it"))

    done = piped(project, model, "hello", "what did you do?")

    assert done.returncode == 0
    assert done.stdout.decode() == "good day \\x1b[31m\nall of it\n"
    assert [event["text"] for event in project.events("UserAnswered")] == ["what did you do?"]
    assert project.ask("replay", project.trace).code == 0
    shown = project.ask("show", "last", "--json").json
    assert (shown["finish"], shown["steps"]) == ("awaiting_user", 2)
    assert "hello" in project.ask("runs").text
    asked = project.ask("sql", "SELECT status FROM runs", "--format", "csv")
    assert "awaiting_user" in asked.text


def test_the_model_reads_what_was_said_before(project: Project) -> None:
    piped(project, project.script(says("blue"), says("as I said")), "which colour?", "sure?")

    request = project.ask("prompt", "last", "--step", 2).text

    assert request.index("which colour?") < request.index("blue") < request.index("sure?")


def test_a_chat_is_gone_on_with_later(project: Project) -> None:
    piped(project, project.script(says("one")), "first")
    before = project.trace.read_bytes()

    looked = piped(project, project.script(says("one")), options=("--resume", "last"))
    assert project.trace.read_bytes() == before
    again = piped(project, project.script(says("one"), says("two")), "second", options=("--resume", "last"))

    assert looked.stdout == b"one\n"
    assert again.stdout == b"one\ntwo\n"
    assert project.trace.read_bytes().startswith(before)
    assert project.ask("replay", project.trace).code == 0


def test_a_run_that_is_no_chat_is_not_talked_to(project: Project) -> None:
    project.run(action("ask_user", question="which?"))

    done = piped(project, project.script(says("x")), "hello", options=("--resume", "last"))

    assert done.returncode == 2
    assert b"is no chat" in done.stderr


def test_a_call_that_wants_a_yes_waits_for_it(asking: Project) -> None:
    model = asking.script(
        LOAD_ALL,
        call("shell.run", cmd="touch made"),
        call("shell.run", command="touch not_made"),
        says("one of two"),
    )

    done = piped(asking, model, "make them", "y", "rather not")

    assert 'shell.run {"command":"touch made"}' in done.stdout.decode()
    assert (asking.folder / "made").exists()
    assert not (asking.folder / "not_made").exists()
    assert [event["approved"] for event in asking.events("ApprovalAnswered")] == [True, False]
    assert "did not approve it: rather not" in asking.transcript()
    assert asking.ask("replay", asking.trace).code == 0


def test_a_tool_that_wants_a_yes_waits_for_it(project: Project) -> None:
    (project.folder / "stepfold.toml").write_text('[policy]\ntools.ask = ["fs.w*"]\n')
    writing = call("fs.write", path="made", content="x")
    model = project.script(writing, says("first"), writing, says("second"))

    done = piped(project, model, "/load fs.write", "write", "no", "write", "yes")

    assert b"(rule 'fs.w*')" in done.stdout
    assert [event["approved"] for event in project.events("ApprovalAnswered")] == [False, True]
    assert (project.folder / "made").read_text() == "x"


def test_tools_of_servers_are_there_before_the_first_words(project: Project) -> None:
    server = Path(__file__).parents[1] / "capabilities" / "mcp_server.py"
    (project.folder / "stepfold.toml").write_text(
        f"[mcp.servers.house]\ncommand = {sys.executable!r}\nargs = [{str(server)!r}]\ncontained = false\n"
    )
    model = project.script(call("mcp.house.echo", text="heard"), says("said"))

    done = piped(project, model, "/tools", "/load mcp.house.echo", "/tools", "say it")

    assert b"  mcp.house.echo" in done.stdout
    assert b"* mcp.house.echo" in done.stdout
    assert "mcp.house.echo result:" in project.transcript()
    assert project.ask("replay", project.trace).code == 0


def test_the_end_of_input_is_no_yes(asking: Project) -> None:
    piped(asking, asking.script(LOAD_ALL, call("shell.run", command="touch made"), says("no")), "make it")

    assert not (asking.folder / "made").exists()


def test_nobody_is_asked_in_an_unattended_run(asking: Project) -> None:
    result = asking.run(LOAD_ALL, call("shell.run", command="touch made"), options=["--max-steps", 2])

    (refused,) = asking.events("ToolRejected")
    assert refused["hop"] == "approval"
    assert "nobody is there" in refused["reason"]
    assert result.json["finish"] == "missing_evidence"
    assert not (asking.folder / "made").exists()


def test_undo_takes_back_one_call_after_the_other(project: Project) -> None:
    former = (project.folder / "calc.py").read_bytes()
    model = project.script(
        LOAD_ALL,
        call("fs.write", path="calc.py", content="one\n"),
        call("fs.write", path="new.py", content="two\n"),
        says("done"),
        says("I see"),
    )

    done = piped(project, model, "change", "/undo", "/undo", "/undo", "and now?")

    assert (project.folder / "calc.py").read_bytes() == former
    assert not (project.folder / "new.py").exists()
    assert [event["path"] for event in project.events("CallUndone")] == ["new.py", "calc.py"]
    assert b"there is nothing to undo" in done.stderr
    assert "user undid fs.write: restored calc.py" in project.ask("prompt", "last", "--step", 5).text
    assert project.ask("replay", project.trace).code == 0


def test_undo_fails_closed_when_the_file_was_changed_since(project: Project) -> None:
    write = call("fs.write", path="calc.py", content="one\n")
    piped(project, project.script(LOAD_ALL, write, says("done")), "change")
    (project.folder / "calc.py").write_text("mine\n")

    done = piped(project, project.script(says("x")), "/undo", options=("--resume", "last"))

    assert b"was changed since" in done.stderr
    assert (project.folder / "calc.py").read_text() == "mine\n"
    assert project.events("CallUndone") == []


def test_undo_does_not_guess_what_a_command_changed(asking: Project) -> None:
    model = asking.script(LOAD_ALL, call("shell.run", command="echo > calc.py"), says("done"))

    done = piped(asking, model, "change", "/undo")

    assert b"made by shell.run" in done.stderr


def test_the_slash_commands(project: Project) -> None:
    saved = project.folder.parent / "saved.txt"
    model = project.script(call("fs.list"), says("looked\x1b[2J"))

    done = piped(
        project, model, "/load fs.list", "/load nine", "/tools", "/help", "/lod", "look", f"/save {saved}",
        f"/save {saved}", "/quit", "never said",
    )  # fmt: skip

    out, err = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == 0
    assert "* fs.list" in out
    assert all(name in out for name in ("/load", "/tools", "/undo", "/save", "/help", "/quit"))
    assert "there is no nine" in err
    assert "did you mean /load?" in err
    assert "can't be written" in err
    assert "fs.list result:" in saved.read_text()
    assert "\x1b" not in saved.read_text()
    assert project.events("UserLoaded")[0]["names"] == ["fs.list"]


def test_a_model_that_fails_ends_the_turn_and_not_the_chat(project: Project) -> None:
    model = project.script({"error": "auth"}, says("here again"))

    done = piped(project, model, "hello", "still there?")

    assert done.returncode == 0
    assert b"the model gave no reply: auth" in done.stderr
    assert done.stdout == b"here again\n"
    assert piped(project, project.script({"error": "auth"}), "hello").returncode == 1


def test_a_turn_that_a_guard_ends_is_not_called_a_silent_model(project: Project) -> None:
    (project.folder / "stepfold.toml").write_text("[guards]\nrejection = 2\n")
    model = project.script(*["no action"] * 4)

    done = piped(project, model, "hello")

    assert done.returncode == 1
    assert b"a guard ended the turn: the same reply was rejected" in done.stderr
    assert b"gave no reply" not in done.stderr


def test_the_steps_are_those_of_a_turn(project: Project) -> None:
    search = action("capability_search", query="x")
    model = project.script(search, search, says("at last"))

    done = piped(project, model, "find", "go on", options=("--max-steps", 2))

    assert done.stdout == b"all 2 steps of this turn are used up\nat last\n"


def test_ctrl_c_on_a_terminal_stops_the_turn_and_not_the_chat(project: Project) -> None:
    model = project.script({"text": says("late"), "delay_ms": 300_000}, says("here"))
    with terminal(project, model) as person:
        person.sees("> ")
        person.types("think\n")
        _until_recorded(project, "ModelStarted")
        person.types("\x03")
        person.sees("stopped")
        person.types("and now?\n")
        person.sees("here")
        person.sees("> ")
        person.presses("\x03", until="/quit leaves the chat")
        person.types("/quit\n")
        person.sees("go on")
        assert person.process.wait(SECONDS) == 0

    assert [event["reason"] for event in project.events("CancelRequested")] == ["SIGINT"]
    assert project.ask("replay", project.trace).code == 0


def test_a_yes_is_typed_on_a_terminal_and_ctrl_c_is_none(asking: Project) -> None:
    touch = [call("shell.run", command=f"touch {name}") for name in ("a", "b")]
    model = asking.script(LOAD_ALL, *touch, says("never mind"))
    with terminal(asking, model) as person:
        person.sees("> ")
        person.types("make them\n")
        person.sees("[y/N]")
        person.types("yes\n")
        person.sees("[y/N]")
        person.types("\x03")
        person.sees("stopped")
        person.types("leave it\n")
        person.sees("never mind")
        person.sees("> ")
        person.types("\x04")
        assert person.process.wait(SECONDS) == 0

    assert (asking.folder / "a").exists()
    assert not (asking.folder / "b").exists()
    assert asking.ask("replay", asking.trace).code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_chat_that_is_ended_from_outside_is_gone_on_with(project: Project, number: signal.Signals) -> None:
    model = project.script({"text": says("late"), "delay_ms": 300_000})
    with terminal(project, model) as person:
        person.sees("> ")
        person.types("think\n")
        _until_recorded(project, "ModelStarted")
        person.process.send_signal(number)
        assert person.process.wait(SECONDS) == 130

    again = piped(project, project.script(says("x"), says("back")), "there?", options=("--resume", "last"))

    assert again.stdout.endswith(b"back\n")


def test_a_turn_that_a_kill_cut_off_goes_on(project: Project) -> None:
    model = project.script({"text": says("late"), "delay_ms": 300_000})
    with terminal(project, model) as person:
        person.sees("> ")
        person.types("think\n")
        _until_recorded(project, "ModelStarted")
        person.process.kill()
        person.process.wait()

    again = piped(project, project.script(says("thought")), options=("--resume", "last"))

    assert b"goes on" in again.stderr
    assert again.stdout == b"thought\n"
    assert project.ask("replay", project.trace).code == 0


def _until_recorded(project: Project, kind: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not _holds(project.store / "runs", kind):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _holds(runs: Path, kind: str) -> bool:
    return any(event["kind"] == kind for trace in runs.glob("*.jsonl") for event in read(trace))
