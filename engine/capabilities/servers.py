"""MCP servers: started or reached once a life of a run, asked for their tools, called, and ended.

Everything that a server does wrong (hangs, dies, floods, changes its tools) ends as an event: a failed
result, and a `ToolsListed` that says what is left. The client is the official SDK, an optional part.
"""

import asyncio
import contextlib
import json
import logging
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any

from msgspec import Struct

from stepfold.engine.capabilities.boxes import DEFAULT_LIMITS, STARTING, Limits
from stepfold.engine.capabilities.mcp_tools import manifests_of, one_line, text_of, tool_of
from stepfold.engine.capabilities.results import refused, returned
from stepfold.engine.capabilities.sandbox import server_words
from stepfold.engine.capabilities.workspace import Workspace
from stepfold.events.vocabulary import BLANK, ToolErred, ToolReturned, ToolsListed

START_SECONDS = 30.0
"""How long a server may take to answer for the first time."""

LIST_SECONDS = 10.0
"""How long a server may take to list its tools, which it is asked after each call."""

LEAVING_SECONDS = 6.0
PAGES_AT_MOST = 20
ERROR_CHARACTERS = 300
SECRET_CHARACTERS = 4
"""A shorter value is no secret, and would be found in any text."""

HOW_TO_INSTALL = "MCP needs the extra: pip install 'stepfold[mcp]'"

_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")


