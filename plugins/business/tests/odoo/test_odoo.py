"""The connector against a small Odoo on loopback, over both protocols."""

import json
import threading
from typing import Any

import pytest
from gos_connector_business.odoo import OdooConnector

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
from appliance.connectors.testing import Answer, ConnectorContract, Received, schema_problems

Odoo = Any
Settings = dict[str, Any]
PARTNER = {"model": "res.partner"}


class TestContract(ConnectorContract):
    connector = OdooConnector

    @pytest.fixture
    def settings(self, odoo: Odoo) -> Settings:
        odoo.add({"name": "Acme", "is_company": True})
        return {"base_url": odoo.server.url, "key": "6578-key-'\"%s", "database": "acme"}

    @pytest.fixture
    def broken_settings(self) -> Settings:
        return {"base_url": "http://127.0.0.1:1", "key": "k"}


class TestContractOfJsonRpc(ConnectorContract):
    connector = OdooConnector

    @pytest.fixture
    def settings(self, old_settings: Settings) -> Settings:
        return old_settings

    @pytest.fixture
    def broken_settings(self, old_settings: Settings) -> Settings:
        return {**old_settings, "base_url": "http://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("settings", "good"),
    [
        ({"key": "k"}, True),
        ({"protocol": "json2"}, False),
        ({}, False),
        ({"protocol": "jsonrpc", "database": "d", "user": "u", "password": "p"}, True),
        ({"protocol": "jsonrpc", "database": "d", "user": "u"}, False),
    ],
)
def test_settings_must_fit_the_protocol(settings: Settings, good: bool) -> None:
    assert (schema_problems(OdooConnector.settings_schema, {"base_url": "https://a.example", **settings}) == []) is good


def test_check_names_the_server_and_the_user(settings: Settings, old_settings: Settings, ctx: Context) -> None:
    url = settings["base_url"]
    assert OdooConnector(settings).check(ctx) == f"Connected to Odoo at {url} with the API key."
    assert OdooConnector(old_settings).check(ctx) == f"Connected to Odoo 17.0 at {url}, database acme, as gos@example.com."


# -- records


def test_records_are_created_found_changed_and_deleted(it: OdooConnector, ctx: Context) -> None:
    ids = it.call("create", {**PARTNER, "records": [{"name": f"Zoë {number}"} for number in (1, 2, 3)]}, ctx)["ids"]
    search = {**PARTNER, "domain": [["name", "ilike", "zoë"]], "fields": ["name"], "order": "name desc"}
    page = it.call("search", {**search, "limit": 2}, ctx)
    assert ([each["name"] for each in page["records"]], page["truncated"]) == (["Zoë 3", "Zoë 2"], True)
    assert it.call("search", {**search, "limit": 3}, ctx)["truncated"] is False
    assert [each["name"] for each in it.call("search", {**search, "offset": 2}, ctx)["records"]] == ["Zoë 1"]
    assert it.call("update", {**PARTNER, "ids": ids[:2], "values": {"name": "Yve"}}, ctx) == {"updated": 2}
    read = it.call("read", {**PARTNER, "ids": ids[::-1], "fields": ["name"]}, ctx)["records"]
    assert [(each["id"], each["name"]) for each in read] == [(ids[2], "Zoë 3"), (ids[1], "Yve"), (ids[0], "Yve")]
    assert it.call("delete", {**PARTNER, "ids": ids[:2]}, ctx) == {"deleted": 2}
    assert it.call("delete", {**PARTNER, "ids": ids}, ctx) == {"deleted": 1}


def test_pages_of_a_long_search_do_not_overlap(it: OdooConnector, odoo: Odoo, ctx: Context) -> None:
    for _ in range(1500):
        odoo.add({"name": "Same"})
    page = it.call("search", {**PARTNER, "fields": ["name"], "order": "name", "limit": 1400, "offset": 3}, ctx)
    assert (len({each["id"] for each in page["records"]}), page["truncated"]) == (1400, True)
    orders = [
        b'"order":"name, id"' in each.body for each in odoo.server.received if b"search_read" in each.path.encode() + each.body
    ]
    assert orders == [True, True]


