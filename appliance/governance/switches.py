"""Kill switches: from one moment to the next a tenant, an agent, a tool or an integration does nothing any more, by any road."""

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
"""The name of the switch that stops everything."""
SCOPE_OF: Mapping[Kind, str] = {
    "integration": "integrations.write", "tool": "agents.write", "agent": "agents.write", "tenant": "agents.write",
}  # fmt: skip
"""What it takes beside `integrations.write` to stop, or to let go on, more than an integration."""


KinOf = Callable[[TenantScope, str], tuple[str, ...]]
"""The other integrations that use the credential of the one with this slug."""


def no_kin(_scope: TenantScope, _slug: str) -> tuple[str, ...]:
    """Of an integration on its own."""
    return ()


class KillSwitchRow(TenantModel):
    """Something that is switched off; no row while it is on."""

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
    """What is switched off since `set_at` (epoch ms) by the actor `set_by`; `name` is empty for the tenant as a whole.

    `kin` is the integration that it stops although it has another name, because both use one credential.
    """

    kind: Kind
    name: str
    reason: str
    set_by: str
    set_at: int
    kin: str = ""


def list_switches(scope: TenantScope) -> list[KillSwitch]:
    """Everything that is switched off, by kind and name."""
    rows = scope.select(KillSwitchRow).order_by(KillSwitchRow.kind, KillSwitchRow.name)
    return [KillSwitch(cast(Kind, row.kind), row.name, row.reason, row.set_by, row.set_at) for row in rows]


def switch_off(scope: TenantScope, kind: Kind, name: str, reason: str) -> None:
    """Nothing of it begins any more; what is under way ends.  Off already, the reason is the new one.

    What has that name need not be there yet: one that is made later under it is off from its first moment.
    """

    def off() -> None:
        fits = (KillSwitchRow.kind == kind) & (KillSwitchRow.name == name)
        scope.delete(KillSwitchRow).where(fits).execute()
        scope.insert(KillSwitchRow, kind=kind, name=name, reason=reason, set_by=scope.actor, set_at=clock.now_ms())
        audit.record(scope, f"{kind}.switch_off", name or scope.tenant_id, {"reason": reason})

    db.write(off)


def switch_on(scope: TenantScope, kind: Kind, name: str) -> None:
    """It may go on; nothing when it was on."""

    def on() -> None:
        fits = (KillSwitchRow.kind == kind) & (KillSwitchRow.name == name)
        if scope.delete(KillSwitchRow).where(fits).execute():
            audit.record(scope, f"{kind}.switch_on", name or scope.tenant_id)

    db.write(on)


def find_switch(
    scope: TenantScope, subject: Subject, action: ToolAction | None = None, kin_of: KinOf = no_kin
) -> KillSwitch | None:
    """The first switch that stops this subject, or this action of it; that of an integration stops its kin too, of which
    `kin_of` is asked only while any other integration is switched off."""
    meant = {"tenant": WHOLE_TENANT, "agent": subject.agent, "tool": action.tool if action else "", "integration": ""}
    if action is not None:
        meant["integration"] = action.integration
    sql = "SELECT kind, name, reason, set_by, set_at FROM switched_off WHERE tenant_id = ?"
    others = []
    for kind, name, reason, set_by, set_at in db.rows(sql, (scope.tenant_id,)):
        if kind == "tenant" or (name and meant[kind] == name):
            return KillSwitch(kind, name, reason, set_by, set_at)
        if kind == "integration" and meant[kind]:
            others.append(KillSwitch(kind, name, reason, set_by, set_at, kin=meant[kind]))
    kin = kin_of(scope, meant["integration"]) if others else ()
    return next((off for off in others if off.name in kin), None)


def refuse_switched_off(scope: TenantScope, subject: Subject, action: ToolAction | None = None) -> None:
    """PolicyDenied while the tenant, the subject's agent, or the action's tool or integration is switched off."""
    off = find_switch(scope, subject, action)
    if off is not None:
        raise PolicyDenied(told(off), extra={"reason": "kill_switch", "kill_switch": off.name or scope.tenant_id, "kind": off.kind})


def told(switch: KillSwitch) -> str:
    """Why nothing happens, and what lets it happen again."""
    what = "this tenant" if switch.kind == "tenant" else f"the {switch.kind} {switch.name}"
    what += f", whose credential {switch.kin} uses too," if switch.kin else ""
    return Sentence(
        "%(what)s is switched off (%(reason)s); PUT /api/v1/kill-switches switches it on again", what=what, reason=switch.reason
    )
