"""Slow clients are served, stalled ones are disconnected, and neither keeps others out."""

import asyncio
import gc
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypercorn.events import RawData

from appliance.connectors.testing import free_port
from appliance.core.crypto import Sealer
from appliance.sites.front.front import Front, Readiness
from appliance.sites.front.hypercorn_adapter import Connection
from appliance.sites.front.pace import Pace
from appliance.sites.front.tls import ServerConfig, build_server_config
from appliance.testing.running import make_config
from appliance.web import Receive, Scope, Send, answer
from appliance.webapps.certificates import Certificates
from tests.sites.live_server import PATIENCE, await_that, is_open_at_the_server, serving
from tests.sites.wire_clients import Http2, Line

SHORT, SILENT = 0.3, 1.0
PIECES = 40
CALM = Pace(PATIENCE, 1)


class Shop:
    """Reads and responds as the path says; `left` records how requests ended, `sent` what was sent of an endless response."""

    def __init__(self) -> None:
        self.left: list[str] = []
        self.sent = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            actions = {"/slow": self._slowly, "/endless": self._endlessly, "/head": self._begin}
            await actions.get(scope["path"], self._read)(receive, send)
            self.left.append("done")
        except asyncio.CancelledError:
            self.left.append("cancelled")
            raise

    async def _slowly(self, receive: Receive, send: Send) -> None:
        """For much longer than SILENT, unless the client leaves."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        disconnect = asyncio.ensure_future(_disconnect(receive))
        for _ in range(PIECES):
            await asyncio.wait([disconnect], timeout=2.5 * SILENT / PIECES)
            if disconnect.done():
                return
            await send({"type": "http.response.body", "body": b"#" * 1000, "more_body": True})
        disconnect.cancel()
        await send({"type": "http.response.body", "body": b""})

    async def _begin(self, receive: Receive, send: Send) -> None:
        """The head, and nothing else until the client leaves."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await _disconnect(receive)

    async def _endlessly(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        disconnect = asyncio.ensure_future(_disconnect(receive))
        while not disconnect.done():
            await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})
            self.sent += 1 << 16
            await asyncio.sleep(0)  # to a connection that is gone all is sent at once

    async def _read(self, receive: Receive, send: Send) -> None:
        more, size = True, 0
        while more:
            message = await receive()
            more = message.get("more_body", False)
            size += len(message.get("body", b""))
        await answer(send, 200, str(size).encode(), [])


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def errors_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged as an error, including the exceptions of connections that have ended."""
    gc.collect()  # asyncio logs the exception of a task when nobody can retrieve it anymore
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A front with a shop behind it, with what pace, how many places, and patience of the server's own."""
    monkeypatch.setattr(Connection, "linger", SHORT)

    @contextmanager
    def begin(pace: Pace, places: int = 256, **own: float) -> Iterator[tuple[Shop, Callable[..., Line]]]:
        config = make_config(
            tmp_path,
            domains__base="gos.localhost",
            server__max_in_flight=places,
            server__port=free_port(),
            server__tls="internal",
            tls__http_port=free_port(),
        )
        server: ServerConfig = build_server_config(config, Certificates(Sealer(b"k" * 32)))
        server.certificates = None  # no database is open
        for name, seconds in {"read_timeout": PATIENCE, "keep_alive_timeout": PATIENCE, **own}.items():
            setattr(server, name, seconds)
        shop = Shop()
        front = Front(shop, {}, config, lambda: Readiness("ok"))
        front.pace = pace
        with serving(server, front), ExitStack() as lines:

            def connect(*, by_tls: bool = False) -> Line:
                line = Line(config.server.port if by_tls else config.tls.http_port)
                lines.callback(line.close)
                return line

            yield shop, connect

    return begin


def test_a_response_can_take_longer_than_the_read_timeout(serve: Callable[..., Any]) -> None:
    with serve(CALM, read_timeout=SILENT) as (shop, connect):
        line = connect()
        line.ask("GET", "/slow", Connection="close")
        spoken = Http2(connect(by_tls=True))
        assert spoken.answer(spoken.ask("GET", "/slow")) == ("200", b"#" * PIECES * 1000)
        assert line.read().count(b"#") == PIECES * 1000
        await_that(lambda: shop.left == ["done", "done"])