def test_values_are_plain(it: OdooConnector, odoo: Odoo, ctx: Context) -> None:
    values = {"name": "Dan", "parent_id": 1, "category_id": [2, 3], "met": "2031-02-03T04:05:06+01:00", "date": "2031-02-03"}
    (number,) = it.call("create", {**PARTNER, "records": [values]}, ctx)["ids"]
    fields = ["name", "email", "active", "is_company", "parent_id", "category_id", "met", "date", "write_date"]
    (read,) = it.call("read", {**PARTNER, "ids": [number], "fields": fields}, ctx)["records"]
    assert read == {
        "id": number, "name": "Dan", "email": None, "active": True, "is_company": False, "parent_id": {"id": 1, "name": "Ann"},
        "category_id": [2, 3], "met": "2031-02-03T03:05:06Z", "date": "2031-02-03", "write_date": "2026-11-21T10:00:00Z",
    }  # fmt: skip
    it.call("update", {**PARTNER, "ids": [number], "values": {"parent_id": {"id": 2, "name": "x"}, "met": None}}, ctx)
    assert (odoo.partners[number]["parent_id"], odoo.partners[number]["met"]) == (2, False)


def test_an_upsert_adds_once_and_then_changes(it: OdooConnector, odoo: Odoo, ctx: Context) -> None:
    values = {
        "name": "Eve",
        "color": 3,
        "active": True,
        "parent_id": 1,
        "category_id": [1, 2],
        "email": None,
        "met": "2031-02-03T04:05:06Z",
    }
    inputs = {
        **PARTNER,
        "records": [{"external_id": "gos.eve", "values": values}, {"external_id": "gos.b", "values": {**values, "name": "B"}}],
    }
    first = it.call("upsert", inputs, ctx)
    assert it.call("upsert", inputs, ctx) == first
    eve = odoo.partners[first["ids"][0]]
    assert (eve["name"], eve["color"], eve["active"], eve["parent_id"], eve["category_id"]) == ("Eve", 3, True, 1, [1, 2])
    assert (eve["email"], eve["met"].isoformat(), len(odoo.partners)) == (False, "2031-02-03T04:05:06+00:00", 5)


