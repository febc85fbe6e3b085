"""Ways out of the project that were thought of, one a line; none may lead out.

Commands run in every backend of the machine as the user of the tests and, where that is root, as
an ordinary user too. A way out shows in a witness outside: a secret that is read, a file that is
made or changed, a connection that arrives, a process that ends.
"""

import asyncio
import os
import resource
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepfold.engine.capabilities.context import CallContext
from stepfold.engine.capabilities.lifecycle import Refused, admit
from stepfold.engine.capabilities.manifests import NATIVE_BY_NAME
from stepfold.engine.capabilities.native import call
from stepfold.engine.capabilities.sandbox import run
from stepfold.engine.capabilities.workspace import Workspace
from tests.engine.capabilities.ordinary_user import (
    CAN_BE_NOBODY,
    LIMITED,
    NOBODY,
    given_to_nobody,
    run_as_nobody,
)

SECRET = "the-secret-outside"

LEXICAL = (
    "/etc/passwd",
    "//etc/passwd",
    "../outside/secret",
    "src/../../outside/secret",
    "src/..",
    "..",
    "./../outside",
    "~/.ssh/id_rsa",
    "~",
    "C:\\Windows",
    "C:/Windows",
    "c:secret",
    "..\\outside\\secret",
    "src\\..\\..\\outside",
    "\\\\server\\share",
    "notes.txt\0.png",
    "/proc/self/root/etc/passwd",
)

LINKS = {
    "to-file": "../outside/secret",
    "to-folder": "../outside",
    "to-root": "/",
    "to-proc": "/proc/self/root",
    "to-link": "to-folder",
    "dangling": "../outside/made",
}
LINKED = (
    "to-file",
    "to-folder/secret",
    "to-folder/made",
    "to-root/etc/passwd",
    "to-proc/etc/passwd",
    "to-link/secret",
    "dangling",
    "to-folder/deep/er/made",
)

PROTECTED_WRITES = (
    ".git/hooks/pre-commit",
    ".git/config",
    ".GIT/config",
    "./.git/config",
    "src/.git/hooks/post-checkout",
    ".stepfold/store.sqlite",
    "stepfold.toml",
    "./stepfold.toml",
)

CONNECT = (
    "import socket, sys; _, family, kind, address = sys.argv; "
    "made = socket.socket(getattr(socket, family), getattr(socket, kind)); "
    'made.connect(eval(address)); made.send(b"out")'
)

REDIRECT = (
    "import socket, sys; one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); "
    'one.sendto(b"out", eval(sys.argv[1]))'
)

