"""MCP servers, real ones: what they offer, what becomes of calls, and what becomes of them."""

import asyncio
import re
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from stepfold.engine.capabilities.servers import Servers, ServerSpec
from stepfold.engine.capabilities.workspace import Workspace
from stepfold.events.vocabulary import ToolErred, ToolReturned, ToolsListed

PROGRAM = Path(__file__).with_name("mcp_server.py")
OFFERED = ["echo", "environment", "write", "refuse", "hang", "die", "flood", "change", "hostile"]


@pytest.fixture(scope="module")
def http_server() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(PROGRAM), str(port)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def bare(**more: object) -> ServerSpec:
    fields: dict[str, object] = {"name": "house", "command": sys.executable, "args": (str(PROGRAM),)}
    return ServerSpec(**{**fields, "contained": False, **more})  # type: ignore[arg-type]


Story = Callable[[Servers, ToolsListed, list[ToolsListed]], Awaitable[None]]


def told(
    spec: ServerSpec, project: Path, story: Story, backend: str = "", start_seconds: float = 60.0
) -> None:
    """Open one server, live through a story with it, and close it."""

    async def live() -> None:
        servers = Servers([spec], workspace=Workspace(project), start_seconds=start_seconds)
        announced: list[ToolsListed] = []
        servers.announce = announced.append
        try:
            (listed,) = await servers.open(backend)
            await story(servers, listed, announced)
        finally:
            await servers.close()

    asyncio.run(live())


def result(landed: ToolReturned | ToolErred) -> ToolReturned:
    assert isinstance(landed, ToolReturned), landed
    return landed


def test_a_server_over_stdio_from_its_tools_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOUSE_TOKEN", "very-secret-value")
    monkeypatch.setenv("OTHER_SECRET", "not-for-servers")

    async def story(servers: Servers, listed: ToolsListed, announced: list[ToolsListed]) -> None:
        assert [tool.name for tool in listed.tools] == [f"mcp.house.{name}" for name in OFFERED]
        assert listed.left_out == ("'two words': a name of other characters than letters, digits, _ . -",)
        assert all(tool.mutates and tool.idempotency == "once" for tool in listed.tools)

        hostile = next(tool for tool in listed.tools if tool.name == "mcp.house.hostile")
        assert hostile.description.isprintable()
        assert len(hostile.description) <= 300

        said = result(await servers.call("mcp.house.echo", {"text": "ab", "times": 2}))
        assert (said.content, said.error) == ("abab", "")

        seen = result(await servers.call("mcp.house.environment", {})).content
        assert "HOUSE_KEY=Bearer $HOUSE_TOKEN" in seen
        assert "very-secret-value" not in seen
        assert "not-for-servers" not in seen
        assert "HOME=" not in seen

        failed = result(await servers.call("mcp.house.refuse", {}))
        assert failed.error == "ToolError"
        assert "refuse" in failed.content

        long = result(await servers.call("mcp.house.flood", {"megabytes": 6}))
        assert long.size > 6 * 1024 * 1024
        assert len(long.content) < 64 * 1024
        assert long.content.startswith("start")
        assert long.content.endswith("end")
        assert not announced

        result(await servers.call("mcp.house.change", {}))
        (changed,) = announced
        names = [tool.name for tool in changed.tools]
        assert "mcp.house.shout" in names
        assert "mcp.house.echo" not in names
        gone = result(await servers.call("mcp.house.echo", {"text": "ab"}))
        assert gone.error
        assert "echo" in gone.content

        dead = result(await servers.call("mcp.house.die", {}))
        assert dead.error == "ServerError"
        assert announced[-1].tools == ()
        assert announced[-1].error
        later = result(await servers.call("mcp.house.shout", {"word": "a"}))
        assert later.error == "ServerGone"

    told(bare(env=(("HOUSE_KEY", "Bearer $HOUSE_TOKEN"),)), tmp_path, story)


