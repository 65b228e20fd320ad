"""The connector against a server on loopback: requests, answers, credentials, pagination and failures."""

import base64
import threading
from typing import Any

import pytest
from gos_connector_openapi import OpenapiConnector

from appliance.connectors.contract import (
    AddressNotAllowed,
    AuthError,
    ConfigError,
    ConnectorError,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
)
from appliance.connectors.testing import Answer, ConnectorContract, LoopbackServer, open_context, schema_problems

Shop = Any
ARRAY = {"type": "array", "items": {"type": "string"}}
OBJECT = {"type": "object"}
PLAIN = {"description": "Good", "content": {"application/json": {"schema": {}}}}


def parameter(name: str, place: str = "query", **more: Any) -> dict[str, Any]:
    schema = more.pop("schema", {"type": "string"})
    return {"name": name, "in": place, "schema": schema, **({"required": True} if place == "path" else {}), **more}


def operation(*parameters: Any, body: Any = None, **more: Any) -> dict[str, Any]:
    if body is not None:
        media, schema, encoding = (*body, {})[:3]
        more["requestBody"] = {"required": True, "content": {media: {"schema": schema, "encoding": encoding}}}
    return {"parameters": list(parameters), "responses": {"200": PLAIN}, **more}


class TestContract(ConnectorContract):
    connector = OpenapiConnector

    @pytest.fixture
    def settings(self, shop: Shop) -> dict[str, Any]:
        shop.publish({"/things": {"get": operation()}})
        settings: dict[str, Any] = shop.settings()
        return settings

    @pytest.fixture
    def broken_settings(self) -> dict[str, Any]:
        return {"document_url": "http://127.0.0.1:1/openapi.json", "base_url": "http://127.0.0.1:1"}


# -- requests

SHAPES = [
    (parameter("id", "path"), "a/b ?", "/a%2Fb%20%3F"),
    (parameter("id", "path", schema=ARRAY), ["a", "b,c"], "/a,b%2Cc"),
    (parameter("id", "path", style="label", explode=True, schema=ARRAY), ["a", "b"], "/.a.b"),
    (parameter("id", "path", style="matrix", schema=ARRAY), ["a", "b"], "/;id=a,b"),
    (parameter("id", "path", style="matrix", explode=True, schema=OBJECT), {"r": 1, "g": 2}, "/;r=1;g=2"),
    (parameter("q", schema=ARRAY), ["a", "b c"], "?q=a&q=b+c"),
    (parameter("q", explode=False, schema=ARRAY), ["a", "b"], "?q=a%2Cb"),
    (parameter("q", schema=OBJECT), {"r": 100, "g": True}, "?r=100&g=true"),
    (parameter("q", style="spaceDelimited", explode=False, schema=ARRAY), ["a", "b"], "?q=a+b"),
    (parameter("q", style="pipeDelimited", explode=False, schema=ARRAY), ["a", "b"], "?q=a%7Cb"),
    (
        parameter("q", style="deepObject", schema=OBJECT),
        {"r": 1, "in": {"x": [2, 3]}},
        "?q%5Br%5D=1&q%5Bin%5D%5Bx%5D=2&q%5Bin%5D%5Bx%5D=3",
    ),
    ({"name": "q", "in": "query", "content": {"application/json": {"schema": OBJECT}}}, {"a": 1}, "?q=%7B%22a%22%3A1%7D"),
]


@pytest.mark.parametrize(("described", "value", "written"), SHAPES, ids=[each[2] for each in SHAPES])
def test_a_parameter_is_written_in_its_style(shop: Shop, described: Any, value: Any, written: str) -> None:
    path = "/things/{id}" if described["in"] == "path" else "/things"
    shop.publish({path: {"get": operation(described, operationId="getThings")}})
    output = shop.perform("get_things", {described["name"]: value})
    expected = f"/things{written}"
    assert output["body"]["path"].replace("%20", "+") == expected.replace("%20", "+")


def test_headers_and_cookies_carry_parameters(shop: Shop) -> None:
    described = operation(
        parameter("X-Trace", "header", schema=ARRAY),
        parameter("session", "cookie"),
        parameter("Authorization", "header"),
        operationId="get",
    )
    shop.publish({"/t": {"get": described}})
    assert set(shop.actions()["get"].input["properties"]) == {"X-Trace", "session"}
    headers = shop.perform("get", {"X-Trace": ["a", "b"], "session": "s;1"})["body"]["headers"]
    assert (headers["x-trace"], headers["cookie"]) == ("a,b", "session=s%3B1")
    with pytest.raises(ConfigError, match="one line"):
        shop.perform("get", {"X-Trace": ["a\r\nX-Evil: 1"]})


