"""What a sandboxed command can see: the argument lists of the backends, built from one description.

A box is the same whichever backend builds it: system folders and the running Python read-only, the
project writable but for its protected entries, a private /tmp and home, no network, a bare environment.
"""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from stepfold.engine.capabilities.paths import PROTECTED
from stepfold.engine.capabilities.syscall_filter import NoFilter, call_numbers, fence_filter, inner_filter
from stepfold.engine.capabilities.workspace import Workspace

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SETTINGS = tuple(
    f"/etc/{name}"
    for name in (
        "alternatives",
        "group",
        "hosts",
        "ld.so.cache",
        "ld.so.conf",
        "ld.so.conf.d",
        "localtime",
        "mime.types",
        "nsswitch.conf",
        "passwd",
        "protocols",
        "services",
        "ssl/certs",
        "ssl/openssl.cnf",
    )
)
"""What programs need of /etc, and nothing that is secret or tells of the machine's networks."""

HOME = "/run/home"
SYSTEM_PATH = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/local/go/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
)

SUBMODULES = ("stepfold", "stepfold.engine", "stepfold.events", "stepfold.projections")


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of one command: seconds of processor time, bytes, and a number of processes.

    `kept` is how much of the output is held, `output` how much may come before the command is
    ended. The limit of processes does not bind root, whom the kernel exempts.
    """

    cpu_seconds: int = 600
    address_space: int = 16 * 1024**3
    processes: int = 512
    file_size: int = 1024**3
    private_space: int = 512 * 1024**2
    output: int = 64 * 1024**2
    kept: int = 16 * 1024


DEFAULT_LIMITS = Limits()

STARTING = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""What the MCP client hands on of the user's environment."""

WORD_BYTES = 100_000

NO_STATUS = -1
"""In the place of a descriptor: nobody listens to how the box fares."""


class Box(Struct, frozen=True, kw_only=True):
    """What the command can reach. Paths are real and absolute; `read_only` wins over `project`.

    `kept` are read-only, too, and have to be there: where one is gone, the box isn't built. `passed`
    names variables of the starting environment that go on into the box; `filter` and `calls` are a program
    of `syscall_filter` and the numbers that belong to it, or empty.
    """

    project: str
    home: str
    readable: tuple[str, ...]
    read_only: tuple[str, ...]
    kept: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...]
    private_space: int
    passed: tuple[str, ...] = ()
    filter: bytes = b""
    calls: dict[int, str] = {}


def box_for(workspace: Workspace, limits: Limits, readable: Sequence[str] = ()) -> Box:
    """Describe the box of a project. `readable` are further folders to show read-only."""
    root = str(workspace.root)
    runtime = _runtime_folders()
    shown = tuple(
        dict.fromkeys(path for path in (*SYSTEM, *SETTINGS, *runtime, *readable) if Path(path).exists())
    )
    inside = [path for path in _environment_folders() if Path(path).is_relative_to(root) and path != root]
    guarded = [str(workspace.root / name) for name in PROTECTED]
    return Box(
        project=root,
        home=HOME,
        readable=tuple(path for path in shown if not Path(path).is_relative_to(root)),
        read_only=(*guarded, *inside),
        environment=_environment(root, shown),
        private_space=limits.private_space,
    )


def limited(command: str, limits: Limits) -> list[str]:
    """The words that run a shell command under resource limits, which its children inherit.

    The limits are set inside the box, where the kernel counts the box's own processes alone.
    """
    set_limits = (
        f"ulimit -t {limits.cpu_seconds}; ulimit -f {limits.file_size // 512}; "
        f"ulimit -v {limits.address_space // 1024}; ulimit -c 0; "
        f"ulimit -u {limits.processes} 2>/dev/null || ulimit -p {limits.processes} 2>/dev/null; "
    )
    return ["/bin/sh", "-c", f'{set_limits}exec {_shell()} -c "$1"', "sh", command]


