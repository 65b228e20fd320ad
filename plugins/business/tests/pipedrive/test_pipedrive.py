"""The connector against a small Pipedrive on loopback."""

import json
from typing import Any

import pytest
from gos_connector_business.pipedrive import PipedriveConnector

from appliance.connectors.contract import (
    AuthError,
    ConnectorError,
    Context,
    Json,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
)
from appliance.connectors.testing import Answer, ConnectorContract, schema_problems

Pipedrive = Any
Settings = dict[str, Any]


class TestContract(ConnectorContract):
    connector = PipedriveConnector

    @pytest.fixture
    def settings(self, pipedrive: Pipedrive) -> Settings:
        return {"base_url": pipedrive.server.url, "token": "5adb-'\"%s"}

    @pytest.fixture
    def broken_settings(self) -> Settings:
        return {"base_url": "http://127.0.0.1:1", "token": "t"}


def test_check_names_company_and_user(it: PipedriveConnector, ctx: Context) -> None:
    assert it.check(ctx) == "Connected to the Pipedrive company Acme as Gos."


def test_settings_require_either_a_company_or_an_address() -> None:
    schema = PipedriveConnector.settings_schema
    assert schema_problems(schema, {"company": "acme", "token": "t"}) == []
    for wrong in ({}, {"company": "evil.example/x"}, {"company": "acme", "base_url": "https://a.example"}):
        assert schema_problems(schema, {"token": "t", **wrong}) != []


def test_records_are_created_found_changed_and_deleted(it: PipedriveConnector, ctx: Context) -> None:
    created = it.call("create", {"kind": "persons", "values": {"name": "Zoë", "email": "zoë@example.com"}}, ctx)["record"]
    assert it.call("search", {"kind": "persons", "term": "zoë@example.com", "exact": True}, ctx)["records"] == [created]
    person = {"kind": "persons", "id": created["id"]}
    it.call("update", {**person, "values": {"name": "Yve"}}, ctx)
    assert it.call("get", person, ctx)["record"]["name"] == "Yve"
    assert it.call("delete", person, ctx) == {"deleted": True}
    assert it.call("delete", person, ctx) == {"deleted": False}


@pytest.mark.parametrize(("limit", "count", "truncated"), [(1, 1, True), (500, 500, True), (602, 602, False), (900, 602, False)])
def test_a_list_follows_its_pages_up_to_the_limit(
    it: PipedriveConnector, pipedrive: Pipedrive, ctx: Context, limit: int, count: int, truncated: bool
) -> None:
    for _ in range(600):
        pipedrive.add("deals", {"title": "bulk", "status": "open"})
    out = it.call("list", {"kind": "deals", "where": {"status": "open"}, "limit": limit}, ctx)
    assert (len({each["id"] for each in out["records"]}), out["truncated"]) == (count, truncated)
    assert it.call("list", {"kind": "deals", "where": {"status": "won"}}, ctx) == {"records": [], "truncated": False}


def test_fields_are_described(it: PipedriveConnector, ctx: Context) -> None:
    title, status = it.call("describe", {"kind": "deals"}, ctx)["fields"]
    assert title == {"name": "title", "type": "varchar", "title": "Title"}
    assert status["options"] == [{"id": 1, "label": "Won"}]


def test_every_changed_record_is_returned_once(it: PipedriveConnector, pipedrive: Pipedrive, ctx: Context) -> None:
    for _ in range(450):
        pipedrive.add("deals", {"title": "bulk", "status": "won"})
    query = {"kind": "deals", "where": {"status": "won"}}
    first = it.poll("changed_records", query, None, ctx)
    seen: list[str] = []
    cursor, more = None, True
    while more and len(seen) < 2000:
        polled = it.poll("changed_records", {**query, "begin": "start"}, cursor, ctx)
        seen += [item.key for item in polled.items]
        cursor, more = json.loads(json.dumps(polled.cursor)), polled.more
    assert (len(seen), len(set(seen))) == (450, 450)
    assert it.poll("changed_records", query, first.cursor, ctx).items == []
    pipedrive.tick(2)
    pipedrive.change("deals", 7, {"title": "x"})
    (item,) = it.poll("changed_records", query, first.cursor, ctx).items
    assert item.key == "7@2026-11-21T10:00:02Z"


