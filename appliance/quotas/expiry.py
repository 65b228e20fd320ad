"""When sandbox tenants expire.  Nothing else expires, and nothing without a row here is ever deleted."""

from dataclasses import dataclass

from appliance.core.database import db
from appliance.core.scope import TenantScope

from .models import TenantExpiryRow


@dataclass(frozen=True)
class Expiry:
    """A tenant that expires, in epoch ms."""

    tenant_id: str
    expires_at: int


def find_expiry(tenant_id: str) -> int | None:
    """When the tenant expires, in epoch ms; None if it does not."""
    rows = db.rows("SELECT expires_at FROM tenant_expiry WHERE tenant_id = ?", (tenant_id,))
    return int(rows[0][0]) if rows else None


def set_expiry(scope: TenantScope, expires_at: int | None) -> None:
    """Inside a write: set when the tenant expires, None for never, and withdraw its warnings."""
    scope.delete(TenantExpiryRow).execute()
    db.execute("DELETE FROM quota_notice WHERE tenant_id = ? AND name IN ('expiring', 'expired')", (scope.tenant_id,))
    if expires_at is not None:
        scope.insert(TenantExpiryRow, expires_at=expires_at)


def list_expiring(before: int) -> list[Expiry]:
    """The tenants that expire before a time, the first one first."""
    rows = db.rows("SELECT tenant_id, expires_at FROM tenant_expiry WHERE expires_at < ? ORDER BY expires_at", (before,))
    return [Expiry(str(tenant_id), int(at)) for tenant_id, at in rows]