def bubblewrap_words(box: Box, status: int, program: str) -> list[str]:
    """The bwrap command line, without the command. `status` is the descriptor it reports on."""
    words = [
        program,
        "--unshare-all",
        "--unshare-user",
        "--die-with-parent",
        "--new-session",
        # Root keeps its capabilities unless told otherwise, and could then undo all that follows.
        *("--cap-drop", "ALL"),
        *(("--json-status-fd", str(status)) if status != NO_STATUS else ()),
        *(("--clearenv",) if not box.passed else _unset(box)),
    ]
    for key, value in box.environment:
        words += ["--setenv", key, value] if key not in box.passed else []
    words += ["--size", str(box.private_space), "--tmpfs", "/tmp"]
    words += ["--size", str(box.private_space), "--tmpfs", HOME]
    for path in box.readable:
        words += ["--symlink", _target(path), path] if _is_top_link(path) else ["--ro-bind", path, path]
    words += ["--bind", box.project, box.project]
    for path in box.read_only:
        words += ["--ro-bind-try", path, path]
    for path in box.kept:
        # Nothing can be mounted on a link. One that is replaced is noticed when the command has ended.
        words += [] if Path(path).is_symlink() else ["--ro-bind", path, path]
    words += ["--proc", "/proc", "--dev", "/dev", "--size", str(box.private_space), "--tmpfs", "/dev/shm"]
    return [*words, "--remount-ro", "/", "--chdir", box.project, "--"]


def _unset(box: Box) -> list[str]:
    """What of the starting environment stays outside, where some of it goes in.

    Whoever passes something starts the box in an environment of nothing but that and these.
    """
    return [word for name in STARTING if name not in box.passed for word in ("--unsetenv", name)]


def launcher_words(box: Box, status: int) -> list[str]:
    """The command line of our own launcher, for machines that have the kernel's means and no bwrap."""
    try:
        program = inner_filter()
    except NoFilter:
        # The namespaces hold without it: it is a second wall, not the first.
        program = b""
    return _python_words("launcher.py", msgspec.structs.replace(box, filter=program), status)


def fence_words(box: Box, status: int) -> list[str]:
    """The command line of the fence, for machines that grant no namespaces. Raises NoFilter."""
    fenced = msgspec.structs.replace(box, filter=fence_filter(), calls=call_numbers())
    return _python_words("fence.py", fenced, status)


def _python_words(program: str, box: Box, status: int) -> list[str]:
    path = str(Path(__file__).with_name(program))
    # Escaped, for a path needn't be UTF-8; in pieces, for the kernel takes 128 KiB for one word.
    text = json.dumps(msgspec.to_builtins(box))
    pieces = [text[start : start + WORD_BYTES] for start in range(0, len(text), WORD_BYTES)]
    return [sys.executable, "-I", "-S", path, str(status), str(len(pieces)), *pieces]


def _is_top_link(path: str) -> bool:
    return Path(path).is_symlink() and path in SYSTEM


def _target(link: str) -> str:
    return str(Path(link).readlink())


def _shell() -> str:
    return "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"


def _environment_folders() -> list[str]:
    return list(dict.fromkeys(str(Path(prefix).resolve()) for prefix in (sys.prefix, sys.base_prefix)))


def _runtime_folders() -> list[str]:
    """The running Python, and this package where it is installed from its sources.

    A check that runs pytest loads the plugin of this package, so its sources must be there.
    """
    prefixes = [path for path in _environment_folders() if path not in ("/", "/usr")]
    modules = [sys.modules[name] for name in SUBMODULES if name in sys.modules]
    sources = [str(Path(module.__file__).parent.resolve()) for module in modules if module.__file__]
    outside = [
        source for source in sources if not any(Path(source).is_relative_to(prefix) for prefix in prefixes)
    ]
    return [*prefixes, *outside]


def _environment(root: str, shown: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The whole environment of a command. Nothing of the caller's passes, so no secret can."""
    folders = [*_project_programs(root, shown), str(Path(sys.executable).parent), *SYSTEM_PATH]
    return (
        ("PATH", ":".join(dict.fromkeys(folders))),
        ("HOME", HOME),
        ("TMPDIR", "/tmp"),
        ("LANG", "C.UTF-8"),
        ("TERM", "dumb"),
        ("CI", "1"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("PYTHONHASHSEED", "0"),
        ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_PAGER", "cat"),
        ("PAGER", "cat"),
        ("NO_COLOR", "1"),
    )


def _project_programs(root: str, shown: Sequence[str]) -> list[str]:
    """The project's own environment, where its Python is one that the box shows."""
    folders = []
    for name in (".venv", "venv"):
        python = Path(root, name, "bin", "python")
        real = python.resolve() if python.exists() else None
        if real is not None and any(real.is_relative_to(path) for path in shown):
            folders.append(str(python.parent))
    node = Path(root, "node_modules", ".bin")
    return [*folders, str(node)] if node.is_dir() else folders


def bubblewrap_program() -> str:
    """Where bwrap is, or an empty string. Looked for in system folders only, not in the project's."""
    return shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin") or ""