@pytest.mark.parametrize("value", ["..", ".", ""])
def test_a_value_does_not_leave_its_segment(shop: Shop, value: str) -> None:
    shop.publish({"/things/{id}": {"get": operation(parameter("id", "path"), operationId="get")}})
    with pytest.raises(ConfigError, match="which address is called"):
        shop.perform("get", {"id": value})


BODIES = [
    (("application/json", OBJECT), {"a": [1, None]}, "application/json", '{"a":[1,null]}'),
    (("application/vnd.shop+json", OBJECT), {"ä": 1}, "application/vnd.shop+json", '{"Ã¤":1}'),
    (
        ("application/x-www-form-urlencoded", OBJECT),
        {"a": "x y", "b": ["1", "2"], "c": None},
        "application/x-www-form-urlencoded",
        "a=x+y&b=1&b=2",
    ),
    (("application/x-www-form-urlencoded", OBJECT), {"o": {"k": 1}}, "application/x-www-form-urlencoded", "o=%7B%22k%22%3A1%7D"),
    (
        ("application/x-www-form-urlencoded", OBJECT, {"o": {"style": "deepObject"}}),
        {"o": {"k": 1}},
        "application/x-www-form-urlencoded",
        "o%5Bk%5D=1",
    ),
    (("text/plain", {"type": "string"}), "hello", "text/plain", "hello"),
    (("application/octet-stream", {}), base64.b64encode(b"\x00\xff").decode(), "application/octet-stream", "\x00ÿ"),
]


@pytest.mark.parametrize(("body", "value", "media", "written"), BODIES, ids=range(len(BODIES)))
def test_a_body_is_serialized_in_its_content_type(shop: Shop, body: Any, value: Any, media: str, written: str) -> None:
    shop.publish({"/things": {"post": operation(operationId="add", body=body)}})
    received = shop.perform("add", {"body": value})["body"]
    assert (received["method"], received["headers"]["content-type"], received["body"]) == ("POST", media, written)
    assert received["headers"]["idempotency-key"] == "contract-suite"


def test_multipart_forms_carry_files(shop: Shop) -> None:
    members = {"note": {"type": "string"}, "meta": OBJECT, "file": {"type": "string", "format": "binary"}}
    shop.publish(
        {"/up": {"post": operation(operationId="upload", body=("multipart/form-data", {"type": "object", "properties": members}))}}
    )
    file = {"base64": base64.b64encode(b"\x89PNG").decode(), "filename": 'a"b.png', "content_type": "image/png"}
    arguments = {"body": {"note": "hi", "meta": {"a": 1}, "file": file}}
    assert schema_problems(shop.actions()["upload"].input, arguments) == []
    received = shop.perform("upload", arguments)["body"]
    assert received["headers"]["content-type"].startswith("multipart/form-data; boundary=")
    parts = received["body"].split("--" + received["headers"]["content-type"].partition("=")[2])
    assert parts[1].endswith('name="note"\r\n\r\nhi\r\n')
    assert parts[2].endswith('name="meta"\r\nContent-Type: application/json\r\n\r\n{"a":1}\r\n')
    assert parts[3].endswith('name="file"; filename="a%22b.png"\r\nContent-Type: image/png\r\n\r\n\x89PNG\r\n')


def test_effects_follow_the_method_and_the_settings(shop: Shop) -> None:
    methods = ("get", "head", "put", "delete", "post", "patch")
    shop.publish({"/t": {method: operation(operationId=f"{method}It") for method in methods}})
    actions = shop.actions(effects={"postIt": "read", "patch_it": "idempotent"})
    effects = {name.removesuffix("_it"): each.effect for name, each in actions.items()}
    assert effects == {
        "get": "read", "head": "read", "put": "idempotent", "delete": "idempotent", "post": "read", "patch": "idempotent",
    }  # fmt: skip


def test_names_are_unique_and_members_do_not_collide(shop: Shop) -> None:
    same = operation(
        parameter("id", "path"), parameter("id"), parameter("body"), operationId="List-Things", body=("application/json", {})
    )
    shop.publish({"/a/{id}": {"put": same}, "/b/{id}": {"put": same}, "/c/{undeclared}": {"get": {"responses": {}}}})
    actions = shop.actions()
    assert set(actions) == {"list_things", "list_things_2", "get_c_undeclared"}
    assert actions["list_things"].input["required"] == ["id", "body"]
    assert set(actions["list_things"].input["properties"]) == {"id", "id_query", "body_query", "body"}
    assert actions["get_c_undeclared"].input["required"] == ["undeclared"]


