"""Dead, slow, misbehaving and rate-limiting servers behind a whole appliance: a coded error each, and automatic recovery."""

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from appliance.connectors.testing import Answer, LoopbackServer, free_port
from appliance.core import clock
from appliance.integrations import gate
from appliance.integrations.circuit import FAILURES, MAX_OPEN_MS

API = "/api/v1"
METADATA = b"""<edmx:Edmx Version="4.0" xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx">
<edmx:DataServices>
<Schema Namespace="S" xmlns="http://docs.oasis-open.org/odata/ns/edm">
<EntityType Name="Order"><Key><PropertyRef Name="ID"/></Key>
<Property Name="ID" Type="Edm.Int32" Nullable="false"/></EntityType>
<EntityContainer Name="C"><EntitySet Name="Orders" EntityType="S.Order"/></EntityContainer></Schema>
</edmx:DataServices></edmx:Edmx>"""
JSON = {"Content-Type": "application/json"}
HTML = b"<!doctype html><title>Sign in</title><p>Please sign in."
_numbers = itertools.count(1)


class FakeClock:
    """The clock of the gate, which a test can move forward."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return clock.now_ms() + self.ahead_ms

    def monotonic(self) -> float:
        return clock.monotonic()


@pytest.fixture
def fake_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    fake_clock = FakeClock()
    monkeypatch.setattr(gate, "clock", fake_clock)
    return fake_clock


@dataclass(frozen=True)
class Kind:
    """A connector with the call to make, and its server's answer when healthy."""

    connector: str
    settings: Callable[[int], dict[str, Any]]
    action: str
    params: dict[str, Any]
    healthy_body: bytes = b""


def _login(port: int) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": port, "user": "gos", "password": "canary-4711"}


HTTP = Kind(
    "http", lambda port: {"base_url": f"http://127.0.0.1:{port}", "retries": {"attempts": 1}}, "list", {"url": "/Orders"}, b"[]"
)
ODATA = Kind("odata", lambda port: {"base_url": f"http://127.0.0.1:{port}"}, "list", {"entity_set": "Orders"}, b'{"value": []}')
SQL = Kind("postgresql", lambda port: {**_login(port), "database": "erp", "tls": "off"}, "query", {"sql": "SELECT 1"})
SFTP = Kind("sftp", lambda port: {**_login(port), "host_key": "SHA256:" + "A" * 43}, "list", {})

TROUBLES = {
    "down": (Answer(503, {}, b"down"), "transient_error"),
    "breaks off": (Answer(200, {**JSON, "Content-Length": "500", "Connection": "close"}, b'[{"ID": 1'), "transient_error"),
    "truncated": (Answer(200, JSON, b'[{"ID": 1'), "system_error"),
    "an error page": (Answer(200, {"Content-Type": "text/html"}, HTML), "system_error"),
    "a page that says it is JSON": (Answer(200, JSON, HTML), "system_error"),
    "another shape": (Answer(200, JSON, b'{"value": "none"}'), "system_error"),
    "asks for patience": (Answer(429, {"Retry-After": "120"}, b""), "rate_limited"),
}


class Place:
    """An integration with a server, and a process that calls it."""

    def __init__(self, api: httpx.Client, kind: Kind, port: int, time: str = "25s") -> None:
        self.api, self.kind, self.slug = api, kind, f"trouble-{next(_numbers)}"
        created = api.post(
            f"{API}/integrations", json={"slug": self.slug, "connector": kind.connector, "settings": kind.settings(port)}
        )
        assert created.status_code == 201, created.text
        ask = {"use": self.slug, "action": kind.action, "input": kind.params}
        step = {"id": "ask", "integration": ask, "limits": {"time": time}}
        assert api.put(f"{API}/processes/{self.slug}", json={"id": self.slug, "steps": [step]}).status_code == 201
        assert api.post(f"{API}/processes/{self.slug}/publish", json={}).status_code in (200, 201)

    def call(self, seconds: float = 25.0) -> httpx.Response:
        body = {"action": self.kind.action, "input": self.kind.params, "timeout_s": seconds}
        return self.api.post(f"{API}/integrations/{self.slug}/execute", json=body)

    def run(self) -> dict[str, Any]:
        answer = self.api.post(f"{API}/processes/{self.slug}/execute", params={"wait": 30}, json={})
        assert answer.status_code == 200, answer.text
        return dict(answer.json()["data"])

    def circuit(self) -> dict[str, Any]:
        return dict(self.api.get(f"{API}/integrations/{self.slug}").json()["data"]["circuit"])

    def fails_as(self, error_class: str, seconds: float = 25.0) -> dict[str, Any]:
        answer = self.call(seconds)
        assert answer.status_code == 502, answer.text
        error = dict(answer.json()["error"])
        assert (error["code"], error["error_class"], error["details"][0]["code"]) == ("connector_failed", error_class, error_class)
        assert len(error["message"]) > 20
        assert "canary" not in answer.text
        return error

    def step_fails_as(self, error_class: str) -> None:
        execution = self.run()
        assert (execution["status"], execution["error"]["failure_class"]) == ("failed", "connector"), execution
        assert execution["error"]["code"] == "connector_failed"
        [step] = self.api.get(f"{API}/processes/{self.slug}/executions/{execution['execution_id']}/steps").json()["data"]
        assert step["error"]["step"] == "ask"
        calls = self.api.get(f"{API}/logs/calls", params={"execution_id": execution["execution_id"]}).json()["data"]
        assert [call["error"]["class"] for call in calls] == [error_class]

    def recovers(self, fake_clock: FakeClock) -> None:
        """After the longest possible pause the next call goes through and closes the circuit."""
        fake_clock.ahead_ms += MAX_OPEN_MS
        answer = self.call()
        assert answer.status_code == 200, answer.text
        assert self.circuit()["state"] == "closed"
        assert self.run()["status"] == "succeeded"