# -- what goes wrong


@pytest.mark.parametrize(
    ("action", "inputs", "message"),
    [
        ("create", {"kind": "deals", "values": {"title": ""}}, "Deal title was not given."),
        ("get", {"kind": "deals", "id": 99}, "Deal not found"),
    ],
)
def test_refusals_keep_the_systems_message(it: PipedriveConnector, ctx: Context, action: str, inputs: Json, message: str) -> None:
    with pytest.raises(Rejected, match=message) as caught:
        it.call(action, inputs, ctx)
    assert caught.value.outcome == "not_done"


@pytest.mark.parametrize(
    ("changed", "error"),
    [({"token": "wrong-secret"}, AuthError), ({"base_url": "http://no-such-host.invalid"}, TransientError)],
)
def test_invalid_settings_fail_the_check(settings: Settings, ctx: Context, changed: Json, error: type[ConnectorError]) -> None:
    with pytest.raises(error) as caught:
        PipedriveConnector({**settings, **changed}).check(ctx)
    assert caught.value.outcome == "not_done"
    assert "wrong-secret" not in caught.value.message + json.dumps(caught.value.details)


@pytest.mark.parametrize(
    ("status", "headers", "body", "error", "outcome", "after"),
    [
        (429, {"x-ratelimit-reset": "2"}, b"", RateLimited, "not_done", 2),
        (429, {"Retry-After": "7", "x-ratelimit-reset": "2"}, b"", RateLimited, "not_done", 7),
        (429, {"x-daily-ratelimit-token-remaining": "0"}, b"", RateLimited, "not_done", 3600),
        (429, {}, b"", RateLimited, "not_done", None),
        (403, {}, b"<html>", RateLimited, "not_done", 3600),
        (403, {}, b'{"success": false, "error": "Scope is missing"}', AuthError, "not_done", None),
        (403, {}, b'{"error": "Limit reached", "code": "feature_capping_deals_limit"}', Rejected, "not_done", None),
        (402, {}, b"{}", AuthError, "not_done", None),
        (500, {}, b"", TransientError, "unknown", None),
        (201, {}, b"<html>", SystemFailure, "unknown", None),
        (201, {}, b'{"success": true, "data": []}', SystemFailure, "unknown", None),
    ],
)
def test_unexpected_answers_raise_the_matching_error(
    it: PipedriveConnector,
    pipedrive: Pipedrive,
    ctx: Context,
    status: int,
    headers: dict[str, str],
    body: bytes,
    error: type[ConnectorError],
    outcome: str,
    after: float | None,
) -> None:
    pipedrive.server.answers["/api/v2/deals"] = lambda _: Answer(status, headers, body)
    with pytest.raises(ConnectorError) as caught:
        it.call("create", {"kind": "deals", "values": {"title": "x"}}, ctx)
    assert (type(caught.value), caught.value.outcome, getattr(caught.value, "retry_after", None)) == (error, outcome, after)


@pytest.mark.parametrize(
    "body",
    [
        b'{"success": true, "data": [{"id": 1}], "additional_data": {"next_cursor": "x"}}',
        b'{"success": true, "data": [1]}',
        b'{"success": false}',
    ],
)
def test_malformed_list_pages_raise_system_failure(it: PipedriveConnector, pipedrive: Pipedrive, ctx: Context, body: bytes) -> None:
    pipedrive.server.answer("/api/v2/deals", 200, body)
    with pytest.raises(SystemFailure):
        it.call("list", {"kind": "deals"}, ctx)
