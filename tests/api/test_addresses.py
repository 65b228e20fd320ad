"""Hosts, methods, request ids, forms of errors and conditional writes."""

import http.client
from typing import Any

import httpx
import pytest

from appliance.sites.front import front
from appliance.testing.running import Running
from appliance.web import answer
from tests.api.resources import Resources, fresh
from tests.api.test_bodies import error

KEYS = "/api/v1/keys"


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("acme.localhost", True), ("ACME.LocalHost", True), ("acme.localhost.", True), ("acme.localhost:9", True),
        ("localhost", True), ("127.0.0.1", True),
        ("nobody.localhost", False), ("a.acme.localhost", False), ("acme.localhost.evil.test", False), ("evil.test", False),
        ("content.localhost", False), ("app--acme.content.localhost", False), ("acme.content.localhost", False), ("", False),
        ("acme.localhost:x", False), ("acme.localhost@evil.test", False), ("acme_.localhost", False), ("192.0.2.1", False),
        ("localhost\\@x", False),
    ],
)  # fmt: skip
def test_only_our_hosts_are_served(running: Running, host: str, served: bool) -> None:
    key = running.key("acme")
    with running.client("x", {"Host": host, "X-API-Key": key}) as client:
        for path in ("/api/v1/tenant", "/api-docs/openapi.json", "/console/"):
            answer = client.get(path)
            if not served:
                error(answer, 421, "unknown_host")
            else:
                assert answer.status_code != 421
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 200


def test_a_person_at_a_foreign_host_gets_a_page(running: Running) -> None:
    with running.client("x", {"Host": "evil.test", "Accept": "text/html"}) as client:
        page = client.get("/")
        assert (page.status_code, page.headers["Content-Type"]) == (421, "text/html; charset=utf-8")
        assert "<p>This host name is not served here; check the address</p>" in page.text
        assert page.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'sha256-")
        assert page.headers["X-Request-Id"] in page.text
        error(client.post("/"), 421, "unknown_host")


def test_on_the_base_host_the_key_names_the_tenant(running: Running) -> None:
    for tenant in ("acme", "globex"):
        with running.client("localhost", {"X-API-Key": running.key(tenant)}) as client:
            assert client.get("/api/v1/tenant").json()["data"]["id"] == tenant


def test_another_method_is_refused_with_the_possible_ones(acme: httpx.Client) -> None:
    answer = acme.put(KEYS, json={})
    error(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, POST"
    answer = acme.post("/api/v1/processes/x", json={})
    error(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "DELETE, GET, PUT"
    for method in ("OPTIONS", "TRACE"):
        error(acme.request(method, KEYS), 405, "method_not_allowed")
    assert acme.head(KEYS).status_code == 200


@pytest.mark.parametrize("path", ["/api/v1/nothing", "/api/v1/", "/api/v1/keys/a/b/c", "/api/v2/keys", "/api/v1/keys%2fa"])
def test_an_unknown_address_is_a_coded_error(acme: httpx.Client, path: str) -> None:
    answer = acme.get(path)
    assert answer.status_code == 404
    if path.startswith("/api/v1/"):
        error(answer, 404, "not_found")


def test_no_address_sends_cors_headers(acme: httpx.Client) -> None:
    preflight = {
        "Origin": "https://evil.test",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-api-key",
    }
    for response in (acme.request("OPTIONS", KEYS, headers=preflight), acme.get(KEYS, headers={"Origin": "https://evil.test"})):
        assert not [name for name in response.headers if name.startswith("access-control")]
        assert response.status_code in (403, 405)


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, True), ({"Sec-Fetch-Site": "same-site"}, True), ({"Sec-Fetch-Site": "x"}, True),
        ({"Origin": "https://evil.test"}, True), ({"Origin": "null"}, True), ({"Origin": "OWN"}, False),
        ({"Origin": "http://acme.localhost:1"}, True), ({"Sec-Fetch-Site": "same-origin", "Origin": "OWN"}, False),
        ({"Sec-Fetch-Site": "none"}, False), ({"Sec-Fetch-Site": "cross-site", "Origin": "OWN"}, True), ({}, False),
    ],
)  # fmt: skip
def test_a_key_in_a_web_page_is_refused(running: Running, acme: httpx.Client, headers: dict[str, str], refused: bool) -> None:
    own = f"http://acme.localhost{running.config.port_suffix}"
    answer = acme.get(KEYS, headers={name: own if value == "OWN" else value for name, value in headers.items()})
    if refused:
        error(answer, 403, "browser_call_refused")
    else:
        assert answer.is_success


def test_a_valid_request_id_is_reused(acme: httpx.Client) -> None:
    assert acme.get(KEYS, headers={"X-Request-Id": "my.id-1_2"}).json()["meta"]["request_id"] == "my.id-1_2"
    for bad in ("", "a b", "a\tb", 'a"b', "x" * 129, "<script>"):
        answer = acme.get(KEYS, headers={"X-Request-Id": bad})
        assert answer.headers["x-request-id"].startswith("req_")
        assert answer.json()["meta"]["request_id"] == answer.headers["x-request-id"]


