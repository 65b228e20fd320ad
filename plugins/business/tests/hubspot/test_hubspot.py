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
    assert it.check(ctx) == "The HubSpot account 4711 answers."


def test_records_are_created_found_changed_and_deleted(it: HubspotConnector, hubspot: Hubspot, ctx: Context) -> None:
    made = it.call("create", {"type": "contacts", "values": {"email": "zoë@example.com", "age": 7, "vip": True, "note": None}}, ctx)
    number = made["record"]["id"]
    kept = hubspot.records["contacts"][number]["properties"]
    assert (kept["age"], kept["vip"], kept["note"]) == ("7", "true", "")
    wanted = {"property": "email", "operator": "IN", "values": ["zoë@example.com", "ann@example.com"]}
    sort = {"property": "email", "descending": True}
    found = it.call("search", {**CONTACTS, "filters": [[wanted]], "sort": sort}, ctx)
    assert (emails(found), found["truncated"]) == (["zoë@example.com", "ann@example.com"], False)
    by_email = {"type": "contacts", "id": "zoë@example.com", "id_property": "email"}
    it.call("update", {**by_email, "values": {"email": "yve@example.com"}}, ctx)
    assert it.call("get", {**CONTACTS, "id": number}, ctx)["record"]["properties"]["email"] == "yve@example.com"
    assert it.call("delete", {"type": "contacts", "id": number}, ctx) == {"deleted": True}
    assert it.call("delete", {"type": "contacts", "id": number}, ctx) == {"deleted": False}


@pytest.mark.parametrize(("limit", "found", "truncated"), [(1, 1, True), (200, 200, True), (450, 450, False), (500, 450, False)])
def test_a_search_follows_its_pages_up_to_the_limit(
    it: HubspotConnector, hubspot: Hubspot, ctx: Context, limit: int, found: int, truncated: bool
) -> None:
    for number in range(448):
        hubspot.add("contacts", {"email": f"p{number}@example.com"})
    out = it.call("search", {**CONTACTS, "limit": limit}, ctx)
    assert (len(set(emails(out))), out["truncated"]) == (found, truncated)


def test_an_upsert_adds_once_and_then_changes(it: HubspotConnector, hubspot: Hubspot, ctx: Context) -> None:
    records = [{"id": "eve@example.com", "values": {"firstname": "Eve"}}, {"id": "ann@example.com", "values": {}}]
    given = {"type": "contacts", "id_property": "email", "records": records}
    first = it.call("upsert", given, ctx)["records"]
    again = it.call("upsert", given, ctx)["records"]
    assert ([each["new"] for each in first], [each["new"] for each in again]) == ([True, False], [False, False])
    assert ([each["id"] for each in first], len(hubspot.records["contacts"])) == ([each["id"] for each in again], 3)


def test_an_upsert_that_was_done_in_part_says_so(it: HubspotConnector, hubspot: Hubspot, ctx: Context) -> None:
    hubspot.refused = ["x"]
    records = [{"id": "x", "values": {}}, {"id": "f@example.com", "values": {}}]
    with pytest.raises(Rejected, match="did not take 1 of the records: x is no address"):
        it.call("upsert", {"type": "contacts", "id_property": "email", "records": records}, ctx)


def test_records_are_associated_and_listed_page_after_page(it: HubspotConnector, hubspot: Hubspot, ctx: Context) -> None:
    for name in ("A", "B", "C"):
        hubspot.add("companies", {"name": name})
    ends = {"from_type": "contacts", "from_id": 1, "to_type": "companies"}
    for goal in ("1", "2", "3", "3"):
        assert it.call("associate", {**ends, "to_id": goal}, ctx) == {"associated": True}
    found = it.call("associations", ends, ctx)
    assert ([each["id"] for each in found["records"]], found["truncated"]) == (["1", "2", "3"], False)
    assert found["records"][0]["labels"] == ["Primary"]
    assert it.call("associations", {**ends, "limit": 2}, ctx)["truncated"] is True


def test_properties_are_described(it: HubspotConnector, ctx: Context) -> None:
    email, stage = it.call("describe", {"type": "contacts"}, ctx)["properties"]
    assert email == {"name": "email", "type": "string", "title": "E-mail", "readonly": False, "unique": True}
    assert (stage["options"], stage["readonly"]) == (["won"], True)


