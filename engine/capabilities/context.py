"""What a native may reach: handed to it with each call, and nothing is taken from anywhere else."""

from msgspec import Struct

from stepfold.engine.capabilities.boxes import DEFAULT_LIMITS, Limits
from stepfold.engine.capabilities.memory import Memory
from stepfold.engine.capabilities.workspace import Workspace


class Network(Struct, frozen=True, kw_only=True):
    """What of the web may be fetched. `hosts` are names or `*.name`; none listed means every public host.

    `private_hosts` are names that may stand for an address of the local network, which is refused otherwise.
    Seconds are for a whole fetch, redirects included; bytes for the body.
    """

    on: bool = False
    hosts: tuple[str, ...] = ()
    private_hosts: tuple[str, ...] = ()
    seconds: float = 20.0
    bytes_limit: int = 2 * 1024 * 1024


NO_NETWORK = Network()


class CallContext(Struct, frozen=True, kw_only=True):
    """The surroundings of a call. `sandbox` is the backend that `probe` found."""

    workspace: Workspace
    sandbox: str = ""
    memory: Memory | None = None
    network: Network = NO_NETWORK
    limits: Limits = DEFAULT_LIMITS
    readable: tuple[str, ...] = ()
