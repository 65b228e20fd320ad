"""Kill switches: from one moment to the next an integration is not called any more, by whatever road."""

from dataclasses import dataclass

import peewee

from appliance.core import clock, db
from appliance.core.db import TenantModel
from appliance.core.errors import PolicyDenied
from appliance.core.scope import TenantScope
from appliance.integrations.service import Integrations
from appliance.monitor import audit


class KillSwitchRow(TenantModel):
    """An integration that is switched off; no row while it is on."""

    label = "kill switch"
    integration_id = peewee.TextField()
    reason = peewee.TextField()
    set_by = peewee.TextField()
    set_at = peewee.BigIntegerField()

    class Meta:
        table_name = "kill_switch"
        primary_key = peewee.CompositeKey("tenant_id", "integration_id")


@dataclass(frozen=True)
class KillSwitch:
    """An integration that is switched off since `set_at` (epoch ms) by the actor `set_by`."""

    integration: str
    reason: str
    set_by: str
    set_at: int


def list_switches(scope: TenantScope) -> list[KillSwitch]:
    """Everything that is switched off, by name."""
    rows = scope.select(KillSwitchRow).order_by(KillSwitchRow.integration_id)
    return [KillSwitch(row.integration_id, row.reason, row.set_by, row.set_at) for row in rows]


def switch_off(scope: TenantScope, integrations: Integrations, slug: str, reason: str) -> None:
    """No further call of the integration is sent; those under way end.  NotFound.  Off already, the reason is the new one."""
    integrations.get_integration(scope, slug)

    def off() -> None:
        scope.delete(KillSwitchRow).where(KillSwitchRow.integration_id == slug).execute()
        scope.insert(KillSwitchRow, integration_id=slug, reason=reason, set_by=scope.actor, set_at=clock.now_ms())
        audit.record(scope, "integration.switch_off", slug, {"reason": reason})

    db.write(off)


def switch_on(scope: TenantScope, slug: str) -> None:
    """The integration may be called again; nothing when it was on."""

    def on() -> None:
        if scope.delete(KillSwitchRow).where(KillSwitchRow.integration_id == slug).execute():
            audit.record(scope, "integration.switch_on", slug)

    db.write(on)


def refuse_switched_off(scope: TenantScope, slug: str) -> None:
    """PolicyDenied while the integration is switched off."""
    row = scope.find(KillSwitchRow, integration_id=slug)
    if row is not None:
        told = f"{slug} is switched off ({row.reason}); PUT /api/v1/kill-switches switches it on again"
        raise PolicyDenied(told, extra={"kill_switch": slug})
