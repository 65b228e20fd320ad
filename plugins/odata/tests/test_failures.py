"""Failures and credentials: which error of the connector contract is raised, and where secrets must not be sent."""

import base64
import json
import threading
from typing import Any

import pytest
from gos_connector_odata import OdataConnector

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    Json,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
)
from appliance.connectors.testing import Answer, LoopbackServer, Received, open_context, schema_problems, with_tokens

Shop = Any
PASSWORD = "sésame-'\"%s"
BASIC = {"kind": "basic", "username": "gos", "password": PASSWORD}


# -- failures


def failure(it: OdataConnector, action: str = "create", params: Json | None = None, seconds: float = 10) -> ConnectorError:
    defaults = {"entity_set": "Products", "values": {"ID": 8}} if action == "create" else {"entity_set": "Products"}
    with open_context(seconds=seconds) as ctx, pytest.raises(ConnectorError) as caught:
        it.call(action, {**defaults, **(params or {})}, with_tokens(ctx, it.auth_of(it.settings)))
    assert PASSWORD not in caught.value.message + json.dumps(caught.value.details)
    return caught.value


@pytest.mark.parametrize(
    ("status", "headers", "error", "outcome"),
    [
        (400, {}, Rejected, "not_done"),
        (403, {}, AuthError, "not_done"),
        (428, {}, Rejected, "not_done"),
        (429, {"Retry-After": "7"}, RateLimited, "not_done"),
        (503, {"Retry-After": "7"}, RateLimited, "not_done"),
        (503, {}, TransientError, "not_done"),
        (500, {}, TransientError, "unknown"),
        (504, {}, TransientError, "unknown"),
        (501, {}, Rejected, "not_done"),
    ],
)
def test_each_status_maps_to_an_error_class(
    it: OdataConnector, shop: Shop, status: int, headers: dict[str, str], error: type[ConnectorError], outcome: str
) -> None:
    body = json.dumps({"error": {"code": "X1", "message": {"lang": "en", "value": "The month is closed."}}}).encode()
    shop.server.answers["/odata/v4/Products"] = lambda _: Answer(status, headers, body)
    raised = failure(it)
    assert (type(raised), raised.outcome, raised.details["status"]) == (error, outcome, status)
    if isinstance(raised, RateLimited):
        assert raised.retry_after == 7
    else:
        assert "The month is closed." in raised.message


def test_a_refusal_contains_the_services_message(it: OdataConnector) -> None:
    raised = failure(it, params={"values": {"ID": 8, "Name": "x" * 50}})
    assert raised.message == "The service refused the request: Name is too long."
    assert raised.details == {"status": 400, "code": "TooLong", "message": "Name is too long."}


def test_a_wrong_password_is_an_auth_error(shop: Shop) -> None:
    it = OdataConnector({"base_url": shop.url, "auth": {**BASIC, "password": "wrong-secret"}})
    with open_context() as ctx, pytest.raises(AuthError) as caught:
        it.check(ctx)
    assert "wrong-secret" not in caught.value.message + json.dumps(caught.value.details)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/odata", "http://no-such-host.invalid/odata"])
def test_an_unreachable_service_is_a_transient_error_and_nothing_is_done(url: str) -> None:
    raised = failure(OdataConnector({"base_url": url}))
    assert (type(raised), raised.outcome) == (TransientError, "not_done")


def test_the_outcome_of_a_change_is_unknown_when_the_service_is_silent(it: OdataConnector, shop: Shop) -> None:
    silent = threading.Event()

    def wait(_: Received) -> Answer:
        silent.wait(20)
        return Answer()

    shop.server.answers["/odata/v4/Products"] = wait
    raised = failure(it, seconds=1)
    silent.set()
    assert (type(raised), raised.outcome) == (TransientError, "unknown")


@pytest.mark.parametrize(
    "body", [b"<html>", b"[1]", b'{"value": NaN}', b'{"value": {}}', b'{"value": [1]}', b"[" * 100_000, b""], ids=range(7)
)
def test_an_invalid_list_response_is_a_failure(it: OdataConnector, shop: Shop, body: bytes) -> None:
    shop.server.answer("/odata/v4/Products", 200, body)
    assert type(failure(it, "list")) is SystemFailure


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("http://127.0.0.2:9/odata/v4/Products", "is not below"),
        ("/odata/v4evil/Products", "is not below"),
        ("//evil.example/odata/v4/x", "is not below"),
        ("/odata/v4/%2e%2e/x", "is not below"),
        ("http://[bad", "has no valid address"),
    ],
)
def test_credentials_are_not_sent_to_a_page_outside_the_service(it: OdataConnector, shop: Shop, link: str, reason: str) -> None:
    shop.server.answer("/odata/v4/Products", 200, json.dumps({"value": [], "@odata.nextLink": link}).encode())
    assert f"The service's next page {reason}" in failure(it, "list").message


def test_circular_paging_is_an_error(it: OdataConnector, shop: Shop) -> None:
    shop.server.answer("/odata/v4/Products", 200, b'{"value": [], "@odata.nextLink": "Products?a=1"}')
    assert "does not end" in failure(it, "list").message


