"""What the backend without namespaces keeps in ways of its own, and what it can't keep."""

import asyncio
import errno
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stepfold.engine.capabilities.boxes import Limits
from stepfold.engine.capabilities.sandbox import Completed, probe, run
from stepfold.engine.capabilities.steward import CALLS
from stepfold.engine.capabilities.stewarded_call import Rule
from stepfold.engine.capabilities.syscall_filter import (
    ABSENT,
    ATTRIBUTES,
    KERNEL_SURFACE,
    NETWORK,
    OF_OTHERS,
    STEWARDED,
    WATCHES,
)
from stepfold.engine.capabilities.workspace import Workspace

if not (FOUND := probe("seccomp")).backend:
    pytest.skip(FOUND.why, allow_module_level=True)


def fenced(command: str, project: Path, timeout: float = 20) -> Completed:
    return asyncio.run(run(command, workspace=Workspace(project), backend="seccomp", timeout=timeout))


def said(command: str, project: Path) -> str:
    return fenced(command, project).output.decode()


def python(text: str, project: Path) -> str:
    """What a Python program says behind the fence."""
    return said(f"python3 - <<'END'\n{text}\nEND\n", project)


RULE = Rule("/p", "/tmp/own", ["/p/.git", "/p/stepfold.toml", "/p/env/venv"])


@pytest.mark.parametrize(
    ("path", "may"),
    [
        ("/p/a", True),
        ("/p/src/.git/config", True),
        ("/p/.gitignore", True),
        ("/tmp/own/home/a", True),
        ("/p", False),
        ("/p/.git", False),
        ("/p/.git/hooks/x", False),
        ("/p/.GIT/hooks/x", False),
        ("/p/StepFold.toml", False),
        ("/p/env/venv/bin/python", False),
        ("/pq/a", False),
        ("/tmp/owned", False),
        ("/", False),
        ("pipe:[12]", False),
    ],
)
def test_the_rule_of_what_may_be_changed(path: str, may: bool) -> None:
    assert RULE.may_change(path) == may


def test_a_folder_with_a_read_only_one_in_it_is_not_moved() -> None:
    assert RULE.may_change("/p/env")
    assert not RULE.may_move("/p/env")
    assert RULE.may_move("/p/envy")


def test_a_project_that_is_read_only_stays_so() -> None:
    rule = Rule("/p", "/tmp/own", ["/p"])
    assert not rule.may_change("/p/a")
    assert not rule.may_dress("/p")
    assert rule.may_change("/tmp/own/a")


def test_each_listed_call_is_one_that_there_is() -> None:
    from seccompy.syscalls import X86_64_SYSCALLS

    listed = {*KERNEL_SURFACE, *ABSENT, *NETWORK, *STEWARDED, *ATTRIBUTES, *WATCHES, *OF_OTHERS}
    assert listed <= set(X86_64_SYSCALLS)


def test_each_call_that_is_handed_over_is_one_that_the_steward_knows() -> None:
    assert set(STEWARDED) == set(CALLS)


def test_files_are_made_changed_moved_and_removed_as_anywhere(project: Path) -> None:
    commands = (
        "mkdir -p a/b",
        "echo one > a/b/c",
        "echo two >> a/b/c",
        "cp -p a/b/c d",
        "mv d e",
        "ln -s e link",
        "ln e hard",
        "chmod 750 e",
        "touch -d '2001-02-03 04:05:06 UTC' a",
        "rm notes.txt",
        "sed -i s/one/uno/ a/b/c",
        "mkfifo pipe",
        "truncate -s 2 hard",
        "(umask 077; echo x > mine)",
        "cd src && echo y > ../beside && mkdir deep && rmdir deep",
    )
    assert said(" && ".join(commands), project) == ""
    assert (project / "a/b/c").read_text() == "uno\ntwo\n"
    assert (project / "e").read_text() == "on"
    assert stat.S_IMODE((project / "e").stat().st_mode) == 0o750
    assert (project / "link").readlink() == Path("e")
    assert (project / "a").stat().st_mtime == 981173106
    assert stat.S_ISFIFO((project / "pipe").stat().st_mode)
    assert stat.S_IMODE((project / "mine").stat().st_mode) == 0o600
    assert (project / "beside").read_text() == "y\n"
    assert not (project / "notes.txt").exists()
    assert not (project / "src" / "deep").exists()


