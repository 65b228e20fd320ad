"""The connector against a small HubSpot on loopback."""

import json
import threading
from typing import Any

import pytest
from gos_connector_business.hubspot import HubspotConnector

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
from appliance.connectors.testing import Answer, ConnectorContract, Received

Hubspot = Any
Settings = dict[str, Any]
CONTACTS = {"type": "contacts", "properties": ["email"]}


class TestContract(ConnectorContract):
    connector = HubspotConnector

    @pytest.fixture
    def settings(self, hubspot: Hubspot) -> Settings:
        for number in range(9):
            hubspot.add("companies", {"name": f"C{number}"})
        return {"base_url": hubspot.server.url, "token": "pat-na1-'\"%s"}

    @pytest.fixture
    def broken_settings(self) -> Settings:
        return {"base_url": "http://127.0.0.1:1", "token": "t"}


def emails(out: Json) -> list[str]:
    return [each["properties"]["email"] for each in out["records"]]


def test_check_names_the_account(it: HubspotConnector, ctx: Context) -> None:
    assert it.check(ctx) == "Connected to the HubSpot account 4711."


def test_records_are_created_found_changed_and_deleted(it: HubspotConnector, hubspot: Hubspot, ctx: Context) -> None:
    values = {"email": "zoë@example.com", "age": 7, "vip": True, "note": None}
    created = it.call("create", {"type": "contacts", "values": values}, ctx)
    number = created["record"]["id"]
    stored = hubspot.records["contacts"][number]["properties"]
    assert (stored["age"], stored["vip"], stored["note"]) == ("7", "true", "")
    by_emails = {"property": "email", "operator": "IN", "values": ["zoë@example.com", "ann@example.com"]}
    sort = {"property": "email", "descending": True}
    page = it.call("search", {**CONTACTS, "filters": [[by_emails]], "sort": sort}, ctx)
    assert (emails(page), page["truncated"]) == (["zoë@example.com", "ann@example.com"], False)
    by_email = {"type": "contacts", "id": "zoë@example.com", "id_property": "email"}
    it.call("update", {**by_email, "values": {"email": "yve@example.com"}}, ctx)
    assert it.call("get", {**CONTACTS, "id": number}, ctx)["record"]["properties"]["email"] == "yve@example.com"
    assert it.call("delete", {"type": "contacts", "id": number}, ctx) == {"deleted": True}
    assert it.call("delete", {"type": "contacts", "id": number}, ctx) == {"deleted": False}


@pytest.mark.parametrize(("limit", "count", "truncated"), [(1, 1, True), (200, 200, True), (450, 450, False), (500, 450, False)])
def test_a_search_follows_its_pages_up_to_the_limit(
    it: HubspotConnector, hubspot: Hubspot, ctx: Context, limit: int, count: int, truncated: bool
) -> None:
    for number in range(448):
        hubspot.add("contacts", {"email": f"p{number}@example.com"})
    out = it.call("search", {**CONTACTS, "limit": limit}, ctx)
    assert (len(set(emails(out))), out["truncated"]) == (count, truncated)


def test_an_upsert_adds_once_and_then_changes(it: HubspotConnector, hubspot: Hubspot, ctx: Context) -> None:
    records = [{"id": "eve@example.com", "values": {"firstname": "Eve"}}, {"id": "ann@example.com", "values": {}}]
    inputs = {"type": "contacts", "id_property": "email", "records": records}
    first = it.call("upsert", inputs, ctx)["records"]
    again = it.call("upsert", inputs, ctx)["records"]
    assert ([each["new"] for each in first], [each["new"] for each in again]) == ([True, False], [False, False])
    assert ([each["id"] for each in first], len(hubspot.records["contacts"])) == ([each["id"] for each in again], 3)