@pytest.mark.parametrize(
    ("records", "error", "message"),
    [
        ([("gos.a", {"name": "A", "kind": "z"})], Rejected, "imported nothing: Value 'z' not found"),
        ([("gos.a", {"name": "A"}), ("gos.a", {"name": "B"})], ConfigError, "the same external_id"),
        ([("gos.a", {"name": "A"}), ("gos.b", {"email": "B"})], ConfigError, "set the same fields"),
        ([("gos.a", {"nme": "A"})], ConfigError, "no field 'nme'"),
        ([("gos.a", {"parent_id": "Ann"})], ConfigError, "refers to a record"),
        ([("gos.a", {"category_id": [[0, 0, {}]]})], ConfigError, "upsert cannot set"),
        ([("gos.a", {"met": "soon"})], ConfigError, "is a date and time"),
    ],
)
def test_an_invalid_upsert_adds_nothing(
    it: OdooConnector, odoo: Odoo, ctx: Context, records: list[Any], error: type[ConnectorError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        it.call("upsert", {**PARTNER, "records": [{"external_id": name, "values": values} for name, values in records]}, ctx)
    assert (caught.value.outcome, len(odoo.partners)) == ("not_done", 3)


def test_methods_run_and_fields_are_described(it: OdooConnector, ctx: Context) -> None:
    assert it.call("call", {**PARTNER, "method": "search_count", "args": {"domain": [["id", ">", 1]]}}, ctx) == {"result": 2}
    assert it.call("call", {**PARTNER, "method": "ping"}, ctx) == {"result": None}
    assert it.call("call", {**PARTNER, "method": "write", "ids": [1], "args": {"vals": {"name": "A"}}}, ctx) == {"result": True}
    fields = {each["name"]: each for each in it.call("describe", PARTNER, ctx)["fields"]}
    assert fields["parent_id"]["relation"] == "res.partner"
    assert (fields["kind"]["options"], fields["name"]["required"], fields["id"]["readonly"]) == ([["a", "A"]], True, True)


def test_the_context_is_sent(settings: Settings, old_settings: Settings, odoo: Odoo, ctx: Context) -> None:
    inputs = {**PARTNER, "method": "ping", "ids": [1], "context": {"lang": "de_DE"}}
    OdooConnector({**settings, "database": "acme"}).call("call", inputs, ctx)
    assert odoo.last_body() == {"ids": [1], "context": {"lang": "de_DE"}}
    assert odoo.server.received[-1].headers["x-odoo-database"] == "acme"
    OdooConnector(old_settings).call("call", inputs, ctx)
    assert odoo.last_body()["params"]["args"][3:] == ["res.partner", "ping", [[1]], {"context": {"lang": "de_DE"}}]


# -- the trigger


def test_changed_records_are_returned_once_as_plain_values(it: OdooConnector, odoo: Odoo, ctx: Context) -> None:
    query = {**PARTNER, "fields": ["name", "email"], "domain": [["active", "=", True]]}
    polled = it.poll("changed_records", query, None, ctx)
    assert (polled.items, polled.more) == ((), False)
    odoo.tick(2)
    odoo.write([2], {"name": "Bob"})
    odoo.add({"name": "Off", "active": False})
    polled = it.poll("changed_records", query, json.loads(json.dumps(polled.cursor)), ctx)
    assert [item.data for item in polled.items] == [
        {
            "id": 2, "changed_at": "2026-11-21T10:00:02Z",
            "record": {"id": 2, "name": "Bob", "email": None, "write_date": "2026-11-21T10:00:02Z"},
        }
    ]  # fmt: skip


def test_all_records_imported_in_one_second_are_returned(it: OdooConnector, odoo: Odoo, ctx: Context) -> None:
    for number in range(450):
        odoo.now = odoo.now.replace(microsecond=999_999 - number)
        odoo.add({"name": f"P{number}"})
    query = {**PARTNER, "fields": ["name"], "begin": "start"}
    seen, cursor, more = set(), None, True
    while more:
        polled = it.poll("changed_records", query, cursor, ctx)
        seen |= {item.key for item in polled.items}
        cursor, more = polled.cursor, polled.more
    assert len(seen) == 453


# -- what goes wrong


@pytest.mark.parametrize(
    ("action", "inputs", "error", "message"),
    [
        ("create", {"records": [{"nme": "Ann"}]}, ConfigError, "no field 'nme'"),
        ("create", {"records": [{"name": None}]}, Rejected, "Odoo refused: A name is needed."),
        ("read", {"ids": [9999], "fields": ["name"]}, Rejected, "does not exist or has been deleted"),
        ("search", {"fields": ["nope"]}, Rejected, "Invalid field 'nope'"),
        ("search", {"model": "no.such", "fields": ["id"]}, Rejected, "'no.such' does not exist"),
        ("call", {"method": "nope"}, Rejected, "does not exist"),
        ("call", {"method": "search_count"}, Rejected, "missing"),
    ],
)
def test_refusals_keep_the_systems_message(
    it: OdooConnector, ctx: Context, action: str, inputs: Json, error: type[ConnectorError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        it.call(action, {**PARTNER, **inputs}, ctx)
    assert caught.value.outcome == "not_done"
    assert "secret_line" not in caught.value.message + json.dumps(caught.value.details)


@pytest.mark.parametrize(
    ("name", "status", "error", "outcome"),
    [
        ("odoo.exceptions.AccessError", 403, AuthError, "not_done"),
        ("odoo.exceptions.LockError", 409, TransientError, "not_done"),
        ("psycopg2.errors.SerializationFailure", 500, TransientError, "not_done"),
        ("psycopg2.errors.UniqueViolation", 500, Rejected, "not_done"),
        ("psycopg2.OperationalError", 500, TransientError, "unknown"),
        ("odoo.exceptions.RedirectWarning", 422, Rejected, "not_done"),
        ("builtins.RuntimeErrors", 500, Rejected, "not_done"),
        ("requests.exceptions.ConnectionError", 500, SystemFailure, "unknown"),
    ],
)
def test_odoo_exceptions_raise_the_matching_error(
    it: OdooConnector, odoo: Odoo, ctx: Context, name: str, status: int, error: type[ConnectorError], outcome: str
) -> None:
    odoo.fail = make_error(odoo, name, status)
    failure = failed_creation(it, ctx)
    assert (type(failure), failure.outcome) == (error, outcome)
    assert "secret_line" not in failure.message + json.dumps(failure.details)


def make_error(odoo: Odoo, name: str, status: int) -> Exception:
    error: Exception = odoo.error(name, "The month is closed.\nTraceback (most recent call last): secret_line", status)
    return error


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"key": "wrong-secret"}, AuthError),
        ({"database": "nowhere"}, ConfigError),
        ({"base_url": "http://no-such-host.invalid"}, TransientError),
    ],
)
def test_invalid_settings_fail_the_check(settings: Settings, ctx: Context, changed: Json, error: type[ConnectorError]) -> None:
    with pytest.raises(error) as caught:
        OdooConnector({**settings, **changed}).check(ctx)
    assert caught.value.outcome == "not_done"
    assert "wrong-secret" not in caught.value.message + json.dumps(caught.value.details)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"password": "wrong-secret"}, AuthError),
        ({"user": "nobody"}, AuthError),
        ({"database": "nowhere"}, ConfigError),
        ({"base_url": "http://127.0.0.1:1"}, TransientError),
    ],
)
def test_invalid_jsonrpc_settings_fail_the_check(
    old_settings: Settings, ctx: Context, changed: Json, error: type[ConnectorError]
) -> None:
    with pytest.raises(error) as caught:
        OdooConnector({**old_settings, **changed}).check(ctx)
    assert caught.value.outcome == "not_done"
    assert "wrong-secret" not in caught.value.message + json.dumps(caught.value.details)


