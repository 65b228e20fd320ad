"""What the kit takes for rest, and what of a tenant goes on working when the clock is far ahead."""

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


def left(gos: LocalGos, tenant: QaTenant) -> list[str]:
    """What would go on by itself in this tenant."""
    return list_open_work(gos.running.services.queue, [tenant.id], tells_at_once=False)


def test_what_is_paused_is_at_rest_and_goes_on_afterwards(gos: LocalGos) -> None:
    tenant = gos.tenant("paused")
    publish(tenant, HOURLY)
    tenant.ask("POST", "/processes/hourly/pause", {})
    held = tenant.execute("hourly", {}, wait=0)["execution_id"]
    gos.running.move_clock(3 * HOUR_MS)  # its schedule is due three times
    gos.drain(seconds=10)
    assert tenant.execution(held, "hourly")["wait_reason"] == "paused"
    tenant.ask("POST", "/processes/hourly/resume-triggers", {})
    gos.drain()
    assert {each["status"] for each in tenant.ask("GET", "/processes/hourly/executions")} == {"succeeded"}
    assert len(tenant.ask("GET", "/processes/hourly/executions")) > 1, "the schedule fired once it was let"


def test_who_waits_for_the_slot_of_one_that_waits_for_a_person_is_at_rest(gos: LocalGos) -> None:
    tenant = gos.tenant("queueing")
    publish(tenant, ONE_AT_A_TIME)
    first, second = (tenant.execute("one-at-a-time", {}, wait=0)["execution_id"] for _ in range(2))
    gos.drain(seconds=10)
    assert tenant.execution(second, "one-at-a-time")["wait_reason"] == "slot"
    tenant.ask("POST", f"/processes/one-at-a-time/executions/{first}/cancel", {})
    gos.drain()
    assert tenant.execution(second, "one-at-a-time")["wait_reason"] == "approval"


def test_what_a_tenant_that_is_switched_off_would_send_is_at_rest(gos: LocalGos) -> None:
    tenant = gos.tenant("switched-off")
    publish(tenant, {**HOURLY, "triggers": []})
    gos.foreign.answer("/told", 200)
    tenant.ask("POST", "/webhooks", {"url": f"{gos.foreign.url}/told", "events": ["execution.succeeded"]})
    tenant.ask("PUT", "/kill-switches", {"kind": "tenant", "off": True})
    tenant.execute("hourly", {})
    gos.drain(seconds=10)
    assert gos.foreign.calls("/told") == []
    tenant.ask("PUT", "/kill-switches", {"kind": "tenant", "off": False})
    assert any("execution.succeeded is to be delivered" in line for line in left(gos, tenant))
    gos.drain()
    assert len(gos.foreign.calls("/told")) == 1


def test_a_tenant_is_reached_after_its_key_has_ended(gos: LocalGos) -> None:
    """A year later its own would have: here it gets one that ends sooner, as the appliance is that of other tests too."""
    tenant = gos.tenant("aged")
    publish(tenant, {**HOURLY, "triggers": []})
    tenant.api.headers["X-API-Key"] = gos.running.key(tenant.id, expires_in_days=1)
    gos.clock.advance(hours=25)
    assert tenant.execute("hourly", {})["status"] == "succeeded"
