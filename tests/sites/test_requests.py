"""Requests to WebApps are logged as they were answered, and refused over the quota."""

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import httpx
import pytest

from appliance.core.catalogues import Languages
from appliance.sites.front.readers import Readers
from appliance.sites.front.scope_keys import VISITOR
from appliance.sites.webapps.requests import LoggedRequests
from appliance.tenants import HostMatch
from appliance.testing.running import Running
from appliance.web import Receive, Scope, Send, answer
from appliance.webapps.access import ANONYMOUS, Visitor
from appliance.webapps.traffic import HandledRequest, Quotas, RequestLog
from tests.sites.route_shop import executions
from tests.sites.test_webapps import deploy, new_app, site

READERS = Readers(Languages(list))


class RecordingLog(RequestLog):
    """Records the logged requests."""

    @property
    def noted(self) -> list[HandledRequest]:
        return list(self._buffer)


def ask(app: Any, log: RequestLog, **more: Any) -> int:
    """The status a visitor sees."""
    headers: Iterable[tuple[bytes, bytes]] = [(b"host", b"shop--acme.content.localhost:8080"), (b"user-agent", b"curl/8")]
    scope = {
        "type": "http", "method": "GET", "path": "/a", "query_string": b"q=secret", "headers": headers,
        "gos.address": "203.0.113.7",
        "gos.request_id": "r", "gos.host": HostMatch("webapp", "acme", "shop"), **more,
    }  # fmt: skip
    statuses = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def receive() -> Any:
        raise AssertionError("nobody reads")

    asyncio.run(LoggedRequests(app, log, READERS)(scope, receive, send))
    return int(statuses[0])


async def greet(scope: Scope, receive: Receive, send: Send) -> None:
    scope.setdefault(VISITOR, Visitor("member", "u-1"))
    await answer(send, 203, b"hello", [])


def test_a_request_is_logged_as_it_was_answered() -> None:
    log = RecordingLog("none", Quotas(0, 0))
    assert ask(greet, log) == 203
    (seen,) = log.noted
    assert (seen.tenant, seen.app, seen.path, seen.status, seen.bytes) == ("acme", "shop", "/a", 203, 5)
    assert (seen.agent, seen.host, seen.address, seen.visitor_kind) == (
        "curl/8", "shop--acme.content.localhost", "203.0.113.7", "member",
    )  # fmt: skip
    assert "secret" not in repr(seen)


def test_internal_requests_are_not_logged() -> None:
    log = RecordingLog("none", Quotas(0, 0))
    ask(greet, log, **{VISITOR: ANONYMOUS})
    assert log.noted == []


def test_a_failing_request_is_logged() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("no answer")

    log = RecordingLog("none", Quotas(0, 0))
    with pytest.raises(ValueError, match="no answer"):
        ask(broken, log)
    assert [seen.status for seen in log.noted] == [500]


def test_requests_over_the_quota_are_refused() -> None:
    log = RecordingLog("none", Quotas(1, 0))
    statuses = [ask(greet, log) for _ in range(4)]
    assert statuses[0] == 203
    assert 429 in statuses  # unless a minute ended three times in between
    assert [seen.status for seen in log.noted] == statuses


def stored_requests(running: Running, api: httpx.Client, app: str, least: int, **query: str) -> list[dict[str, Any]]:
    """The logged requests, as soon as there are `count`."""
    ends = time.monotonic() + 30
    while True:
        running.appliance.services.webapps.requests.flush()
        rows: list[dict[str, Any]] = api.get(f"/api/v1/webapps/{app}/requests", params=query).raise_for_status().json()["data"]
        if len(rows) >= least:
            return rows
        assert time.monotonic() < ends, "the requests were not stored"
        time.sleep(0.05)  # a request is noted after its answer


def test_the_execution_of_a_route_is_logged(running: Running, route_shop: httpx.Client, acme: httpx.Client) -> None:
    request = route_shop.put("/api/orders/noted", json={"name": "Ada"})
    assert request.status_code == 200
    (row,) = stored_requests(running, acme, "route-shop", 1, path="/api/orders/noted")
    assert (row["method"], row["status"], row["route"]) == ("PUT", 200, "/api/orders/:id")
    assert row["execution_id"] in [execution["execution_id"] for execution in executions(acme)]


def test_the_statistics_of_a_day_are_readable(running: Running, acme: httpx.Client, globex: httpx.Client) -> None:
    new_app(acme, "site-traffic")
    deploy(acme, "site-traffic", {"index.html": b"<h1>Hello</h1>"})
    with site(running, "site-traffic--acme") as visitor:
        visitor.get(
            "/", params={"token": "secret"}, headers={"User-Agent": "Firefox/140", "Referer": "https://search.example/?q=x"}
        )
        visitor.get("/missing")
    path = "/api/v1/webapps/site-traffic"
    rows = stored_requests(running, acme, "site-traffic", 2)
    assert [(row["path"], row["status"]) for row in rows] == [("/missing", 404), ("/", 200)]
    assert {name: rows[1][name] for name in ("address", "agent", "referrer", "visitor_kind", "bytes")} == {
        "address": "127.0.0.0", "agent": "Firefox", "referrer": "search.example", "visitor_kind": "anonymous", "bytes": 14,
    }  # fmt: skip
    analytics = acme.get(f"{path}/analytics", params={"since": "2h", "bucket": "1h"}).json()["data"]
    assert (analytics["total"]["requests"], analytics["total"]["errors"]) == (2, 0)
    assert analytics["statuses"] == [{"value": "200", "requests": 1}, {"value": "404", "requests": 1}]
    usage = acme.get(path).json()["data"]["usage"]
    assert usage["stored_bytes"] == 14
    assert usage["requests_today"] <= 2  # unless the day has just ended
    assert globex.get(f"{path}/requests").status_code == 404