class ServerSpec(Struct, frozen=True, kw_only=True):
    """A server of the config: a command, or a url. `timeout` in seconds, for each call.

    In `env` and `headers`, `$NAME` stands for a variable of the user's environment; its value goes to
    the server and into no event. `contained`: the command runs in the sandbox, where it can read the
    project and change nothing.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    contained: bool = True
    timeout: float = 60.0


class Unusable(Exception):
    """A server that can't be started, or doesn't answer as one. The text is for a person."""


class Servers:
    """The servers of one life of a run. Open and close it within one event loop.

    `announce` is told whenever the tools of a server have changed, for instance to none.
    """

    def __init__(
        self,
        specs: Iterable[ServerSpec],
        *,
        workspace: Workspace,
        limits: Limits = DEFAULT_LIMITS,
        readable: tuple[str, ...] = (),
        start_seconds: float = START_SECONDS,
    ) -> None:
        self._given_up = asyncio.Event()
        self._start_seconds = start_seconds
        self._servers = {spec.name: _Server(spec, workspace, limits, readable) for spec in specs}
        self.announce: Callable[[ToolsListed], None] = lambda listed: None

    async def open(self, backend: str) -> tuple[ToolsListed, ...]:
        """Start all servers at once, and tell what each offers, in the order of their names.

        May be called again after `close`, also in another event loop: a chat opens them for each turn.
        """
        self._given_up = asyncio.Event()
        names = sorted(self._servers)
        return tuple(
            await asyncio.gather(
                *(self._servers[name].open(backend, self._start_seconds, self._given_up) for name in names)
            )
        )

    def give_up(self) -> None:
        """Wait no longer for servers that have not answered: somebody wants the run to end."""
        self._given_up.set()

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolReturned | ToolErred:
        """Run a tool that the lifecycle admitted. Never raises, but for the cancellation of the task."""
        server, tool = tool_of(name)
        known = self._servers.get(server)
        if known is None:
            return refused("ServerGone", f"no server {server!r} is configured in this project")
        landed = await known.call(tool, arguments)
        listed = await known.changed()
        if listed is not None:
            self.announce(listed)
        return landed

    async def close(self) -> None:
        """End every server, its processes included."""
        await asyncio.gather(*(server.close() for server in self._servers.values()))


class _Server:
    """One server, and the task that holds its connection: the SDK opens and closes within one task."""

    def __init__(
        self,
        spec: ServerSpec,
        workspace: Workspace,
        limits: Limits,
        readable: tuple[str, ...],
    ) -> None:
        self._spec = spec
        self._workspace = workspace
        self._limits = limits
        self._readable = readable
        self._secrets: list[tuple[str, str]] = []
        self._client: Any = None
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._fault = ""
        self._mutates = True
        self._listed: ToolsListed | None = None

    async def open(self, backend: str, seconds: float, given_up: asyncio.Event) -> ToolsListed:
        # Events belong to the loop that waits for them, so an earlier life's are of no use.
        opened, self._closing = asyncio.Event(), asyncio.Event()
        self._fault = ""
        self._task = asyncio.create_task(self._serve(backend, opened))
        waiting = {asyncio.create_task(event.wait()) for event in (opened, given_up)}
        try:
            await asyncio.wait({*waiting, self._task}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        if not opened.is_set() and not self._task.done():
            ended = given_up.is_set()
            self._fault = "the run ended first" if ended else f"it did not answer within {seconds:g} s"
            self._task.cancel()
        self._listed = await self._list()
        return self._listed

    async def call(self, tool: str, arguments: dict[str, Any]) -> ToolReturned | ToolErred:
        if self._client is None:
            return refused(
                "ServerGone", f"the server {self._spec.name} is gone ({self._fault}): go on without"
            )
        try:
            async with asyncio.timeout(self._spec.timeout):
                result = await self._ask(tool, arguments)
        except TimeoutError:
            return refused(
                "TimedOut", f"the server {self._spec.name} gave no answer within {self._spec.timeout:g} s"
            )
        except Exception as reason:
            return refused("ServerError", f"the server {self._spec.name}: {self._told(reason)}")
        text = self._without_secrets(text_of(result.content, result.structured_content))
        return returned(text, "ToolError" if result.is_error else "")

    async def changed(self) -> ToolsListed | None:
        """What the server offers now, if that is not what it offered before."""
        listed = await self._list()
        if listed == self._listed:
            return None
        self._listed = listed
        return listed

    async def close(self) -> None:
        self._closing.set()
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=LEAVING_SECONDS)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=LEAVING_SECONDS)

    async def _ask(self, tool: str, arguments: dict[str, Any]) -> Any:
        """As the client's own `call_tool`, but that judges answers by a schema that the server wrote."""
        from mcp import types

        params = types.CallToolRequestParams(name=tool, arguments=arguments)
        return await self._client.session.send_request(
            types.CallToolRequest(params=params), types.CallToolResult
        )

    async def _list(self) -> ToolsListed:
        name = self._spec.name
        if self._client is not None:
            try:
                async with asyncio.timeout(LIST_SECONDS):
                    offered = await self._offered()
                tools, left_out = manifests_of(name, offered, mutates=self._mutates)
                return ToolsListed(*BLANK, server=name, tools=tools, left_out=left_out)
            except TimeoutError:
                self._fault = "it does not list its tools"
            except Exception as reason:
                self._fault = self._told(reason)
        self._client = None
        return ToolsListed(*BLANK, server=name, error=self._fault or "it ended")

    async def _offered(self) -> list[tuple[str, str, Any]]:
        found: list[tuple[str, str, Any]] = []
        cursor: str | None = None
        for _ in range(PAGES_AT_MOST):
            page = await self._client.list_tools(cursor=cursor, cache_mode="bypass")
            found += [
                (tool.name, self._without_secrets(tool.description or ""), tool.input_schema)
                for tool in page.tools
            ]
            cursor = page.next_cursor
            if not cursor:
                break
        return found

    async def _serve(self, backend: str, opened: asyncio.Event) -> None:
        """Hold the connection open until the run ends, or the server does."""
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
            try:
                async with await self._connection(backend, said) as client:
                    self._client = client
                    opened.set()
                    await self._closing.wait()
            except Exception as reason:
                self._fault = self._fault or self._told(reason) + _last_words(said, self._without_secrets)
            finally:
                self._client = None

    async def _connection(self, backend: str, said: IO[str]) -> Any:
        try:
            from mcp import Client
        except ImportError:
            raise Unusable(HOW_TO_INSTALL) from None
        # What the SDK logs holds what a server sent, and nobody asked for that on a terminal.
        logging.getLogger("mcp").addHandler(logging.NullHandler())
        transport = self._over_http() if self._spec.url else self._over_stdio(backend, said)
        return Client(transport, read_timeout_seconds=max(self._spec.timeout, START_SECONDS), cache=None)

    def _over_http(self) -> Any:
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        headers = self._resolved(self._spec.headers)
        client = create_mcp_http_client(headers=headers)
        return streamable_http_client(self._spec.url, http_client=client, terminate_on_close=False)

    def _over_stdio(self, backend: str, said: IO[str]) -> Any:
        from mcp import StdioServerParameters, stdio_client

        environment = self._resolved(self._spec.env)
        words = [self._spec.command, *self._spec.args]
        kept = frozenset(environment)
        if self._spec.contained and backend != "none":
            if not backend:
                raise Unusable("there is no sandbox to run it in; contained = false would run it bare")
            self._mutates = False
            words = server_words(
                shlex.join(words),
                workspace=self._workspace,
                backend=backend,
                limits=self._limits,
                readable=self._readable,
                passed=tuple(kept),
            )
        else:
            away = [word for name in STARTING if name not in {*kept, "PATH"} for word in ("-u", name)]
            words = ["/usr/bin/env", *away, *words]
        parameters = StdioServerParameters(
            command=words[0], args=words[1:], env=environment, cwd=str(self._workspace.root)
        )
        return stdio_client(parameters, errlog=said)  # type: ignore[arg-type]

    def _resolved(self, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Names with their values, variables of the user's environment put in. Raises Unusable."""
        values = {key: _expanded(text, os.environ) for key, text in pairs}
        named = {name for _, text in pairs for name in _VARIABLE.findall(text)}
        found = [
            (os.environ[name], f"${name}") for name in named if len(os.environ[name]) >= SECRET_CHARACTERS
        ]
        self._secrets = sorted(found, key=lambda pair: -len(pair[0]))
        return values

    def _told(self, reason: BaseException) -> str:
        while isinstance(reason, BaseExceptionGroup) and reason.exceptions:
            reason = reason.exceptions[0]
        text = self._without_secrets(one_line(str(reason)))
        if self._spec.url:
            # An address may carry a key.
            text = text.replace(self._spec.url, "its url")
        return (text or type(reason).__name__)[:ERROR_CHARACTERS]

    def _without_secrets(self, text: str) -> str:
        for value, name in self._secrets:
            # A server that answers in JSON writes quotes and backslashes of a value in another way.
            in_json = (json.dumps(value, ensure_ascii=plain)[1:-1] for plain in (True, False))
            for written in (value, *in_json):
                text = text.replace(written, name)
        return text


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name not in environment:
            raise Unusable(f"the environment has no {name}, which the config names: set it, or take it out")
        return environment[name]

    return _VARIABLE.sub(value, text)


def _last_words(said: IO[str], clean: Callable[[str], str]) -> str:
    with contextlib.suppress(OSError, ValueError):
        end = said.seek(0, os.SEEK_END)
        said.seek(max(0, end - 4 * ERROR_CHARACTERS))
        text = one_line(clean(said.read()))[-ERROR_CHARACTERS:]
        return f"; it said: {text}" if text else ""
    return ""