COMMANDS = (
    "cat {outside}/secret",
    "cat ../outside/secret",
    "cat /proc/1/root{outside}/secret",
    "cat /proc/self/root{outside}/secret /proc/*/root{outside}/secret /proc/*/cwd/../outside/secret",
    "ln -s {outside}/secret way; cat way",
    "ln {outside}/secret way; cat way",
    "cp -r {outside} taken; cat taken/secret",
    "echo changed > {outside}/secret",
    "touch {outside}/made",
    "mkdir -p {outside}; echo x > {outside}/made",
    "rm -rf {outside}",
    "mv {outside}/secret .; cat secret",
    "chmod 777 {outside}; chown 0:0 {outside}",
    "touch /usr/made-by-escape /etc/made-by-escape /made-by-escape /bin/made-by-escape",
    "touch /tmp/made-by-escape /var/tmp/made-by-escape /dev/shm/made-by-escape",
    "mount -o remount,rw / ; mount -o remount,rw /usr; touch /usr/made-by-escape",
    "mount --bind / src; cat src{outside}/secret",
    "unshare -r -m sh -c 'mount -o remount,rw /usr; touch /usr/made-by-escape; umount -l {project}/.git'",
    "unshare -Ur chroot / cat {outside}/secret",
    "umount -l /tmp; cat {outside}/secret",
    "python3 -c \"import os; os.chroot('.'); os.chdir('../../..'); os.chroot('.')\"; cat {outside}/secret",
    "ls -l /proc/self/fd/; cat /proc/self/fd/[3-9]/secret /proc/*/fd/*/secret",
    "kill -9 {pid}; kill -9 -1",
    "kill -9 {parent}; pkill -9 -f pytest",
    "bash -c 'echo out > /dev/tcp/127.0.0.1/{port}'",
    "bash -c 'echo out > /dev/udp/127.0.0.1/{port}'",
    "bash -c 'echo out > /dev/udp/8.8.8.8/53'",
    f"python3 -c '{CONNECT}' AF_INET SOCK_STREAM \"('127.0.0.1', {{port}})\"",
    f"python3 -c '{CONNECT}' AF_INET SOCK_DGRAM \"('127.0.0.1', {{port}})\"",
    f"python3 -c '{CONNECT}' AF_UNIX SOCK_STREAM \"'{{outside}}/socket'\"",
    f"python3 -c '{CONNECT}' AF_UNIX SOCK_STREAM \"chr(0) + '{{abstract}}'\"",
    "cat /etc/shadow /root/.bashrc /root/.ssh/* ~root/.profile; ls /home/* /var/run /run/*",
    "env; cat /proc/*/environ",
    "echo 'touch {outside}/made' > .git/hooks/pre-commit",
    "rm -rf .git; mkdir -p .git/hooks; touch .git/hooks/post-checkout",
    "mv .git was; mkdir .git; git init",
    "git config core.fsmonitor 'touch {outside}/made'; git config core.hooksPath .",
    "ln -sfn src .git; mount --move src .git",
    "echo x > .stepfold/forged; rm -rf .stepfold; mv .stepfold was",
    "python3 -c \"import fcntl, termios; [fcntl.ioctl(0, termios.TIOCSTI, c) for c in 'id']\"",
    "echo c > /proc/sysrq-trigger; echo 1 > /proc/sys/kernel/panic; echo x > /proc/self/oom_score_adj",
    "mknod disk b 8 0; cat disk; mknod /dev/sda b 8 0; cat /dev/sda /dev/mem /dev/kmsg",
    "cat /sys/class/net/*/address; ls /sys/fs/cgroup; echo 1 > /sys/fs/cgroup/cgroup.procs",
    "cp /bin/sh rootsh; chmod 4755 rootsh; ./rootsh -p -c 'cat {outside}/secret'",
    "chmod 600 {outside}/secret; touch -d 2001-01-01 {outside}/secret",
    "python3 -c \"import os; os.setxattr('{outside}/secret', 'user.x', b'1')\"",
    f"python3 -c '{REDIRECT}' \"'{{outside}}/datagrams'\"",
    f"python3 -c '{REDIRECT}' \"chr(0) + '{{abstract}}-datagrams'\"",
    'python3 -c "import resource; resource.prlimit({pid}, resource.RLIMIT_CPU, (0, 0))"; '
    "prlimit --pid {pid} --nofile=1; renice 19 {pid}; taskset -p 1 {pid}; ionice -c 3 -p {pid}",
    "python3 -c \"import signal; signal.pidfd_send_signal(__import__('os').pidfd_open({pid}), 9)\"",
    "gdb -p {pid} -batch -ex kill; strace -p {pid} -o trace & sleep 0.1; kill %1",
    "grep -s the-secret-outside /proc/{pid}/environ /proc/{pid}/cmdline /proc/{pid}/mem /proc/{pid}/maps",
    "(sleep 0.2; touch {outside}/made) & disown; setsid sh -c 'sleep 0.2; touch {outside}/made' &",
)


