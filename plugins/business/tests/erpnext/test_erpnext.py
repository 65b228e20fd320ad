"""The connector against a small Frappe site on loopback."""

import json
from typing import Any

import pytest
from gos_connector_business.erpnext import ErpnextConnector

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
from appliance.connectors.testing import Answer, ConnectorContract

Site = Any
Settings = dict[str, Any]
CUSTOMER = {"type": "Customer"}


class TestContract(ConnectorContract):
    connector = ErpnextConnector

    @pytest.fixture
    def settings(self, site: Site) -> Settings:
        return {"url": site.server.url, "key": "4a7b", "secret": "s3cr-'\"%t"}

    @pytest.fixture
    def broken_settings(self) -> Settings:
        return {"url": "http://127.0.0.1:1", "key": "k", "secret": "s"}


def names(out: Json) -> list[str]:
    return [each["customer_name"] for each in out["records"]]


def test_check_names_the_user(it: ErpnextConnector, site: Site, ctx: Context) -> None:
    assert it.check(ctx) == f"Connected to {site.server.url} as gos@example.com."


def test_documents_are_created_found_changed_and_deleted(it: ErpnextConnector, ctx: Context) -> None:
    created = it.call("create", {**CUSTOMER, "values": {"customer_name": "Zoë", "lines": [{"qty": 1}]}}, ctx)["document"]
    filters = {"filters": [["customer_name", "in", ["Zoë", "O'Neil & Söhne"]]], "order": "customer_name desc"}
    assert names(it.call("list", {**CUSTOMER, "fields": ["customer_name"], **filters}, ctx)) == ["Zoë", "O'Neil & Söhne"]
    any_filters = {"any_filters": [["customer_name", "=", "Zoë"], ["customer_name", "=", "Acme"]], "order": "customer_name"}
    assert names(it.call("list", {**CUSTOMER, "fields": ["customer_name"], **any_filters}, ctx)) == ["Acme", "Zoë"]
    one = {**CUSTOMER, "name": created["name"]}
    it.call("update", {**one, "values": {"customer_name": "Yve"}}, ctx)
    assert it.call("get", one, ctx)["document"]["lines"] == [{"qty": 1}]
    assert it.call("delete", one, ctx) == {"deleted": True}
    assert it.call("delete", one, ctx) == {"deleted": False}


@pytest.mark.parametrize(("limit", "count", "truncated"), [(1, 1, True), (500, 500, True), (602, 602, False), (900, 602, False)])
def test_a_list_follows_its_pages_up_to_the_limit(
    it: ErpnextConnector, site: Site, ctx: Context, limit: int, count: int, truncated: bool
) -> None:
    for _ in range(600):
        site.add({"customer_name": "bulk"})
    out = it.call("list", {**CUSTOMER, "fields": ["name"], "order": "customer_name", "limit": limit}, ctx)
    assert (len({each["name"] for each in out["records"]}), out["truncated"]) == (count, truncated)


def test_methods_run_and_fields_are_described(it: ErpnextConnector, ctx: Context) -> None:
    count = {"method": "frappe.client.get_count"}
    assert it.call("call", {**count, "args": {"doctype": "Customer"}}, ctx) == {"result": 2}
    assert it.call("call", {**count, "args": {"doctype": "None"}}, ctx) == {"result": None}
    name, territory = it.call("describe", CUSTOMER, ctx)["fields"]
    assert name == {"name": "customer_name", "type": "Data", "title": "Customer Name", "required": True, "readonly": False}
    assert (territory["options"], territory["readonly"]) == ("Territory", True)


def test_every_changed_document_is_returned_once_by_the_sites_clock(it: ErpnextConnector, site: Site, ctx: Context) -> None:
    for _ in range(450):
        site.add({"customer_name": "bulk"})
    query = {**CUSTOMER, "fields": ["customer_name"], "filters": [["customer_name", "=", "bulk"]]}
    first = it.poll("changed_documents", query, None, ctx)
    seen: list[str] = []
    cursor, more = None, True
    while more and len(seen) < 2000:
        polled = it.poll("changed_documents", {**query, "begin": "start"}, cursor, ctx)
        seen += [item.key for item in polled.items]
        cursor, more = json.loads(json.dumps(polled.cursor)), polled.more
    assert (len(seen), len(set(seen))) == (450, 450)
    site.tick(0.000_001)
    site.change("CUST-0007", {"customer_name": "bulk"})
    (item,) = it.poll("changed_documents", query, first.cursor, ctx).items
    assert (item.data["id"], item.data["changed_at"]) == ("CUST-0007", "2026-11-21 10:00:00.123457")