def test_a_partial_upsert_is_rejected_with_the_reasons(it: HubspotConnector, hubspot: Hubspot, ctx: Context) -> None:
    hubspot.refused_ids = ["x"]
    records = [{"id": "x", "values": {}}, {"id": "f@example.com", "values": {}}]
    with pytest.raises(Rejected, match="rejected 1 of the records: x is not an address"):
        it.call("upsert", {"type": "contacts", "id_property": "email", "records": records}, ctx)


def test_records_are_associated_and_listed_across_pages(it: HubspotConnector, hubspot: Hubspot, ctx: Context) -> None:
    for name in ("A", "B", "C"):
        hubspot.add("companies", {"name": name})
    ends = {"from_type": "contacts", "from_id": 1, "to_type": "companies"}
    for goal in ("1", "2", "3", "3"):
        assert it.call("associate", {**ends, "to_id": goal}, ctx) == {"associated": True}
    page = it.call("associations", ends, ctx)
    assert ([each["id"] for each in page["records"]], page["truncated"]) == (["1", "2", "3"], False)
    assert page["records"][0]["labels"] == ["Primary"]
    assert it.call("associations", {**ends, "limit": 2}, ctx)["truncated"] is True


def test_properties_are_described(it: HubspotConnector, ctx: Context) -> None:
    email, stage = it.call("describe", {"type": "contacts"}, ctx)["properties"]
    assert email == {"name": "email", "type": "string", "title": "E-mail", "readonly": False, "unique": True}
    assert (stage["options"], stage["readonly"]) == (["won"], True)


@pytest.mark.parametrize("kind", ["contacts", "deals"])
def test_every_changed_record_is_returned_once(it: HubspotConnector, hubspot: Hubspot, ctx: Context, kind: str) -> None:
    for _ in range(450):
        hubspot.add(kind, {"dealname": "bulk"})
    query = {"type": kind, "properties": ["dealname"], "filters": [{"property": "dealname", "operator": "EQ", "value": "bulk"}]}
    first = it.poll("changed_records", query, None, ctx)
    assert first.items == ()
    seen: list[str] = []
    cursor, more = None, True
    while more and len(seen) < 2000:
        polled = it.poll("changed_records", {**query, "begin": "start"}, cursor, ctx)
        seen += [item.key for item in polled.items]
        cursor, more = json.loads(json.dumps(polled.cursor)), polled.more
    assert (len(seen), len(set(seen))) == (450, 450)
    hubspot.tick(0.002)
    hubspot.change(kind, "7", {"dealname": "bulk"})
    hubspot.change(kind, "8", {"dealname": "other"})
    (item,) = it.poll("changed_records", query, first.cursor, ctx).items
    assert item.key == "7@2026-11-21T10:00:00.125000Z"


# -- what goes wrong


@pytest.mark.parametrize(
    ("action", "inputs", "message"),
    [
        ("create", {"type": "contacts", "values": {"email": "ann@example.com"}}, "Contact already exists"),
        ("update", {"type": "contacts", "id": "1", "values": {"nope": 1}}, 'not valid Property "nope" does not exist'),
        ("get", {**CONTACTS, "id": "99"}, "Object not found"),
        ("search", {"type": "things", "properties": ["a"]}, "Unable to infer object type"),
        ("delete", {"type": "things", "id": "1"}, "Unable to infer object type"),
    ],
)
def test_refusals_keep_the_systems_message(it: HubspotConnector, ctx: Context, action: str, inputs: Json, message: str) -> None:
    with pytest.raises(Rejected, match=message) as caught:
        it.call(action, inputs, ctx)
    assert caught.value.outcome == "not_done"


def test_ids_are_escaped_in_paths(it: HubspotConnector, hubspot: Hubspot, ctx: Context) -> None:
    assert it.call("delete", {"type": "contacts", "id": "1/../2?x=1#"}, ctx) == {"deleted": False}
    assert hubspot.server.received[-1].path == "/crm/v3/objects/contacts/1%2F..%2F2%3Fx%3D1%23"
    with pytest.raises(ConfigError):
        it.call("delete", {"type": "contacts", "id": ".."}, ctx)


