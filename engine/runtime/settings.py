"""What `stepfold.toml` may hold: every key with its default, and what the loop is given for it."""

from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from stepfold.engine.capabilities.boxes import DEFAULT_LIMITS, Limits
from stepfold.engine.capabilities.context import Network
from stepfold.engine.capabilities.servers import ServerSpec
from stepfold.engine.models.prices import Price
from stepfold.events.configuration import (
    NO_BUDGET,
    NO_GUARDS,
    Budget,
    CheckSpec,
    Generation,
    Guards,
    Rule,
)


class SettingsError(Exception):
    """A configuration that can't be used: where, what, and what would be right."""


class LoopSettings(Struct, frozen=True, kw_only=True):
    """`[loop]`. Timeouts in seconds, the window in tokens."""

    max_steps: int = 80
    worker_slots: int = 0
    worker_depth: int = 1
    context_window: int = 262_000
    model_request_timeout: float = 120.0
    profile: str = ""
    preload: list[str] = field(default_factory=list)
    unattended: bool = False
    keep: list[str] = field(default_factory=list)
    final_newline: bool = False
    read_first: bool = False
    verify_changes: bool = False
    durability: Literal["normal", "step", "full"] = "normal"


class ModelSettings(Struct, frozen=True, kw_only=True):
    """`[model]`. `api_key_env` names the environment variable; the key itself is never written."""

    base_url: str = ""
    name: str = ""
    api_key_env: str = "OPENAI_API_KEY"
    mode: Literal["text", "chat", "tools"] = "chat"
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: list[str] = field(default_factory=list)
    response_format: Literal["none", "json_object", "json_schema", "actions"] = "none"
    logit_bias: dict[str, float] = field(default_factory=dict)
    stream: bool = False


class CheckSettings(Struct, frozen=True, kw_only=True):
    """`[[checks]]`: an acceptance check. Timeout in seconds."""

    id: str
    command: str
    timeout: float = 300.0


class ShellPolicySettings(Struct, frozen=True, kw_only=True):
    """`[policy.shell]`: patterns of commands. Denials are asked first, then what a person must approve."""

    allow: list[str] = field(default_factory=list)
    deny: list[str] = field(default_factory=list)
    ask: list[str] = field(default_factory=list)


class ToolPolicySettings(Struct, frozen=True, kw_only=True):
    """`[policy.tools]`: patterns of capability names, such as `mcp.*`, in the order of those of commands."""

    allow: list[str] = field(default_factory=list)
    deny: list[str] = field(default_factory=list)
    ask: list[str] = field(default_factory=list)


class PolicySettings(Struct, frozen=True, kw_only=True):
    """`[policy]`."""

    shell: ShellPolicySettings = ShellPolicySettings()
    tools: ToolPolicySettings = ToolPolicySettings()


class SandboxSettings(Struct, frozen=True, kw_only=True):
    """`[sandbox]`. `none` runs commands bare, and every such run says so. Limits are those of `Limits`.

    `readable` are further folders that commands can read, `~` standing for the user's home.
    """

    backend: Literal["auto", "bubblewrap", "landlock", "seccomp", "none"] = "auto"
    network: bool = False
    readable: list[str] = field(default_factory=list)
    limits: Limits = DEFAULT_LIMITS


class WebSettings(Struct, frozen=True, kw_only=True):
    """`[web]`: what `web.fetch` may fetch, where `sandbox.network` opens it at all. See `Network`."""

    hosts: list[str] = field(default_factory=list)
    private_hosts: list[str] = field(default_factory=list)
    seconds: float = 20.0
    bytes_limit: int = 2 * 1024 * 1024


class MemorySettings(Struct, frozen=True, kw_only=True):
    """`[memory]`: what earlier runs of the project leave to later ones."""

    enabled: bool = True


class ServerSettings(Struct, frozen=True, kw_only=True):
    """`[mcp.servers.<name>]`: a command, or a url. See `ServerSpec`."""

    command: str = ""
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    contained: bool = True
    timeout: float = 60.0


class McpSettings(Struct, frozen=True, kw_only=True):
    """`[mcp]`."""

    servers: dict[str, ServerSettings] = field(default_factory=dict)


class Settings(Struct, frozen=True, kw_only=True):
    """The whole file."""

    loop: LoopSettings = LoopSettings()
    model: ModelSettings = ModelSettings()
    checks: list[CheckSettings] = field(default_factory=list)
    policy: PolicySettings = PolicySettings()
    sandbox: SandboxSettings = SandboxSettings()
    web: WebSettings = WebSettings()
    memory: MemorySettings = MemorySettings()
    mcp: McpSettings = McpSettings()
    guards: Guards = NO_GUARDS
    budget: Budget = NO_BUDGET
    prices: dict[str, Price] = field(default_factory=dict)

    def generation(self) -> Generation:
        """What `[model]` asks of every request."""
        model = self.model
        return Generation(
            mode=model.mode,
            temperature=model.temperature,
            max_tokens=model.max_tokens,
            seed=model.seed,
            stop=tuple(model.stop),
            response_format=model.response_format,
            logit_bias=tuple(sorted(model.logit_bias.items())),
            stream=model.stream,
        )

    def check_specs(self) -> tuple[CheckSpec, ...]:
        """The configured acceptance checks."""
        return tuple(CheckSpec(check.id, check.command, check.timeout) for check in self.checks)

    def rules(self) -> tuple[Rule, ...]:
        """The shell policy in the order in which it is asked: denials first."""
        return _in_order(self.policy.shell)

    def tool_rules(self) -> tuple[Rule, ...]:
        """The policy of capabilities by name, denials first."""
        return _in_order(self.policy.tools)

    def web_limits(self) -> Network:
        """What `web.fetch` may reach, should the run have the network."""
        web = self.web
        return Network(
            hosts=tuple(web.hosts),
            private_hosts=tuple(web.private_hosts),
            seconds=web.seconds,
            bytes_limit=web.bytes_limit,
        )

    def readable(self) -> tuple[str, ...]:
        """The further folders that commands can read."""
        return tuple(str(Path(folder).expanduser()) for folder in self.sandbox.readable)

    def servers(self) -> tuple[ServerSpec, ...]:
        """The MCP servers, by name."""
        return tuple(
            ServerSpec(
                name=name,
                command=server.command,
                args=tuple(server.args),
                env=tuple(server.env.items()),
                url=server.url,
                headers=tuple(server.headers.items()),
                contained=server.contained,
                timeout=server.timeout,
            )
            for name, server in sorted(self.mcp.servers.items())
        )


def _in_order(policy: ShellPolicySettings | ToolPolicySettings) -> tuple[Rule, ...]:
    return (
        *(Rule("deny", text) for text in policy.deny),
        *(Rule("ask", text) for text in policy.ask),
        *(Rule("allow", text) for text in policy.allow),
    )
