"""A real HTTP server on this machine that answers as badly as it is told to."""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Behaviour = Callable[[BaseHTTPRequestHandler], None]


class Hostile:
    """The server's side of a test: what it says next, and what it was asked."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"
        self.behaviour: Behaviour = lambda handler: send(handler, 200, b"{}")
        self.models: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.hung_up = threading.Event()

    def answers(self, payload: Any, status: int = 200, **headers: str) -> None:
        content = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.behaviour = lambda handler: send(handler, status, content, named)

    def streams(self, *payloads: Any) -> None:
        """Each payload is an SSE event; bytes go out as they are."""
        lines = [
            p if isinstance(p, bytes) else b"data: " + json.dumps(p).encode() + b"\n\n" for p in payloads
        ]
        self.behaviour = lambda handler: send_stream(handler, lines)

    def resets(self) -> None:
        self.behaviour = reset

    def breaks_off(self, content: bytes) -> None:
        """Promises more bytes than it sends."""
        self.behaviour = lambda handler: send(
            handler, 200, content, {"Content-Length": str(len(content) + 100)}
        )

    def drips(self, piece: bytes, kind: str = "application/json") -> None:
        """Sends a little, again and again, for ever."""

        def drip(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.send_header("Content-Type", kind)
            handler.end_headers()
            try:
                while True:
                    handler.wfile.write(piece)
                    time.sleep(0.02)
            except OSError:
                self.hung_up.set()
            handler.close_connection = True

        self.behaviour = drip

    def stays_silent(self) -> None:
        """Reads the request and says nothing until the client goes away."""

        def wait(handler: BaseHTTPRequestHandler) -> None:
            handler.connection.settimeout(10)
            if handler.connection.recv(1) == b"":
                self.hung_up.set()

        self.behaviour = wait


def send(
    handler: BaseHTTPRequestHandler, status: int, content: bytes, headers: dict[str, str] | None = None
) -> None:
    handler.send_response(status)
    given = {"Content-Type": "application/json", "Content-Length": str(len(content)), **(headers or {})}
    for name, value in given.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(content)
    handler.close_connection = True


def send_stream(handler: BaseHTTPRequestHandler, lines: list[bytes]) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.end_headers()
    for line in lines:
        handler.wfile.write(line)
        handler.wfile.flush()
        time.sleep(0.002)
    handler.close_connection = True


def reset(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are what these tests are about."""


@pytest.fixture
def server() -> Iterator[Hostile]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            hostile.asked.append(json.loads(self.rfile.read(length)))
            hostile.headers.append({k.lower(): v for k, v in self.headers.items()})
            hostile.behaviour(self)

        def do_GET(self) -> None:
            send(self, 200, json.dumps({"data": [{"id": name} for name in hostile.models]}).encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing on stderr."""

    http = Quiet(("127.0.0.1", 0), Handler)
    hostile = Hostile(http.server_address[1])
    thread = threading.Thread(target=lambda: http.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    yield hostile
    http.shutdown()
    http.server_close()


@pytest.fixture
def closed_port() -> int:
    """A port where nothing listens, for it was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
