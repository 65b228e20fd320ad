"""Outbound webhooks of a running appliance: what happens is told, signed, to whoever asked over the API."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from appliance.connectors.testing import LoopbackServer
from appliance.testing.running import Running
from tests.api.resources import Resources, fresh

FOUND_WITHIN = 30.0


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    server.answer("/hook", 204, b"")
    yield server
    server.close()


@pytest.fixture
def told(running: Running, acme: httpx.Client, server: LoopbackServer) -> Iterator[Callable[..., Any]]:
    """Subscribes to an event; `told(event, act)` answers the message that `act` has caused and what `act` answered."""
    ours = Resources(running, "acme", acme)
    webhooks: list[str] = []

    def subscribe(event: str, act: Callable[[Resources], Any]) -> tuple[Any, Any]:
        webhook = ours.ask("POST", "/webhooks", {"url": server.url + "/hook", "events": [event]})
        webhooks.append(webhook["id"])
        ours.created["webhook"] = webhook["id"]
        arrived = server.expect("/hook")
        answer = act(ours)
        assert arrived.wait(FOUND_WITHIN)
        (request,) = [request for request in server.received if request.path == "/hook"]
        return Webhook(webhook["secret"]).verify(request.body, dict(request.headers)), answer

    yield subscribe
    for webhook_id in webhooks:
        ours.ask("DELETE", f"/webhooks/{webhook_id}")


def test_an_execution_that_succeeds_is_told(told: Callable[..., Any]) -> None:
    message, execution = told("execution.succeeded", lambda ours: ours.execution(ours.process()))
    assert message["type"] == "execution.succeeded"
    assert message["data"]["execution_id"] == execution
    assert (message["data"]["tenant_id"], message["data"]["status"]) == ("acme", "succeeded")


def test_an_execution_that_fails_is_told_with_its_error(told: Callable[..., Any]) -> None:
    def fail(ours: Resources) -> str:
        return ours.execution(ours.process(steps=[{"id": "broken", "rule": {"expression": "= input.nothing.here"}}]))

    message, execution = told("execution.failed", fail)
    assert message["data"]["execution_id"] == execution
    assert message["data"]["error"]["message"]


def test_an_execution_that_waits_is_told_with_what_for(told: Callable[..., Any]) -> None:
    message, (process, _) = told("execution.waiting", lambda ours: ours.waiting_execution())
    assert (message["data"]["process_id"], message["data"]["wait_reason"]) == (process, "timer")


def test_a_request_to_a_person_is_told_without_what_it_is_about(told: Callable[..., Any]) -> None:
    message, approval = told("approval.requested", lambda ours: ours.approval(details={"salary": 12345}))
    assert (message["data"]["approval_id"], message["data"]["kind"]) == (approval, "approval")
    assert message["data"]["review_url"].startswith("http")
    assert message["data"]["review_url"].endswith(f"/console/approvals/{approval}")
    assert "12345" not in str(message)


def test_an_integration_that_fails_three_times_in_a_row_is_told_once(told: Callable[..., Any], server: LoopbackServer) -> None:
    server.answer("/fine", 200, b"{}", Content_Type="application/json")
    server.answer("/broken", 500, b"no")
    server.answer("/refused", 404, b"no")

    def ring(ours: Resources) -> str:
        slug = fresh("ringing")
        settings = {"base_url": server.url, "retries": {"attempts": 1}}
        ours.ask("POST", "/integrations", {"slug": slug, "connector": "http", "settings": settings})
        for path in ("/broken", "/broken", "/fine", "/broken", "/broken", "/refused"):
            body = {"action": "get", "input": {"url": path}}
            assert ours.client.post(f"/api/v1/integrations/{slug}/execute", json=body).is_success == (path == "/fine")
        assert ours.ask("GET", f"/webhooks/{ours.created['webhook']}/deliveries") == [], "not yet three in a row"
        for _ in range(3):
            ours.client.post(f"/api/v1/integrations/{slug}/execute", json={"action": "get", "input": {"url": "/broken"}})
        assert len(ours.ask("GET", f"/webhooks/{ours.created['webhook']}/deliveries")) == 1
        return slug

    message, slug = told("integration.failing", ring)
    assert (message["data"]["integration"], message["data"]["failed_in_row"]) == (slug, 3)
    assert message["data"]["error"]["message"]


def test_the_secret_is_told_once(running: Running, acme: httpx.Client, server: LoopbackServer) -> None:
    ours = Resources(running, "acme", acme)
    body = {"url": server.url + "/hook", "events": ["execution.failed"], "description": "to the pager"}
    webhook = ours.ask("POST", "/webhooks", body, headers={"Idempotency-Key": "one"})
    assert webhook["secret"].startswith("whsec_")
    again = ours.ask("POST", "/webhooks", body, headers={"Idempotency-Key": "one"})
    assert again == {name: value for name, value in webhook.items() if name != "secret"}
    arrived = server.expect("/hook")
    delivery = ours.ask("POST", f"/webhooks/{webhook['id']}/test")
    assert arrived.wait(FOUND_WITHIN)
    assert server.received[0].headers["webhook-id"] == delivery["id"]
    rotated = ours.ask("POST", f"/webhooks/{webhook['id']}/rotate", {"overlap_seconds": 60})
    assert (rotated["secret"] != webhook["secret"], "old_secret_until" in rotated) == (True, True)
    assert "whsec_" not in acme.get(f"/api/v1/webhooks/{webhook['id']}").text
    disabled = ours.ask("PATCH", f"/webhooks/{webhook['id']}", {"enabled": False})
    assert disabled["state"] == "disabled"
    refused = acme.post(f"/api/v1/webhooks/{webhook['id']}/test")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    ours.ask("DELETE", f"/webhooks/{webhook['id']}")
