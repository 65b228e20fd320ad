"""Stage 8a, sections 13 and 14: HTTP that would stall the server, speak past a proxy, or mean two things at once."""

import gc
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import httpx
import pytest

from appliance.console.frame import session
from appliance.core.errors import AddressNotAllowed, InvalidApiKey, InvalidJson
from appliance.monitor import metrics
from appliance.processes.triggers import webhooks
from appliance.sites.front.root import MetricsReaders
from appliance.sites.sign_in import visiting
from appliance.testing.running import Running, make_config
from tests.redteam.attempts import attempts
from tests.redteam.listeners import BASE, KEEP, Listeners, error_of, head, listening, read_all, statuses
from tests.sites.live_server import PATIENCE, await_that


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    with listening(tmp_path_factory.mktemp("front")) as listeners:
        yield listeners


HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: gos.localhost\r\n\r\n"
BOTH = "Transfer-Encoding: chunked"
UPGRADE = ("Connection: Upgrade, HTTP2-Settings, close", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
# name, what is sent, the only statuses that may come back, the code of the last answer
REFUSED: list[tuple[str, bytes, list[int], str]] = [
    ("length and coding", head(BOTH, "Content-Length: 5", method="POST") + b"0\r\n\r\n" + HIDDEN, [400], "invalid_request"),
    ("coding and length", head("Content-Length: 0", BOTH, method="POST") + b"0\r\n\r\n" + HIDDEN, [400], "invalid_request"),
    ("coding of HTTP/1.0", head(BOTH, method="POST", version="1.0") + b"0\r\n\r\n" + HIDDEN, [400], "invalid_request"),
    ("two codings", head(BOTH, BOTH, method="POST") + b"0\r\n\r\n", [501], "not_supported"),
    ("coding identity", head("Transfer-Encoding: identity", method="POST") + HIDDEN, [501], "not_supported"),
    ("coding in a list", head("Transfer-Encoding: chunked, identity", method="POST") + b"0\r\n\r\n", [501], "not_supported"),
    ("coding with a tab", head("Transfer-Encoding\t: chunked", method="POST") + b"0\r\n\r\n", [400], "invalid_request"),
    ("two lengths", head("Content-Length: 0", "Content-Length: 44", method="POST") + HIDDEN, [400], "invalid_request"),
    ("length in a list", head("Content-Length: 0, 44", method="POST") + HIDDEN, [400], "invalid_request"),
    ("length with a sign", head("Content-Length: +0", method="POST") + HIDDEN, [400], "invalid_request"),
    ("length in hexadecimal", head("Content-Length: 0x2c", method="POST") + HIDDEN, [400], "invalid_request"),
    ("folded first line", b"GET / HTTP/1.1\r\n Host: gos.localhost\r\n\r\n", [400], "invalid_request"),
    ("chunk that ends in LF", head(BOTH, method="POST") + b"1;x\n\r\nA\r\n0\r\n\r\n" + HIDDEN, [400], "invalid_request"),
    ("chunk of negative size", head(BOTH, method="POST") + b"-1\r\n\r\n" + HIDDEN, [400], "invalid_request"),
    ("chunk without its end", head(BOTH, method="POST") + b"1\r\nABC0\r\n\r\n", [400], "invalid_request"),
    ("tiny chunks", head(BOTH, method="POST") + b"1\r\nA\r\n" * 20_000 + b"0\r\n\r\n", [400], "invalid_request"),
    ("extensions", head(BOTH, method="POST") + (b"1;" + b"x" * 2000 + b"\r\nA\r\n") * 30 + b"0\r\n\r\n", [400], "invalid_request"),
    ("large trailers", head(BOTH, method="POST") + b"0\r\n" + b"X: 1\r\n" * 12_000 + b"\r\n", [431], "headers_too_large"),
    ("two hosts", head("Host: other.localhost"), [400], "invalid_request"),
    ("no host", head(host=""), [400], "invalid_request"),
    ("host with user", head(host=f"{BASE}@other.host"), [421], "unknown_host"),
    ("host with user before", head(host=f"user@{BASE}"), [421], "unknown_host"),
    ("host with a path", head(host=f"{BASE}/x"), [421], "unknown_host"),
    ("absolute elsewhere", head(target="http://other.host/"), [421], "unknown_host"),
    ("absolute in capitals", head(target="HTTP://OTHER.HOST/"), [421], "unknown_host"),
    ("absolute with user", head(target=f"http://user@{BASE}/"), [400], "invalid_request"),
    ("absolute without host", head(target="http:///path"), [400], "invalid_request"),
    ("absolute file", head(target="file:///etc/passwd"), [400], "invalid_request"),
    ("target without slash", head(target="path"), [400], "invalid_request"),
    ("target with fragment", head(target="/a#/../b"), [400], "invalid_request"),
    ("tunnel", head(target="other.host:443", method="CONNECT"), [501], "not_supported"),
    ("hundreds of headers", head(*[f"X-{number}: 1" for number in range(250)]), [431], "headers_too_large"),
    ("a header that one read holds", head(f"X-Long: {'x' * 33_000}"), [431], "headers_too_large"),
    ("a long header", head(f"X-Long: {'x' * 70_000}"), [431], "headers_too_large"),
    ("NUL in a header", head("X-Nul: a\0b"), [400], "invalid_request"),
    ("CR in a header", head("X-Cr: a\rHost: other.host"), [400], "invalid_request"),
    ("lines end in LF", head().replace(b"\r\n", b"\n"), [400], "invalid_request"),
    ("a line ends in LF", head("X-A: b\nX-B: c"), [400], "invalid_request"),
    ("the first line ends in LF", head().replace(b"\r\n", b"\n", 1), [400], "invalid_request"),
    ("an empty line of LF", head().replace(b"\r\n\r\n", b"\r\n\n") + HIDDEN, [400], "invalid_request"),
    ("LF before the request", b"\n" + head(), [400], "invalid_request"),
    ("version 2.0", b"GET / HTTP/2.0\r\nHost: gos.localhost\r\n\r\n", [400], "invalid_request"),
    ("version 9.9", head(version="9.9"), [400], "invalid_request"),
    ("no HTTP", b"\x16\x03\x01" * 20 + b"\r\n\r\n", [400], "invalid_request"),
]  # fmt: skip


def test_ambiguous_requests_are_refused_and_end_the_connection(front: Listeners) -> None:
    with attempts() as table:
        for name, data, expected, code in REFUSED:
            front.echo.requests.clear()
            answers = front.ask(data)
            seen = (statuses(answers), error_of(answers), [request["path"] for request in front.echo.requests])
            table.check(name, seen == (expected, code, []) and b"connection: close" in answers.lower(), seen)


def count_refusals(code: str) -> float:
    prefix = f'gos_http_refused_total{{code="{code}"}} '
    return sum(float(line.removeprefix(prefix)) for line in metrics.render().splitlines() if line.startswith(prefix))


def test_nothing_after_a_refused_request_is_read(front: Listeners) -> None:
    front.echo.requests.clear()
    before = count_refusals("invalid_request")
    front.ask(head().replace(b"\r\n\r\n", b"\r\n\n") + HIDDEN * 10_000)
    front.ask(head(target="/next"))
    assert count_refusals("invalid_request") == before + 1
    assert [request["path"] for request in front.echo.requests] == ["/next"]


def test_a_refused_head_of_http1_has_no_body(front: Listeners, caplog: pytest.LogCaptureFixture) -> None:
    answers = front.ask(head(target="/a#b", method="HEAD"))
    assert (statuses(answers), answers.endswith(b"\r\n\r\n")) == ([400], True)
    front.ask(head())
    gc.collect()  # asyncio logs the exception of a task when nobody can retrieve it anymore
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_bare_line_feed_is_refused_however_it_arrives(front: Listeners) -> None:
    front.echo.requests.clear()
    with front.connect() as line:
        line.sendall(head(KEEP, "Content-Length: 3", method="POST", target="/first") + b"a\nb")
        await_that(lambda: len(front.echo.requests) == 1)
        for piece in (b"GET / HTTP/1.1\r\nHost: ", BASE.encode(), b"\nX-A: 1\r\n\r\n"):
            line.sendall(piece)
        answers = read_all(line)
    assert statuses(answers)[-1] == 400
    assert [(request["path"], request["size"]) for request in front.echo.requests] == [("/first", 3)]


def test_unusual_but_unambiguous_requests_are_accepted(front: Listeners) -> None:
    two = head(BOTH, KEEP, method="POST") + b"3;ext=1\r\nabc\r\n0\r\nX-Trailer: 1\r\n\r\n" + head(target="/next")
    table: list[tuple[str, bytes, list[tuple[str, str, int]]]] = [
        ("absolute wins", head(target=f"http://{BASE}/a?b", host="other.host"), [("/a", BASE, 0)]),
        ("absolute without path", head(target=f"http://{BASE}?b"), [("/", BASE, 0)]),
        ("absolute https", head(target=f"https://{BASE}:443/a"), [("/a", f"{BASE}:443", 0)]),
        ("folded header", head("X-Folded: a", "\tb"), [("/", BASE, 0)]),
        ("trailers and pipelined", two, [("/", BASE, 3), ("/next", BASE, 0)]),
        ("expects to go on", head("Expect: 100-continue", "Content-Length: 2", method="POST") + b"{}", [("/", BASE, 2)]),
        ("HTTP/1.0", head(version="1.0"), [("/", BASE, 0)]),
        ("fifty at once", head(KEEP, target="/p") * 49 + head(target="/p"), [("/p", BASE, 0)] * 50),
        ("upgrade to h2c", head(*UPGRADE), [("/", BASE, 0)]),
        ("upgrade without connection", head("Upgrade: websocket"), [("/", BASE, 0)]),
        ("many small lines", head(BOTH, method="POST") + b"14\r\n" + b"a" * 20 + b"\r\n" + b"0\r\n\r\n", [("/", BASE, 20)]),
    ]  # fmt: skip
    for name, data, expected in table:
        front.echo.requests.clear()
        answers = front.ask(data)
        seen = [(request["path"], request["host"], request["size"]) for request in front.echo.requests]
        assert (name, seen) == (name, expected)
        assert {request["version"] for request in front.echo.requests} <= {"1.1", "1.0"}
        assert b"101 " not in answers


def test_http2_is_not_spoken_in_the_clear(front: Listeners) -> None:
    """A proxy that passes `Upgrade` on would let a client speak past it, and say `X-Forwarded-For` itself."""
    front.echo.requests.clear()
    client = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf8"))
    client.initiate_connection()
    forged = [(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", BASE), ("x-forwarded-for", "192.0.2.1")]
    client.send_headers(1, forged, end_stream=True)
    answers = front.ask(client.data_to_send())
    assert (statuses(answers), error_of(answers)) == ([400], "invalid_request")
    upgraded = front.ask(head(*UPGRADE) + client.data_to_send())
    assert statuses(upgraded)[0] == 200
    assert [request["version"] for request in front.echo.requests] == ["1.1"]
    with front.connect(alpn="http/1.1") as line:
        line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert statuses(read_all(line)) == [400]


def test_small_chunks_of_a_body_are_passed_on_together(front: Listeners) -> None:
    front.echo.pieces = 0
    body = b"".join(b"1e\r\n" + b"x" * 30 + b"\r\n" for _ in range(5000)) + b"0\r\n\r\n"
    answers = front.ask(head(BOTH, method="POST") + body)
    assert statuses(answers) == [200]
    assert front.echo.requests[-1]["size"] == 150_000
    assert front.echo.pieces < 500


WEBSOCKET = "Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: x"


def ask(running: Running, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", running.config.server.port), PATIENCE) as line:
        line.sendall(data)
        return read_all(line)


def test_websockets_are_refused_on_every_host(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    hosts = ("localhost", "acme.localhost", "shop--acme.content.localhost", "v1-shop--acme.content.localhost")
    for host in (*hosts, "cdn--acme.content.localhost", "unknown.example", "127.0.0.1", ""):
        for target in ("/", "/api/v1/tenant", "/console/", "/mcp", "/hooks/x"):
            answers = ask(running, head(*WEBSOCKET, target=target, host=host or "localhost", version="1.1"))
            assert (host, target, statuses(answers), error_of(answers)) == (host, target, [501], "not_supported")
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_the_host_of_an_absolute_target_is_the_tenant(running: Running) -> None:
    """A proxy that goes by the target and an appliance that goes by Host would see two tenants."""
    key = running.key("acme")
    suffix = running.config.port_suffix

    def tenant(target: str, host: str) -> tuple[list[int], str]:
        answers = ask(running, head(f"X-API-Key: {key}", target=target, host=f"{host}{suffix}"))
        return statuses(answers), error_of(answers)

    assert tenant("/api/v1/tenant", "acme.localhost") == ([200], "")
    assert tenant(f"http://acme.localhost{suffix}/api/v1/tenant", "globex.localhost") == ([200], "")
    assert tenant(f"http://globex.localhost{suffix}/api/v1/tenant", "acme.localhost") == ([401], "invalid_api_key")
    assert tenant("http://other.host/api/v1/tenant", "acme.localhost") == ([421], "unknown_host")


RELAYED = ["Via: 1.1 proxy", "Forwarded: for=192.0.2.1", "X-Forwarded-For: 192.0.2.1", "X-Real-IP: 192.0.2.1", "Gos-Egress: 1"]


def test_metrics_are_served_to_this_machine_only(running: Running) -> None:
    suffix = running.config.port_suffix
    assert statuses(ask(running, head(target="/metrics", host=f"localhost{suffix}"))) == [200]
    for header in RELAYED:
        answers = ask(running, head(header, target="/metrics", host=f"localhost{suffix}"))
        assert (header, statuses(answers), error_of(answers)) == (header, [403], "address_not_allowed")


def test_integrations_do_not_reach_the_metrics(running: Running, acme: httpx.Client) -> None:
    """`egress.allow` of this appliance has 127.0.0.0/8."""
    base = f"http://localhost{running.config.port_suffix}"
    settings = {"slug": "own-metrics", "connector": "http", "settings": {"base_url": base}}
    acme.post("/api/v1/integrations", json=settings).raise_for_status()
    call = {"action": "get", "input": {"url": "/metrics"}}
    answer = acme.post("/api/v1/integrations/own-metrics/execute", json=call)
    assert "gos_http_requests_total" not in answer.text
    assert "403" in answer.text, answer.text


def test_a_token_opens_the_metrics_to_others(tmp_path: Path) -> None:
    token = "t" * 20
    file = tmp_path / "token"
    file.write_text(token + "\n")
    for settings in ({"metrics__token": token}, {"metrics__token_file": str(file)}):
        readers = MetricsReaders(make_config(tmp_path, **settings))
        readers.check({"authorization": f"Bearer {token}"}, "192.0.2.1")
        readers.check({}, "127.0.0.1")
        readers.check({}, "::1")
        for wrong in ({}, {"authorization": "Bearer x"}, {"authorization": f"Basic {token}"}, {"authorization": "Bearer "}):
            with pytest.raises(InvalidApiKey):
                readers.check(wrong, "192.0.2.1")
    closed = MetricsReaders(make_config(tmp_path, metrics__allow=[]))
    for address in ("127.0.0.1", "::1", "192.0.2.1"):
        with pytest.raises(AddressNotAllowed):
            closed.check({"authorization": "Bearer "}, address)


DOUBLED = [
    (b'{"name": "a", "name": "b"}', "/name"),
    (b'{"name": "a", "n\\u0061me": "b"}', "/name"),
    (b'{"name"\t:"a","x":[{"y/z":1,"y/z":1}]}', "/x/0/y~1z"),
    (b'{"name": "a", "description": "\\": : \\n:", "name" \n: null}', "/name"),
]


def test_duplicate_json_members_are_refused_on_every_route(running: Running, acme: httpx.Client) -> None:
    for body, pointer in DOUBLED:
        for path in ("/api/v1/processes", "/api/v1/keys", "/api/v1/integrations", "/api/v1/processes/none/execute"):
            answer = acme.post(path, content=body, headers={"Content-Type": "application/json"})
            error = answer.json()["error"]
            assert (path, answer.status_code, error["code"]) == (path, 400, "invalid_json")
            assert [detail["pointer"] for detail in error["details"]] == [pointer]
        rpc = b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": ' + body + b"}"
        accepted = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        with running.client("acme.localhost", {"X-API-Key": running.key("acme", kind="agent")}) as agent:
            answer = agent.post("/mcp", content=rpc, headers=accepted)
        assert (answer.status_code, answer.json()["error"]["details"][0]["pointer"]) == (400, f"/params{pointer}")
        with pytest.raises(InvalidJson):
            webhooks._parse_body(body, "application/json")


TARGETS = [
    "//evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example/", "/console/../../evil",
    "/console/./x", "/console/..", "/console/%2e%2e/x", "/console/%2E./x", "/console/%252e%252e/x", "/console/..%2fx",
    "/console/%2f%2fevil.example", "/console/%5cevil.example", "/console/%255c", "/console/\tx", "/console/\nx",
    "/console/%0d%0aSet-Cookie:x", "/console/ x", "/console/%00", "/console/é", "/console/#/../x",
    "javascript:alert(1)", "", "/console//evil.example", "/%2fevil.example", "x/console/",
]  # fmt: skip


def test_sign_in_targets_stay_on_this_site() -> None:
    with attempts() as table:
        for target in TARGETS:
            table.check(repr(target), session.safe_target(target) == "/console/" and visiting.safe_target(target) == "/", target)
    for target in ("/console/", "/console/processes?state=a..b&next=//x", "/console/a.b/..c/d..", "/console/caf%C3%A9"):
        assert session.safe_target(target) == visiting.safe_target(target) == target
