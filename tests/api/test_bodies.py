"""Bodies that no caller should send: each gets its coded error, nothing is stored."""

import json
import select
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from appliance.testing.running import Running
from tests.api.resources import FIELDS, Resources, fresh

KEYS, PROCESSES, POOL = "/api/v1/keys", "/api/v1/processes", "/api/v1/datapool"
JSON = {"Content-Type": "application/json"}
YAML = {"Content-Type": "application/yaml"}
GOOD_KEY = {"name": "n", "scopes": ["logs.read"]}


def error(answer: httpx.Response, status: int, code: str) -> Any:
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    body = answer.json()
    assert body["success"] is False
    assert body["error"]["request_id"] == answer.headers["x-request-id"]
    assert body["error"]["message"]
    return body["error"]


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"{", b'{"name": }', b'{"name": "n",}', b"{'name': 1}", b'{"a": NaN}', b'{"a": Infinity}',
        b"\xff\xfe{}", b'{"a": "\xff"}',
        b'\xef\xbb\xbf{"name": "n"', b'{"a": "\\ud800"}', b'{"a": "\n"}', b'{"a": 01}', b"name=n", b"{} {}",
        b'{"a": "\\x00"}', b"\x00",
        "{}".encode("utf-16"), b"1e999999" + b"9" * 50 + b"x",
    ],
)  # fmt: skip
def test_invalid_json_is_refused(acme: httpx.Client, body: bytes) -> None:
    for path in (KEYS, PROCESSES, f"{PROCESSES}/none/execute"):
        error(acme.post(path, content=body, headers=JSON), 400, "invalid_json")


@pytest.mark.parametrize("body", [b"[]", b"1", b"null", b'"text"', b"true", b"[{}]"])
def test_json_other_than_an_object_is_refused(acme: httpx.Client, body: bytes) -> None:
    for path in (KEYS, PROCESSES, f"{PROCESSES}/none/execute", f"{POOL}/none/entities"):
        error(acme.post(path, content=body, headers=JSON), 422, "validation_failed")


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"colour": "red"}, "/colour", "unknown_member"),
        ({"a/b~c": 1}, "/a~1b~0c", "unknown_member"),
        ({"name": None}, "/name", "invalid"),
        ({"name": 5}, "/name", "invalid"),
        ({"name": ""}, "/name", "invalid"),
        ({"name": "x" * 201}, "/name", "invalid"),
        ({"scopes": "logs.read"}, "/scopes", "invalid"),
        ({"scopes": [1]}, "/scopes/0", "invalid"),
        ({"rate_limit": {"requests": "5", "window_s": 1}}, "/rate_limit/requests", "invalid"),
        ({"rate_limit": {"requests": 5}}, "/rate_limit/window_s", "required"),
        ({"rate_limit": {"requests": 5, "window_s": 1, "x": 1}}, "/rate_limit/x", "unknown_member"),
        ({"rate_limit": {"requests": 1.5, "window_s": 1}}, "/rate_limit/requests", "invalid"),
        ({"rate_limit": {"requests": 10**30, "window_s": 1}}, "/rate_limit/requests", "invalid"),
        ({"environment": "a-b"}, "/environment", "invalid"),
        ({"environment": "live\n"}, "/environment", "invalid"),
        ({"scopes": ["logs.read", "no.such"]}, "/scopes/1", "validation_failed"),
        ({"scopes": []}, "/scopes", "validation_failed"),
        ({"allowed_ips": ["192.0.2.0/24", "here"]}, "/allowed_ips/1", "validation_failed"),
        ({"expires_at": "tomorrow"}, "/expires_at", "validation_failed"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, "/expires_at", "validation_failed"),
        ({"expires_at": "2999-01-01T00:00:00Z"}, "/expires_at", "validation_failed"),
        ({"name": "a\x00b"}, "/name", "validation_failed"),
        ({"name": "   "}, "/name", "validation_failed"),
    ],
)
def test_an_invalid_member_is_reported_with_a_pointer(acme: httpx.Client, change: dict[str, Any], pointer: str, code: str) -> None:
    details = error(acme.post(KEYS, json=GOOD_KEY | change), 422, "validation_failed")["details"]
    assert (pointer, code) in {(detail["pointer"], detail["code"]) for detail in details}