def test_what_is_opened_carries_the_flags_that_were_asked_for(project: Path) -> None:
    (project / "script.py").write_text(
        "import os, fcntl\n"
        "made = os.open('made', os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o640)\n"
        "os.write(made, b'12')\n"
        "print(bool(fcntl.fcntl(made, fcntl.F_GETFD) & fcntl.FD_CLOEXEC))\n"
        "print(bool(fcntl.fcntl(made, fcntl.F_GETFL) & os.O_APPEND))\n"
        "for flags in (os.O_CREAT | os.O_EXCL, os.O_DIRECTORY, os.O_TRUNC):\n"
        "    try:\n"
        "        os.open('made', os.O_WRONLY | flags)\n"
        "        print(os.stat('made').st_size)\n"
        "    except OSError as reason:\n"
        "        print(type(reason).__name__)\n"
    )
    told = said("python3 script.py", project).split()
    assert told == ["True", "True", "FileExistsError", "NotADirectoryError", "0"]


def test_a_compiled_program_can_be_run(project: Path) -> None:
    (project / "make.py").write_text(
        "import os, shutil\n"
        "open('tool', 'w').write('#!/bin/sh\\necho ran\\n')\n"
        "os.chmod('tool', 0o755)\n"
        "shutil.copy2('tool', 'tool2')\n"
    )
    assert said("python3 make.py && ./tool && ./tool2", project) == "ran\nran\n"


PROTECTED_CHANGES = (
    "touch .git/x",
    "echo x > .git/config",
    "echo x >> .git/config",
    "ln .git/config way && echo x > way",
    "ln -s .git/config way; echo x > way",
    "ln -s .git src/way; echo x > src/way/hooks/post-commit",
    "mv .git was",
    "mv src .git/src",
    "rm -rf .git",
    "truncate -s 0 .git/config",
    "chmod 777 .git/config",
    "touch -d 2001-01-01 .git/config",
    "cd .git && echo x > config",
    "cd src && echo x > ../.git/config",
    "mv src/evil .git/config",
    "mkdir .git/hooks",
    "python3 -c \"import os; f = os.open('.git', os.O_RDONLY); os.open('new', os.O_CREAT, 0o644, dir_fd=f)\"",
    "python3 -c \"import os; f = os.open('.git/config', os.O_RDONLY); os.fchmod(f, 0o777)\"",
    "python3 -c \"import os; f = os.open('.git/config', os.O_RDONLY); os.utime(f, (1, 1))\"",
    "python3 -c \"import os; f = os.open('.git/config', os.O_RDONLY); open(f'/proc/self/fd/{f}', 'w')\"",
    "python3 -c \"import os; os.open('.git/config', os.O_RDONLY | os.O_TRUNC)\"",
    "python3 -c \"import os; os.setxattr('.git/config', 'user.x', b'1')\"",
    "echo x > .stepfold/x",
    "echo x > stepfold.toml",
    "mv src/evil stepfold.toml",
    "ln src/evil stepfold.toml",
    "ln -s src/evil stepfold.toml",
    "mkdir stepfold.toml",
    "mkfifo stepfold.toml",
)


