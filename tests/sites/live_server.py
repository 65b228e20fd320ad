"""Hypercorn in a thread, as the appliance runs it, around any ASGI application."""

import asyncio
import hashlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from appliance.sites.front.event_loop import new_event_loop
from appliance.sites.front.hypercorn_adapter import serve
from appliance.sites.front.tls import ServerConfig
from appliance.web import App, Receive, Send, answer

PATIENCE = 30.0
ESTABLISHED = "01"  # in /proc/net/tcp


async def hello(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Answers which version of HTTP was spoken."""
    if scope["type"] == "http":
        await answer(send, 200, scope["http_version"].encode(), [(b"content-type", b"text/plain")])


@contextmanager
def serving(server: ServerConfig, app: App = hello) -> Iterator[None]:
    """Serve until the block ends, which starts when every listener accepts connections."""
    box: dict[str, Any] = {}
    ready = threading.Event()

    async def run() -> None:
        box["loop"], box["stop"] = asyncio.get_running_loop(), asyncio.Event()
        ready.set()
        await serve(app, server, box["stop"].wait)

    def serve_in_thread() -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(run())

    thread = threading.Thread(target=serve_in_thread, daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    for bind in (*server.bind, *server.insecure_bind):
        await_that(lambda bind=bind: _listens(int(bind.rpartition(":")[2])))  # type: ignore[misc]
    try:
        yield
    finally:
        box["loop"].call_soon_threadsafe(box["stop"].set)
        thread.join()


def _listens(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def await_that(holds: Callable[[], object]) -> None:
    """Return once the condition holds."""
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until, "it did not come true in time"
        threading.Event().wait(0.02)


def is_open_at_the_server(client: socket.socket) -> bool:
    """Whether the server, which runs on this machine, keeps its end open; a client that reads nothing does not notice."""
    ends = [f"{end[1]:04X}" for end in (client.getpeername(), client.getsockname())]
    rows = [line.split() for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]]
    return any([local[-4:], remote[-4:], state] == [*ends, ESTABLISHED] for _, local, remote, state, *_ in rows)


def peer(port: int, name: str | None, *, alpn: tuple[str, ...] = ("h2", "http/1.1")) -> tuple[str, str | None]:
    """The SHA-256 of the certificate that a client asking for `name` is shown, and the protocol agreed on."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(list(alpn))
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname=name) as connection,
    ):
        certificate = connection.getpeercert(binary_form=True)
        assert certificate is not None
        return fingerprint(certificate), connection.selected_alpn_protocol()


def fingerprint(der: bytes) -> str:
    return hashlib.sha256(der).hexdigest()
