"""The native web.fetch: one public page as text, with every hop of the way looked at before it is taken."""

import asyncio
import codecs
import contextlib
import http.client
import ipaddress
import socket
import ssl
from html.parser import HTMLParser
from typing import Any
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from msgspec import Struct

from stepfold.engine.capabilities.context import CallContext, Network
from stepfold.engine.capabilities.results import refused, returned
from stepfold.events.vocabulary import ToolReturned

REDIRECT_LIMIT = 5
PIECE = 64 * 1024
UNQUOTED = "/?&=%:@!$'()*+,;~-._"
HEADERS = {
    "User-Agent": "stepfold",
    "Accept": "text/*, application/json;q=0.9",
    "Accept-Encoding": "identity",
}
REDIRECTS = (301, 302, 303, 307, 308)
TEXT_KINDS = ("text/", "application/json", "application/xml", "application/javascript", "application/yaml")
SILENT_TAGS = frozenset({"script", "style", "noscript", "template", "svg", "head"})
BLOCK_TAGS = frozenset(
    {
        "p",
        "div",
        "br",
        "li",
        "tr",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "pre",
        "section",
        "article",
        "table",
        "ul",
        "ol",
    }
)


class Unfetchable(Exception):
    """The address may not, or can't, be fetched. The first argument is the kind of error."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


async def fetch(arguments: dict[str, Any], context: CallContext) -> ToolReturned:
    """`web.fetch`: the page's text, HTML without its markup; redirects only to the same scheme."""
    network = context.network
    if not network.on:
        return refused("NetworkOff", "this run has no network: work with what the project holds")
    try:
        async with asyncio.timeout(network.seconds):
            return await _fetched(arguments["url"], network)
    except Unfetchable as reason:
        return refused(reason.kind, str(reason))
    except TimeoutError:
        return refused("TimedOut", f"no page after {network.seconds:g} s")


class Answer(Struct, frozen=True):
    """One response: where it leads on to (empty if nowhere), what it is, and its body."""

    status: int
    location: str
    kind: str
    body: bytes


async def _fetched(url: str, network: Network) -> ToolReturned:
    scheme = urlsplit_checked(url).scheme
    for _ in range(REDIRECT_LIMIT + 1):
        parts = urlsplit_checked(url)
        if parts.scheme != scheme:
            raise Unfetchable("Redirected", f"it leads on to another scheme: fetch {url} if that is meant")
        address = await permitted_address(parts.hostname or "", _port(parts), network)
        answer = await _answer(parts, address, network)
        if answer.status not in REDIRECTS:
            return _page(answer)
        url = urljoin(url, answer.location)
    raise Unfetchable("Redirected", f"more than {REDIRECT_LIMIT} redirects")


async def _answer(parts: SplitResult, address: str, network: Network) -> Answer:
    """Ask in a thread. Should this task be cancelled, closing the connection ends the thread too."""
    opened: list[socket.socket] = []
    try:
        return await asyncio.to_thread(_exchange, parts, address, network, opened)
    except (OSError, http.client.HTTPException, ValueError) as reason:
        raise Unfetchable("Unreachable", f"{parts.hostname}: {type(reason).__name__}: {reason}") from reason
    finally:
        for connection in opened:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


def _exchange(parts: SplitResult, address: str, network: Network, opened: list[socket.socket]) -> Answer:
    """One request to the very address that was looked at: a second look-up of the name could differ."""
    host = parts.hostname or ""
    connection = socket.create_connection((address, _port(parts)), timeout=network.seconds)
    opened.append(connection)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    client = kind(host, _port(parts))
    if parts.scheme == "https":
        connection = ssl.create_default_context().wrap_socket(connection, server_hostname=host)
        opened.append(connection)
    client.sock = connection
    target = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    client.request("GET", quote(target, safe=UNQUOTED), headers=HEADERS)
    response = client.getresponse()
    location = response.headers.get("location", "")
    content_kind = response.headers.get("content-type", "text/plain").lower()
    if response.status in REDIRECTS:
        return Answer(response.status, location, content_kind, b"")
    body = bytearray()
    while piece := response.read1(PIECE):
        body += piece
        if len(body) > network.bytes_limit:
            raise Unfetchable("TooLarge", f"it is larger than {network.bytes_limit} bytes")
    return Answer(response.status, location, content_kind, bytes(body))


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


def urlsplit_checked(url: str) -> SplitResult:
    """The parts of an http or https address with a host and without a user. Raises Unfetchable."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as reason:
        raise Unfetchable("BadAddress", f"{url!r} is no web address: {reason}") from reason
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise Unfetchable(
            "BadAddress", f"{url!r} is no web address: it starts with http:// or https:// and a host"
        )
    if parts.username is not None or parts.password is not None:
        raise Unfetchable(
            "BadAddress", "an address with a user or a password in it is not fetched: leave them out"
        )
    return parts


async def permitted_address(host: str, port: int, network: Network) -> str:
    """The address to connect to. Raises Unfetchable unless the host is listed, its addresses public."""
    if network.hosts and not any(_is_listed(host, listed) for listed in network.hosts):
        raise Unfetchable(
            "HostRefused", f"{host} is not among the hosts of the config: {', '.join(network.hosts)}"
        )
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as reason:
        raise Unfetchable("Unreachable", f"{host} has no address: {reason}") from reason
    addresses = [str(entry[4][0]) for entry in found]
    local = [address for address in addresses if not is_public(address)]
    if local and host not in network.private_hosts:
        raise Unfetchable("HostRefused", f"{host} stands for an address that is not public: {local[0]}")
    return addresses[0]


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet, those wrapped into IPv6 looked at inside."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour or (parsed.teredo[1] if parsed.teredo else None)
        if inner is None and parsed in _NAT64:
            inner = ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)
        if inner is not None:
            return inner.is_global and not inner.is_multicast
    return parsed.is_global and not parsed.is_multicast


_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def _is_listed(host: str, listed: str) -> bool:
    name, wanted = host.lower().rstrip("."), listed.lower()
    return name.endswith(wanted[1:]) if wanted.startswith("*.") else name == wanted


def _page(answer: Answer) -> ToolReturned:
    kind = answer.kind
    if not kind.startswith(TEXT_KINDS) and "+json" not in kind and "+xml" not in kind:
        raise Unfetchable("Binary", f"it is {kind.partition(';')[0]}, which is no text")
    text = answer.body.decode(_charset(kind), "replace")
    if "html" in kind:
        text = text_of_html(text)
    if answer.status >= 400:
        return refused("HttpStatus", f"status {answer.status}\n{text}")
    return returned(text or "(empty page)")


def _charset(kind: str) -> str:
    """The codec that a content type names, if it is one for text; else UTF-8."""
    named = kind.partition("charset=")[2].partition(";")[0].strip("\"' ")
    try:
        codec = codecs.lookup(named or "utf-8")
        return codec.name if codec._is_text_encoding else "utf-8"
    except (LookupError, ValueError):
        return "utf-8"


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in SILENT_TAGS:
            self.silent += 1
        elif tag in BLOCK_TAGS:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in SILENT_TAGS:
            self.silent = max(0, self.silent - 1)
        elif tag in BLOCK_TAGS:
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.pieces.append(data)


def text_of_html(page: str) -> str:
    """The text of a page: one line a block, white space folded, scripts and styles left out."""
    reader = _Text()
    reader.feed(page)
    reader.close()
    lines = (" ".join(line.split()) for line in "".join(reader.pieces).split("\n"))
    return "\n".join(line for line in lines if line)
