"""Draining: what the test kit counts as idle, and access to a tenant when the clock is far ahead."""

from typing import Any

from appliance.testing.draining import list_open_work
from appliance.testing.kit import LocalGos
from appliance.testing.tenants import QaTenant

HOUR_MS = 3_600_000
HOURLY = {
    "id": "hourly",
    "triggers": [{"schedule": {"cron": "0 * * * *", "timezone": "UTC"}}],
    "steps": [{"id": "one", "rule": {"expression": "= 1"}}],
}
ONE_AT_A_TIME = {
    "id": "one-at-a-time",
    "concurrency": {"limit": 1, "behaviour": "queue"},
    "steps": [{"id": "ask", "human": {"kind": "approval", "title": "May it?", "expires": "48h"}}],
}


def publish(tenant: QaTenant, definition: dict[str, Any]) -> None:
    tenant.ask("POST", "/processes", definition)
    tenant.ask("POST", f"/processes/{definition['id']}/publish", {})


def open_work(gos: LocalGos, tenant: QaTenant) -> list[str]:
    """The work that would continue by itself in this tenant."""
    return list_open_work(gos.running.services.queue, [tenant.id], tells_at_once=False)


def test_a_paused_process_counts_as_idle(gos: LocalGos) -> None:
    tenant = gos.tenant("paused")
    publish(tenant, HOURLY)
    tenant.ask("POST", "/processes/hourly/pause", {})
    execution = tenant.execute("hourly", {}, wait=0)["execution_id"]
    gos.running.move_clock(3 * HOUR_MS)  # its schedule is due three times
    gos.drain(seconds=10)
    assert tenant.execution(execution, "hourly")["wait_reason"] == "paused"
    tenant.ask("POST", "/processes/hourly/resume-triggers", {})
    gos.drain()
    assert {each["status"] for each in tenant.ask("GET", "/processes/hourly/executions")} == {"succeeded"}
    assert len(tenant.ask("GET", "/processes/hourly/executions")) > 1, "the schedule fired after it was resumed"


def test_an_execution_queued_behind_an_approval_counts_as_idle(gos: LocalGos) -> None:
    tenant = gos.tenant("queueing")
    publish(tenant, ONE_AT_A_TIME)
    first, second = (tenant.execute("one-at-a-time", {}, wait=0)["execution_id"] for _ in range(2))
    gos.drain(seconds=10)
    assert tenant.execution(second, "one-at-a-time")["wait_reason"] == "slot"
    tenant.ask("POST", f"/processes/one-at-a-time/executions/{first}/cancel", {})
    gos.drain()
    assert tenant.execution(second, "one-at-a-time")["wait_reason"] == "approval"


def test_deliveries_of_a_switched_off_tenant_count_as_idle(gos: LocalGos) -> None:
    tenant = gos.tenant("switched-off")
    publish(tenant, {**HOURLY, "triggers": []})
    gos.foreign.answer("/told", 200)
    tenant.ask("POST", "/webhooks", {"url": f"{gos.foreign.url}/told", "events": ["execution.succeeded"]})
    tenant.ask("PUT", "/kill-switches", {"kind": "tenant", "off": True})
    tenant.execute("hourly", {})
    gos.drain(seconds=10)
    assert gos.foreign.calls("/told") == []
    tenant.ask("PUT", "/kill-switches", {"kind": "tenant", "off": False})
    assert any("execution.succeeded is to be delivered" in line for line in open_work(gos, tenant))
    gos.drain()
    assert len(gos.foreign.calls("/told")) == 1


def test_a_tenant_stays_accessible_after_its_key_expired(gos: LocalGos) -> None:
    """The tenant's own key expires after a year; a shorter one keeps the clock of the shared appliance close."""
    tenant = gos.tenant("aged")
    publish(tenant, {**HOURLY, "triggers": []})
    tenant.api.headers["X-API-Key"] = gos.running.key(tenant.id, expires_in_days=1)
    gos.clock.advance(hours=25)
    assert tenant.execute("hourly", {})["status"] == "succeeded"
