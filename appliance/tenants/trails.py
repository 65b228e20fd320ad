"""Entries about a person in the audit trail of each tenant of theirs."""

from collections.abc import Mapping
from typing import Any

from appliance.core.scope import TenantScope
from appliance.monitor import audit

from .models import Membership


def record_everywhere(user_id: str, action: str, fields: Mapping[str, Any], *, actor: str = "") -> None:
    """Inside a write: an entry in the trail of each tenant of the person, by the person unless there is another actor."""
    tenants = Membership.select(Membership.tenant_id).where(Membership.user_id == user_id).order_by(Membership.tenant_id)
    for row in tenants:
        audit.record(TenantScope(row.tenant_id, actor or f"user:{user_id}"), action, user_id, fields)
