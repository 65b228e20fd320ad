"""Kill switches: immediately stop a tenant, an agent, a tool or an integration, whichever way it is called."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

import peewee

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.db import TenantModel
from appliance.core.errors import PolicyDenied
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance.policies.decision import ToolAction
from appliance.governance.subjects import Subject
from appliance.monitor import audit

Kind = Literal["tenant", "agent", "tool", "integration"]
KINDS: tuple[Kind, ...] = ("tenant", "agent", "tool", "integration")
WHOLE_TENANT = ""
"""The name of the switch that stops the whole tenant."""
SCOPES: Mapping[Kind, str] = {
    "integration": "integrations.write", "tool": "agents.write", "agent": "agents.write", "tenant": "agents.write",
}  # fmt: skip
"""The scope needed, besides `integrations.write`, to switch each kind off or on."""


FindKin = Callable[[TenantScope, str], tuple[str, ...]]
"""Returns the other integrations that share a credential with the one of this slug."""


def find_no_kin(_scope: TenantScope, _slug: str) -> tuple[str, ...]:
    """The `FindKin` of integrations that share no credentials."""
    return ()


class KillSwitchRow(TenantModel):
    """Something that is switched off; there is no row while it is on."""

    label = "kill switch"
    kind = peewee.TextField()
    name = peewee.TextField()
    reason = peewee.TextField()
    set_by = peewee.TextField()
    set_at = peewee.BigIntegerField()

    class Meta:
        table_name = "switched_off"
        primary_key = peewee.CompositeKey("tenant_id", "kind", "name")


@dataclass(frozen=True)
class KillSwitch:
    """A switch set at `set_at` (epoch ms) by the actor `set_by`; `name` is empty for the whole tenant.

    `kin` is the integration that is stopped because it shares the credential of the one switched off.
    """

    kind: Kind
    name: str
    reason: str
    set_by: str
    set_at: int
    kin: str = ""


def list_switches(scope: TenantScope) -> list[KillSwitch]:
    """Everything that is switched off, ordered by kind and name."""
    rows = scope.select(KillSwitchRow).order_by(KillSwitchRow.kind, KillSwitchRow.name)
    return [KillSwitch(cast(Kind, row.kind), row.name, row.reason, row.set_by, row.set_at) for row in rows]


def switched_off_tenants() -> frozenset[str]:
    """The ids of the tenants that are switched off as a whole."""
    return frozenset(str(tenant_id) for (tenant_id,) in db.rows("SELECT tenant_id FROM switched_off WHERE kind = 'tenant'"))


def switch_off(scope: TenantScope, kind: Kind, name: str, reason: str) -> None:
    """Prevent it from starting anything; work in progress finishes.  If it is already off, this replaces the reason.

    The name need not exist yet: anything created under it later is off from the start.
    """

    def off() -> None:
        fits = (KillSwitchRow.kind == kind) & (KillSwitchRow.name == name)
        scope.delete(KillSwitchRow).where(fits).execute()
        scope.insert(KillSwitchRow, kind=kind, name=name, reason=reason, set_by=scope.actor, set_at=clock.now_ms())
        audit.record(scope, f"{kind}.switch_off", name or scope.tenant_id, {"reason": reason})

    db.write(off)


def switch_on(scope: TenantScope, kind: Kind, name: str) -> None:
    """Switch it on again; no effect if it is on."""

    def on() -> None:
        fits = (KillSwitchRow.kind == kind) & (KillSwitchRow.name == name)
        if scope.delete(KillSwitchRow).where(fits).execute():
            audit.record(scope, f"{kind}.switch_on", name or scope.tenant_id)

    db.write(on)


def find_switch(
    scope: TenantScope, subject: Subject, action: ToolAction | None = None, kin_of: FindKin = find_no_kin
) -> KillSwitch | None:
    """The first switch that stops this subject or action.  The switch of an integration also stops those that share its
    credential; `kin_of` is only called while another integration is switched off."""
    names = {"tenant": WHOLE_TENANT, "agent": subject.agent, "tool": action.tool if action else "", "integration": ""}
    if action is not None:
        names["integration"] = action.integration
    sql = "SELECT kind, name, reason, set_by, set_at FROM switched_off WHERE tenant_id = ?"
    others = []
    for kind, name, reason, set_by, set_at in db.rows(sql, (scope.tenant_id,)):
        if kind == "tenant" or (name and names[kind] == name):
            return KillSwitch(kind, name, reason, set_by, set_at)
        if kind == "integration" and names[kind]:
            others.append(KillSwitch(kind, name, reason, set_by, set_at, kin=names[kind]))
    kin = kin_of(scope, names["integration"]) if others else ()
    return next((off for off in others if off.name in kin), None)


def check_not_switched_off(scope: TenantScope, subject: Subject, action: ToolAction | None = None) -> None:
    """PolicyDenied while the tenant, the subject's agent, or the action's tool or integration is switched off."""
    off = find_switch(scope, subject, action)
    if off is not None:
        raise PolicyDenied(
            describe_switch(off), extra={"reason": "kill_switch", "kill_switch": off.name or scope.tenant_id, "kind": off.kind}
        )


def describe_switch(switch: KillSwitch) -> str:
    """The error message: what is switched off, why, and how to switch it on again."""
    what = "this tenant" if switch.kind == "tenant" else f"the {switch.kind} {switch.name}"
    what += f", whose credential {switch.kin} uses too," if switch.kin else ""
    return Sentence(
        "%(what)s is switched off (%(reason)s); PUT /api/v1/kill-switches switches it on again", what=what, reason=switch.reason
    )
