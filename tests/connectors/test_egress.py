"""The one way out: pinned, rechecked at each redirect, capped in size and time."""

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appliance.connectors.contract import (
    AddressNotAllowed,
    ConfigError,
    ConnectorError,
    HttpAnswer,
    HttpRequest,
    Rejected,
    SystemFailure,
    TransientError,
)
from appliance.connectors.egress import Egress, EgressClient, system_resolver
from appliance.connectors.network.addresses import parse_allow

LOOPBACK = Egress.of(["127.0.0.0/8"])
Serve = Callable[[Callable[[socket.socket], None]], str]


@pytest.fixture
def client() -> Iterator[EgressClient]:
    client = EgressClient(LOOPBACK)
    yield client
    client.close()


def send(client: EgressClient, method: str, url: str, *, seconds: float = 5, **more: Any) -> HttpAnswer:
    return client.send(HttpRequest(method, url, **more), time.monotonic() + seconds)


def sending(egress: Egress, method: str, url: str, **more: Any) -> HttpAnswer:
    client = EgressClient(egress)
    try:
        return send(client, method, url, **more)
    finally:
        client.close()


def test_a_request_and_its_answer_arrive_whole(client: EgressClient, server: Any) -> None:
    server.answer("/a", 201, b'{"ok": true}', Content_Type="application/json")
    answer = send(
        client,
        "post",
        f"{server.url}/a?x=1",
        params=[("y", "ä &"), ("y", "2")],
        headers=[("X-One", "1")],
        content=b"body",
    )
    assert (answer.status, answer.content, answer.headers["content-type"]) == (201, b'{"ok": true}', "application/json")
    received = server.received[0]
    assert (received.method, received.path, received.body) == ("POST", "/a?x=1&y=%C3%A4+%26&y=2", b"body")
    assert received.headers["x-one"] == "1"
    assert received.headers["host"] == f"127.0.0.1:{server.port}"
    assert "cookie" not in received.headers


def test_cookies_are_not_stored(client: EgressClient, server: Any) -> None:
    server.answer("/", Set_Cookie="a=1")
    send(client, "GET", server.url + "/")
    send(client, "GET", server.url + "/")
    assert all("cookie" not in received.headers for received in server.received)


def test_without_a_rule_loopback_is_not_reached(server: Any) -> None:
    server.answer("/")
    for host in ("127.0.0.1", "localhost", "127.1", "2130706433", "[::ffff:127.0.0.1]", "0"):
        with pytest.raises(ConnectorError) as caught:
            sending(Egress(), "GET", f"http://{host}:{server.port}/")
        assert isinstance(caught.value, AddressNotAllowed)
    assert server.received == []


@pytest.mark.parametrize(
    "spelling",
    [
        "http://good.example@127.0.0.1:{port}/",
        "http://good.example#@127.0.0.1:{port}/",
        "http://127.0.0.1:{port}\\@good.example/",
        "http://good.example\\@127.0.0.1:{port}/",
        "http://127.0.0.1:{port}#.good.example/",
        "http://①②⑦.⓪.⓪.①:{port}/",
        "http://127。0。0。1:{port}/",
        "http://0x7f.1:{port}/",
        "http://[::ffff:7f00:1]:{port}/",
        "http://[0:0:0:0:0:ffff:127.0.0.1]:{port}/",
        "http://127.0.0.1.:{port}/",
        "http://localhost.:{port}/",
        "http:////127.0.0.1:{port}/",
        "http:127.0.0.1:{port}/",
        "http://good.example\t@127.0.0.1:{port}/",
        "http://good.example\r\nHost: 127.0.0.1:{port}/",
        "http://%31%32%37.0.0.1:{port}/",
    ],
)
def test_no_spelling_of_an_address_reaches_loopback(server: Any, spelling: str) -> None:
    server.answer("/")

    def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"] if "good.example" in host else system_resolver(host, port)

    with pytest.raises(ConnectorError):
        sending(Egress(resolver=resolve), "GET", spelling.format(port=server.port))
    assert server.received == []


def test_the_environments_proxy_is_ignored(monkeypatch: pytest.MonkeyPatch, client: EgressClient, server: Any) -> None:
    server.answer("/")
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert send(client, "GET", server.url + "/").status == 200


def test_a_rebinding_name_is_resolved_once_and_pinned(other_server: Any, twin_server: Any) -> None:
    resolved: list[str] = []

    def rebinding(host: str, _port: int) -> list[str]:
        resolved.append(host)
        return ["127.0.0.2"] if len(resolved) == 1 else ["127.0.0.1"]

    other_server.answer("/", body=b"the checked one")
    twin_server.answer("/", body=b"the other one")
    egress = Egress(parse_allow(["127.0.0.2/32"]), resolver=rebinding)
    answer = sending(egress, "GET", f"http://rebind.example:{other_server.port}/")
    assert answer.content == b"the checked one"
    assert resolved == ["rebind.example"]
    assert twin_server.received == []
    assert other_server.received[0].headers["host"] == f"rebind.example:{other_server.port}"