class Outside:
    """A folder beside the project, with everything that a way out could reach, and what shows it."""

    def __init__(self, base: Path) -> None:
        self.folder = base / "outside"
        self.folder.mkdir()
        (self.folder / "secret").write_text(SECRET)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.port = self.listener.getsockname()[1]
        self.datagrams.bind(("127.0.0.1", self.port))
        self.abstract = f"stepfold-{os.getpid()}"
        self.local = [socket.socket(socket.AF_UNIX) for _ in range(2)]
        self.letters = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)]
        # A relative name, for the whole path may be longer than a socket's address can be.
        here = Path.cwd()
        os.chdir(self.folder)
        self.local[0].bind("socket")
        self.letters[0].bind("datagrams")
        os.chdir(here)
        self.letters[1].bind("\0" + self.abstract + "-datagrams")
        self.local[1].bind("\0" + self.abstract)
        for one in self.local:
            one.listen()
        self.bystander = subprocess.Popen(["sleep", "300"], env={"SECRET": SECRET})
        self.limits = self.bystanders_limits()
        self.before = self.state()

    def state(self) -> list[tuple[object, ...]]:
        entries = [self.folder, *sorted(self.folder.iterdir())]
        return [
            (
                path.name,
                path.stat().st_mode,
                path.stat().st_mtime_ns,
                os.listxattr(path) if path.is_file() else [],
                path.read_bytes() if path.is_file() else b"",
            )
            for path in entries
        ]

    def bystanders_limits(self) -> list[object]:
        pid = self.bystander.pid
        kinds = (resource.RLIMIT_CPU, resource.RLIMIT_NOFILE)
        try:
            return [
                *(resource.prlimit(pid, kind) for kind in kinds),
                os.getpriority(os.PRIO_PROCESS, pid),
                os.sched_getaffinity(pid),
            ]
        except ProcessLookupError:
            return []

    def shows_a_way_out(self) -> list[str]:
        found = [] if self.state() == self.before else ["files changed"]
        messages = (self.datagrams, *self.letters)
        for one in (self.listener, *self.local, *messages):
            one.setblocking(False)
            try:
                _ = one.recv(10) if one in messages else one.accept()
                found.append("a connection arrived")
            except BlockingIOError:
                continue
        if self.bystander.poll() is not None:
            found.append("a process was ended")
        elif self.bystanders_limits() != self.limits:
            found.append("a process was limited")
        places = ("/usr", "/etc", "/", "/bin", "/tmp", "/var/tmp", "/dev/shm")
        found += [place for place in places if Path(place, "made-by-escape").exists()]
        return found

    def close(self) -> None:
        self.bystander.kill()
        self.bystander.wait()
        for one in (self.listener, self.datagrams, *self.local, *self.letters):
            one.close()

    def aimed(self, command: str, project: Path) -> str:
        values = {
            "outside": self.folder,
            "project": project,
            "pid": self.bystander.pid,
            "parent": os.getpid(),
            "port": self.port,
            "abstract": self.abstract,
        }
        for key, value in values.items():
            command = command.replace(f"{{{key}}}", str(value))
        return command


@pytest.fixture
def yard(base: Path) -> Path:
    root = base / "project"
    (root / "src").mkdir(parents=True)
    (root / "notes.txt").write_text("one\n")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    (root / ".stepfold").mkdir()
    return root


@pytest.fixture
def outside(base: Path) -> Iterator[Outside]:
    made = Outside(base)
    yield made
    made.close()


def guarded(project: Path) -> dict[str, bytes]:
    """What is in the protected folders."""
    return {
        str(path.relative_to(project)): path.read_bytes()
        for name in (".git", ".stepfold")
        for path in sorted((project / name).rglob("*"))
        if path.is_file()
    }


def test_forty_and_more_ways_out_are_tried() -> None:
    assert len({*LEXICAL, *LINKED, *PROTECTED_WRITES, *COMMANDS}) > 70


def hop(name: str, arguments: dict[str, Any]) -> str:
    outcome = admit(
        name,
        arguments,
        manifests=NATIVE_BY_NAME,
        loaded=NATIVE_BY_NAME,
        policy=(),
        sandbox="bubblewrap",
        sandbox_required=True,
        network=False,
    )
    return outcome.hop if isinstance(outcome, Refused) else ""


