"""Failures: which error of the connector contract is raised, and with which outcome."""

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
    params: Json = {"document": f"{kind} {{ old }}"} if kind else {}
    with open_context(seconds=seconds) as ctx, pytest.raises(ConnectorError) as caught:
        it.call(action, params, ctx)
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
def test_each_status_maps_to_an_error_class(
    it: GraphqlConnector, shop: Shop, status: int, headers: dict[str, str], error: type[ConnectorError], outcome: str, body: bytes
) -> None:
    shop.server.answers["/graphql"] = lambda _: Answer(status, headers, body)
    raised = failure(it)
    assert (type(raised), raised.outcome, raised.details["status"]) == (error, outcome, status)
    assert "The month is closed." in json.dumps(raised.details)
    if isinstance(raised, RateLimited):
        assert raised.retry_after == 7


@pytest.mark.parametrize(
    ("code", "error"),
    [("UNAUTHENTICATED", AuthError), ("THROTTLED", RateLimited), ("INTERNAL_SERVER_ERROR", SystemFailure), ("OTHER", Rejected)],
)
def test_each_error_code_maps_to_an_error_class(it: GraphqlConnector, shop: Shop, code: str, error: type[ConnectorError]) -> None:
    body = json.dumps({"errors": [{"message": "No.", "extensions": {"code": code}}]}).encode()
    shop.server.answers["/graphql"] = lambda _: Answer(200, {"Retry-After": "9"}, body)
    raised = failure(it)
    assert (type(raised), raised.outcome) == (error, "unknown" if code == "INTERNAL_SERVER_ERROR" else "not_done")
    assert failure(it, "query").outcome == "not_done"
    if isinstance(raised, RateLimited):
        assert raised.retry_after == 9


def test_a_wrong_token_is_an_auth_error(shop: Shop) -> None:
    it = GraphqlConnector({"url": shop.url, "auth": {"kind": "bearer", "token": "wrong-secret"}})
    with open_context() as ctx, pytest.raises(AuthError, match="Who are you") as caught:
        it.check(ctx)
    assert "wrong-secret" not in caught.value.message + json.dumps(caught.value.details)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/graphql", "http://no-such-host.invalid/graphql"])
def test_an_unreachable_service_is_a_transient_error_and_nothing_is_done(url: str) -> None:
    raised = failure(GraphqlConnector({"url": url}))
    assert (type(raised), raised.outcome) == (TransientError, "not_done")


def test_the_outcome_of_a_mutation_is_unknown_when_the_service_is_silent(it: GraphqlConnector, shop: Shop) -> None:
    silent = threading.Event()

    def wait(_: Received) -> Answer:
        silent.wait(20)
        return Answer()

    shop.server.answers["/graphql"] = wait
    raised = failure(it, seconds=1)
    silent.set()
    assert (type(raised), raised.outcome) == (TransientError, "unknown")


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"[1]", b"{}", b'{"data": null}', b'{"data": [1]}', b'{"data": {"a": NaN}}', b'{"errors": "no"}',
     b'{"data": null, "errors": []}', b"[" * 100_000, b""],
    ids=range(10),
)  # fmt: skip
def test_an_invalid_response_is_a_failure(it: GraphqlConnector, shop: Shop, body: bytes) -> None:
    shop.server.answer("/graphql", 200, body)
    changing, reading = failure(it), failure(it, "query")
    assert (type(changing), changing.outcome) == (SystemFailure, "unknown")
    assert (type(reading), reading.outcome) == (SystemFailure, "not_done")


@pytest.mark.parametrize("errors", [[None], ["no"], [{}], [{"message": 1, "path": "x", "extensions": []}], [{"path": [None, 1.5]}]])
def test_malformed_errors_are_rejections(it: GraphqlConnector, shop: Shop, errors: Any) -> None:
    shop.server.answer("/graphql", 200, json.dumps({"errors": errors}).encode())
    raised = failure(it)
    assert (type(raised), raised.outcome) == (Rejected, "not_done")


def test_a_null_without_an_error_leaves_the_outcome_unknown(it: GraphqlConnector, shop: Shop) -> None:
    body = {"data": {"a": None, "b": None}, "errors": [{"message": "No.", "path": ["a"]}]}
    shop.server.answer("/graphql", 200, json.dumps(body).encode())
    assert failure(it).outcome == "unknown"
    assert failure(it, "query").outcome == "not_done"


def test_a_long_list_of_errors_is_truncated(it: GraphqlConnector, shop: Shop) -> None:
    body = {"errors": [{"message": "x" * 600, "path": ["p" * 300] * 60}] * 100}
    shop.server.answer("/graphql", 200, json.dumps(body).encode())
    raised = failure(it)
    assert len(raised.details["errors"]) == 20
    assert len(json.dumps(raised.details)) < 500_000


@pytest.mark.parametrize(
    "body",
    [{"data": {"__schema": None}}, {"data": {"__schema": {"queryType": {"fields": [{}]}, "mutationType": None}}}, {"data": {}}],
)
def test_an_invalid_introspection_response_is_a_failure(it: GraphqlConnector, shop: Shop, body: Any) -> None:
    shop.server.answer("/graphql", 200, json.dumps(body).encode())
    assert type(failure(it, "describe")) is SystemFailure


def test_a_service_without_introspection_is_rejected(it: GraphqlConnector, shop: Shop) -> None:
    shop.server.answer("/graphql", 400, b'{"errors": [{"message": "Introspection is disabled."}]}')
    raised = failure(it, "describe")
    assert type(raised) is Rejected
    assert "does not describe its schema" in raised.message
    assert "Introspection is disabled." in raised.message


def test_numbers_are_not_rounded(it: GraphqlConnector, shop: Shop) -> None:
    shop.server.answer("/graphql", 200, b'{"data": {"a": 9007199254740993, "b": 0.1, "c": 12345678901234567.89, "d": 7}}')
    with open_context() as ctx:
        data = it.call("query", {"document": "{ old }"}, ctx)["data"]
    assert data == {"a": "9007199254740993", "b": 0.1, "c": "12345678901234567.89", "d": 7}