# -- answers


def answering(shop: Shop, schema: Any, body: bytes, status: int = 200, kind: str = "application/json", **headers: str) -> None:
    responses = (
        {str(status): {"description": "", "content": {kind: {"schema": schema}}}}
        if schema is not None
        else {"204": {"description": ""}}
    )
    shop.publish({"/t": {"get": {"operationId": "get", "responses": responses}}})
    shop.server.answers["/t"] = lambda _: Answer(status, {"Content-Type": kind, **headers}, body)


@pytest.mark.parametrize(
    ("kind", "schema", "body", "expected"),
    [
        ("application/json", {"type": "array", "items": {"type": "integer"}}, b"[1]", [1]),
        ("application/problem+json", {}, b'{"a":1}', {"a": 1}),
        ("text/csv", {}, "ä,b".encode(), "ä,b"),
        ("image/png", {}, b"\x89", "iQ=="),
        ("application/json", None, b"", None),
    ],
)
def test_an_answer_is_decoded_by_its_content_type(shop: Shop, kind: str, schema: Any, body: bytes, expected: Any) -> None:
    answering(shop, schema, body, 204 if schema is None else 200, kind)
    output = shop.perform("get", {})
    assert output["body"] == expected
    assert schema_problems(shop.actions()["get"].output, output) == []


def test_answers_are_checked_unless_the_settings_disable_it(shop: Shop) -> None:
    answering(shop, {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}, b'{"id":"seven"}')
    output = shop.perform("get", {})
    assert schema_problems(shop.actions()["get"].output, output) == ["/body/id"]
    assert schema_problems(shop.actions(answers="as_sent")["get"].output, output) == []


def test_invalid_json_is_a_system_failure(shop: Shop) -> None:
    answering(shop, {}, b"<html>")
    with pytest.raises(SystemFailure, match="JSON"):
        shop.perform("get", {})


@pytest.mark.parametrize(
    ("status", "headers", "kind", "outcome"),
    [
        (400, {}, Rejected, "not_done"),
        (401, {}, AuthError, "not_done"),
        (403, {}, AuthError, "not_done"),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "30"}, RateLimited, "not_done"),
        (429, {"Retry-After": "7"}, RateLimited, "not_done"),
        (500, {}, TransientError, "unknown"),
        (503, {}, TransientError, "not_done"),
        (304, {}, Rejected, "not_done"),
    ],
)
def test_a_status_is_an_error_of_the_contract(
    shop: Shop, status: int, headers: dict[str, str], kind: type[ConnectorError], outcome: str
) -> None:
    answering(shop, {}, b"" if status == 304 else b'{"message": "Not so."}', status, **headers)
    with pytest.raises(ConnectorError) as caught:
        shop.perform("get", {})
    assert (type(caught.value), caught.value.outcome) == (kind, outcome)
    assert "Not so." in caught.value.message or status == 304
    if isinstance(caught.value, RateLimited):
        assert caught.value.retry_after == pytest.approx(7 if status == 429 else 30)


# -- credentials


SCHEMES = {
    "components": {
        "securitySchemes": {
            "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
            "query": {"type": "apiKey", "in": "query", "name": "api_key"},
            "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
            "basic": {"type": "http", "scheme": "Basic"},
            "bearer": {"type": "http", "scheme": "bearer"},
            "oauth": {"type": "oauth2", "flows": {}},
        }
    }
}


@pytest.mark.parametrize(
    ("scheme", "secret", "where", "sent"),
    [
        ("key", "k-1", "x-key", "k-1"),
        ("cookie", "k-1", "cookie", "sid=k-1"),
        ("basic", "ann:pw", "authorization", "Basic YW5uOnB3"),
        ("bearer", "t-1", "authorization", "Bearer t-1"),
        ("oauth", "t-1", "authorization", "Bearer t-1"),
        ("query", "k-1", "path", "/t?api_key=k-1"),
    ],
)
def test_credentials_go_where_their_scheme_says(shop: Shop, scheme: str, secret: str, where: str, sent: str) -> None:
    shop.publish({"/t": {"get": operation(operationId="get")}}, security=[{scheme: []}], **SCHEMES)
    received = shop.perform("get", {}, credentials={scheme: secret})["body"]
    assert {**received["headers"], "path": received["path"]}[where] == sent


