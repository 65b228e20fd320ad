"""The HTTP connector against a real server on loopback."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gos_connector_http import HttpConnector

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
)
from appliance.connectors.suites import Compatible
from appliance.connectors.testing import Answer, ConnectorContract, LoopbackServer, Received, open_context, schema_problems


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    server.answer("/", body=b"{}", Content_Type="application/json")
    yield server
    server.close()


@pytest.fixture
def ctx() -> Iterator[Context]:
    with open_context(key="key-1") as ctx:
        yield ctx


def echo(request: Received) -> Answer:
    payload = {"method": request.method, "path": request.path, "headers": request.headers, "body": request.body.decode()}
    return Answer(200, {"Content-Type": "application/json"}, json.dumps(payload).encode())


def connector(server: LoopbackServer, **settings: Any) -> HttpConnector:
    instance = HttpConnector({"base_url": server.url, "retries": {"wait_s": 0.01}, **settings})
    assert schema_problems(instance.settings_schema, instance.settings) == []
    return instance


def call(it: HttpConnector, action: str, ctx: Context, **params: Any) -> dict[str, Any]:
    declared = next(candidate for candidate in it.actions if candidate.name == action)
    assert schema_problems(declared.input, params) == []
    output = it.call(action, params, ctx)
    assert schema_problems(declared.output, output) == []
    return output


class TestContract(Compatible, ConnectorContract):
    connector = HttpConnector
    declaration = Path(__file__).parents[1] / "declaration.json"

    @pytest.fixture
    def settings(self, server: LoopbackServer) -> dict[str, Any]:
        server.answer("/", body=b"[]", Content_Type="application/json")
        return {"base_url": server.url}

    @pytest.fixture
    def broken_settings(self) -> dict[str, Any]:
        return {"base_url": "http://127.0.0.1:1", "retries": {"attempts": 1}}


# Settings


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({"auth": {"kind": "bearer", "token": "t"}}, "/base_url"),
        ({"base_url": "http://h", "auth": {"kind": "basic", "username": "u"}}, "/auth/password"),
        ({"base_url": "http://h", "auth": {"kind": "header", "name": "X-Key"}}, "/auth/value"),
        ({"base_url": "ftp://h"}, "/base_url"),
        ({"base_url": "http://u:p@h"}, "/base_url"),
        ({"base_url": "http://h/?x"}, "/base_url"),
        ({"base_url": "http://h", "surprise": 1}, "/surprise"),
        ({"timeout_s": 0}, "/timeout_s"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_the_schema(settings: dict[str, Any], pointer: str) -> None:
    assert schema_problems(HttpConnector.settings_schema, settings) == [pointer]


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        ({"kind": "basic", "username": "ü", "password": "p:w"}, "authorization", "Basic w7w6cDp3"),
        ({"kind": "bearer", "token": "t"}, "authorization", "Bearer t"),
        ({"kind": "header", "name": "X-Key", "value": "k"}, "x-key", "k"),
    ],
)
def test_credentials_win_over_the_calls_own_headers(
    server: LoopbackServer, ctx: Context, auth: dict[str, str], header: str, value: str
) -> None:
    server.answers["/a"] = echo
    call(connector(server, auth=auth), "get", ctx, url="/a", headers={"Authorization": "mine", "x-KEY": "mine"})
    assert server.received[0].headers[header] == value


def test_a_key_in_the_query_wins_and_defaults_give_way(server: LoopbackServer, ctx: Context) -> None:
    server.answers["/a"] = echo
    it = connector(
        server,
        auth={"kind": "query", "name": "key", "value": "k"},
        headers={"Accept-Language": "de", "X-A": "1"},
        query={"v": 1, "lang": "de"},
    )
    call(
        it,
        "get",
        ctx,
        url="/a",
        headers={"x-a": "2"},
        query={"key": "mine", "lang": ["en", "fr"], "t": True, "n": None},
    )
    assert server.received[0].path == "/a?v=1&lang=en&lang=fr&t=true&key=k"
    assert server.received[0].headers["x-a"] == "2"
    assert server.received[0].headers["accept-language"] == "de"


# Where a call may go


def test_a_call_stays_below_the_base_address(server: LoopbackServer, ctx: Context) -> None:
    it = HttpConnector({"base_url": f"{server.url}/api/"})
    server.answers["/api/x"] = echo
    for url in ("x", "/x", f"{server.url}/api/x", "/x?y=1#part"):
        assert call(it, "get", ctx, url=url)["status"] == 200
    escapes = ["/../x", "/a/../../x", "/%2e%2e/x", "/..%2fx", "/%252e%252e/x", "/a%5c..%5cx", f"{server.url}/x"]
    escapes += [
        "http://127.0.0.2/api/x",
        "//127.0.0.2/api/x",
        f"http://u@127.0.0.1:{server.port}/api/x",
        f"{server.url}/apix",
    ]
    escapes += [
        "https" + server.url[4:] + "/api/x",
        "/x y",
        "/x\ny",
        "/\\x",
        "http://127.0.0.1:99999/api",
        "http://[::1/api",
    ]
    for url in escapes:
        with pytest.raises(ConfigError):
            it.call("get", {"url": url}, ctx)
    assert {r.path.split("?")[0] for r in server.received} == {"/api/x"}


def test_without_a_base_address_every_call_needs_a_full_address(server: LoopbackServer, ctx: Context) -> None:
    it = HttpConnector({})
    server.answers["/x"] = echo
    assert call(it, "get", ctx, url=f"{server.url}/x")["status"] == 200
    assert "base address" in it.check(ctx)
    with pytest.raises(ConfigError, match="full one"):
        it.call("get", {"url": "/x"}, ctx)


def test_path_values_are_encoded_and_cannot_leave_the_path(server: LoopbackServer, ctx: Context) -> None:
    it = connector(server)
    server.answers["/orders/a%2Fb%3Fc%20%C3%A4/lines/7"] = echo
    call(it, "get", ctx, url="/orders/{id}/lines/{n}", path={"id": "a/b?c ä", "n": 7})
    with pytest.raises(ConfigError, match=r"`\.\.`"):
        it.call("get", {"url": "/orders/{id}", "path": {"id": "../admin"}}, ctx)
    with pytest.raises(ConfigError, match="no value"):
        it.call("get", {"url": "/orders/{id}"}, ctx)


# Bodies


@pytest.mark.parametrize(
    ("body", "content_type", "sent"),
    [
        ({"json": {"ä": [1, None]}}, "application/json", '{"ä":[1,null]}'),
        ({"json": None}, "application/json", "null"),
        ({"form": {"a": "x y", "b": [1, True], "c": None}}, "application/x-www-form-urlencoded", "a=x+y&b=1&b=true"),
        ({"raw": {"text": "plain"}}, "text/plain", "plain"),
        ({"raw": {"base64": "aGk=", "content_type": "image/png"}}, "image/png", "hi"),
        ({}, None, ""),
    ],
)
def test_bodies_are_encoded_by_their_kind(
    server: LoopbackServer, ctx: Context, body: dict[str, Any], content_type: str | None, sent: str
) -> None:
    server.answers["/a"] = echo
    call(connector(server), "post", ctx, url="/a", **body)
    assert server.received[0].body.decode() == sent
    assert server.received[0].headers.get("content-type") == content_type


def test_multipart_carries_values_and_files(server: LoopbackServer, ctx: Context) -> None:
    from email import message_from_bytes

    server.answer("/a")
    parts = [
        {"name": 'na"me\r\nX: 1', "value": "välue"},
        {
            "name": "file",
            "filename": "a.csv",
            "base64": base64.b64encode(b"\x00\xff").decode(),
            "content_type": "text/csv",
        },
    ]
    call(connector(server), "post", ctx, url="/a", multipart=parts)
    received = server.received[0]
    message = message_from_bytes(
        b"Content-Type: " + received.headers["content-type"].encode() + b"\r\n\r\n" + received.body
    )
    arrived: Any = message.get_payload()
    text, file = arrived
    assert text.get_param("name", header="content-disposition") == "na%22me%0D%0AX: 1"
    assert text.get_payload(decode=True).decode() == "välue"
    assert (file.get_filename(), file.get_content_type()) == ("a.csv", "text/csv")
    assert file.get_payload(decode=True) == b"\x00\xff"


@pytest.mark.parametrize(
    "body",
    [
        {"json": 1, "form": {}},
        {"raw": {"text": "a", "base64": "YQ=="}},
        {"raw": {"base64": "no base64!"}},
        {"multipart": [{"name": "a", "value": "x", "content_type": "a\r\nX: 1"}]},
    ],
)
def test_a_body_that_cannot_be_built_is_a_config_error(
    server: LoopbackServer, ctx: Context, body: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError):
        connector(server).call("post", {"url": "/a", **body}, ctx)
    assert server.received == []


# Answers


@pytest.mark.parametrize(
    ("content_type", "body", "mode", "body_format", "parsed"),
    [
        ("application/json", b'{"a": 1}', "auto", "json", {"a": 1}),
        ("application/problem+json; charset=utf-8", b"[1]", "auto", "json", [1]),
        ("application/json", b"not json", "auto", "text", "not json"),
        ("text/plain; charset=latin-1", "ä".encode("latin-1"), "auto", "text", "ä"),
        ("text/plain; charset=nonsense", "ä".encode(), "auto", "text", "ä"),
        ("image/png", b"\x89P", "auto", "base64", "iVA="),
        ("text/plain", b"1", "json", "json", 1),
        ("application/json", b"{}", "text", "text", "{}"),
        ("text/plain", b"a", "base64", "base64", "YQ=="),
        ("text/plain", b"", "json", "none", None),
    ],
)
def test_answers_are_parsed_by_content_type_or_requested_mode(
    server: LoopbackServer, ctx: Context, content_type: str, body: bytes, mode: str, body_format: str, parsed: Any
) -> None:
    server.answer("/a", body=body, Content_Type=content_type, Set_Cookie="s=1")
    output = call(connector(server), "get", ctx, url="/a", answer=mode)
    assert (output["format"], output["body"]) == (body_format, parsed)
    assert "set-cookie" not in output["headers"]


@pytest.mark.parametrize("body", [b"<html>", b"NaN", b'{"a": Infinity}', b"[" * 100_000, b"9" * 5000])
def test_invalid_json_is_a_system_failure_when_json_is_requested(
    server: LoopbackServer, ctx: Context, body: bytes
) -> None:
    server.answer("/a", body=body)
    with pytest.raises(SystemFailure):
        connector(server).call("get", {"url": "/a", "answer": "json"}, ctx)


@pytest.mark.parametrize(
    ("status", "error", "outcome"),
    [
        (400, Rejected, "not_done"),
        (401, AuthError, "not_done"),
        (403, AuthError, "not_done"),
        (404, Rejected, "not_done"),
        (304, Rejected, "not_done"),
        (408, TransientError, "not_done"),
        (429, RateLimited, "not_done"),
        (500, TransientError, "unknown"),
        (501, Rejected, "not_done"),
        (503, TransientError, "not_done"),
        (504, TransientError, "unknown"),
    ],
)
def test_a_status_is_an_error_of_the_contract_unless_accepted(
    server: LoopbackServer, ctx: Context, status: int, error: type[ConnectorError], outcome: str
) -> None:
    server.answer("/a", status, b"" if status == 304 else b"why")
    it = connector(server, retries={"attempts": 1})
    with pytest.raises(error) as caught:
        it.call("post", {"url": "/a"}, ctx)
    assert caught.value.outcome == outcome
    assert caught.value.details == {"status": status, "body": "" if status == 304 else "why"}
    assert call(it, "get", ctx, url="/a", accept_statuses=[status])["status"] == status


# Tries


def fail_first(times: int, status: int, **headers: str) -> Any:
    left = [times]

    def answer(_: Received) -> Answer:
        left[0] -= 1
        return Answer(status, headers, b"busy") if left[0] >= 0 else Answer(200, {}, b"done")

    return answer


@pytest.mark.parametrize("action", ["get", "put", "delete"])
def test_repeatable_calls_are_retried_with_the_same_key(
    server: LoopbackServer, ctx: Context, action: str
) -> None:
    server.answers["/a"] = fail_first(2, 500)
    assert call(connector(server), action, ctx, url="/a")["body"] == "ZG9uZQ=="
    keys = [received.headers.get("idempotency-key") for received in server.received]
    assert keys == [None if action == "get" else "key-1"] * 3


def test_a_write_is_not_repeated_while_its_outcome_is_unknown(server: LoopbackServer, ctx: Context) -> None:
    server.answers["/a"] = fail_first(1, 500)
    with pytest.raises(TransientError) as caught:
        connector(server).call("post", {"url": "/a"}, ctx)
    assert caught.value.outcome == "unknown"
    assert len(server.received) == 1


def test_a_write_is_repeated_when_it_was_certainly_not_done(server: LoopbackServer, ctx: Context) -> None:
    server.answers["/a"] = fail_first(1, 503)
    assert call(connector(server), "post", ctx, url="/a")["status"] == 200


def test_a_write_is_repeated_when_the_service_honours_keys(server: LoopbackServer, ctx: Context) -> None:
    it = connector(server, idempotency={"header": "X-Once", "honoured": True})
    server.answers["/a"] = fail_first(1, 500)
    assert call(it, "patch", ctx, url="/a")["status"] == 200
    assert [received.headers["x-once"] for received in server.received] == ["key-1", "key-1"]


def test_no_key_is_sent_when_the_header_is_empty(server: LoopbackServer, ctx: Context) -> None:
    server.answer("/a")
    call(connector(server, idempotency={"header": ""}), "post", ctx, url="/a")
    assert "idempotency-key" not in server.received[0].headers


def test_a_short_retry_after_is_waited_for_and_a_long_one_is_raised(server: LoopbackServer, ctx: Context) -> None:
    server.answers["/a"] = fail_first(1, 429, **{"Retry-After": "0"})
    assert call(connector(server), "get", ctx, url="/a")["status"] == 200
    for value, seconds in (("120", 120.0), ("Fri, 01 Jan 2100 00:00:00 GMT", None)):
        server.answers["/b"] = fail_first(1, 503, **{"Retry-After": value})
        with pytest.raises(RateLimited) as caught:
            connector(server).call("get", {"url": "/b"}, ctx)
        assert caught.value.retry_after is not None
        assert caught.value.retry_after == seconds or caught.value.retry_after > 1_000_000


def test_retries_stop_at_the_configured_attempts(server: LoopbackServer, ctx: Context) -> None:
    server.answers["/a"] = fail_first(99, 502)
    with pytest.raises(TransientError):
        connector(server, retries={"attempts": 2, "wait_s": 0}).call("get", {"url": "/a"}, ctx)
    assert len(server.received) == 2


def test_the_effect_follows_the_method_and_the_settings(server: LoopbackServer) -> None:
    plain, honouring = connector(server), connector(server, idempotency={"honoured": True})
    action = next(candidate for candidate in plain.actions if candidate.name == "request")
    effects = {m: plain.effect_of(action, {"method": m}) for m in ("GET", "HEAD", "PUT", "DELETE", "POST", "PATCH")}
    assert effects == {
        "GET": "read", "HEAD": "read", "PUT": "idempotent", "DELETE": "idempotent", "POST": "write", "PATCH": "write",
    }  # fmt: skip
    assert honouring.effect_of(action, {"method": "POST"}) == "idempotent"


# Check


def test_check_tests_the_credentials_and_the_check_address(server: LoopbackServer, ctx: Context) -> None:
    server.answer("/", 404)
    assert "answered 404" in connector(server).check(ctx)
    with pytest.raises(Rejected):
        connector(server, check={"url": "/health"}).check(ctx)
    server.answer("/", 401)
    with pytest.raises(AuthError):
        connector(server).check(ctx)