@contextmanager
def serving(kind: Kind, port: int = 0) -> Iterator[LoopbackServer]:
    server = LoopbackServer(port=port)
    server.answers["/$metadata"] = lambda _: Answer(200, {"Content-Type": "application/xml"}, METADATA)
    server.answers["/Orders"] = lambda _: Answer(200, JSON, kind.healthy_body)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def silent() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=50)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("kind", [HTTP, ODATA], ids=lambda kind: kind.connector)
def test_a_failing_server_opens_the_circuit_and_recovers(
    acme: httpx.Client, fake_clock: FakeClock, kind: Kind, trouble: str
) -> None:
    answer, error_class = TROUBLES[trouble]
    with serving(kind) as server:
        healthy = server.answers["/Orders"]
        place = Place(acme, kind, server.port)
        server.answers["/Orders"] = lambda _: answer
        place.step_fails_as(error_class)
        if error_class == "rate_limited":
            assert 0 < place.fails_as(error_class)["retry_after"] <= 120
            assert place.circuit()["held_until"] is not None
        else:
            for _ in range(FAILURES - 1):
                place.fails_as(error_class)
            assert place.circuit()["state"] == "open"
            error = place.fails_as("transient_error")
            assert (error["foreign"], error["outcome"], error["retryable"]) == ({"withheld": "circuit_open"}, "not_done", True)
        received = len(server.received)
        place.call()
        assert len(server.received) == received, "calls to it are paused"
        server.answers["/Orders"] = healthy
        place.recovers(fake_clock)


@pytest.mark.parametrize("kind", [HTTP, ODATA, SQL, SFTP], ids=lambda kind: kind.connector)
def test_an_unreachable_server_opens_the_circuit_and_is_tried_again(acme: httpx.Client, fake_clock: FakeClock, kind: Kind) -> None:
    port = free_port()
    place = Place(acme, kind, port)
    place.step_fails_as("transient_error")
    for _ in range(FAILURES - 1):
        error = place.fails_as("transient_error")
        assert (error["outcome"], error["retryable"]) == ("not_done", True)
        assert "does not accept connections" in error["message"]
    assert place.circuit()["state"] == "open"
    if kind.healthy_body:
        with serving(kind, port):
            place.recovers(fake_clock)
    else:
        fake_clock.ahead_ms += MAX_OPEN_MS
        assert place.circuit()["state"] == "half_open"
        assert "does not accept connections" in place.fails_as("transient_error")["message"], "it is tried again"


@pytest.mark.parametrize("kind", [HTTP, ODATA, SQL, SFTP], ids=lambda kind: kind.connector)
def test_a_slow_server_is_cut_off_at_the_deadline(acme: httpx.Client, kind: Kind) -> None:
    with silent() as port:
        place = Place(acme, kind, port, "800ms")
        place.fails_as("transient_error", 0.3)
        place.step_fails_as("transient_error")
        assert place.circuit()["failures"] == 2


@pytest.mark.parametrize("kind", [SQL, SFTP], ids=lambda kind: kind.connector)
def test_a_server_of_another_protocol_is_an_error(acme: httpx.Client, kind: Kind) -> None:
    """A port that speaks HTTP where a database or SSH is expected."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=50)

    def answer() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with closing(peer):
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        place = Place(acme, kind, listener.getsockname()[1])
        response = place.call()
        assert response.status_code == 502
        assert response.json()["error"]["error_class"] in ("system_error", "transient_error"), response.text
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(20)