ARGUMENTS: dict[str, dict[str, Any]] = {
    "fs.list": {},
    "fs.read": {},
    "fs.search": {"pattern": "secret"},
    "fs.write": {"content": "x"},
    "fs.patch": {"old": SECRET, "new": "x"},
    "git.diff": {},
}


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
@pytest.mark.parametrize("path", LEXICAL)
def test_a_path_that_says_where_it_leads_is_refused_before_anything_runs(name: str, path: str) -> None:
    assert hop(name, ARGUMENTS[name] | {"path": path}) == "paths"


@pytest.mark.parametrize("name", ["fs.write", "fs.patch"])
@pytest.mark.parametrize("path", PROTECTED_WRITES)
def test_a_protected_entry_is_refused_twice(name: str, path: str, yard: Path) -> None:
    assert hop(name, ARGUMENTS[name] | {"path": path}) == "paths"
    before = guarded(yard)
    result = call(name, ARGUMENTS[name] | {"path": path}, CallContext(workspace=Workspace(yard)))
    assert getattr(result, "error", "") == "PathOutside"
    assert guarded(yard) == before


@pytest.mark.parametrize("path", [*LEXICAL, *LINKED])
def test_natives_follow_no_path_out(path: str, yard: Path, outside: Outside) -> None:
    for link, target in LINKS.items():
        (yard / link).symlink_to(target)
    context = CallContext(workspace=Workspace(yard))
    for name in ("fs.list", "fs.read", "fs.search", "fs.write", "fs.patch"):
        landing: Any = call(name, ARGUMENTS[name] | {"path": path}, context)
        result = landing if hasattr(landing, "error") else asyncio.run(landing)
        assert SECRET not in getattr(result, "content", "")
        inside = name != "fs.write" and (path == "src/..")
        assert inside or result.error, (name, result)
    assert outside.shows_a_way_out() == []


WITNESSED = (
    "echo changed > {outside}/secret",
    "touch {outside}/made",
    "kill -9 {pid}; sleep 0.1",
    *(command for command in COMMANDS if command.startswith("python3 -c 'import socket")),
    *(
        command
        for command in COMMANDS
        if "prlimit" in command or "chmod 600" in command or "setxattr" in command
    ),
    *(command for command in COMMANDS if "pidfd" in command),
)


@pytest.mark.parametrize("command", WITNESSED)
def test_the_witnesses_see_a_way_out_where_there_is_no_sandbox(
    command: str, yard: Path, outside: Outside
) -> None:
    asyncio.run(run(outside.aimed(command, yard), workspace=Workspace(yard), backend="none", timeout=10))
    assert outside.shows_a_way_out()


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_gets_out_of_the_sandbox(command: str, yard: Path, outside: Outside, backend: str) -> None:
    before = guarded(yard)
    aimed = outside.aimed(command, yard)
    completed = asyncio.run(
        run(aimed, workspace=Workspace(yard), backend=backend, timeout=10, limits=LIMITED)
    )
    assert SECRET.encode() not in completed.output
    assert outside.shows_a_way_out() == []
    assert guarded(yard) == before


if CAN_BE_NOBODY:

    @pytest.mark.parametrize("command", COMMANDS)
    def test_no_command_of_an_ordinary_user_gets_out(
        command: str, yard: Path, outside: Outside, backend: str
    ) -> None:
        given_to_nobody(yard)
        before = guarded(yard)
        command = f"id -u; {command}"
        said = run_as_nobody(outside.aimed(command, yard), yard, backend, timeout=20)
        assert SECRET.encode() not in said
        assert str(NOBODY).encode() in said, "the box stood, and the user was that one"
        assert outside.shows_a_way_out() == []
        assert guarded(yard) == before
