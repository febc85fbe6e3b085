import asyncio
import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.capabilities.context import CallContext, Network
from stepfold.engine.capabilities.web import Unfetchable, fetch, is_public, text_of_html, urlsplit_checked
from stepfold.engine.capabilities.workspace import Workspace

PAGES: dict[str, tuple[int, dict[str, str], bytes]] = {
    "/plain": (200, {"Content-Type": "text/plain; charset=latin-1"}, "caf\u00e9".encode("latin-1")),
    "/html": (
        200,
        {"Content-Type": "text/html"},
        b"<title>t</title><p>a  b</p><script>x</script><p>c &amp; d",
    ),
    "/missing": (404, {"Content-Type": "text/plain"}, b"not here"),
    "/image": (200, {"Content-Type": "image/png"}, b"\x89PNG"),
    "/large": (200, {"Content-Type": "text/plain"}, b"x" * 5_000),
    "/again": (302, {"Location": "/plain"}, b""),
    "/loop": (302, {"Location": "/loop"}, b""),
    "/metadata": (302, {"Location": "http://169.254.169.254/latest"}, b""),
    "/other-scheme": (302, {"Location": "https://127.0.0.1/"}, b""),
    "/file": (302, {"Location": "file:///etc/passwd"}, b""),
    "/odd": (200, {"Content-Type": "text/plain; charset=rot13"}, b"odd"),
}


class Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/slow":
            self.server.slow.wait(5)  # type: ignore[attr-defined]
            return
        status, headers, body = PAGES[self.path]
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.slow = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.slow.set()  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


LOCAL = Network(on=True, private_hosts=("127.0.0.1",), bytes_limit=4_000, seconds=5)


def fetched(url: str, project: Path, network: Network = LOCAL) -> Any:
    return asyncio.run(fetch({"url": url}, CallContext(workspace=Workspace(project), network=network)))


@pytest.mark.parametrize(
    ("page", "error", "content"),
    [
        ("/plain", "", "café"),
        ("/html", "", "t\na b\nc & d"),
        ("/again", "", "café"),
        ("/odd", "", "odd"),
        ("/missing", "HttpStatus", "status 404\nnot here"),
        ("/image", "Binary", ""),
        ("/large", "TooLarge", ""),
        ("/loop", "Redirected", ""),
        ("/other-scheme", "Redirected", ""),
        ("/metadata", "HostRefused", ""),
        ("/file", "BadAddress", ""),
    ],
)
def test_a_page_is_text_or_an_error_to_react_to(
    site: str, project: Path, page: str, error: str, content: str
) -> None:
    result = fetched(site + page, project)
    assert result.error == error
    assert content in result.content


def test_local_addresses_are_refused_unless_named(site: str, project: Path) -> None:
    assert fetched(site + "/plain", project, Network(on=True)).error == "HostRefused"
    port = site.rpartition(":")[2]
    assert fetched(f"http://localhost:{port}/plain", project).error == "HostRefused"


def test_only_listed_hosts_are_fetched_where_a_list_is_given(site: str, project: Path) -> None:
    assert (
        fetched(site + "/plain", project, msgspec.structs.replace(LOCAL, hosts=("*.org",))).error
        == "HostRefused"
    )
    assert fetched(site + "/plain", project, msgspec.structs.replace(LOCAL, hosts=("127.0.0.1",))).error == ""


def test_a_site_that_does_not_answer_is_given_up(site: str, project: Path) -> None:
    assert fetched(site + "/slow", project, msgspec.structs.replace(LOCAL, seconds=0.3)).error in (
        "TimedOut",
        "Unreachable",
    )