# -- what goes wrong


@pytest.mark.parametrize(
    ("action", "inputs", "error", "message"),
    [
        ("create", {**CUSTOMER, "values": {"x": 1}}, Rejected, "Value missing for Customer : Customer Name"),
        ("get", {**CUSTOMER, "name": "nobody"}, Rejected, "Customer nobody not found"),
        ("delete", {"type": "Nothing", "name": "nobody"}, Rejected, "Nothing nobody not found"),
        ("call", {"method": "os.system"}, AuthError, "not allow this for the user: Function os.system is not whitelisted."),
        ("update", {**CUSTOMER, "name": "CUST-0001", "values": {"modified": "2020-01-01 00:00:00"}}, Rejected, "has changed since"),
    ],
)
def test_refusals_keep_the_message_without_markup_and_traceback(
    it: ErpnextConnector, ctx: Context, action: str, inputs: Json, error: type[ConnectorError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        it.call(action, inputs, ctx)
    assert caught.value.outcome == "not_done"
    assert "secret_line" not in caught.value.message + json.dumps(caught.value.details)


def test_names_are_escaped_in_paths(it: ErpnextConnector, site: Site, ctx: Context) -> None:
    with pytest.raises(Rejected):
        it.call("get", {**CUSTOMER, "name": "a/../b?x=1#"}, ctx)
    assert site.server.received[-1].path == "/api/resource/Customer/a%2F..%2Fb%3Fx%3D1%23"


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"secret": "wrong-secret"}, AuthError),
        ({"key": "nobody"}, AuthError),
        ({"url": "http://no-such-host.invalid"}, TransientError),
    ],
)
def test_invalid_settings_fail_the_check(settings: Settings, ctx: Context, changed: Json, error: type[ConnectorError]) -> None:
    with pytest.raises(error) as caught:
        ErpnextConnector({**settings, **changed}).check(ctx)
    assert caught.value.outcome == "not_done"
    assert "wrong-secret" not in caught.value.message + json.dumps(caught.value.details)


@pytest.mark.parametrize(
    ("status", "body", "error", "outcome"),
    [
        (404, b"<html>", ConfigError, "not_done"),
        (302, b"", ConfigError, "not_done"),
        (409, b'{"exc_type": "DuplicateEntryError"}', Rejected, "not_done"),
        (500, b'{"exc_type": "QueryDeadlockError"}', TransientError, "not_done"),
        (500, b'{"exception": "frappe.exceptions.QueryTimeoutError: slow", "_server_messages": "[1"}', TransientError, "not_done"),
        (429, b'{"exc_type": "TooManyRequestsError"}', RateLimited, "not_done"),
        (500, b'{"exc_type": "OperationalError", "exc": "[\\"Traceback\\"]"}', TransientError, "unknown"),
        (503, b"", TransientError, "not_done"),
        (200, b"<html>", SystemFailure, "unknown"),
        (200, b'{"data": []}', SystemFailure, "unknown"),
    ],
)
def test_unexpected_answers_raise_the_matching_error(
    it: ErpnextConnector, site: Site, ctx: Context, status: int, body: bytes, error: type[ConnectorError], outcome: str
) -> None:
    headers = {"Location": "/login", "Retry-After": "7"} if status != 503 else {}
    site.server.answers["/api/resource/Customer"] = lambda _: Answer(status, headers, body)
    with pytest.raises(ConnectorError) as caught:
        it.call("create", {**CUSTOMER, "values": {"customer_name": "x"}}, ctx)
    assert (type(caught.value), caught.value.outcome) == (error, outcome)
    if isinstance(caught.value, RateLimited):
        assert caught.value.retry_after == 7