def test_a_name_that_rebinds_is_refused_on_the_next_connection(other_server: Any, twin_server: Any) -> None:
    addresses = iter([["127.0.0.2"], ["127.0.0.1"]])
    egress = Egress(parse_allow(["127.0.0.2/32"]), resolver=lambda _host, _port: next(addresses))
    other_server.answer("/", Connection="close")
    client = EgressClient(egress)
    url = f"http://rebind.example:{other_server.port}/"
    assert send(client, "GET", url).status == 200
    with pytest.raises(AddressNotAllowed):
        send(client, "GET", url)
    client.close()
    assert twin_server.received == []


def test_dialling_is_pinned_and_checked_as_well(other_server: Any, twin_server: Any) -> None:
    egress = Egress(parse_allow(["127.0.0.2/32"]), resolver=lambda _host, _port: ["127.0.0.1", "127.0.0.2"])
    with egress.dial("any.example", other_server.port, 5) as connection:
        assert connection.getpeername()[0] == "127.0.0.2"
        timeout = connection.gettimeout()
        assert timeout is not None
        assert 0 < timeout <= 5
    with pytest.raises(AddressNotAllowed):
        egress.dial("127.0.0.1", twin_server.port, 5)


def test_a_redirect_to_a_forbidden_address_is_refused(other_server: Any, twin_server: Any) -> None:
    egress = Egress(parse_allow(["127.0.0.2/32"]))
    for target in (
        f"http://127.0.0.1:{twin_server.port}/",
        f"//localhost:{twin_server.port}/",
        "http://169.254.169.254/",
    ):
        other_server.answer("/", 302, Location=target)
        with pytest.raises(AddressNotAllowed):
            sending(egress, "GET", f"{other_server.url}/")
    assert twin_server.received == []


@pytest.mark.parametrize("target", ["file:///etc/passwd", "gopher://127.0.0.1/x", "ftp://127.0.0.1/", "http://u:p@127.0.0.1/"])
def test_a_redirect_to_another_scheme_or_with_credentials_is_refused(client: EgressClient, server: Any, target: str) -> None:
    server.answer("/", 302, Location=target)
    with pytest.raises(ConfigError):
        send(client, "GET", server.url + "/")


def test_a_redirect_to_another_origin_loses_every_credential(client: EgressClient, server: Any, other_server: Any) -> None:
    server.answer("/", 302, Location=f"{other_server.url}/there")
    other_server.answer("/there")
    secret = [("Authorization", "Bearer s"), ("X-Api-Key", "s"), ("Accept", "text/plain")]
    send(client, "GET", server.url + "/", headers=secret, params=[("key", "s")])
    arrived = other_server.received[0]
    assert "authorization" not in arrived.headers
    assert "x-api-key" not in arrived.headers
    assert arrived.headers["accept"] == "text/plain"
    assert arrived.path == "/there"


def test_a_redirect_within_the_origin_keeps_them(client: EgressClient, server: Any) -> None:
    server.answer("/", 301, Location="/there")
    server.answer("/there")
    assert send(client, "GET", server.url + "/", headers=[("Authorization", "Bearer s")]).url == f"{server.url}/there"
    assert server.received[1].headers["authorization"] == "Bearer s"


def test_a_body_is_never_sent_on_to_another_origin(client: EgressClient, server: Any, other_server: Any) -> None:
    server.answer("/", 307, Location=f"{other_server.url}/there")
    with pytest.raises(Rejected) as caught:
        send(client, "POST", server.url + "/", content=b"secret")
    assert caught.value.outcome == "not_done"
    assert other_server.received == []


def test_see_other_turns_a_post_into_a_get_and_later_failures_have_an_unknown_outcome(client: EgressClient, server: Any) -> None:
    server.answer("/", 303, Location="/result")
    server.answer("/result", body=b"made")
    assert send(client, "POST", server.url + "/", content=b"x", headers=[("Content-Type", "text/plain")]).content == b"made"
    assert [r.method for r in server.received] == ["POST", "GET"]
    server.answer("/", 303, Location="http://127.0.0.1:1/")
    with pytest.raises(TransientError) as caught:
        send(client, "POST", server.url + "/", content=b"x")
    assert caught.value.outcome == "unknown"


def test_endless_redirects_end(client: EgressClient, server: Any) -> None:
    server.answer("/", 302, Location="/")
    with pytest.raises(SystemFailure, match="more than 10 times"):
        send(client, "GET", server.url + "/")
    assert len(server.received) == 11