INVALID_METADATA = {
    "no XML": b"{}",
    "an entity": b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
    "a DTD": b"<!DOCTYPE Edmx><Edmx Version='4.0'/>",
    "OData 2": b'<edmx:Edmx Version="1.0" xmlns:edmx="x"/>',
    "a type of its own": b'<Edmx Version="4.0"><Schema Namespace="N"><EntityType Name="A" BaseType="N.A"/>'
    b'<EntityContainer><EntitySet Name="S" EntityType="N.A"/></EntityContainer></Schema></Edmx>',
    "no type": b'<Edmx Version="4.0"><Schema Namespace="N"><EntityContainer><EntitySet Name="S" EntityType="N.B"/>'
    b"</EntityContainer></Schema></Edmx>",
    "no such key": b'<Edmx Version="4.0"><Schema Namespace="N"><EntityType Name="A"><Key><PropertyRef Name="K"/></Key></EntityType>'
    b'<EntityContainer><EntitySet Name="S" EntityType="N.A"/></EntityContainer></Schema></Edmx>',
}


@pytest.mark.parametrize("case", INVALID_METADATA)
def test_invalid_metadata_is_a_failure(it: OdataConnector, shop: Shop, case: str) -> None:
    shop.server.answer("/odata/v4/$metadata", 200, INVALID_METADATA[case])
    raised = failure(it)
    assert (type(raised), raised.outcome) == (SystemFailure, "not_done")
    assert "$metadata" in raised.message


# -- credentials


@pytest.mark.parametrize(
    ("auth", "header"),
    [
        ({"kind": "bearer", "token": "t0"}, ("authorization", "Bearer t0")),
        ({"kind": "header", "name": "X-Key", "value": "k"}, ("x-key", "k")),
    ],
)
def test_credentials_are_sent(auth: Json, header: tuple[str, str], ctx: Context) -> None:
    server = LoopbackServer()
    server.answer("/", 200, b'{"value": []}')
    with pytest.raises(Rejected):
        OdataConnector({"base_url": server.url, "auth": auth, "headers": {header[0]: "other"}}).check(ctx)
    server.close()
    assert server.received[0].headers[header[0]] == header[1]


@pytest.fixture
def oauth(shop: Shop) -> OdataConnector:
    token_url = f"{shop.server.url}/token"
    auth = {"kind": "oauth2", "client_id": "me", "client_secret": PASSWORD, "scope": "all", "token_url": token_url}
    return OdataConnector({"base_url": shop.url, "auth": auth})


def give_tokens(shop: Shop, *tokens: str) -> None:
    left = list(tokens)
    body = {"access_token": "", "expires_in": 3600, "token_type": "Bearer"}
    shop.server.answers["/token"] = lambda _: Answer(200, {}, json.dumps({**body, "access_token": left.pop(0)}).encode())


def test_a_token_is_reused_until_it_is_refused(oauth: OdataConnector, shop: Shop) -> None:
    give_tokens(shop, "one", "two")
    with open_context() as bare:
        ctx = with_tokens(bare, oauth.settings["auth"])
        shop.credentials = "Bearer one"
        oauth.check(ctx)
        shop.credentials = "Bearer two"
        oauth.check(ctx)
    token_requests = [each.body.decode() for each in shop.server.received if each.path == "/token"]
    assert len(token_requests) == 2
    assert token_requests[0].startswith("grant_type=client_credentials&scope=all&client_id=me&client_secret=s%C3%A9same")


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (400, b'{"error": "invalid_client"}', AuthError),
        (401, b"", AuthError),
        (500, b"", TransientError),
        (200, b"{}", SystemFailure),
    ],
)
def test_a_failed_token_request_is_an_error(
    oauth: OdataConnector, shop: Shop, status: int, body: bytes, error: type[ConnectorError]
) -> None:
    shop.server.answer("/token", status, body)
    raised = failure(oauth)
    assert (type(raised), raised.outcome) == (error, "not_done")


def test_nothing_is_done_when_the_token_endpoint_is_silent(oauth: OdataConnector, shop: Shop) -> None:
    silent = threading.Event()

    def wait(_: Received) -> Answer:
        silent.wait(20)
        return Answer()

    shop.server.answers["/token"] = wait
    raised = failure(oauth, seconds=1)
    silent.set()
    assert (type(raised), raised.outcome) == (TransientError, "not_done")


def test_oauth2_needs_a_token_address() -> None:
    settings = {"base_url": "https://a.example", "auth": {"kind": "oauth2", "client_id": "a", "client_secret": "b"}}
    assert schema_problems(OdataConnector.settings_schema, settings) != []


def test_changes_send_the_csrf_token_and_its_cookies(shop: Shop, ctx: Context) -> None:
    shop.csrf = "t-1"
    it = OdataConnector({"base_url": shop.url, "auth": BASIC, "csrf": True})
    it.call("update", {"entity_set": "Products", "key": 1, "values": {"Name": "C"}}, ctx)
    assert shop.products[1]["Name"] == "C"
    shop.csrf = ""
    with pytest.raises(ConfigError, match="returned no CSRF token"):
        it.call("update", {"entity_set": "Products", "key": 1, "values": {"Name": "D"}}, ctx)


def test_the_password_is_sent_as_utf8(it: OdataConnector, shop: Shop, ctx: Context) -> None:
    it.check(ctx)
    assert base64.b64decode(shop.last().headers["authorization"].split()[1]).decode() == f"gos:{PASSWORD}"
