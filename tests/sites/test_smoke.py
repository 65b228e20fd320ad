"""Publishing with smoke checks through the API: checks run without a socket, and their results are shown."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from appliance.core.database import db
from appliance.processes.engine import completion
from appliance.sites.webapps.smoke_probe import SmokeProbe
from appliance.testing.running import Running
from appliance.web import Receive, Scope, Send, answer
from appliance.webapps.models import VersionRow, WebAppRow
from appliance.webapps.publishing import Check, publications
from tests.api.resources import fresh
from tests.processes.world import wait_until
from tests.sites.route_shop import executions
from tests.sites.test_webapps import deploy, new_app, site

WAIT = "?wait=120"
# Only previews say this: a check that passes there and fails live.
PREVIEW_ONLY = {"path": "/", "header": {"X-Robots-Tag": "noindex"}}


def deploy_checked(acme: httpx.Client, app: str, page: str, smoke: list[Mapping[str, Any]]) -> int:
    files = {"app.yaml": json.dumps({"smoke": smoke}).encode(), "public/index.html": page.encode()}
    return deploy(acme, app, files, publish=False)


@pytest.fixture
def app(acme: httpx.Client) -> str:
    """An app whose version 1, without checks, is published."""
    name = fresh("smoke")
    new_app(acme, name)
    deploy(acme, name, {"index.html": b"<h1>one</h1>", "late.html": b"<h1>late</h1>"})
    return name


def page_of(running: Running, app: str) -> str:
    with site(running, f"{app}--acme") as visitor:
        return visitor.get("/").text


def publish(acme: httpx.Client, app: str, number: int, query: str = WAIT) -> httpx.Response:
    return acme.post(f"/api/v1/webapps/{app}/versions/{number}/publish{query}", json={})


def publication(acme: httpx.Client, app: str, number: int) -> dict[str, Any]:
    data: dict[str, Any] = acme.get(f"/api/v1/webapps/{app}/versions/{number}/publication").raise_for_status().json()["data"]
    return data


def test_checks_run_on_the_preview_and_then_live(running: Running, acme: httpx.Client, app: str) -> None:
    smoke: list[Mapping[str, Any]] = [
        {"path": "/?x=1", "contains": "two", "header": {"Content-Type": "text/html; charset=utf-8"}},
        {"path": "/nothing%20here", "status": 404}, {"path": "/", "method": "HEAD"},
    ]  # fmt: skip
    number = deploy_checked(acme, app, "<h1>two</h1>", smoke)
    answer = publish(acme, app, number)
    assert (answer.status_code, answer.json()["data"]["state"]) == (200, "published")
    assert page_of(running, app) == "<h1>two</h1>"
    result = publication(acme, app, number)
    assert (result["state"], result["previous"]) == ("published", 1)
    assert [(check["phase"], check["status"]) for check in result["checks"]] == [
        (phase, status) for phase in ("preview", "live") for status in (200, 404, 200)
    ]
    assert publish(acme, app, number).status_code == 200


def test_a_preview_that_fails_is_not_published(running: Running, acme: httpx.Client, app: str) -> None:
    number = deploy_checked(acme, app, "<h1>two</h1>", [{"path": "/"}, {"path": "/absent", "contains": "about"}])
    answer = publish(acme, app, number)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (409, "conflict")
    assert [detail["message"] for detail in error["details"]] == ["GET /absent: answered 404 instead of 200"]
    assert publication(acme, app, number)["checks"][-1]["seen"] == "not found"
    assert page_of(running, app) == "<h1>one</h1>"


def test_a_version_that_fails_live_is_switched_back(running: Running, acme: httpx.Client, app: str) -> None:
    number = deploy_checked(acme, app, "<h1>two</h1>", [PREVIEW_ONLY])
    answer = publish(acme, app, number)
    assert (answer.status_code, "was switched back" in answer.json()["error"]["message"]) == (409, True)
    result = publication(acme, app, number)
    assert (result["state"], result["checks"][-1]["seen"]) == ("switched_back", "<h1>two</h1>")
    assert page_of(running, app) == "<h1>one</h1>"
    versions = acme.get(f"/api/v1/webapps/{app}/versions").json()["data"]
    assert [version["state"] for version in versions] == ["ready", "published"]


def test_a_publication_can_be_followed_asynchronously(running: Running, acme: httpx.Client, app: str) -> None:
    number = deploy_checked(acme, app, "<h1>two</h1>", [{"path": f"/?{step}"} for step in range(20)])
    answer = publish(acme, app, number, "?wait=0")
    if answer.status_code == 202:
        assert answer.headers["location"] == f"/api/v1/webapps/{app}/versions/{number}/publication"
        assert answer.json()["data"]["state"] in ("checking", "switched")
    else:
        assert answer.status_code == 200
    wait_until(lambda: publication(acme, app, number)["state"] == "published", 60)
    assert len(publication(acme, app, number)["checks"]) == 40
    assert page_of(running, app) == "<h1>two</h1>"


def test_checks_run_on_the_loop_of_the_server(running: Running) -> None:
    loops = []

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        loops.append(asyncio.get_running_loop())
        await answer(send, 200, b"", [])

    async def ask_from_a_thread() -> int:
        loops.append(asyncio.get_running_loop())
        probing = SmokeProbe({"webapp": serve}, running.config, loops[0])
        return (await asyncio.to_thread(probing, running.tenant("acme"), "shop", None, Check("/"))).status

    assert asyncio.run(ask_from_a_thread()) == 200
    assert loops[0] is loops[1]


def test_an_aborted_check_leaves_nothing_behind(
    running: Running, acme: httpx.Client, route_shop: httpx.Client, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.sites.webapps.smoke_probe.MOST_MS", 300)
    route = {"path": "/api/patient", "method": "GET", "process": "route-slow", "wait": 30, "access": "public"}
    settings = {"routes": [route], "smoke": [{"path": "/api/patient"}]}
    files = {"app.yaml": json.dumps(settings).encode(), "public/index.html": b"x"}
    before = {each["execution_id"] for each in executions(acme, "route-slow")}
    assert publish(acme, app, deploy(acme, app, files, publish=False)).status_code == 409

    def awaited() -> set[str]:
        new = {each["execution_id"] for each in executions(acme, "route-slow")} - before
        return new & set(completion.completion_signal._callbacks)

    wait_until(lambda: not awaited(), 60)


def test_checks_are_refused_with_a_pointer(acme: httpx.Client, app: str) -> None:
    spec = {"sha256": "0" * 64, "size": 1}
    manifest = {"files": {"index.html": spec}, "smoke": [{"path": "/"}, {"path": "about"}]}
    answer = acme.post(f"/api/v1/webapps/{app}/versions", json=manifest)
    assert (answer.status_code, answer.json()["error"]["details"][0]["pointer"]) == (422, "/smoke/1/path")


def test_a_publication_belongs_to_its_tenant(acme: httpx.Client, globex: httpx.Client, app: str) -> None:
    number = deploy_checked(acme, app, "<h1>two</h1>", [{"path": "/"}])
    publish(acme, app, number)
    new_app(globex, app)
    assert globex.get(f"/api/v1/webapps/{app}/versions/{number}/publication").status_code == 404
    assert acme.get(f"/api/v1/webapps/{app}/versions/1/publication").status_code == 404


def test_only_checks_bypass_the_access_control_of_an_app(running: Running, acme: httpx.Client, app: str) -> None:
    files = {"app.yaml": b"access: members\nsmoke: [{path: /, contains: members}]", "public/index.html": b"<h1>members</h1>"}
    number = deploy(acme, app, files, publish=False)
    assert publish(acme, app, number).status_code == 200
    assert [check["outcome"] for check in publication(acme, app, number)["checks"]] == ["passed", "passed"]
    assert "<h1>members</h1>" not in page_of(running, app)


def test_a_publication_of_a_crashed_process_continues(running: Running, acme: httpx.Client, app: str) -> None:
    number = deploy_checked(acme, app, "<h1>two</h1>", [{"path": "/"}])
    scope = running.tenant("acme")

    def leave() -> None:
        row, of_app = scope.get(VersionRow, app_id=app, number=number), scope.get(WebAppRow, id=app)
        publications.start(scope, of_app, row, "wrk_dead")

    db.write(leave)
    wait_until(lambda: publication(acme, app, number)["state"] == "published", 60)
    assert page_of(running, app) == "<h1>two</h1>"


def test_the_publisher_is_notified_of_the_result(acme: httpx.Client, app: str) -> None:
    events = ["webapp.published", "webapp.publish_failed"]
    webhook = acme.post("/api/v1/webhooks", json={"url": "http://127.0.0.1:9/hook", "events": events}).json()["data"]["id"]
    for smoke in ({"path": "/gone"}, PREVIEW_ONLY, {"path": "/"}):
        publish(acme, app, deploy_checked(acme, app, "<h1>new</h1>", [smoke]))
    sent = acme.get(f"/api/v1/webhooks/{webhook}/deliveries").raise_for_status().json()["data"]
    acme.delete(f"/api/v1/webhooks/{webhook}").raise_for_status()
    assert [delivery["event"] for delivery in sent] == ["webapp.published", "webapp.publish_failed", "webapp.publish_failed"]
