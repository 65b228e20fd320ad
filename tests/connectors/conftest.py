"""A real HTTP server on loopback whose answers a test writes itself."""

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@dataclass(frozen=True)
class Received:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"ok"


def _nothing_here(_request: Received) -> Answer:
    return Answer(404, body=b"nothing here")


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A client that hangs up in the middle of an answer is what some tests are about."""


class LoopbackServer:
    """Answers by path; `received` holds every request in order."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.answers: dict[str, Callable[[Received], Answer]] = {}
        self.received: list[Received] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Received(self.command, self.path, headers, body)
                outer.received.append(request)
                answer = outer.answers.get(self.path.split("?")[0], _nothing_here)(request)
                self.send_response(answer.status)
                for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = handle_any  # noqa: N815 - http.server's names

            def log_message(self, *_: object) -> None:
                """Nothing: the test's output is the test's."""

        self._server = _Quiet((host, port), Handler)
        self.host = host
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def answer(self, path: str, status: int = 200, body: bytes = b"ok", **headers: str) -> None:
        fixed = Answer(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)
        self.answers[path] = lambda _: fixed

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    yield server
    server.close()


@pytest.fixture
def other_server() -> Iterator[LoopbackServer]:
    server = LoopbackServer("127.0.0.2")
    yield server
    server.close()


@pytest.fixture
def twin_server(other_server: LoopbackServer) -> Iterator[LoopbackServer]:
    """A server on another loopback address with the same port: what a rebinding name would lead to."""
    server = LoopbackServer("127.0.0.1", other_server.port)
    yield server
    server.close()


@pytest.fixture
def raw_server() -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    """Starts a server that hands its first connection to a function; answers its URL."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(serve: Callable[[socket.socket], None]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(5)
                serve(connection)

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for thread in threads:
        thread.join(5)
    for listener in listeners:
        listener.close()