def test_all_invalid_members_are_reported_together(acme: httpx.Client) -> None:
    details = error(acme.post(KEYS, json={"scopes": 1, "x": 2, "environment": "-"}), 422, "validation_failed")["details"]
    assert {detail["pointer"] for detail in details} == {"/name", "/scopes", "/x", "/environment"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id: a\nid: b\n", "line 2"),
        ("a: &a [x]\nb: *c\n", "line 2"),
        ("a: !!python/object/apply:os.system ['id']", "not allowed"),
        ("a: [", "line"),
        ("a: " + "[" * 70 + "]" * 70, "deeper than 64"),
        (
            "a: &a [x,x,x,x]\n" + "".join(f"b{n}: &b{n} [{','.join(['*a' if n == 0 else f'*b{n - 1}'] * 9)}]\n" for n in range(20)),
            "aliases",
        ),
        ("a: \x00", "line"),
    ],
)
def test_invalid_yaml_is_refused_with_its_line(acme: httpx.Client, text: str, words: str) -> None:
    problem = error(acme.put(f"{PROCESSES}/from-yaml", content=text.encode(), headers=YAML), 400, "invalid_request")
    assert words in problem["message"]
    error(acme.get(f"{PROCESSES}/from-yaml"), 404, "not_found")


def test_yaml_that_is_not_text_is_refused(acme: httpx.Client) -> None:
    error(acme.put(f"{PROCESSES}/from-yaml", content=b"a: \xff", headers=YAML), 400, "invalid_request")
    error(acme.put(f"{PROCESSES}/from-yaml", content=b"- a\n- b", headers=YAML), 422, "validation_failed")


def nested(depth: int) -> bytes:
    return b'{"a": ' * (depth - 1) + b"{}" + b"}" * (depth - 1)


def test_depth_is_bounded(ours: Resources) -> None:
    path = f"{PROCESSES}/{ours.process()}/execute"
    assert ours.client.post(path, content=nested(64), headers=JSON).is_success
    for body in (nested(65), nested(100_000), b'{"a": ' + b"[" * 500_000):
        error(ours.client.post(path, content=body, headers=JSON), 413, "payload_too_large")
    brackets_in_text = json.dumps({"a": "[" * 1000 + '\\"{' * 1000}).encode()
    assert ours.client.post(path, content=brackets_in_text, headers=JSON).is_success


@pytest.mark.parametrize("excess", [1, 500_000, 5 << 20])
def test_a_body_that_is_too_large_is_refused(acme: httpx.Client, excess: int) -> None:
    began = time.monotonic()
    answer = acme.post(KEYS, content=b" " * ((1 << 20) + excess), headers=JSON)
    error(answer, 413, "payload_too_large")
    assert answer.headers["connection"] == "close"
    assert time.monotonic() - began < 5
    assert acme.post(KEYS, content=b" " * ((1 << 20) - 100) + json.dumps(GOOD_KEY).encode(), headers=JSON).status_code == 201


def test_a_body_without_a_length_is_measured_too(acme: httpx.Client) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 65_536

    error(acme.post(KEYS, content=parts(), headers=JSON), 413, "payload_too_large")


