"""The connector against a small Salesforce on loopback."""

import json
from typing import Any

import pytest
from gos_connector_business.salesforce import SalesforceConnector
from gos_connector_business.salesforce.soql import SOQL

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
from appliance.connectors.testing import Answer, ConnectorContract, open_context, with_tokens

Salesforce = Any
Settings = dict[str, Any]
ROOT = "/services/data/v62.0"
BY_NAME = "SELECT Id, Name FROM Account WHERE Name = :name"


class TestContract(ConnectorContract):
    connector = SalesforceConnector

    @pytest.fixture
    def settings(self, salesforce: Salesforce) -> Settings:
        salesforce.add("Account", {"Name": "O'Neil"})
        return {"url": salesforce.server.url, "auth": {"kind": "oauth2", "client_id": "me", "client_secret": "s3cret"}}

    @pytest.fixture
    def broken_settings(self) -> Settings:
        return {"url": "http://127.0.0.1:1", "auth": {"kind": "bearer", "token": "t"}}


def test_check_reports_the_remaining_api_requests(it: SalesforceConnector, salesforce: Salesforce, ctx: Context) -> None:
    assert it.check(ctx) == f"Connected to {salesforce.server.url}; 14998 of 15000 daily API requests are left."


def test_an_expired_session_is_renewed_once(salesforce: Salesforce, settings: Settings) -> None:
    it = SalesforceConnector({**settings, "auth": {"kind": "oauth2", "client_id": "me", "client_secret": "s3cret"}})
    with open_context(seconds=60) as bare:
        ctx = with_tokens(bare, it.auth_of(it.settings))
        it.check(ctx)
        salesforce.token = "another"
        it.check(ctx)
    assert sum(each.path == "/services/oauth2/token" for each in salesforce.server.received) == 2


def test_oauth_consent_uses_the_domains_own_endpoints(settings: Settings) -> None:
    auth = {"kind": "oauth2", "grant": "authorization_code", "client_id": "me"}
    block = SalesforceConnector.auth_of({"url": "https://acme.my.salesforce.com/", "auth": auth})
    assert block["authorize_url"] == "https://acme.my.salesforce.com/services/oauth2/authorize"
    assert block["scope"] == "api refresh_token"


# -- records


def test_records_are_created_found_changed_and_deleted(it: SalesforceConnector, ctx: Context) -> None:
    number = it.call("create", {"type": "Account", "values": {"Name": "Zoë"}}, ctx)["id"]
    assert it.call("update", {"type": "Account", "id": number, "values": {"Name": "Yve"}}, ctx) == {"updated": True}
    record = it.call("get", {"type": "Account", "id": number, "fields": ["Name"]}, ctx)["record"]
    assert (record["Name"], "attributes" in record) == ("Yve", False)
    page = it.call("query", {"soql": BY_NAME, "params": {"name": "Yve"}}, ctx)
    assert page == {"records": [{"Id": number, "Name": "Yve"}], "truncated": False}
    assert it.call("delete", {"type": "Account", "id": number}, ctx) == {"deleted": True}
    assert it.call("delete", {"type": "Account", "id": number}, ctx) == {"deleted": False}


def test_an_upsert_adds_once_and_then_changes(it: SalesforceConnector, salesforce: Salesforce, ctx: Context) -> None:
    inputs = {"type": "Account", "field": "Number__c", "value": "A/1?b#c", "values": {"Name": "N"}}
    first = it.call("upsert", inputs, ctx)
    again = it.call("upsert", inputs, ctx)
    assert (first["created"], again["created"], first["id"] == again["id"]) == (True, False, True)
    salesforce.add("Account", {"Number__c": "A/1?b#c"})
    with pytest.raises(Rejected, match="Several records"):
        it.call("upsert", inputs, ctx)


@pytest.mark.parametrize(("limit", "count", "truncated"), [(1, 1, True), (100, 100, True), (252, 252, False), (999, 252, False)])
def test_a_query_follows_its_pages_up_to_the_limit(
    it: SalesforceConnector, salesforce: Salesforce, ctx: Context, limit: int, count: int, truncated: bool
) -> None:
    for _ in range(250):
        salesforce.add("Account", {"Name": "bulk"})
    out = it.call("query", {"soql": "SELECT Id FROM Account", "limit": limit}, ctx)
    assert (len({each["Id"] for each in out["records"]}), out["truncated"]) == (count, truncated)