def test_alternatives_are_tried_in_order_and_missing_credentials_are_named(shop: Shop) -> None:
    shop.publish({"/t": {"get": operation(operationId="get", security=[{"basic": [], "key": []}, {"bearer": []}])}}, **SCHEMES)
    headers = shop.perform("get", {}, credentials={"key": "k", "bearer": "t"})["body"]["headers"]
    assert headers["authorization"] == "Bearer t"
    assert "x-key" not in headers
    with pytest.raises(ConfigError, match="`credentials` for basic with key or bearer"):
        shop.perform("get", {})
    assert shop.perform("get", {}, auth={"kind": "header", "name": "X-Own", "value": "v"})["body"]["headers"]["x-own"] == "v"


def test_the_document_is_fetched_without_credentials_and_secrets_need_a_base_address(shop: Shop) -> None:
    shop.publish({"/t": {"get": operation(operationId="get")}})
    shop.actions(auth={"kind": "bearer", "token": "t-1"}, credentials={"key": "k-1"})
    assert not {"authorization", "x-key"} & set(shop.server.received[-1].headers)
    schema = OpenapiConnector.settings_schema
    assert schema_problems(schema, {"document": "{}", "credentials": {"key": "k"}}) == ["/base_url"]
    assert schema_problems(schema, {"document": "{}", "auth": {"kind": "bearer", "token": "t"}}) == ["/base_url"]
    assert schema_problems(schema, {"document": "{}", "auth": {"kind": "none"}}) == []


def test_base_url_takes_precedence_over_the_server_of_an_operation(shop: Shop) -> None:
    shop.publish({"/t": {"get": operation(operationId="get", servers=[{"url": "https://evil.example/v1"}])}})
    shop.server.answer("/t", 200, b"{}")
    shop.perform("get", {}, auth={"kind": "bearer", "token": "t-1"})
    assert shop.server.received[-1].path == "/t", "and no credentials go anywhere else"


def test_without_a_base_address_the_document_says_where(shop: Shop) -> None:
    servers = [{"url": "/{version}", "variables": {"version": {"default": "v2"}}}]
    shop.publish({"/t": {"get": operation(operationId="get")}}, servers=servers)
    settings = {"document_url": f"{shop.url}/openapi.json"}
    connector = OpenapiConnector(settings)
    with open_context() as ctx:
        (action,) = connector.discover(ctx)
        assert connector.perform(action, {}, ctx)["body"]["path"] == "/v2/t"
        assert "can be fetched" in connector.check(ctx)


# -- settings that do not work


def test_wrong_credentials_unknown_hosts_dead_ports_and_silence(shop: Shop) -> None:
    shop.server.answers["/me"] = lambda request: Answer(200 if request.headers.get("authorization") == "Bearer good" else 401)
    settings = shop.settings(check_path="/me", auth={"kind": "bearer", "token": "good"})
    silent, over = LoopbackServer(), threading.Event()

    def wait(_: Any) -> Answer:
        over.wait(20)
        return Answer()

    silent.answers["/"] = silent.answers[""] = wait
    with open_context(seconds=30) as ctx:
        assert OpenapiConnector(settings).check(ctx) == f"{shop.url} answered with 200."
        with pytest.raises(AuthError) as wrong:
            OpenapiConnector({**settings, "auth": {"kind": "bearer", "token": "wrong-4711"}}).check(ctx)
        assert "4711" not in repr((wrong.value.message, wrong.value.details))
        with pytest.raises(TransientError):
            OpenapiConnector({**settings, "base_url": "http://no-such-host.invalid"}).check(ctx)
        with pytest.raises(TransientError):
            OpenapiConnector({**settings, "base_url": "http://127.0.0.1:1"}).check(ctx)
        with pytest.raises(AddressNotAllowed):
            OpenapiConnector({**settings, "base_url": "http://169.254.169.254"}).check(ctx)
    with open_context(seconds=0.5) as ctx, pytest.raises(TransientError):
        OpenapiConnector({"document": "{}", "base_url": silent.url}).check(ctx)
    over.set()
    silent.close()


def test_a_document_that_cannot_be_fetched_is_an_error(shop: Shop) -> None:
    shop.server.answers["/openapi.json"] = lambda _: Answer(404)
    with pytest.raises(Rejected, match="The server of the document refused"):
        shop.actions()