@pytest.mark.parametrize("kind", ["contacts", "deals"])
def test_changed_records_come_whole_and_once(it: HubspotConnector, hubspot: Hubspot, ctx: Context, kind: str) -> None:
    for _ in range(450):
        hubspot.add(kind, {"dealname": "bulk"})
    query = {"type": kind, "properties": ["dealname"], "filters": [{"property": "dealname", "operator": "EQ", "value": "bulk"}]}
    begun = it.poll("changed_records", query, None, ctx)
    assert begun.items == ()
    seen: list[str] = []
    cursor, more = None, True
    while more and len(seen) < 2000:
        found = it.poll("changed_records", {**query, "begin": "start"}, cursor, ctx)
        seen += [item.key for item in found.items]
        cursor, more = json.loads(json.dumps(found.cursor)), found.more
    assert (len(seen), len(set(seen))) == (450, 450)
    hubspot.tick(0.002)
    hubspot.change(kind, "7", {"dealname": "bulk"})
    hubspot.change(kind, "8", {"dealname": "other"})
    (item,) = it.poll("changed_records", query, begun.cursor, ctx).items
    assert item.key == "7@2026-11-21T10:00:00.125000Z"


# -- what goes wrong


@pytest.mark.parametrize(
    ("action", "given", "told"),
    [
        ("create", {"type": "contacts", "values": {"email": "ann@example.com"}}, "Contact already exists"),
        ("update", {"type": "contacts", "id": "1", "values": {"nope": 1}}, 'not valid Property "nope" does not exist'),
        ("get", {**CONTACTS, "id": "99"}, "Object not found"),
        ("search", {"type": "things", "properties": ["a"]}, "Unable to infer object type"),
        ("delete", {"type": "things", "id": "1"}, "Unable to infer object type"),
    ],
)
def test_a_refusal_is_told(it: HubspotConnector, ctx: Context, action: str, given: Json, told: str) -> None:
    with pytest.raises(Rejected, match=told) as caught:
        it.call(action, given, ctx)
    assert caught.value.outcome == "not_done"


def test_an_id_stays_an_id(it: HubspotConnector, hubspot: Hubspot, ctx: Context) -> None:
    assert it.call("delete", {"type": "contacts", "id": "1/../2?x=1#"}, ctx) == {"deleted": False}
    assert hubspot.server.received[-1].path == "/crm/v3/objects/contacts/1%2F..%2F2%3Fx%3D1%23"
    with pytest.raises(ConfigError):
        it.call("delete", {"type": "contacts", "id": ".."}, ctx)


@pytest.mark.parametrize(
    ("changed", "error"),
    [({"token": "wrong-secret"}, AuthError), ({"base_url": "http://no-such-host.invalid"}, TransientError)],
)
def test_settings_that_do_not_work_are_told(settings: Settings, ctx: Context, changed: Json, error: type[ConnectorError]) -> None:
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
def test_limits_say_for_how_long_to_wait(
    it: HubspotConnector, hubspot: Hubspot, ctx: Context, headers: dict[str, str], body: bytes, after: float
) -> None:
    hubspot.server.answers["/crm/v3/objects/contacts"] = lambda _: Answer(429, headers, body)
    found = failed_creation(it, ctx)
    assert (type(found), found.outcome, getattr(found, "retry_after", None)) == (RateLimited, "not_done", after)


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
def test_an_odd_answer_is_an_error_of_its_class(
    it: HubspotConnector, hubspot: Hubspot, ctx: Context, status: int, body: bytes, error: type[ConnectorError], outcome: str
) -> None:
    hubspot.server.answers["/crm/v3/objects/contacts"] = lambda _: Answer(status, {"Location": "/elsewhere"}, body)
    found = failed_creation(it, ctx)
    assert (type(found), found.outcome) == (error, outcome)


@pytest.mark.parametrize("body", [b'{"results": {}}', b'{"results": [1]}', b'{"results": [], "paging": {"next": {"after": "5"}}}'])
def test_a_lying_search_ends_as_a_failure(it: HubspotConnector, hubspot: Hubspot, ctx: Context, body: bytes) -> None:
    hubspot.server.answer("/crm/v3/objects/contacts/search", 200, body)
    with pytest.raises(SystemFailure):
        it.call("search", CONTACTS, ctx)


def test_a_silent_hubspot_leaves_a_creation_unknown(settings: Settings, hubspot: Hubspot, ctx: Context) -> None:
    silent = threading.Event()

    def wait(_: Received) -> Answer:
        silent.wait(20)
        return Answer()

    hubspot.server.answers["/crm/v3/objects/contacts"] = wait
    found = failed_creation(HubspotConnector({**settings, "timeout_s": 1}), ctx)
    silent.set()
    assert (type(found), found.outcome) == (TransientError, "unknown")


def failed_creation(it: HubspotConnector, ctx: Context) -> ConnectorError:
    with pytest.raises(ConnectorError) as caught:
        it.call("create", {"type": "contacts", "values": {"email": "new@example.com"}}, ctx)
    return caught.value
