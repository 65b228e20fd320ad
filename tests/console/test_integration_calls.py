"""An integration in the console: its actions are tested, its calls inspected and resolved, its pause ended."""

from collections.abc import Callable

import httpx
import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.testing.running import Running
from tests.api.resources import fresh
from tests.console.browser import Browser


@pytest.fixture
def orders(acme: httpx.Client, running: Running) -> str:
    """An integration of acme with the demo system."""
    slug = fresh("orders")
    url = f"http://127.0.0.1:{running.config.server.port}/demo"
    acme.post("/api/v1/integrations", json={"slug": slug, "connector": "http", "settings": {"base_url": url}}).raise_for_status()
    return slug


def test_an_action_is_previewed_called_and_recorded(owner: Browser, orders: str) -> None:
    at = owner.at("acme", f"/console/integrations/{orders}/actions/get")
    page = owner.get(at).text
    assert f"use: {orders}" in page
    preview = owner.post(at, {"in/url": "orders", "do": "preview"}).text
    assert "Request preview" in preview
    assert "/demo/orders" in preview
    assert "No calls yet" in owner.get(owner.at("acme", f"/console/integrations/{orders}")).text
    called = owner.post(at, {"in/url": "orders", "do": "execute", "token": "t1"})
    assert 'data-testid="answered"' in called.text
    calls = owner.get(owner.at("acme", f"/console/integrations/{orders}/calls?action=get&status=succeeded")).text
    assert "by owner@acme.test" in calls
    assert owner.get(owner.at("acme", f"/console/integrations/{orders}/calls?status=failed")).text.count('data-testid="row"') == 0


def test_errors_of_an_input_appear_at_their_field(owner: Browser, orders: str) -> None:
    at = owner.at("acme", f"/console/integrations/{orders}/actions/get")
    refused = owner.post(at, {"in/url": "", "do": "execute"})
    assert refused.status_code == 422
    assert 'id="in/url-error"' in refused.text
    assert owner.get(owner.at("acme", f"/console/integrations/{orders}/actions/none")).status_code == 404


def test_a_failed_call_is_reported_and_repeated(owner: Browser, orders: str, acme: httpx.Client) -> None:
    at = owner.at("acme", f"/console/integrations/{orders}/actions/get")
    failed = owner.post(at, {"in/url": "nowhere", "do": "execute"})
    assert failed.status_code == 502
    call_id = failed.text.split("/calls/")[1].split('"')[0]
    page = owner.get(owner.at("acme", f"/console/integrations/{orders}/calls/{call_id}")).text
    assert "Sends the same input" in page
    again = owner.post(owner.at("acme", f"/console/integrations/{orders}/calls/{call_id}/retry"), {})
    assert f"/calls/{call_id}" in again.text
    assert not owner.url.endswith(call_id)


def test_a_call_of_unknown_outcome_is_resolved_by_hand(
    owner: Browser, signed_in: Callable[[str], Browser], orders: str, acme: httpx.Client
) -> None:
    acme.post(f"/api/v1/integrations/{orders}/execute", json={"action": "get", "input": {"url": "orders"}}).raise_for_status()
    call_id = acme.get(f"/api/v1/integrations/{orders}/executions").json()["data"][0]["execution_id"]
    sql = "UPDATE integration_call SET status = 'waiting', outcome = 'unknown' WHERE id = ?"
    db.write(lambda: db.execute(sql, (call_id,)))
    at = f"/console/integrations/{orders}/calls/{call_id}"
    viewer = signed_in("viewer@acme.test")
    assert "settle" not in viewer.get(viewer.at("acme", at)).text.replace("settle-title", "")
    assert viewer.post(viewer.at("acme", f"{at}/settle"), {"happened": "yes"}).status_code == 403
    for wrong in ("[1", '{"a": NaN}', '{"a": 1e999}', r'{"a": "\ud800"}'):
        refused = owner.post(owner.at("acme", f"{at}/settle"), {"happened": "yes", "output": wrong})
        assert (refused.status_code, 'id="output-error"' in refused.text) == (422, True)
    owner.post(owner.at("acme", f"{at}/settle"), {"happened": "yes", "output": '{"id": 7}'})
    call = acme.get(f"/api/v1/integrations/{orders}/executions/{call_id}").json()["data"]
    assert (call["status"], call["output"]) == ("succeeded", {"id": 7})
    assert owner.post(owner.at("acme", f"{at}/settle"), {"happened": "no"}).status_code == 409


def test_a_pause_of_calls_can_be_ended(
    owner: Browser, signed_in: Callable[[str], Browser], orders: str, acme: httpx.Client
) -> None:
    now = clock.now_ms()
    sql = (
        "INSERT INTO integration_circuit (tenant_id, integration_id, failures, openings, open_until, reason, changed_at) "
        "VALUES ('acme', ?, 5, 1, ?, 'it hung up', ?)"
    )
    db.write(lambda: db.execute(sql, (orders, now + 60_000, now)))
    at = f"/console/integrations/{orders}"
    page = owner.get(owner.at("acme", at)).text
    assert "Calls are paused." in page
    assert "it hung up" in page
    assert "calls paused" in owner.get(owner.at("acme", "/console/integrations")).text
    viewer = signed_in("viewer@acme.test")
    assert viewer.post(viewer.at("acme", f"{at}/circuit/close"), {}).status_code == 403
    assert acme.get(f"/api/v1/integrations/{orders}").json()["data"]["circuit"]["state"] == "open"
    assert "Calls are paused." not in owner.post(owner.at("acme", f"{at}/circuit/close"), {}).text
    assert acme.get(f"/api/v1/integrations/{orders}").json()["data"]["circuit"]["state"] == "closed"
    assert "integration.close-circuit" in acme.get("/api/v1/logs/audit?action=integration.close-circuit").text
