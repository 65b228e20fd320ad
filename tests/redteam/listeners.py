"""A front with an echo behind it, and raw HTTP to attack it with."""

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from appliance.connectors.testing import free_port
from appliance.core.crypto import Sealer
from appliance.sites.front import Front, Readiness, build_server_config
from appliance.testing.running import make_config
from appliance.web import Receive, Scope, Send, answer
from appliance.webapps.certificates import Certificates
from tests.sites.live_server import PATIENCE, serving
from tests.store.opening import migrated

BASE = "gos.localhost"


@dataclass
class Echo:
    """Answers with what it was asked; notes every request, and keeps those of /wait waiting."""

    requests: list[dict[str, Any]] = field(default_factory=list)
    pieces: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            self.pieces += 1
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
        host = next((value.decode() for name, value in scope["headers"] if name == b"host"), "")
        request = {"method": scope["method"], "path": scope["path"], "host": host, "size": size, "version": scope["http_version"]}
        self.requests.append(request)
        if scope["path"] == "/large":
            await answer(send, 200, bytes(1 << 20), [])
        else:
            await answer(send, 200, json.dumps(request).encode(), [(b"content-type", b"application/json")])


@dataclass
class Listeners:
    """A front with an echo behind it: one listener in the clear, one with TLS."""

    echo: Echo
    clear: int
    tls: int

    @contextmanager
    def connect(self, *, alpn: str = "") -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.tls if alpn else self.clear), PATIENCE) as line:
            if not alpn:
                yield line
                return
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_alpn_protocols([alpn])
            with context.wrap_socket(line, server_hostname=BASE) as wrapped:
                yield wrapped

    def ask(self, data: bytes) -> bytes:
        """All that comes back until the server closes."""
        with self.connect() as line:
            with suppress(ConnectionError):
                line.sendall(data)
            return read_all(line)


def read_all(line: socket.socket) -> bytes:
    received = b""
    with suppress(ConnectionError, ssl.SSLError):
        while piece := line.recv(1 << 16):
            received += piece
    return received


@contextmanager
def listening(folder: Path) -> Iterator[Listeners]:
    """The front as the appliance runs it, on two ports, with an empty database."""
    config = make_config(
        folder, domains__base=BASE, domains__content="content.gos.localhost", server__port=free_port(),
        server__tls="internal", tls__http_port=free_port(), server__trusted_proxies=["127.0.0.0/8"],
    )  # fmt: skip
    server: Any = build_server_config(config, Certificates(Sealer(b"k" * 32)))
    server.certificates = None  # none is needed
    echo = Echo()
    with migrated(f"sqlite:///{folder}/gos.db"), serving(server, Front(echo, {}, config, lambda: Readiness("ok"))):
        yield Listeners(echo, config.tls.http_port, config.server.port)


CLOSE, KEEP = "Connection: close", "Connection: keep-alive"


def head(*lines: str, target: str = "/", method: str = "GET", version: str = "1.1", host: str = BASE) -> bytes:
    if not any(line.lower().startswith("connection:") for line in lines):
        lines = (*lines, CLOSE)
    return "\r\n".join([f"{method} {target} HTTP/{version}", *([f"Host: {host}"] if host else []), *lines, "", ""]).encode("latin1")


def statuses(answers: bytes) -> list[int]:
    """The statuses of the answers in what came."""
    return [int(part[:3]) for part in answers.split(b"HTTP/1.1 ")[1:]]


def error_of(answers: bytes) -> str:
    body = answers.rpartition(b"\r\n\r\n")[2]
    return str(json.loads(body).get("error", {}).get("code", "")) if body.startswith(b"{") else ""