def test_an_idle_client_is_disconnected(serve: Callable[..., Any]) -> None:
    with serve(CALM, read_timeout=SILENT, keep_alive_timeout=SILENT) as (shop, connect):
        line = connect()
        line.ask("GET", "/")
        silent, announced, headers = connect(), Http2(connect(by_tls=True)).line, connect()
        headers.socket.sendall(f"GET / HTTP/1.1\r\nHost: {headers.host}\r\n".encode())
        headers.drip(b"X-More: 1\r\n")
        assert headers.read() == silent.read() == b""
        assert line.read().startswith(b"HTTP/1.1 200")
        announced.read()
        await_that(lambda: shop.left == ["done"])


def test_a_body_that_is_too_slow_is_refused(serve: Callable[..., Any]) -> None:
    with serve(Pace(SHORT, 1 << 20)) as (shop, connect):
        line = connect()
        line.ask("POST", "/", Content_Length=100_000)
        line.drip(b"x")
        response = line.read()
        assert response.startswith(b"HTTP/1.1 400")
        assert b"too slowly" in response
        assert b"connection: close" in response.lower()
        spoken = Http2(connect(by_tls=True))
        status, body = spoken.answer(spoken.ask("POST", "/", ended=False))
        assert status == "400"
        assert b"too slowly" in body
        assert shop.left == []


def test_a_body_at_the_minimum_rate_is_read(serve: Callable[..., Any]) -> None:
    with serve(Pace(SHORT, 100)) as (shop, connect):
        line = connect()
        line.ask("POST", "/", b"x" * 1000, Content_Length=50_000, Connection="close")
        line.drip(b"x" * 1000, 49)
        assert line.read().endswith(b"50000")
        await_that(lambda: shop.left == ["done"])


def test_a_client_that_does_not_read_is_disconnected(serve: Callable[..., Any]) -> None:
    with serve(Pace(SHORT, 1 << 30)) as (shop, connect):
        line = connect()
        line.ask("GET", "/endless")
        await_that(lambda: shop.left == ["cancelled"])
        spoken = Http2(connect(by_tls=True))
        assert spoken.answer(spoken.ask("GET", "/endless"), takes=False)[0] == "200"
        shop.sent = 0
        await_that(lambda: shop.left == ["cancelled", "cancelled"])
        assert shop.sent < 1 << 20
        line.read()


def test_a_response_ends_when_its_http2_client_leaves(serve: Callable[..., Any]) -> None:
    with serve(CALM) as (shop, connect):
        line = connect(by_tls=True)
        spoken = Http2(line)
        assert spoken.answer(spoken.ask("GET", "/endless"), takes=False)[0] == "200"
        line.close()
        await_that(lambda: shop.left == ["done"])


def test_a_connection_is_closed_even_if_its_client_reads_nothing(serve: Callable[..., Any]) -> None:
    with serve(Pace(SHORT, 1 << 30)) as (_, connect):
        line = connect()
        line.ask("GET", "/endless")
        await_that(lambda: not is_open_at_the_server(line.socket))