@pytest.mark.parametrize(
    ("changed", "error"),
    [({"token": "wrong-secret"}, AuthError), ({"base_url": "http://no-such-host.invalid"}, TransientError)],
)
def test_invalid_settings_fail_the_check(settings: Settings, ctx: Context, changed: Json, error: type[ConnectorError]) -> None:
    with pytest.raises(error) as caught:
        HubspotConnector({**settings, **changed}).check(ctx)
    assert caught.value.outcome == "not_done"
    assert "wrong-secret" not in caught.value.message + json.dumps(caught.value.details)


@pytest.mark.parametrize(
    ("headers", "body", "after"),
    [
        ({"Retry-After": "7"}, b"", 7),
        ({"X-HubSpot-RateLimit-Interval-Milliseconds": "10000"}, b'{"policyName": "TEN_SECONDLY_ROLLING"}', 10),
        ({}, b'{"policyName": "SECONDLY", "message": "You have reached your secondly limit."}', 1),
        ({"X-HubSpot-RateLimit-Interval-Milliseconds": "10000"}, b'{"policyName": "DAILY"}', 3600),
        ({}, b"<html>", 10),
    ],
)
def test_rate_limits_set_retry_after(
    it: HubspotConnector, hubspot: Hubspot, ctx: Context, headers: dict[str, str], body: bytes, after: float
) -> None:
    hubspot.server.answers["/crm/v3/objects/contacts"] = lambda _: Answer(429, headers, body)
    failure = failed_creation(it, ctx)
    assert (type(failure), failure.outcome, getattr(failure, "retry_after", None)) == (RateLimited, "not_done", after)


@pytest.mark.parametrize(
    ("status", "body", "error", "outcome"),
    [
        (403, b'{"category": "MISSING_SCOPES", "message": "This app needs crm.objects.contacts.write"}', AuthError, "not_done"),
        (423, b"", TransientError, "not_done"),
        (477, b"", RateLimited, "not_done"),
        (502, b"<html>", TransientError, "unknown"),
        (503, b"", TransientError, "not_done"),
        (302, b"", ConfigError, "not_done"),
        (201, b"<html>", SystemFailure, "unknown"),
        (201, b"[1]", SystemFailure, "unknown"),
    ],
)
def test_unexpected_answers_raise_the_matching_error(
    it: HubspotConnector, hubspot: Hubspot, ctx: Context, status: int, body: bytes, error: type[ConnectorError], outcome: str
) -> None:
    hubspot.server.answers["/crm/v3/objects/contacts"] = lambda _: Answer(status, {"Location": "/elsewhere"}, body)
    failure = failed_creation(it, ctx)
    assert (type(failure), failure.outcome) == (error, outcome)


@pytest.mark.parametrize("body", [b'{"results": {}}', b'{"results": [1]}', b'{"results": [], "paging": {"next": {"after": "5"}}}'])
def test_malformed_search_pages_raise_system_failure(it: HubspotConnector, hubspot: Hubspot, ctx: Context, body: bytes) -> None:
    hubspot.server.answer("/crm/v3/objects/contacts/search", 200, body)
    with pytest.raises(SystemFailure):
        it.call("search", CONTACTS, ctx)


def test_a_silent_hubspot_leaves_a_creation_unknown(settings: Settings, hubspot: Hubspot, ctx: Context) -> None:
    silent = threading.Event()

    def wait(_: Received) -> Answer:
        silent.wait(20)
        return Answer()

    hubspot.server.answers["/crm/v3/objects/contacts"] = wait
    failure = failed_creation(HubspotConnector({**settings, "timeout_s": 1}), ctx)
    silent.set()
    assert (type(failure), failure.outcome) == (TransientError, "unknown")


def failed_creation(it: HubspotConnector, ctx: Context) -> ConnectorError:
    with pytest.raises(ConnectorError) as caught:
        it.call("create", {"type": "contacts", "values": {"email": "new@example.com"}}, ctx)
    return caught.value