@pytest.mark.parametrize("name", ["O'Neil \\ Söhne", "x' OR Name != 'x", "\\' OR Name != \\'", '\n\t"', ":name", "'", "\\"])
def test_bound_values_cannot_change_the_query(it: SalesforceConnector, salesforce: Salesforce, ctx: Context, name: str) -> None:
    salesforce.add("Account", {"Name": name})
    records = it.call("query", {"soql": BY_NAME, "params": {"name": name}}, ctx)["records"]
    assert {each["Name"] for each in records} == {name}
    listed = it.call("query", {"soql": "SELECT Name FROM Account WHERE Name IN :names", "params": {"names": [name]}}, ctx)[
        "records"
    ]
    assert {each["Name"] for each in listed} == {name}


@pytest.mark.parametrize(
    ("soql", "params", "bound"),
    [
        ("a = :a AND b = ':a'", {"a": 1}, "a = 1 AND b = ':a'"),
        ("a = 'it\\'s :a' AND b = :a", {"a": None}, "a = 'it\\'s :a' AND b = null"),
        ("a IN :a", {"a": ["x", 1, True]}, "a IN ('x',1,true)"),
        ("a > :a", {"a": {"literal": "2026-11-21T10:00:00Z"}}, "a > 2026-11-21T10:00:00Z"),
        ("a = :a", {"a": {"literal": "LAST_N_DAYS:7"}}, "a = LAST_N_DAYS:7"),
        ("a > 2026-11-21T10:00:00Z AND b = LAST_N_DAYS:7", {}, "a > 2026-11-21T10:00:00Z AND b = LAST_N_DAYS:7"),
    ],
)
def test_bind_writes_soql_literals(soql: str, params: Json, bound: str) -> None:
    assert SOQL.bind(soql, params) == bound


