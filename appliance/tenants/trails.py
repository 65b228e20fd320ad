"""Entries in the audit trail of the appliance, and about a person in that of each tenant of theirs."""

from collections.abc import Mapping
from typing import Any

from appliance.core.scope import TenantScope
from appliance.monitor import audit

from .models import Membership
from .scopes import appliance_scope


def record_everywhere(user_id: str, action: str, fields: Mapping[str, Any], *, actor: str = "") -> None:
    """Inside a write: an entry in the trail of each tenant of the person, by the person unless there is another actor."""
    tenants = Membership.select(Membership.tenant_id).where(Membership.user_id == user_id).order_by(Membership.tenant_id)
    for row in tenants:
        audit.record(TenantScope(row.tenant_id, actor or f"user:{user_id}"), action, user_id, fields)


def record_for_appliance(action: str, subject: str, fields: Mapping[str, Any] | None = None, *, actor: str = "system") -> None:
    """Inside a write: an entry in the trail of the appliance, which belongs to no tenant.

    `actor` may be that of an entry in a tenant's trail: `appliance:<key>` there is `key:<key>` here.
    """
    kind, _, name = actor.partition(":")
    audit.record(appliance_scope(f"key:{name}" if kind == "appliance" else actor), action, subject, fields)
