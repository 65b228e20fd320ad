"""Stage 8a, section 13: floods of HTTP/2 frames end their connection, and no other."""

import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import pytest

from appliance.monitor import metrics
from appliance.sites.front import hypercorn_adapter
from appliance.sites.front.frames import FrameBudget, TokenBucket
from appliance.sites.front.hypercorn_adapter import Connection
from tests.redteam.listeners import BASE, Listeners, listening
from tests.sites.live_server import await_that, is_open_at_the_server


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    with listening(tmp_path_factory.mktemp("front")) as listeners:
        yield listeners


class Http2:
    """A client that sends HTTP/2 frame by frame."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf8", validate_outbound_headers=False))
        self.http.initiate_connection()
        self.sent = b""

    def headers(self, path: str = "/", *, method: str = "GET", ended: bool = True, more: tuple[str, ...] = ()) -> int:
        stream = self.http.get_next_available_stream_id()
        fields = [(":method", method), (":path", path), (":scheme", "https"), (":authority", BASE)]
        self.http.send_headers(stream, [*fields, *((name, "1") for name in more)], end_stream=ended)
        return stream

    def flush(self, more: bytes = b"") -> None:
        with suppress(ConnectionError, ssl.SSLError):  # the server may have had enough
            self.line.sendall(self.http.data_to_send() + more)

    def read(self, until: Callable[[list[Any]], bool] = lambda _: False) -> list[Any]:
        """The events until the server closes, or as far as wanted."""
        events: list[Any] = []
        with suppress(ConnectionError, ssl.SSLError):
            while not until(events) and (piece := self.line.recv(1 << 16)):
                events += self.http.receive_data(piece)
                self.flush()
        return events


def goaway(events: list[Any]) -> list[int]:
    return [int(event.error_code or 0) for event in events if isinstance(event, h2.events.ConnectionTerminated)]


def raw(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _rapid_resets(client: Http2) -> bytes:
    for _ in range(2000):
        client.http.reset_stream(client.headers())
    return b""


def _forced_resets(client: Http2) -> bytes:
    """The server is made to reset: a window that overflows is an error of the stream alone (CVE-2025-8671)."""
    parts = []
    for _ in range(400):
        stream = client.headers(ended=False)
        parts.append(client.http.data_to_send() + raw(8, (2**31 - 1).to_bytes(4, "big"), stream=stream))
    return b"".join(parts)


def _empty_data(client: Http2) -> bytes:
    stream = client.headers(ended=False)
    return client.http.data_to_send() + raw(0, stream=stream) * 50_000


def _priorities(client: Http2) -> bytes:
    return b"".join(raw(2, (0).to_bytes(4, "big") + b"\x10", stream=2 * number + 1) for number in range(5000))


CALM = int(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
FLOODS: list[tuple[str, Callable[[Http2], bytes]]] = [
    ("rapid resets", _rapid_resets),
    ("forced resets", _forced_resets),
    ("settings", lambda client: raw(4, b"\0\x04\0\0\0\x64") * 5000),
    ("empty settings", lambda client: raw(4) * 5000),
    ("pings", lambda client: raw(6, bytes(8)) * 50_000),
    ("ping answers", lambda client: raw(6, bytes(8), flags=1) * 50_000),
    ("priorities", _priorities),
    ("windows", lambda client: raw(8, b"\0\0\0\1") * 50_000),
    ("unknown frames", lambda client: raw(0xBB) * 50_000),
    ("empty data", _empty_data),
]  # fmt: skip


def closed_for_floods() -> int:
    lines = metrics.render().splitlines()
    return sum(
        int(float(line.rpartition(" ")[2])) for line in lines if line.startswith('gos_http_refused_total{code="enhance_your_calm"}')
    )


def test_floods_of_frames_end_their_connection_and_no_other(front: Listeners) -> None:
    for name, flood in FLOODS:
        with front.connect(alpn="h2") as line, front.connect(alpn="h2") as other:
            client, calm = Http2(line), Http2(other)
            stuff = flood(client)
            front.echo.requests.clear()
            before = closed_for_floods()
            client.flush(stuff)
            # Who is still sending may lose the last frame to the reset of its socket.
            assert (name, goaway(client.read()) in ([CALM], [])) == (name, True)
            assert (name, len(front.echo.requests) <= 100) == (name, True)
            calm.headers()
            calm.flush()
            answered = calm.read(lambda events: any(isinstance(event, h2.events.StreamEnded) for event in events))
            assert any(isinstance(event, h2.events.ResponseReceived) for event in answered), name
            assert (name, closed_for_floods()) == (name, before + 1)


def test_a_flood_ends_its_connection_although_the_client_reads_nothing(front: Listeners, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "linger", 0.3)
    with front.connect(alpn="h2") as line:
        client = Http2(line)
        client.http.increment_flow_control_window(1 << 30)
        client.http.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1 << 30})
        front.echo.requests.clear()
        for _ in range(50):
            client.headers("/large")
        client.flush()
        await_that(lambda: len(front.echo.requests) == 50)
        before = closed_for_floods()
        # Too many within its first TLS record: what came in an earlier one would be answered, and wait for the client to read.
        client.flush(raw(4) * 5000)
        await_that(lambda: closed_for_floods() == before + 1)
        await_that(lambda: not is_open_at_the_server(line))


def test_continuations_without_end_are_refused(front: Listeners) -> None:
    with front.connect(alpn="h2") as line:
        client = Http2(line)
        client.flush(raw(1, b"\x82", stream=1) + raw(9, stream=1) * 5000)
        assert len(goaway(client.read())) == 1


def test_streams_of_http2_that_are_refused_leave_their_connection_alive(front: Listeners) -> None:
    with front.connect(alpn="h2") as line:
        client = Http2(line)
        wrong = client.headers("no-slash", method="POST", ended=False)
        client.http.send_data(wrong, b"x" * 1000)
        client.http.end_stream(wrong)
        fragment = client.headers("/a#/../b")
        many = client.headers("/", more=tuple(f"x-{number}" for number in range(250)))
        good = client.headers("/good")
        client.flush()
        events = client.read(
            lambda events: {event.stream_id for event in events if isinstance(event, h2.events.StreamEnded)} >= {good}
        )
        status = {event.stream_id: str(event.headers[0][1]) for event in events if isinstance(event, h2.events.ResponseReceived)}
    assert status == {wrong: "400", fragment: "400", many: "431", good: "200"}


def test_a_refused_stream_can_be_reset_already(front: Listeners) -> None:
    with front.connect(alpn="h2") as line:
        client = Http2(line)
        client.http.reset_stream(client.headers("no-slash"))
        client.http.reset_stream(client.headers("no-slash", method="HEAD"))
        good = client.headers("/good")
        client.flush()
        events = client.read(lambda events: any(isinstance(event, h2.events.StreamEnded) for event in events))
    answered = [(event.stream_id, str(event.headers[0][1])) for event in events if isinstance(event, h2.events.ResponseReceived)]
    assert answered == [(good, "200")]


def test_a_refused_head_has_no_body(front: Listeners) -> None:
    """A client that gets one takes it for a broken connection, and gives up all its streams."""
    with front.connect(alpn="h2") as line:
        client = Http2(line)
        refused = client.headers("/a#b", method="HEAD")
        good = client.headers("/good")
        client.flush()
        events = client.read(lambda events: sum(isinstance(event, h2.events.StreamEnded) for event in events) == 2)
    status = {event.stream_id: str(event.headers[0][1]) for event in events if isinstance(event, h2.events.ResponseReceived)}
    assert status == {refused: "400", good: "200"}
    assert sum(len(event.data) for event in events if isinstance(event, h2.events.DataReceived) and event.stream_id == refused) == 0


@pytest.mark.parametrize("window", [0, 10])
def test_a_refusal_ends_its_stream_whatever_its_window(front: Listeners, window: int) -> None:
    """A stream that never ends would occupy one of its connection's streams forever."""
    with front.connect(alpn="h2") as line:
        client = Http2(line)
        client.http.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        refused = [client.headers("no-slash") for _ in range(3)]
        client.flush()
        events = client.read(lambda events: sum(isinstance(event, h2.events.StreamEnded) for event in events) == 3)
    answers = [event for event in events if isinstance(event, h2.events.ResponseReceived)]
    assert [event.stream_id for event in answers] == refused
    for answer in answers:
        fields = {str(name): str(value) for name, value in answer.headers}
        assert (fields[":status"], "content-length" in fields) == ("400", False)


