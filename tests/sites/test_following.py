"""Executions that outlast a route's wait can be followed by the browser that started them, and by no other."""

import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest

from appliance.testing.running import Running
from tests.sites.route_shop import ROUTES, SAME, deploy, executions, resume, wait_for


def begin_slow(route_shop: httpx.Client, acme: httpx.Client, headers: dict[str, str] | None = None) -> tuple[httpx.Response, str]:
    """The 202 response of a slow route, and the execution id, which only the API returns."""
    before = {each["execution_id"] for each in executions(acme, "route-slow")}
    answer = route_shop.post("/api/slow", json={}, headers=headers)
    assert answer.status_code == 202, answer.text
    [new] = [each["execution_id"] for each in executions(acme, "route-slow") if each["execution_id"] not in before]
    return answer, new


def cookie_of(answer: httpx.Response) -> str:
    """The secure cookie as a browser on `localhost` would send it back."""
    cookie = answer.headers["set-cookie"]
    assert re.fullmatch(r"__Host-gos_browser=[\w-]{32}; Path=/; Max-Age=86400; HttpOnly; Secure; SameSite=Lax", cookie)
    return str(cookie.partition(";")[0])


def test_a_long_execution_is_followed_by_its_browser(
    running: Running, route_shop: httpx.Client, stranger: httpx.Client, acme: httpx.Client
) -> None:
    answer, execution_id = begin_slow(route_shop, acme)
    follow = answer.json()["data"]["follow"]
    assert answer.json() == {"success": True, "data": {"status": "running", "follow": follow}}
    assert answer.headers["location"] == follow
    assert execution_id not in answer.text
    mine = {"Cookie": cookie_of(answer)}
    wait_for(lambda: route_shop.get(follow, headers=mine).json()["data"]["status"] == "waiting")
    assert route_shop.get(follow, headers=mine).headers["retry-after"] == "1"
    another = cookie_of(begin_slow(route_shop, acme)[0])
    for headers in ({}, {"Cookie": another}, {"Cookie": f"{mine['Cookie']}; {another}"}):
        assert route_shop.get(follow, headers=headers).status_code == 404
    for path in (
        f"{follow}A",
        follow[:-1],
        f"/_gos/executions/{execution_id}",
        "/_gos/executions/",
        "/_gos/executions/" + "A" * 60,
    ):
        assert route_shop.get(path, headers=mine).status_code == 404, path
    for host in ("route-shop--globex", "route-other--acme"):
        if host == "route-other--acme":
            deploy(acme, "route-other", []).raise_for_status()
        with running.client(f"{host}.content.localhost", SAME) as elsewhere:
            assert elsewhere.get(follow, headers=mine).status_code == 404
    foreign = {**mine, "Sec-Fetch-Site": "same-site"}
    assert stranger.get(follow, headers=foreign).status_code == 403
    assert route_shop.post(follow, headers=mine).status_code == 405
    assert "set-cookie" not in route_shop.post("/api/slow", json={}, headers=mine).headers
    resume(acme, execution_id, "at last")
    done = wait_for(
        lambda: [data for data in [route_shop.get(follow, headers=mine).json()["data"]] if data["status"] == "succeeded"]
    )
    assert done == [{"status": "succeeded", "follow": follow, "output": {"said": "at last"}}]


def read_events(answer: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    event = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            event = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield event, json.loads(line.removeprefix("data: "))


def test_progress_is_streamed_and_resumed(route_shop: httpx.Client, acme: httpx.Client) -> None:
    answer, execution_id = begin_slow(route_shop, acme)
    follow = answer.json()["data"]["follow"]
    headers = {"Cookie": cookie_of(answer), "Accept": "text/event-stream"}
    seen: list[str] = []
    with route_shop.stream("GET", follow, headers=headers) as stream:
        assert (stream.headers["content-type"], stream.headers["cache-control"]) == ("text/event-stream", "no-store")
        for event, _ in read_events(stream):
            seen.append(event)
            if event == "waiting":
                break
    assert seen in (["waiting"], ["running", "waiting"])
    with route_shop.stream("GET", follow, headers={**headers, "Last-Event-ID": "waiting"}) as stream:
        resume(acme, execution_id, "go")
        events = list(read_events(stream))
    assert [event for event, _ in events if event != "running"] == ["succeeded"]
    assert events[-1][1]["output"] == {"said": "go"}
    assert route_shop.get(follow, headers={**headers, "Last-Event-ID": "succeeded"}).status_code == 204


def test_an_open_route_of_a_closed_app_is_followed_by_its_browser_only(running: Running, acme: httpx.Client) -> None:
    acme.put("/api/v1/secrets/ROUTE_DOOR", json={"value": "let me in"}).raise_for_status()
    access = {"password": {"secret": "ROUTE_DOOR"}, "paths": {"public": ["/api/slow"]}}
    routes = [each for each in ROUTES if each["path"] in ("/api/slow", "/api/orders")]
    deploy(acme, "route-gated", routes, access=access).raise_for_status()
    with running.client("route-gated--acme.content.localhost", SAME) as browser:
        assert browser.post("/api/orders", json={"name": "x"}).status_code == 401
        answer, execution_id = begin_slow(browser, acme)
        follow = answer.json()["data"]["follow"]
        assert browser.get(follow).status_code == 404
        resume(acme, execution_id, "in")
        mine = {"Cookie": cookie_of(answer)}
        wait_for(lambda: browser.get(follow, headers=mine).json()["data"].get("output") == {"said": "in"})


def test_one_tenant_does_not_use_up_the_streams(
    running: Running, route_shop: httpx.Client, acme: httpx.Client, globex: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.sites.webapps.following.MOST_PER_TENANT", 1)
    with running.client("route-shop--globex.content.localhost", SAME) as elsewhere:
        mine, another, theirs = begin_slow(route_shop, acme)[0], begin_slow(route_shop, acme)[0], begin_slow(elsewhere, globex)[0]

        def stream(browser: httpx.Client, answer: httpx.Response) -> AbstractContextManager[httpx.Response]:
            headers = {"Cookie": cookie_of(answer), "Accept": "text/event-stream"}
            return browser.stream("GET", answer.json()["data"]["follow"], headers=headers)

        with stream(route_shop, mine) as open_stream:
            assert open_stream.status_code == 200
            with stream(route_shop, another) as refused, stream(elsewhere, theirs) as granted:
                assert (refused.status_code, granted.status_code) == (429, 200)
