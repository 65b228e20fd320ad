"""The connector against a real Tryton, and against loopback servers with malformed responses."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from gos_connector_tryton import TrytonConnector
from gos_connector_tryton.values import to_plain, to_tryton

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
from appliance.connectors.testing import Answer, ConnectorContract, LoopbackServer, Received, open_context

Settings = dict[str, Any]
PARTY = {"model": "party.party"}


@pytest.fixture
def ctx() -> Iterator[Context]:
    with open_context(seconds=30) as ctx:
        yield ctx


@pytest.fixture
def it(tryton: Settings) -> TrytonConnector:
    return TrytonConnector(tryton)


@pytest.fixture
def ann(it: TrytonConnector, ctx: Context) -> int:
    return int(it.call("create", {**PARTY, "records": [{"name": "Ann"}]}, ctx)["ids"][0])


class TestContract(ConnectorContract):
    connector = TrytonConnector

    @pytest.fixture
    def settings(self, tryton: Settings) -> Settings:
        with open_context(seconds=30) as ctx:
            TrytonConnector(tryton).call("create", {**PARTY, "records": [{"name": "Ann"}, {"name": "Ben"}]}, ctx)
        return tryton

    @pytest.fixture
    def broken_settings(self, tryton: Settings) -> Settings:
        return {**tryton, "base_url": "http://127.0.0.1:1"}


def test_check_names_user_and_database(it: TrytonConnector, ctx: Context) -> None:
    assert it.check(ctx) == "Connected to the Tryton database gos as admin."


def test_records_are_created_found_changed_and_deleted(it: TrytonConnector, ctx: Context) -> None:
    ids = it.call("create", {**PARTY, "records": [{"name": "Zoë 1"}, {"name": "Zoë 2"}, {"name": "Zoë 3"}]}, ctx)["ids"]
    search = {**PARTY, "domain": [["name", "like", "Zoë %"]], "fields": ["name"], "order": [["name", "DESC"]]}
    page = it.call("search", {**search, "limit": 2}, ctx)
    assert ([each["name"] for each in page["records"]], page["truncated"]) == (["Zoë 3", "Zoë 2"], True)
    assert it.call("search", {**search, "limit": 3}, ctx)["truncated"] is False
    assert [each["name"] for each in it.call("search", {**search, "offset": 2}, ctx)["records"]] == ["Zoë 1"]
    assert it.call("update", {**PARTY, "ids": ids[:2], "values": {"name": "Yve"}}, ctx) == {"updated": 2}
    read = it.call("read", {**PARTY, "ids": ids[::-1], "fields": ["name"]}, ctx)["records"]
    assert [(each["id"], each["name"]) for each in read] == [(ids[2], "Zoë 3"), (ids[1], "Yve"), (ids[0], "Yve")]
    assert it.call("delete", {**PARTY, "ids": ids[:2]}, ctx) == {"deleted": 2}
    assert it.call("delete", {**PARTY, "ids": ids}, ctx) == {"deleted": 1}


def test_an_inactive_record_is_deleted_too(it: TrytonConnector, ann: int, ctx: Context) -> None:
    it.call("update", {**PARTY, "ids": [ann], "values": {"active": False}}, ctx)
    assert it.call("delete", {**PARTY, "ids": [ann]}, ctx) == {"deleted": 1}


def test_times_are_read_and_written_as_iso_8601(it: TrytonConnector, ann: int, ctx: Context) -> None:
    (read,) = it.call("read", {**PARTY, "ids": [ann], "fields": ["create_date"]}, ctx)["records"]
    assert read["create_date"][10:11] + read["create_date"][-1] == "TZ"
    cron = {"model": "ir.cron"}
    (job,) = it.call("search", {**cron, "fields": ["next_call"], "limit": 1}, ctx)["records"]
    values = {"next_call": "2031-02-03T04:05:06+01:00"}
    it.call("update", {**cron, "ids": [job["id"]], "values": values}, ctx)
    (read,) = it.call("read", {**cron, "ids": [job["id"]], "fields": ["next_call"]}, ctx)["records"]
    assert read["next_call"] == "2031-02-03T03:05:06Z"
    with pytest.raises(ConfigError, match="next_call is of type"):
        it.call("update", {**cron, "ids": [job["id"]], "values": {"next_call": "soon"}}, ctx)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("numeric", "12345678901234567.89"),
        ("date", "2026-11-21"),
        ("time", "10:20:30.000004"),
        ("datetime", "2026-11-21T10:20:30Z"),
        ("timedelta", 90),
        ("binary", "AAEC"),
        ("char", "2026-11-21"),
    ],
)
def test_values_survive_a_round_trip(kind: str, value: Any) -> None:
    sent = to_tryton("f", kind, value)
    assert (sent == value) == (kind == "char")
    assert to_plain(sent) == value


def test_an_update_is_rejected_when_the_record_has_changed_since(it: TrytonConnector, ann: int, ctx: Context) -> None:
    (read,) = it.call("read", {**PARTY, "ids": [ann], "fields": ["_timestamp"]}, ctx)["records"]
    inputs = {**PARTY, "ids": [ann], "context": {"_timestamp": {f"party.party,{ann}": read["_timestamp"]}}}
    it.call("update", {**inputs, "values": {"name": "Bea"}}, ctx)
    with pytest.raises(Rejected, match="has changed since"):
        it.call("update", {**inputs, "values": {"name": "Cid"}}, ctx)


def test_methods_run_and_fields_are_described(it: TrytonConnector, ann: int, ctx: Context) -> None:
    assert it.call("call", {**PARTY, "method": "search_count", "args": [[["id", "=", ann]]]}, ctx) == {"result": 1}
    fields = {each["name"]: each for each in it.call("describe", PARTY, ctx)["fields"]}
    assert (fields["lang"]["type"], fields["lang"]["relation"], fields["code"]["required"]) == ("many2one", "ir.lang", True)


@pytest.mark.usefixtures("ann")  # without records, Tryton would not notice an unknown field
@pytest.mark.parametrize(
    ("action", "inputs", "error", "message"),
    [
        ("create", {"records": [{"nme": "Ann"}]}, ConfigError, "no field 'nme'"),
        ("read", {"ids": [9999], "fields": ["name"]}, Rejected, "Tryton refused: .*exist"),
        ("search", {"fields": ["nope"]}, Rejected, "no field, model or value 'nope'"),
        ("search", {"model": "no.such", "fields": ["id"]}, Rejected, "'no.such'"),
        ("call", {"method": "nope"}, Rejected, "does not offer"),
    ],
)
def test_refusals_keep_the_systems_message(
    it: TrytonConnector, ctx: Context, action: str, inputs: Json, error: type[ConnectorError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        it.call(action, {**PARTY, **inputs}, ctx)
    assert caught.value.outcome == "not_done"


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"password": "wrong-secret"}, AuthError),
        ({"user": "nobody"}, AuthError),
        ({"database": "nowhere"}, TransientError),
        ({"base_url": "http://no-such-host.invalid"}, TransientError),
    ],
)
def test_invalid_settings_fail_the_check(tryton: Settings, ctx: Context, changed: Json, error: type[ConnectorError]) -> None:
    with pytest.raises(error) as caught:
        TrytonConnector({**tryton, **changed}).check(ctx)
    assert caught.value.outcome == "not_done"
    assert "wrong-secret" not in caught.value.message + json.dumps(caught.value.details)


@pytest.mark.parametrize(
    ("status", "body", "error", "outcome"),
    [
        (200, b"<html>", SystemFailure, "unknown"),
        (200, b"[]", SystemFailure, "unknown"),
        (200, b'{"id": 1}', SystemFailure, "unknown"),
        (200, b'{"result": "x"}', SystemFailure, "unknown"),
        (200, b'{"error": ["connection lost at commit", ""]}', SystemFailure, "unknown"),
        (200, b'{"error": ["UserWarning", ["w1", "Sure?", ""]]}', Rejected, "not_done"),
        (404, b"", ConfigError, "not_done"),
        (429, b"", RateLimited, "not_done"),
        (504, b"", TransientError, "unknown"),
        (400, b"", Rejected, "not_done"),
    ],
)
def test_unexpected_answers_raise_the_matching_error(status: int, body: bytes, error: type[ConnectorError], outcome: str) -> None:
    server = LoopbackServer()
    names = Answer(200, body=b'{"result": {"name": {"type": "char"}}}')
    server.answers["/gos/rpc/"] = lambda request: names if b"fields_get" in request.body else Answer(status, body=body)
    failure = failed_creation(server, 10)
    assert (type(failure), failure.outcome) == (error, outcome)


def test_a_silent_server_leaves_a_creation_unknown() -> None:
    server, silent = LoopbackServer(), threading.Event()

    def answer(request: Received) -> Answer:
        if b"fields_get" not in request.body:
            silent.wait(20)
        return Answer(200, body=b'{"result": {"name": {"type": "char"}}}')

    server.answers["/gos/rpc/"] = answer
    failure = failed_creation(server, 1)
    silent.set()
    assert (type(failure), failure.outcome) == (TransientError, "unknown")


def failed_creation(server: LoopbackServer, seconds: float) -> ConnectorError:
    it = TrytonConnector({"base_url": server.url, "database": "gos", "user": "a", "password": "b"})
    with open_context(seconds=seconds) as ctx, pytest.raises(ConnectorError) as caught:
        it.call("create", {**PARTY, "records": [{"name": "Ann"}]}, ctx)
    return caught.value