def test_denied_access_triggers_a_new_login(old_settings: Settings, odoo: Odoo, ctx: Context) -> None:
    it = OdooConnector(old_settings)
    it.check(ctx)
    odoo.fail = make_error(odoo, "odoo.exceptions.AccessDenied", 403)
    with pytest.raises(AuthError):
        it.check(ctx)
    odoo.fail = None
    odoo.server.received.clear()
    it.check(ctx)
    assert b'"authenticate"' in odoo.server.received[0].body


@pytest.mark.parametrize(
    ("status", "headers", "body", "error", "outcome"),
    [
        (200, {}, b"<html>", SystemFailure, "unknown"),
        (200, {}, b'{"result": [4]}', SystemFailure, "unknown"),
        (200, {}, b"[" * 100_000, SystemFailure, "unknown"),
        (200, {}, b'"4"', SystemFailure, "unknown"),
        (303, {"Location": "/web/login"}, b"", ConfigError, "not_done"),
        (404, {}, b"<html>", ConfigError, "not_done"),
        (429, {"Retry-After": "7"}, b"", RateLimited, "not_done"),
        (503, {}, b"", TransientError, "not_done"),
        (502, {}, b"<html>", TransientError, "unknown"),
        (400, {}, b"", Rejected, "not_done"),
    ],
)
def test_unexpected_answers_raise_the_matching_error(
    it: OdooConnector,
    odoo: Odoo,
    ctx: Context,
    status: int,
    headers: dict[str, str],
    body: bytes,
    error: type[ConnectorError],
    outcome: str,
) -> None:
    default_answers = dict(odoo.server.answers)

    def answer(path: str, request: Received) -> Answer:
        is_creation = path.endswith("/create") or b'"create"' in request.body
        return Answer(status, headers, body) if is_creation else default_answers[path](request)

    odoo.server.answers = {path: lambda request, path=path: answer(path, request) for path in default_answers}
    failure = failed_creation(it, ctx)
    assert (type(failure), failure.outcome) == (error, outcome)
    if isinstance(failure, RateLimited):
        assert failure.retry_after == 7


def test_a_silent_server_leaves_a_creation_unknown(settings: Settings, odoo: Odoo, ctx: Context) -> None:
    it = OdooConnector({**settings, "timeout_s": 1})
    silent = threading.Event()

    def wait(_: Received) -> Answer:
        silent.wait(20)
        return Answer()

    odoo.server.answers["/json/2/res.partner/create"] = wait
    failure = failed_creation(it, ctx)
    silent.set()
    assert (type(failure), failure.outcome) == (TransientError, "unknown")


def failed_creation(it: OdooConnector, ctx: Context) -> ConnectorError:
    with pytest.raises(ConnectorError) as caught:
        it.call("create", {**PARTNER, "records": [{"name": "Ann"}]}, ctx)
    return caught.value