def test_redirects_are_left_alone_when_asked(client: EgressClient, server: Any) -> None:
    server.answer("/", 302, Location="http://169.254.169.254/")
    assert send(client, "GET", server.url + "/", follow_redirects=False).status == 302


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/", "/relative", "http://", "http://a b/", "http://u:p@h/"])
def test_only_plain_http_addresses_are_requested(client: EgressClient, url: str) -> None:
    with pytest.raises(ConfigError):
        send(client, "GET", url)


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "Connection", "Proxy-Authorization"])
def test_framing_headers_cannot_be_set(client: EgressClient, server: Any, name: str) -> None:
    with pytest.raises(ConfigError, match="set by the appliance"):
        send(client, "GET", server.url + "/", headers=[(name, "x")])


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\0b"])
def test_a_header_cannot_be_split(client: EgressClient, server: Any, value: str) -> None:
    with pytest.raises(ConfigError):
        send(client, "GET", server.url + "/", headers=[("X-A", value)])
    with pytest.raises(ConfigError):
        send(client, f"GET {value}", server.url + "/")
    assert server.received == []


def test_an_oversized_answer_is_cut_off(server: Any) -> None:
    server.answer("/", body=b"x" * 200_000)
    with pytest.raises(SystemFailure, match="more than 100 KiB"):
        sending(Egress(LOOPBACK.rules, max_answer_bytes=102_400), "GET", server.url + "/")


def test_compressed_answers_are_decompressed_within_a_limit(client: EgressClient, server: Any) -> None:
    server.answer("/good", body=gzip.compress(b"hello"), Content_Encoding="gzip")
    assert send(client, "GET", server.url + "/good").content == b"hello"
    server.answer("/bomb", body=gzip.compress(b"\0" * 50_000_000), Content_Encoding="gzip")
    with pytest.raises(SystemFailure, match="more than"):
        send(client, "GET", server.url + "/bomb", max_bytes=1_000_000)
    server.answer("/twice", body=gzip.compress(gzip.compress(b"\0" * 50_000_000)), Content_Encoding="gzip, gzip")
    with pytest.raises(SystemFailure, match="unsupported encoding"):
        send(client, "GET", server.url + "/twice")
    server.answer("/broken", body=b"no gzip", Content_Encoding="gzip")
    with pytest.raises(SystemFailure, match="does not decompress"):
        send(client, "GET", server.url + "/broken")


def test_no_connection_means_not_done(client: EgressClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(TransientError) as caught:
        send(client, "POST", f"http://127.0.0.1:{port}/", content=b"x")
    assert caught.value.outcome == "not_done"


def test_an_unknown_name_means_not_done() -> None:
    def nothing(_host: str, _port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(TransientError, match="does not resolve") as caught:
        sending(Egress(resolver=nothing), "POST", "http://nowhere.example/")
    assert caught.value.outcome == "not_done"


def test_a_silent_name_server_is_cut_off_at_the_deadline() -> None:
    answer_now = threading.Event()

    def silent(_host: str, _port: int) -> list[str]:
        answer_now.wait(10)
        return []

    began = time.monotonic()
    with pytest.raises(TransientError, match="was not resolved in time"):
        sending(Egress(resolver=silent), "GET", "http://slow.example/", seconds=0.2)
    assert time.monotonic() - began < 8
    answer_now.set()


def hang_up_after_reading(connection: socket.socket) -> None:
    connection.recv(65536)


def test_a_server_that_hangs_up_after_the_request_leaves_the_outcome_unknown(client: EgressClient, raw_server: Serve) -> None:
    url = raw_server(hang_up_after_reading)
    with pytest.raises(TransientError) as caught:
        send(client, "POST", url, content=b"x")
    assert caught.value.outcome == "unknown"


@pytest.mark.parametrize("drip", [b"X-Slow: 1\r\n", b"x"])
def test_a_dripping_server_cannot_extend_the_deadline(client: EgressClient, raw_server: Serve, drip: bytes) -> None:
    over = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n" if drip[:1] == b"X" else b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n")
        for _ in range(200):
            if over.wait(0.05):
                return
            connection.sendall(drip)

    url = raw_server(serve)
    began = time.monotonic()
    with pytest.raises(TransientError, match="in time") as caught:
        send(client, "POST", url, content=b"x", seconds=0.4)
    over.set()
    assert time.monotonic() - began < 5, "it drips for ten seconds"
    assert caught.value.outcome == "unknown"


def test_garbage_for_an_answer_is_an_error_of_the_contract(client: EgressClient, raw_server: Serve) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

    with pytest.raises(TransientError):
        send(client, "GET", raw_server(serve))