def test_the_connection_of_a_client_that_has_left_is_closed_at_once(serve: Callable[..., Any]) -> None:
    with serve(CALM, keep_alive_timeout=10 * PATIENCE) as (_, connect):
        line = connect()
        line.ask("GET", "/")
        assert line.socket.recv(1 << 16).startswith(b"HTTP/1.1 200")
        line.socket.shutdown(socket.SHUT_WR)
        line.read()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the server writes to its connections, each time."""
    pieces: list[bytes] = []
    send = Connection.protocol_send

    async def note(connection: Connection, event: Any) -> None:
        if isinstance(event, RawData):
            pieces.append(event.data)
        await send(connection, event)

    monkeypatch.setattr(Connection, "protocol_send", note)
    return pieces


def test_a_response_is_one_segment(serve: Callable[..., Any], sent: list[bytes]) -> None:
    with serve(CALM) as (_, connect):
        line = connect()
        line.ask("GET", "/", Connection="close")
        response = line.read()
        assert response.endswith(b"\r\n\r\n0")
        assert sent == [response]


def test_the_head_of_a_response_does_not_wait_for_its_body(serve: Callable[..., Any], sent: list[bytes]) -> None:
    with serve(CALM) as (shop, connect):
        line = connect()
        line.ask("GET", "/head")
        head = line.socket.recv(1 << 16)
        assert head.startswith(b"HTTP/1.1 200")
        assert sent == [head]
        line.close()
        await_that(lambda: shop.left == ["done"])


def test_the_idle_timer_starts_anew_after_each_response(serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    timers: dict[Connection, list[object]] = {}
    set_idle = Connection._set_idle

    def note(connection: Connection, is_idle: bool) -> None:
        set_idle(connection, is_idle)
        timers.setdefault(connection, []).append(connection._idle_timer)

    monkeypatch.setattr(Connection, "_set_idle", note)
    with serve(CALM) as (_, connect):
        line = connect()
        for _ in range(2):
            line.ask("GET", "/")
            assert line.socket.recv(1 << 16).startswith(b"HTTP/1.1 200")
        await_that(lambda: any(len(each) == 5 for each in timers.values()))
        of_line = max(timers.values(), key=len)
        assert [timer is not None for timer in of_line] == [True, False, True, False, True]
        assert len(set(map(id, of_line))) == 4  # three timers, and none


def test_idle_connections_do_not_delay_a_stop(serve: Callable[..., Any]) -> None:
    with serve(CALM, keep_alive_timeout=10 * PATIENCE, graceful_timeout=10 * PATIENCE) as (_, connect):
        port = connect().socket.getpeername()[1]
        used, unused = Line(port), Line(port)
        used.ask("GET", "/")
        assert used.socket.recv(1 << 16).startswith(b"HTTP/1.1 200")
    for line in (used, unused):
        assert line.read() == b""
        line.close()


def test_data_after_the_end_of_a_tls_connection_is_not_an_error(
    serve: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    with serve(CALM) as (_, connect):
        line = connect(by_tls=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        line.socket = context.wrap_socket(line.socket, server_hostname="localhost")
        line.ask("GET", "/", Connection="close")
        with suppress(ConnectionError, ssl.SSLError):
            while True:
                line.socket.sendall(b"x" * 1000)
    assert errors_in(caplog) == []


def test_a_bad_body_after_the_start_of_the_response_is_not_an_error(
    serve: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    with serve(CALM) as (_, connect):
        line = connect()
        line.ask("POST", "/slow", Transfer_Encoding="chunked")
        assert line.socket.recv(100).startswith(b"HTTP/1.1 200")
        with suppress(ConnectionError):
            line.socket.sendall(b"1\r\nA\r\n" * 20_000)  # mostly framing
        line.read()
    assert errors_in(caplog) == []


def test_slow_clients_do_not_block_others(serve: Callable[..., Any]) -> None:
    with serve(CALM, places=2) as (shop, connect):
        waiting = [connect() for _ in range(7)]
        for line in waiting:
            line.ask("POST", "/", Content_Length=2)
        quick = connect()
        quick.ask("GET", "/", Connection="close")
        assert quick.read().startswith(b"HTTP/1.1 200")

        def is_begun() -> bool:
            """Not while the quick request, whose connection is closed by now, still has its slot."""
            waiting.append(connect())
            waiting[-1].ask("GET", "/endless")
            return bool(waiting[-1].socket.recv(12) == b"HTTP/1.1 200")

        await_that(is_begun)

        def is_full() -> bool:
            late = connect()
            late.ask("GET", "/", Connection="close")
            return bool(late.read().startswith(b"HTTP/1.1 503"))

        await_that(is_full)
        waiting[-1].socket.close()
        for line in waiting[:7]:
            line.socket.sendall(b"{}")
            assert line.socket.recv(1 << 16).startswith(b"HTTP/1.1 200")
        await_that(lambda: len(shop.left) >= 9)
