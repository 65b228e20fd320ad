"""What goes wrong: which error of the contract tells it, and what a caller may assume."""

import json
import threading
from typing import Any

import pytest
from gos_connector_graphql import GraphqlConnector

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Json,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
)
from appliance.connectors.testing import Answer, Received, open_context

Shop = Any
TOKEN = "very-secret-token"


def failure(it: GraphqlConnector, action: str = "mutate", seconds: float = 20) -> ConnectorError:
    kind = {"mutate": "mutation", "query": "query"}.get(action)
    given: Json = {"document": f"{kind} {{ old }}"} if kind else {}
    with open_context(seconds=seconds) as ctx, pytest.raises(ConnectorError) as caught:
        it.call(action, given, ctx)
    assert TOKEN not in caught.value.message + json.dumps(caught.value.details)
    return caught.value


@pytest.mark.parametrize(
    ("status", "headers", "error", "outcome"),
    [
        (400, {}, Rejected, "not_done"),
        (401, {}, AuthError, "not_done"),
        (403, {}, AuthError, "not_done"),
        (404, {}, ConfigError, "not_done"),
        (307, {"Location": "http://127.0.0.1:1/"}, ConfigError, "not_done"),
        (429, {"Retry-After": "7"}, RateLimited, "not_done"),
        (503, {"Retry-After": "7"}, RateLimited, "not_done"),
        (503, {}, TransientError, "not_done"),
        (500, {}, TransientError, "unknown"),
        (501, {}, Rejected, "not_done"),
    ],
)
@pytest.mark.parametrize("body", [b'{"errors": [{"message": "The month is closed."}]}', b"<p>The month is closed.</p>"])
def test_a_status_is_an_error_of_its_class(
    it: GraphqlConnector, shop: Shop, status: int, headers: dict[str, str], error: type[ConnectorError], outcome: str, body: bytes
) -> None:
    shop.server.answers["/graphql"] = lambda _: Answer(status, headers, body)
    found = failure(it)
    assert (type(found), found.outcome, found.details["status"]) == (error, outcome, status)
    assert "The month is closed." in json.dumps(found.details)
    if isinstance(found, RateLimited):
        assert found.retry_after == 7


@pytest.mark.parametrize(
    ("code", "error"),
    [("UNAUTHENTICATED", AuthError), ("THROTTLED", RateLimited), ("INTERNAL_SERVER_ERROR", SystemFailure), ("OTHER", Rejected)],
)
def test_a_code_is_an_error_of_its_class(it: GraphqlConnector, shop: Shop, code: str, error: type[ConnectorError]) -> None:
    body = json.dumps({"errors": [{"message": "No.", "extensions": {"code": code}}]}).encode()
    shop.server.answers["/graphql"] = lambda _: Answer(200, {"Retry-After": "9"}, body)
    found = failure(it)
    assert (type(found), found.outcome) == (error, "unknown" if code == "INTERNAL_SERVER_ERROR" else "not_done")
    assert failure(it, "query").outcome == "not_done"
    if isinstance(found, RateLimited):
        assert found.retry_after == 9


def test_a_wrong_token_is_told(shop: Shop) -> None:
    it = GraphqlConnector({"url": shop.url, "auth": {"kind": "bearer", "token": "wrong-secret"}})
    with open_context() as ctx, pytest.raises(AuthError, match="Who are you") as caught:
        it.check(ctx)
    assert "wrong-secret" not in caught.value.message + json.dumps(caught.value.details)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/graphql", "http://no-such-host.invalid/graphql"])
def test_an_address_without_a_service_is_transient_and_nothing_is_done(url: str) -> None:
    found = failure(GraphqlConnector({"url": url}))
    assert (type(found), found.outcome) == (TransientError, "not_done")


def test_a_silent_service_leaves_a_mutation_unknown(it: GraphqlConnector, shop: Shop) -> None:
    silent = threading.Event()

    def wait(_: Received) -> Answer:
        silent.wait(20)
        return Answer()

    shop.server.answers["/graphql"] = wait
    found = failure(it, seconds=1)
    silent.set()
    assert (type(found), found.outcome) == (TransientError, "unknown")


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"[1]", b"{}", b'{"data": null}', b'{"data": [1]}', b'{"data": {"a": NaN}}', b'{"errors": "no"}',
     b'{"data": null, "errors": []}', b"[" * 100_000, b""],
    ids=range(10),
)  # fmt: skip
def test_a_lying_service_is_a_failure(it: GraphqlConnector, shop: Shop, body: bytes) -> None:
    shop.server.answer("/graphql", 200, body)
    changing, reading = failure(it), failure(it, "query")
    assert (type(changing), changing.outcome) == (SystemFailure, "unknown")
    assert (type(reading), reading.outcome) == (SystemFailure, "not_done")


@pytest.mark.parametrize("errors", [[None], ["no"], [{}], [{"message": 1, "path": "x", "extensions": []}], [{"path": [None, 1.5]}]])
def test_errors_of_a_strange_form_are_refusals_all_the_same(it: GraphqlConnector, shop: Shop, errors: Any) -> None:
    shop.server.answer("/graphql", 200, json.dumps({"errors": errors}).encode())
    found = failure(it)
    assert (type(found), found.outcome) == (Rejected, "not_done")


def test_a_null_without_an_error_may_be_a_change_that_was_made(it: GraphqlConnector, shop: Shop) -> None:
    body = {"data": {"a": None, "b": None}, "errors": [{"message": "No.", "path": ["a"]}]}
    shop.server.answer("/graphql", 200, json.dumps(body).encode())
    assert failure(it).outcome == "unknown"
    assert failure(it, "query").outcome == "not_done"


def test_a_thousand_errors_are_cut(it: GraphqlConnector, shop: Shop) -> None:
    body = {"errors": [{"message": "x" * 600, "path": ["p" * 300] * 60}] * 100}
    shop.server.answer("/graphql", 200, json.dumps(body).encode())
    found = failure(it)
    assert len(found.details["errors"]) == 20
    assert len(json.dumps(found.details)) < 500_000


@pytest.mark.parametrize(
    "body",
    [{"data": {"__schema": None}}, {"data": {"__schema": {"queryType": {"fields": [{}]}, "mutationType": None}}}, {"data": {}}],
)
def test_a_service_that_describes_itself_strangely_is_a_failure(it: GraphqlConnector, shop: Shop, body: Any) -> None:
    shop.server.answer("/graphql", 200, json.dumps(body).encode())
    assert type(failure(it, "describe")) is SystemFailure


def test_a_service_without_introspection_is_told(it: GraphqlConnector, shop: Shop) -> None:
    shop.server.answer("/graphql", 400, b'{"errors": [{"message": "Introspection is disabled."}]}')
    found = failure(it, "describe")
    assert type(found) is Rejected
    assert "does not describe itself" in found.message
    assert "Introspection is disabled." in found.message


def test_numbers_are_not_rounded(it: GraphqlConnector, shop: Shop) -> None:
    shop.server.answer("/graphql", 200, b'{"data": {"a": 9007199254740993, "b": 0.1, "c": 12345678901234567.89, "d": 7}}')
    with open_context() as ctx:
        data = it.call("query", {"document": "{ old }"}, ctx)["data"]
    assert data == {"a": "9007199254740993", "b": 0.1, "c": "12345678901234567.89", "d": 7}