def test_many_requests_keep_their_connection(front: Listeners) -> None:
    with front.connect(alpn="h2") as line:
        client = Http2(line)
        client.http.increment_flow_control_window(1 << 24)
        for _ in range(15):
            for _ in range(100):
                client.headers()
            client.flush()
            events = client.read(lambda events: sum(isinstance(event, h2.events.StreamEnded) for event in events) == 100)
            assert goaway(events) == []


def test_priorities_of_streams_that_never_open_leave_room_for_requests(front: Listeners) -> None:
    with front.connect(alpn="h2") as line:
        client = Http2(line)
        client.flush()
        frames = [raw(2, (0).to_bytes(4, "big") + b"\x10", stream=2 * number + 1001) for number in range(950)]
        client.flush(b"".join(frames))
        for _ in range(100):
            client.headers()
        client.flush()
        events = client.read(lambda events: sum(isinstance(event, h2.events.StreamEnded) for event in events) == 100)
    assert sum(isinstance(event, h2.events.StreamEnded) for event in events) == 100


class UnfilledBudget(FrameBudget):
    """A budget that does not grow with time, so that the test does not depend on the speed of the machine."""

    def __init__(self) -> None:
        super().__init__()
        self._control = TokenBucket(1000, 0)


def test_a_client_can_acknowledge_all_that_it_receives(front: Listeners, monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledgements alone would exhaust the budget; what was sent pays for them."""
    monkeypatch.setattr(hypercorn_adapter, "FrameBudget", UnfilledBudget)
    with front.connect(alpn="h2") as line:
        client = Http2(line)
        client.http.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1 << 24})
        client.http.increment_flow_control_window(1 << 26)
        for _ in range(40):
            client.headers("/large")
        client.flush()
        ended = 0
        while ended < 40:
            events = client.read(bool)
            assert events
            assert goaway(events) == []
            ended += sum(isinstance(event, h2.events.StreamEnded) for event in events)
            client.flush(raw(8, b"\0\0\0\1") * sum(isinstance(event, h2.events.DataReceived) for event in events))


def test_http2_offers_what_it_accepts(front: Listeners) -> None:
    with front.connect(alpn="h2") as line:
        client = Http2(line)
        client.flush()
        client.read(lambda events: any(isinstance(event, h2.events.RemoteSettingsChanged) for event in events))
    offered = client.http.remote_settings
    assert (offered.enable_connect_protocol, offered.max_concurrent_streams) == (0, 100)


@pytest.mark.parametrize("more", [[], [(":protocol", "websocket"), (":scheme", "https"), (":path", "/chat")]])
def test_http2_makes_no_tunnels(front: Listeners, caplog: pytest.LogCaptureFixture, more: list[tuple[str, str]]) -> None:
    front.echo.requests.clear()
    with front.connect(alpn="h2") as line:
        client = Http2(line)
        client.http.send_headers(1, [(":method", "CONNECT"), (":authority", BASE), *more], end_stream=False)
        client.flush()
        events = client.read(lambda events: any(isinstance(event, h2.events.StreamEnded) for event in events))
    answers = [str(event.headers[0][1]) for event in events if isinstance(event, h2.events.ResponseReceived)]
    assert answers == ["501"] or goaway(events) == [int(h2.errors.ErrorCodes.PROTOCOL_ERROR)]
    assert front.echo.requests == []
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_client_that_reads_nothing_delays_nobody_else(front: Listeners) -> None:
    """A hundred streams without a window keep what is ready for them, and no more of it than a buffer each."""
    with front.connect(alpn="h2") as line, front.connect(alpn="h2") as other:
        client, calm = Http2(line), Http2(other)
        client.http.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
        front.echo.requests.clear()
        for _ in range(100):
            client.headers("/large")
        client.flush()
        await_that(lambda: len(front.echo.requests) == 100)
        calm.headers()
        calm.flush()
        answered = calm.read(lambda events: any(isinstance(event, h2.events.StreamEnded) for event in events))
        assert any(isinstance(event, h2.events.ResponseReceived) for event in answered)