def everything(folder: Path) -> list[tuple[str, int, int, bytes]]:
    found = [path for path in (folder, *sorted(folder.rglob("*"))) if path.exists()]
    return [
        (
            str(path),
            path.stat().st_mode,
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in found
    ]


@pytest.mark.parametrize("command", PROTECTED_CHANGES)
def test_nothing_changes_in_a_protected_entry_of_the_project(project: Path, command: str) -> None:
    (project / ".git").mkdir()
    (project / ".git" / "config").write_text("[core]\n")
    (project / "src" / "evil").write_text("x")
    before = everything(project / ".git")
    fenced(command, project)
    assert everything(project / ".git") == before
    assert not os.path.lexists(project / "stepfold.toml")
    assert not (project / ".stepfold").exists()


@pytest.fixture
def outside(project: Path) -> Path:
    """A folder beside the project, with a file that is nobody's business."""
    folder = project.parent / "outside"
    folder.mkdir()
    (folder / "secret").write_text("the-secret-outside")
    return folder


OUTSIDE_CHANGES = (
    "chmod 777 {outside} {outside}/secret",
    "touch -d 2001-01-01 {outside} {outside}/secret",
    "python3 -c \"import os; os.setxattr('{outside}/secret', 'user.x', b'1')\"",
    "ln {outside}/secret way; echo x > way",
    "ln -s {outside} way; touch way/made; rm way/secret; mv way/secret here; chmod 777 way/secret",
    "cd ..; echo x > outside/made; cd outside; echo x > made; mkdir sub",
    "mv src {outside}/src",
    "mv {outside}/secret mine",
    "truncate -s 0 {outside}/secret",
    "mkdir {outside}/sub; mkfifo {outside}/pipe; ln -s / {outside}/link; mknod {outside}/null c 1 3",
    "python3 -c \"import os; os.chdir('..'); open('outside/made', 'w')\"",
    "python3 -c \"import os; os.open('{outside}', os.O_TMPFILE | os.O_RDWR, 0o600)\"",
    "exec 9< {outside}; echo x > /proc/self/fd/9/made",
    "echo x > /proc/self/cwd/../outside/made",
)


@pytest.mark.parametrize("command", OUTSIDE_CHANGES)
def test_nothing_changes_beside_the_project(project: Path, outside: Path, command: str) -> None:
    before = everything(outside)
    told = said(command.replace("{outside}", str(outside)), project)
    assert everything(outside) == before
    assert os.listxattr(outside / "secret") == []
    assert "the-secret-outside" not in told


def test_a_path_that_changes_under_the_stewards_hands_leads_nowhere_else(
    project: Path, outside: Path
) -> None:
    (outside / "mine").write_text("kept")
    (project / "race.py").write_text(
        "import os, threading\n"
        "os.mkdir('inside')\n"
        "open('inside/mine', 'w').close()\n"
        "os.symlink('../outside', 'way')\n"
        "done = []\n"
        "def flip():\n"
        "    while not done:\n"
        "        for other in ('inside', '../outside'):\n"
        "            os.symlink(other, 'next'); os.rename('next', 'way')\n"
        "threading.Thread(target=flip).start()\n"
        "hits = 0\n"
        "for turn in range(400):\n"
        "    for act in (lambda: open('way/mine', 'w').write('x'), lambda: os.chmod('way/mine', 0o600),\n"
        "                lambda: open(f'way/made{turn}', 'x'), lambda: os.utime('way/mine', (1, 1))):\n"
        "        try:\n"
        "            act(); hits += 1\n"
        "        except OSError:\n"
        "            pass\n"
        "done.append(1)\n"
        "print(hits)\n"
    )
    before = everything(outside)
    assert int(said("python3 race.py", project)) > 100
    assert everything(outside) == before


def test_no_later_filter_can_answer_in_the_stewards_place(project: Path) -> None:
    told = python(
        "import ctypes, struct\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "allow = struct.pack('=HBBI', 6, 0, 0, 0x7FC00000)\n"
        "class Program(ctypes.Structure):\n"
        "    _fields_ = [('length', ctypes.c_ushort), ('code', ctypes.c_char_p)]\n"
        "number = 317 if __import__('os').uname().machine == 'x86_64' else 277\n"
        "print(libc.syscall(number, 1, 8, ctypes.byref(Program(1, allow))), ctypes.get_errno())",
        project,
    )
    assert told.split() == ["-1", str(errno.EPERM)]


RAW_CALLS = {
    "a socket by its x32 number": ("0x40000000 | 41, 2, 1, 0", errno.ENOSYS),
    "a call that is newer than the list": ("472, 0, 0, 0", errno.ENOSYS),
    "io_uring_setup": ("425, 8, bytes(120), 0", errno.ENOSYS),
    "clone3": ("435, bytes(88), 88, 0", errno.ENOSYS),
    "clone with a user namespace": ("56, 0x10000011, 0, 0", errno.EPERM),
    "unshare": ("272, 0x10000000, 0, 0", errno.EPERM),
    "ptrace of the parent": ("101, 16, os.getppid(), 0", errno.EPERM),
    "keyctl": ("250, 0, -3, 0", errno.EPERM),
    "bpf": ("321, 0, bytes(64), 64", errno.EPERM),
    "perf_event_open": ("298, bytes(128), 0, -1", errno.EPERM),
    "userfaultfd": ("323, 0, 0, 0", errno.EPERM),
    "open_by_handle_at": ("304, -100, bytes(16), 0", errno.EPERM),
    "fanotify_init": ("300, 0, 0, 0", errno.EPERM),
    "typing on the terminal": ("16, 0, 0x5412, b'x'", errno.EPERM),
    "the same, with bits that the kernel drops": ("16, 0, 0x100005412, b'x'", errno.EPERM),
}
IN_THE_FENCE_ONLY = {
    "a socket": ("41, 1, 1, 0", errno.EPERM),
    "a netlink socket": ("41, 16, 3, 0", errno.EPERM),
    "a pair of sockets that can be turned elsewhere": ("53, 1, 2, 0, bytes(8)", errno.EPERM),
    "a message queue": ("240, b'/stepfold-escape', 0o102, 0o600, 0", errno.EPERM),
    "shared memory": ("29, 77, 4096, 0o1600", errno.EPERM),
    "a watch": ("294, 0, 0, 0", errno.ENOSYS),
    "the limits of another": ("302, os.getppid(), 0, bytes(16), 0", errno.EPERM),
    "the priority of another": ("141, 0, os.getppid(), 19", errno.EPERM),
    "the priority of all": ("141, 2, 0, 19", errno.EPERM),
    "the processors of another": ("203, os.getppid(), 8, b'\\1' + bytes(7)", errno.EPERM),
    "a lease on a file": ("72, 0, 1024, 0", errno.EINVAL),
    "flags of a file": ("16, 0, 0x40086602, bytes(8)", errno.EPERM),
}

if os.uname().machine == "x86_64":
    HERE = ("landlock", "seccomp") if probe("landlock").backend else ("seccomp",)
    REFUSED = [
        *((backend, name) for backend in HERE for name in RAW_CALLS),
        *(("seccomp", name) for name in IN_THE_FENCE_ONLY),
    ]

    @pytest.mark.parametrize(("backend", "name"), REFUSED)
    def test_a_call_is_refused(project: Path, name: str, backend: str) -> None:
        arguments, expected = (RAW_CALLS | IN_THE_FENCE_ONLY)[name]
        trying = (
            "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True); long = ctypes.c_long; "
            f"words = [long(one) if isinstance(one, int) else one for one in ({arguments})]; "
            "print(libc.syscall(*words), ctypes.get_errno())"
        )
        completed = asyncio.run(
            run(f'python3 -c "{trying}"', workspace=Workspace(project), backend=backend, timeout=20)
        )
        assert completed.output.decode().split() == ["-1", str(expected)]


def test_nothing_outruns_the_end(project: Path) -> None:
    mark = f"5{os.getpid()}.125"
    forking = f"f() {{ (sleep {mark} & f &) 2>/dev/null; }}; f; sleep 0.3"
    asyncio.run(
        run(
            forking,
            workspace=Workspace(project),
            backend="seccomp",
            timeout=5,
            limits=Limits(processes=64, cpu_seconds=5),
        )
    )
    assert mark not in listed()


@pytest.mark.parametrize(
    "keeping_busy",
    ["while :; do (: &); done", "while :; do echo > busy; done", "trap '' TERM; while :; do (: > a &); done"],
)
def test_nothing_keeps_it_from_ending(project: Path, keeping_busy: str) -> None:
    mark = f"3{os.getpid()}.125"
    completed = fenced(f"setsid sleep {mark} & {keeping_busy}", project, timeout=0.5)
    assert completed.timed_out
    assert mark not in listed()


def test_the_private_folder_is_gone_after_whatever_was_made_in_it(project: Path) -> None:
    command = (
        "echo $HOME; cd ~; ln -s / r; mkdir -p shut/deep; echo x > shut/deep/file; chmod 0 shut/deep shut"
    )
    home = Path(said(command, project).split()[0])
    assert home.name == "home"
    assert not home.parent.exists()


def test_it_ends_when_the_one_who_started_it_is_killed(project: Path) -> None:
    mark = f"4{os.getpid()}.125"
    starting = (
        "import asyncio, sys; from stepfold.engine.capabilities.sandbox import run; "
        "from stepfold.engine.capabilities.workspace import Workspace; "
        f"asyncio.run(run('setsid sleep {mark} & sleep {mark}', "
        f"workspace=Workspace({str(project)!r}), backend='seccomp'))"
    )
    with subprocess.Popen([sys.executable, "-c", starting]) as starter:
        until(lambda: mark in listed())
        starter.kill()
    until(lambda: f"sleep {mark}" not in listed())


def listed() -> str:
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it never came")


NOT_HIDDEN = (
    # Landlock asks for no right to look at a file's name and attributes, only for opening it.
    "stat -c %s {outside}/secret",
    "cd {outside} && pwd",
)


@pytest.mark.parametrize("command", NOT_HIDDEN)
def test_what_it_does_not_hide_is_known(project: Path, outside: Path, command: str) -> None:
    completed = fenced(command.replace("{outside}", str(outside)), project)
    assert completed.exit_code == 0
    assert b"the-secret-outside" not in completed.output


def test_extended_attributes_outside_are_not_read(project: Path, outside: Path) -> None:
    os.setxattr(outside / "secret", "user.origin", b"https://token@example.org")
    for call in ("os.listxattr(path)", "os.getxattr(path, 'user.origin')"):
        command = f"import os; path = '{outside}/secret'; print({call})"
        completed = fenced(f'python3 -c "{command}"', project)
        assert b"Errno 95" in completed.output
        assert b"token" not in completed.output