@pytest.mark.parametrize(
    ("soql", "params", "message"),
    [
        ("a = :b", {"a": 1}, "contains :b"),
        ("a = ':a'", {"a": 1}, "does not contain"),
        ("a IN :a", {"a": []}, "is empty"),
        ("a = :a", {"a": {"literal": "1 OR 1 = 1"}}, "not a number, date"),
        ("a = :a", {"a": "x\x00"}, "control character"),
    ],
)
def test_bind_rejects_invalid_or_unmatched_values(soql: str, params: Json, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SOQL.bind(soql, params)


def test_a_composite_runs_completely_or_not_at_all(it: SalesforceConnector, salesforce: Salesforce, ctx: Context) -> None:
    account = {"reference": "a", "method": "POST", "path": "sobjects/Account", "body": {"Name": "C"}}
    contact = {"reference": "c", "method": "POST", "path": "sobjects/Contact", "body": {"Name": "Ann", "AccountId": "@{a.id}"}}
    results = it.call("composite", {"requests": [account, contact]}, ctx)["results"]
    assert salesforce.records["Contact"][results["c"]["id"]]["AccountId"] == results["a"]["id"]
    message = "'c' failed and all were rolled back: Salesforce refused the request: Required fields are missing"
    with pytest.raises(Rejected, match=message) as caught:
        it.call("composite", {"requests": [account, {**contact, "body": {"Name": ""}}]}, ctx)
    assert (caught.value.outcome, len(salesforce.records["Account"])) == ("not_done", 3)


def test_fields_are_described(it: SalesforceConnector, ctx: Context) -> None:
    fields = {each["name"]: each for each in it.call("describe", {"type": "Account"}, ctx)["fields"]}
    assert (fields["Name"]["required"], fields["OwnerId"]["required"], fields["Stage"]["readonly"]) == (True, False, True)
    assert (fields["Number__c"]["external_id"], fields["Stage"]["options"]) == (True, ["Won"])
    assert fields["OwnerId"]["relation"] == ["User"]


def test_every_changed_record_is_returned_once(it: SalesforceConnector, salesforce: Salesforce, ctx: Context) -> None:
    for _ in range(450):
        salesforce.add("Account", {"Name": "bu'lk"})
    query = {"type": "Account", "fields": ["Name"], "where": "Name = :name", "params": {"name": "bu'lk"}}
    first = it.poll("changed_records", query, None, ctx)
    seen: list[str] = []
    cursor, more = None, True
    while more and len(seen) < 2000:
        polled = it.poll("changed_records", {**query, "begin": "start"}, cursor, ctx)
        seen += [item.key for item in polled.items]
        cursor, more = json.loads(json.dumps(polled.cursor)), polled.more
    assert (len(seen), len(set(seen))) == (450, 450)
    salesforce.tick(2)
    salesforce.change("Account", "001000000000007AAA", {"Name": "bu'lk"})
    (item,) = it.poll("changed_records", query, first.cursor, ctx).items
    assert item.key == "001000000000007AAA@2026-11-21T10:00:02Z"


# -- what goes wrong


@pytest.mark.parametrize(
    ("action", "inputs", "message"),
    [
        ("create", {"type": "Account", "values": {"Name": ""}}, "Required fields are missing"),
        ("query", {"soql": "SELECT"}, "unexpected token"),
        ("delete", {"type": "Things", "id": "001000000000001AAA"}, "requested resource does not exist"),
        ("get", {"type": "Account", "id": "001000000000099AAA"}, "refused"),
    ],
)
def test_refusals_keep_the_systems_message(it: SalesforceConnector, ctx: Context, action: str, inputs: Json, message: str) -> None:
    with pytest.raises(Rejected, match=message) as caught:
        it.call(action, inputs, ctx)
    assert caught.value.outcome == "not_done"


@pytest.mark.parametrize(
    ("changed", "error"),
    [({"auth": {"kind": "bearer", "token": "wrong-secret"}}, AuthError), ({"url": "http://no-such-host.invalid"}, TransientError)],
)
def test_invalid_settings_fail_the_check(settings: Settings, ctx: Context, changed: Json, error: type[ConnectorError]) -> None:
    with pytest.raises(error) as caught:
        SalesforceConnector({**settings, **changed}).check(ctx)
    assert caught.value.outcome == "not_done"
    assert "wrong-secret" not in caught.value.message + json.dumps(caught.value.details)


@pytest.mark.parametrize(
    ("status", "code", "error", "outcome"),
    [
        (403, "REQUEST_LIMIT_EXCEEDED", RateLimited, "not_done"),
        (403, "INSUFFICIENT_ACCESS_OR_READONLY", AuthError, "not_done"),
        (403, "API_DISABLED_FOR_ORG", AuthError, "not_done"),
        (400, "UNABLE_TO_LOCK_ROW", TransientError, "not_done"),
        (400, "DUPLICATES_DETECTED", Rejected, "not_done"),
        (500, "UNKNOWN_EXCEPTION", TransientError, "unknown"),
        (503, "SERVER_UNAVAILABLE", TransientError, "not_done"),
        (302, "", ConfigError, "not_done"),
        (201, "", SystemFailure, "unknown"),
    ],
)
def test_unexpected_answers_raise_the_matching_error(
    it: SalesforceConnector, salesforce: Salesforce, ctx: Context, status: int, code: str, error: type[ConnectorError], outcome: str
) -> None:
    body = json.dumps([{"errorCode": code, "message": "m"}]).encode()
    salesforce.server.answers[f"{ROOT}/sobjects/Account"] = lambda _: Answer(status, {"Location": "/x"}, body)
    with pytest.raises(ConnectorError) as caught:
        it.call("create", {"type": "Account", "values": {"Name": "x"}}, ctx)
    assert (type(caught.value), caught.value.outcome) == (error, outcome)


@pytest.mark.parametrize(
    "link", ["https://evil.example/x", "/services/data/v62.0/query/../limits", "/services/data/v62.0/limits", None, "/query/1?x=1"]
)
def test_next_pages_outside_the_query_resource_are_not_fetched(
    it: SalesforceConnector, salesforce: Salesforce, ctx: Context, link: str | None
) -> None:
    salesforce.server.answer(f"{ROOT}/query", 200, json.dumps({"done": False, "records": [], "nextRecordsUrl": link}).encode())
    with pytest.raises(SystemFailure, match="outside"):
        it.call("query", {"soql": "SELECT Id FROM Account"}, ctx)
