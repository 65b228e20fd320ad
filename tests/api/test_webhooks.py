"""Outbound webhooks of a running appliance: events are delivered, signed, to the subscribers."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from appliance.connectors.testing import LoopbackServer, Received
from appliance.core import clock
from appliance.testing.running import Running
from tests.api.resources import Resources, fresh

TIMEOUT_SECONDS = 30.0


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    server.answer("/hook", 204, b"")
    yield server
    server.close()


@pytest.fixture
def receive_event(running: Running, acme: httpx.Client, server: LoopbackServer) -> Iterator[Callable[..., Any]]:
    """Subscribes to an event; `receive_event(event, act)` returns the message that `act` caused and the result of `act`."""
    ours = Resources(running, "acme", acme)
    webhooks: list[str] = []

    def subscribe(event: str, act: Callable[[Resources], Any]) -> tuple[Any, Any]:
        webhook = ours.ask("POST", "/webhooks", {"url": server.url + "/hook", "events": [event]})
        webhooks.append(webhook["id"])
        ours.created["webhook"] = webhook["id"]
        arrived = server.expect("/hook")
        answer = act(ours)
        assert arrived.wait(TIMEOUT_SECONDS)
        (request,) = [request for request in server.received if request.path == "/hook"]
        return verified(webhook["secret"], request), answer

    yield subscribe
    for webhook_id in webhooks:
        ours.ask("DELETE", f"/webhooks/{webhook_id}")


def verified(secret: str, request: Received) -> Any:
    """The message, after a check as a receiver makes it whose clock is the appliance's."""
    sent_at = datetime.fromtimestamp(int(request.headers["webhook-timestamp"]), UTC)
    assert abs(clock.now_ms() - sent_at.timestamp() * 1000) < TIMEOUT_SECONDS * 1000
    signature = Webhook(secret).sign(request.headers["webhook-id"], sent_at, request.body.decode())
    assert signature in request.headers["webhook-signature"].split()
    return json.loads(request.body)


def test_a_succeeded_execution_is_delivered(receive_event: Callable[..., Any]) -> None:
    message, execution = receive_event("execution.succeeded", lambda ours: ours.execution(ours.process()))
    assert message["type"] == "execution.succeeded"
    assert message["data"]["execution_id"] == execution
    assert (message["data"]["tenant_id"], message["data"]["status"]) == ("acme", "succeeded")


def test_a_failed_execution_is_delivered_with_its_error(receive_event: Callable[..., Any]) -> None:
    def fail(ours: Resources) -> str:
        return ours.execution(ours.process(steps=[{"id": "broken", "rule": {"expression": "= input.nothing.here"}}]))

    message, execution = receive_event("execution.failed", fail)
    assert message["data"]["execution_id"] == execution
    assert message["data"]["error"]["message"]


def test_a_waiting_execution_is_delivered_with_its_reason(receive_event: Callable[..., Any]) -> None:
    message, (process, _) = receive_event("execution.waiting", lambda ours: ours.waiting_execution())
    assert (message["data"]["process_id"], message["data"]["wait_reason"]) == (process, "timer")


def test_an_approval_request_is_delivered_without_its_details(receive_event: Callable[..., Any]) -> None:
    message, approval = receive_event("approval.requested", lambda ours: ours.approval(details={"salary": 12345}))
    assert (message["data"]["approval_id"], message["data"]["kind"]) == (approval, "approval")
    assert message["data"]["review_url"].startswith("http")
    assert message["data"]["review_url"].endswith(f"/console/approvals/{approval}")
    assert "12345" not in str(message)


def test_an_integration_failing_three_times_in_a_row_is_delivered_once(
    receive_event: Callable[..., Any], server: LoopbackServer
) -> None:
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

    message, slug = receive_event("integration.failing", ring)
    assert (message["data"]["integration"], message["data"]["failed_in_row"]) == (slug, 3)
    assert message["data"]["error"]["message"]


def test_the_secret_is_returned_once(running: Running, acme: httpx.Client, server: LoopbackServer) -> None:
    ours = Resources(running, "acme", acme)
    body = {"url": server.url + "/hook", "events": ["execution.failed"], "description": "to the pager"}
    webhook = ours.ask("POST", "/webhooks", body, headers={"Idempotency-Key": "one"})
    assert webhook["secret"].startswith("whsec_")
    again = ours.ask("POST", "/webhooks", body, headers={"Idempotency-Key": "one"})
    assert again == {name: value for name, value in webhook.items() if name != "secret"}
    arrived = server.expect("/hook")
    delivery = ours.ask("POST", f"/webhooks/{webhook['id']}/test")
    assert arrived.wait(TIMEOUT_SECONDS)
    assert server.received[0].headers["webhook-id"] == delivery["id"]
    rotated = ours.ask("POST", f"/webhooks/{webhook['id']}/rotate", {"overlap_seconds": 60})
    assert (rotated["secret"] != webhook["secret"], "old_secret_until" in rotated) == (True, True)
    assert "whsec_" not in acme.get(f"/api/v1/webhooks/{webhook['id']}").text
    disabled = ours.ask("PATCH", f"/webhooks/{webhook['id']}", {"enabled": False})
    assert disabled["state"] == "disabled"
    refused = acme.post(f"/api/v1/webhooks/{webhook['id']}/test")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    ours.ask("DELETE", f"/webhooks/{webhook['id']}")
