"""Claims on rows of a tenant that somebody started, such as an import: they are continued with that person's scope."""

from dataclasses import dataclass

from appliance.core.scope import TenantScope

from .table import Lease, LeaseTable


@dataclass(frozen=True)
class TenantClaim:
    """The right to work on a row until another process claims it; `scope` is that of the person who started it.

    `claims` counts those since the last progress.
    """

    scope: TenantScope
    id: str
    fence: int
    claims: int

    @property
    def key(self) -> tuple[str, str]:
        return self.scope.tenant_id, self.id


def claim_lost(table: LeaseTable, lost: Lease, owner: str, until: int) -> TenantClaim | None:
    """Inside a write: continue a row whose process is gone; None when it has ended, or another process was faster.

    The table has the key `tenant_id` and `id`, and the columns `actor`, `scopes`, `request_id`, `fence` and `claims`.
    """
    tenant_id, row_id = lost.key
    if not table.is_current(lost.key, lost.guard):
        return None
    row = TenantScope(tenant_id, "system").find(table.model, id=row_id, **{table.lease: lost.until})
    if row is None or not table.claim(lost.key, lost.guard, owner=owner, until=until):
        return None
    scope = TenantScope(tenant_id, row.actor, frozenset(row.scopes), row.request_id)
    return TenantClaim(scope, row_id, row.fence + 1, row.claims + 1)