def test_problem_details_are_returned_when_accepted(acme: httpx.Client) -> None:
    answer = acme.post(KEYS, json={"x": 1}, headers={"Accept": "application/problem+json", "X-Request-Id": "r1"})
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["status"], body["code"], body["request_id"], body["title"]) == (
        422,
        "validation_failed",
        "r1",
        "validation failed",
    )
    assert {"pointer": "/x", "code": "unknown_member"}.items() <= next(e for e in body["errors"] if e["pointer"] == "/x").items()
    assert (
        acme.get("/api/v1/none", headers={"Accept": "application/problem+json"}).headers["content-type"]
        == "application/problem+json"
    )
    assert acme.get(KEYS, headers={"Accept": "application/problem+json"}).headers["content-type"] == "application/json"


def test_a_write_can_require_the_version_it_read(ours: Resources) -> None:
    name = fresh("etag")
    path = f"/api/v1/processes/{name}"
    draft = {"id": name, "steps": []}
    first = ours.client.put(path, json=draft).headers["etag"]
    assert ours.client.get(path).headers["etag"] == first
    assert ours.client.put(path, json={**draft, "name": "b"}, headers={"If-Match": first}).is_success
    error(ours.client.put(path, json={**draft, "name": "c"}, headers={"If-Match": first}), 412, "version_conflict")
    assert ours.client.get(path).json()["data"]["name"] == "b"
    assert ours.client.put(path, json={**draft, "name": "d"}, headers={"If-Match": "*"}).is_success
    for bad in ("x", '"a", "b"', '""', "W/x", '"' + "x" * 200 + '"'):
        error(ours.client.put(path, json=draft, headers={"If-Match": bad}), 422, "validation_failed")
    collection = ours.collection()
    entity = f"/api/v1/datapool/{collection}/entities/{ours.entity(collection)}"
    assert ours.client.patch(entity, json={"total": 2}, headers={"If-Match": '"1"'}).headers["etag"] == '"2"'
    error(ours.client.patch(entity, json={"total": 3}, headers={"If-Match": '"1"'}), 412, "version_conflict")
    error(ours.client.delete(entity, headers={"If-Match": '"1"'}), 412, "version_conflict")


@pytest.mark.parametrize(
    "lines",
    [
        ["GET /api/v1/keys HTTP/1.1", "Host: acme.localhost", "Host: globex.localhost"],
        ["GET /api/v1/keys HTTP/1.1"],
        ["POST /api/v1/keys HTTP/1.1", "Host: acme.localhost", "Content-Length: 5", "Content-Length: 6"],
        ["POST /api/v1/keys HTTP/1.1", "Host: acme.localhost", "Content-Length: -1"],
        ["GET /api/v1/keys HTTP/9.9", "Host: acme.localhost"],
        ["GARBAGE"],
        ["GET /api/v1/keys HTTP/1.1", "Host: acme.localhost", "X: a\x00b"],
        ["GET /api/v1/keys HTTP/1.1", "Host: acme.localhost", "X-Big: " + "x" * 200_000],
    ],
)
def test_a_malformed_request_is_not_served(running: Running, lines: list[str]) -> None:
    import socket

    with socket.create_connection(("127.0.0.1", running.config.server.port), 10) as line:
        line.sendall("\r\n".join([*lines, "", ""]).encode())
        line.settimeout(3)
        answer = b""
        try:
            while b"\r\n" not in answer and (part := line.recv(4096)):
                answer += part
        except (TimeoutError, ConnectionResetError):
            answer = answer or b"HTTP/1.1 400 cut off"
    assert answer.split(b" ")[1:2] in ([b"400"], [b"401"], [b"421"], [b"431"], [b"501"], [b"505"]) or answer == b""


def test_paths_are_not_joined_with_headers(running: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", running.config.server.port)
    connection.putrequest("GET", "/api/v1/keys", skip_host=True)
    connection.putheader("Host", f"acme.localhost{running.config.port_suffix}")
    connection.putheader("X-Original-URL", "/healthz")
    connection.putheader("X-Forwarded-Host", "globex.localhost")
    connection.endheaders()
    assert connection.getresponse().status == 401
    connection.close()


def test_a_forwarded_address_counts_from_a_trusted_proxy_only(running: Running) -> None:
    key = running.key("acme", allowed_ips=["192.0.2.7"])
    with running.client("acme.localhost", {"X-API-Key": key, "X-Forwarded-For": "192.0.2.7"}) as client:
        error(client.get(KEYS), 403, "address_not_allowed")


async def test_a_target_that_is_not_a_path_is_answered_and_counted(running: Running) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answer(send, 404, b"", [])

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nobody reads a body here")

    scope = {"type": "http", "method": "OPTIONS", "path": "*", "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1)}
    await front.Front(app, {}, running.config, lambda: front.Readiness("ok"))(scope, receive, send)
    assert sent[0]["status"] == 404
