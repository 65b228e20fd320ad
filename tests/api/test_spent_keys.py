"""A key whose rate limit is used up: refused before the body with the same response, on a connection that stays open."""

import http.client
import json
import socket
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from appliance.core import clock
from appliance.core.errors import RateLimited
from appliance.core.scope import TenantScope
from appliance.monitor import read_numbers
from appliance.sites.front import pace
from appliance.tenants import RateLimiter, rate_limits
from appliance.tenants.keys import keys
from appliance.testing.running import Running
from tests.api.test_bodies import error
from tests.api.test_credentials import HERE, KEYS, issue, use

EXECUTE = "/api/v1/processes/none/execute"


def spend(running: Running, client: httpx.Client, **more: Any) -> dict[str, Any]:
    """A key that was refused once."""
    key = issue(client, rate_limit={"requests": 1, "window_s": 86_400}, **more)
    assert use(running, key["key"]).is_success
    error(use(running, key["key"]), 429, "rate_limited")
    return key


def test_a_spent_key_is_refused_before_its_body_arrives(
    running: Running, acme: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "DRAIN_SECONDS", 0.1)
    spent = spend(running, acme)["key"]
    head = f"POST {EXECUTE} HTTP/1.1\r\nHost: acme.localhost\r\nX-API-Key: {spent}\r\nContent-Length: 20000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", running.config.server.port), 20) as line:
        line.sendall(head.encode() + b"{")
        with closing(http.client.HTTPResponse(line)) as answer:
            answer.begin()
            assert (answer.status, json.loads(answer.read())["error"]["code"]) == (429, "rate_limited")
            assert answer.headers["connection"] == "close", "what has not come cannot be told from the next request"


def test_a_connection_continues_after_unread_bodies(running: Running, acme: httpx.Client) -> None:
    spent, other = spend(running, acme)["key"], issue(acme)["key"]
    with closing(http.client.HTTPConnection("127.0.0.1", running.config.server.port, timeout=30)) as line:

        def ask(key: str, method: str, path: str, body: Any = None, **how: Any) -> tuple[int, bytes]:
            line.request(method, path, body, {"Host": "acme.localhost", "X-API-Key": key}, **how)
            answer = line.getresponse()
            return answer.status, answer.read()

        assert ask(other, "GET", HERE)[0] == 200
        connected = line.sock
        for body in (b"{}", b"{" + b" " * 20_000, b"x" * 300_000):
            assert ask(spent, "POST", EXECUTE, body)[0] == 429
        assert ask(spent, "POST", EXECUTE, iter([b"{", b"}" * 70_000]), encode_chunked=True)[0] == 429
        assert ask(spent, "HEAD", HERE) == (429, b"")
        assert ask(spent, "GET", HERE)[0] == 429
        assert ask(other, "GET", HERE)[0] == 200
        assert line.sock is connected


def test_early_and_late_refusals_are_identical(running: Running, acme: httpx.Client) -> None:
    key = issue(acme, rate_limit={"requests": 1, "window_s": 86_400})
    use(running, key["key"])
    behind, before = (use(running, key["key"]) for _ in range(2))
    stays = {name.lower() for name in behind.headers} - {"x-request-id", "date", "retry-after", "ratelimit", "content-length"}
    assert {name: before.headers[name] for name in stays} == {name: behind.headers[name] for name in stays}
    assert {name.lower() for name in before.headers} == {name.lower() for name in behind.headers}
    assert error(before, 429, "rate_limited")["message"].startswith("this key can make 1 requests in 86400 s; try again in ")
    problem = use(running, key["key"], Accept="application/problem+json")
    assert (problem.status_code, problem.headers["content-type"], problem.json()["code"]) == (
        429, "application/problem+json", "rate_limited",
    )  # fmt: skip


def test_a_spent_key_counts_in_its_traffic(running: Running, acme: httpx.Client) -> None:
    key = spend(running, acme)
    for _ in range(5):
        error(use(running, key["key"]), 429, "rate_limited")
    running.services.monitor.key_traffic.flush()
    counted = read_numbers(running.tenant("acme"), "key", clock.now_ms() - 600_000, clock.now_ms() + 600_000)[key["id"]]
    assert counted.summary.by_result == {"succeeded": 1, "refused": 6}


def test_other_problems_take_precedence_over_the_rate_limit(running: Running, acme: httpx.Client) -> None:
    key = spend(running, acme)
    error(use(running, key["key"], Origin="https://evil.test"), 403, "browser_call_refused")
    with running.client("globex.localhost", {"X-API-Key": key["key"]}) as elsewhere:
        error(elsewhere.get(HERE), 401, "invalid_api_key")
    acme.delete(f"{KEYS}/{key['id']}")
    error(use(running, key["key"]), 401, "revoked_api_key")


def test_children_of_a_spent_key_are_refused_and_others_are_not(running: Running, acme: httpx.Client) -> None:
    parent = issue(acme, scopes=["keys.write", "logs.read"], rate_limit={"requests": 2, "window_s": 86_400})
    with running.client("acme.localhost", {"X-API-Key": parent["key"]}) as client:
        child = issue(client, scopes=["logs.read"])
    assert use(running, child["key"]).is_success
    refused = error(use(running, child["key"]), 429, "rate_limited")
    assert refused["message"].startswith("the key that issued this one")
    error(use(running, child["key"]), 429, "rate_limited")
    assert use(running, issue(acme)["key"]).is_success


def test_a_new_window_serves_requests_again_and_counts_them_once(two_tenants: None, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(rate_limits, "clock", SimpleNamespace(monotonic=lambda: now))
    scope = TenantScope("acme", "key:key_1", frozenset())
    caller, limiter = keys.Caller(scope, "key_1", 2, 60, digest=b"one"), RateLimiter()
    limiter.count(caller)
    limiter.count(caller)
    assert not limiter.has_exhausted(), "the last request of a window is served"
    with pytest.raises(RateLimited):
        limiter.count(caller)
    assert limiter.has_exhausted()
    assert (limiter.is_exhausted(b"one"), limiter.is_exhausted(b"two")) == (True, False)
    with pytest.raises(RateLimited):
        limiter.refuse_exhausted(caller)
    limiter.refuse_exhausted(keys.Caller(scope, "key_1", 20, 60, digest=b"one"))  # its rate was raised meanwhile
    now = 160.0
    assert (limiter.has_exhausted(), limiter.is_exhausted(b"one")) == (False, False)
    limiter.refuse_exhausted(caller)
    assert limiter.count(caller).remaining == 1