class Neighbour(BaseHTTPRequestHandler):
    """A server on another address, where nothing may arrive that was not allowed to go there."""

    def do_GET(self) -> None:
        self.server.arrived.append(self.path)  # type: ignore[attr-defined]
        if self.path.startswith("/to/"):
            self.send_response(int(self.path.split("/")[2]))
            self.send_header("Location", self.path.split("/", 3)[3])
            self.end_headers()
            return
        if self.path.startswith("/hops/"):
            left = int(self.path.split("/")[2])
            self.server.pace.wait(0.2 if self.path.endswith("/slowly") else 0)  # type: ignore[attr-defined]
            self.send_response(302 if left else 200)
            self.send_header("Location", self.path.replace(f"/{left}", f"/{left - 1}", 1))
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(b"arrived")
            while self.path == "/endless":
                self.wfile.write(b"x" * 1_000)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def neighbours() -> Iterator[tuple[ThreadingHTTPServer, ThreadingHTTPServer]]:
    """Two servers, on two addresses of this machine."""
    servers = [ThreadingHTTPServer((address, 0), Neighbour) for address in ("127.0.0.1", "127.0.0.2")]
    threads = [threading.Thread(target=server.serve_forever, args=(0.02,)) for server in servers]
    for server, thread in zip(servers, threads, strict=True):
        server.arrived = []  # type: ignore[attr-defined]
        server.pace = threading.Event()  # type: ignore[attr-defined]
        thread.start()
    yield servers[0], servers[1]
    for server, thread in zip(servers, threads, strict=True):
        server.shutdown()
        thread.join()
        server.server_close()


BOTH = Network(on=True, private_hosts=("127.0.0.1", "127.0.0.2"), bytes_limit=4_000, seconds=5)
FIRST_LISTED = msgspec.structs.replace(BOTH, hosts=("127.0.0.1",))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("spelled", ["http:{there}", "{there}", "http:{here}/to/302/http:{there}"])
@pytest.mark.parametrize(
    ("network", "error"), [(BOTH, ""), (LOCAL, "HostRefused"), (FIRST_LISTED, "HostRefused")]
)
def test_each_hop_of_a_redirect_is_looked_at_before_it_is_taken(
    neighbours: tuple[Any, Any], project: Path, status: int, spelled: str, network: Network, error: str
) -> None:
    here, there = (f"//{one.server_address[0]}:{one.server_port}" for one in neighbours)
    where = spelled.format(here=here, there=f"{there}/page")
    result = fetched(f"http:{here}/to/{status}/{where}", project, network)
    assert result.error == error
    assert neighbours[1].arrived == ([] if error else ["/page"])
    assert len(neighbours[0].arrived) == 1 + spelled.count("{here}")


@pytest.mark.parametrize(("hops", "error"), [(0, ""), (5, ""), (6, "Redirected"), (1_000, "Redirected")])
def test_a_page_is_given_up_after_five_redirects(
    neighbours: tuple[Any, Any], project: Path, hops: int, error: str
) -> None:
    result = fetched(f"http://127.0.0.1:{neighbours[0].server_port}/hops/{hops}", project, BOTH)
    assert result.error == error
    assert len(neighbours[0].arrived) == min(hops, 5) + 1


def test_the_time_is_that_of_all_redirects_together(neighbours: tuple[Any, Any], project: Path) -> None:
    network = msgspec.structs.replace(BOTH, seconds=0.5)
    result = fetched(f"http://127.0.0.1:{neighbours[0].server_port}/hops/5/slowly", project, network)
    assert result.error == "TimedOut"
    assert len(neighbours[0].arrived) < 6


def test_a_page_without_an_end_is_cut_off_by_its_size(neighbours: tuple[Any, Any], project: Path) -> None:
    result = fetched(f"http://127.0.0.1:{neighbours[0].server_port}/endless", project, BOTH)
    assert result.error == "TooLarge"


def test_nothing_is_fetched_while_the_network_is_off(site: str, project: Path) -> None:
    assert fetched(site + "/plain", project, Network()).error == "NetworkOff"


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://a/b",
        "http://",
        "http://u:p@a/",
        "http://a:99999/",
        "//a/b",
        "a",
        "http://[::1",
        "",
    ],
)
def test_what_is_no_web_address_is_said_so(url: str) -> None:
    with pytest.raises(Unfetchable) as caught:
        urlsplit_checked(url)
    assert caught.value.kind == "BadAddress"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "2002:7f00:1::",
        "64:ff9b::7f00:1",
        "no address",
    ],
)
def test_what_is_not_of_the_public_internet(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_what_is_public(address: str) -> None:
    assert is_public(address)


@given(st.text(alphabet="<>/!-&;#pascript \n'\"=x0"))
def test_any_markup_is_read(page: str) -> None:
    assert "<script>" not in text_of_html(page)