def test_a_body_that_never_ends_is_cut_off(running: Running) -> None:
    key = running.key("acme")
    with socket.create_connection(("127.0.0.1", running.config.server.port), 20) as line:
        head = (
            f"POST {KEYS} HTTP/1.1\r\nHost: acme.localhost{running.config.port_suffix}\r\nX-API-Key: {key}\r\n"
            "Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n"
        )
        line.sendall(head.encode())
        sent = 0
        answer = b""
        line.settimeout(0.05)
        while sent < 64 << 20 and b"\r\n\r\n" not in answer:
            try:
                sent += line.send(b" " * 65_536)
                answer += line.recv(65_536)
            except TimeoutError:
                continue
            except OSError:
                break
        assert sent < 32 << 20
        assert answer.startswith((b"HTTP/1.1 413", b""))


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_refused_request_does_not_cost_the_next_one_its_connection(running: Running, method: str) -> None:
    head = f"{method} /api/v1/nothing HTTP/1.1\r\nHost: acme.localhost\r\nContent-Length: 2\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", running.config.server.port), 20) as line, line.makefile("rb") as answers:
        line.settimeout(20)
        for _ in range(2):
            line.sendall(head)
            assert not select.select([line], [], [], 0.2)[0], "the answer waits for the body"
            line.sendall(b"{}")
            assert answers.readline().startswith(b"HTTP/1.1 404 ")
            length = 0
            while (field := answers.readline().strip().lower()) != b"":
                assert field != b"connection: close"
                length = int(field.removeprefix(b"content-length:")) if field.startswith(b"content-length:") else length
            assert b"not_found" in answers.read(length)


@pytest.mark.parametrize(
    "media",
    [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp", "*/*"],
)
def test_another_media_type_is_refused(acme: httpx.Client, media: str | None) -> None:
    headers = {} if media is None else {"Content-Type": media}
    for path in (KEYS, f"{PROCESSES}/none/execute", PROCESSES):
        error(acme.post(path, content=b"{}", headers=headers), 415, "unsupported_media_type")


def test_several_media_types_mean_json(acme: httpx.Client) -> None:
    for media in ("application/json; charset=utf-8", "Application/JSON", "application/merge-patch+json"):
        assert acme.post(KEYS, content=json.dumps(GOOD_KEY), headers={"Content-Type": media}).status_code == 201


def test_a_route_without_a_body_accepts_none(acme: httpx.Client) -> None:
    key = acme.post(KEYS, json=GOOD_KEY).json()["data"]["id"]
    error(acme.request("DELETE", f"{KEYS}/{key}", content=b'{"force": true}', headers=JSON), 400, "invalid_request")
    assert acme.get(f"{KEYS}/{key}").json()["data"].get("revoked_at") is None
    assert acme.request("DELETE", f"{KEYS}/{key}", content=b"{}", headers=JSON).is_success


def test_a_body_of_optional_members_may_be_left_out(acme: httpx.Client) -> None:
    key = acme.post(KEYS, json=GOOD_KEY).json()["data"]["id"]
    assert acme.post(f"{KEYS}/{key}/rotate").status_code == 201
    error(acme.post(KEYS), 415, "unsupported_media_type")
    error(acme.post(f"{PROCESSES}/none/execute"), 415, "unsupported_media_type")
    error(acme.patch(f"{PROCESSES.removesuffix('processes')}logs/failures/none"), 415, "unsupported_media_type")


def test_a_refused_body_leaves_nothing(acme: httpx.Client) -> None:
    before = acme.get(KEYS, params={"count": "exact", "limit": 1}).json()["meta"]["total"]
    for body in ({}, {"name": "n"}, GOOD_KEY | {"x": 1}, GOOD_KEY | {"scopes": ["nope"]}):
        assert acme.post(KEYS, json=body).status_code == 422
    assert acme.get(KEYS, params={"count": "exact", "limit": 1}).json()["meta"]["total"] == before


def test_text_of_any_script_is_stored_unchanged(acme: httpx.Client) -> None:
    name = "Größe ✓ 日本語 🎉 \u202e \u0085"
    collection = fresh("scripts")
    acme.post(POOL, json={"name": collection, "fields": FIELDS})
    entity = acme.post(f"{POOL}/{collection}/entities", json={"number": name}).json()["data"]
    assert acme.get(f"{POOL}/{collection}/entities/{entity['id']}").json()["data"]["number"] == name