def test_a_server_that_hangs_fails_the_call_and_goes_on(tmp_path: Path) -> None:
    async def story(servers: Servers, listed: ToolsListed, announced: list[ToolsListed]) -> None:
        hung = result(await servers.call("mcp.house.hang", {}))
        assert hung.error == "TimedOut"
        assert "1 s" in hung.content

    told(bare(timeout=1.0), tmp_path, story)


def test_a_contained_server_reads_the_project_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv("HOUSE_TOKEN", "very-secret-value")
    (tmp_path / "server.py").write_text(PROGRAM.read_text())
    spec = ServerSpec(
        name="house", command="python", args=("server.py",), env=(("HOUSE_KEY", "$HOUSE_TOKEN"),)
    )

    async def story(servers: Servers, listed: ToolsListed, announced: list[ToolsListed]) -> None:
        assert len(listed.tools) == len(OFFERED), listed
        assert not any(tool.mutates for tool in listed.tools)
        written = result(await servers.call("mcp.house.write", {"path": str(tmp_path / "made.txt")}))
        assert written.error == "ToolError"
        assert not (tmp_path / "made.txt").exists()
        seen = result(await servers.call("mcp.house.environment", {})).content
        assert "HOUSE_KEY=$HOUSE_TOKEN" in seen
        assert f"USER={Path.home().name}" not in seen
        private = re.search(r"^TMPDIR=(.+)$", seen, re.MULTILINE)
        assert private
        made = result(await servers.call("mcp.house.write", {"path": f"{private[1]}/made.txt"}))
        assert made.content == "written"

    told(spec, tmp_path, story, backend)


@pytest.mark.parametrize(
    ("spec", "why", "start_seconds"),
    [
        (bare(command="/no/such/program"), "no such", 60),
        (bare(args=("-c", "import sys; sys.exit('the reason why')")), "the reason why", 60),
        (bare(args=("-c", "import time; time.sleep(60)")), "did not answer within 1 s", 1),
        (
            bare(args=("-c", "import sys; print('not json', flush=True); sys.stdin.read()")),
            "did not",
            2,
        ),
        (bare(env=(("A", "$NO_SUCH_VARIABLE"),)), "NO_SUCH_VARIABLE", 60),
        (bare(contained=True), "no sandbox", 60),
        (ServerSpec(name="house", url="http://127.0.0.1:9/mcp?key=secret"), "connect", 60),
    ],
)
def test_a_server_that_does_not_start_says_why(
    spec: ServerSpec, why: str, start_seconds: float, tmp_path: Path
) -> None:
    async def story(servers: Servers, listed: ToolsListed, announced: list[ToolsListed]) -> None:
        assert listed.tools == ()
        assert why in listed.error.lower() or why in listed.error
        assert "secret" not in listed.error
        assert result(await servers.call("mcp.house.echo", {})).error == "ServerGone"

    told(spec, tmp_path, story, start_seconds=start_seconds)


def test_a_server_over_http(http_server: str, tmp_path: Path) -> None:
    async def story(servers: Servers, listed: ToolsListed, announced: list[ToolsListed]) -> None:
        assert [tool.name for tool in listed.tools] == [f"mcp.house.{name}" for name in OFFERED]
        assert result(await servers.call("mcp.house.echo", {"text": "ab"})).content == "ab"
        assert result(await servers.call("mcp.house.hang", {})).error == "TimedOut"
        result(await servers.call("mcp.house.die", {}))
        assert announced[-1].error

    told(ServerSpec(name="house", url=http_server, timeout=5.0), tmp_path, story)


def test_nobody_waits_for_a_server_once_the_run_is_to_end(tmp_path: Path) -> None:
    async def live() -> ToolsListed:
        spec = bare(args=("-c", "import time; time.sleep(600)"))
        servers = Servers([spec], workspace=Workspace(tmp_path))
        asyncio.get_running_loop().call_later(0.2, servers.give_up)
        try:
            (listed,) = await asyncio.wait_for(servers.open(""), 10)
        finally:
            await servers.close()
        return listed

    assert asyncio.run(live()).error == "the run ended first"
