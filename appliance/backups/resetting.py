"""Empties a tenant, so that a solution can be applied to it as to a new one."""

from collections.abc import Callable

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants import service
from appliance.tenants.grants import confirmations, grants
from appliance.webapps.domains import holding

from .copying import open_source
from .holdings import LEFT, TAKEN

# Who may come in, what they need for it, who did what, what owners refused, and contents, which whatever comes next may have
# brought already.
KEPT = frozenset({
    "api_key", "authority_grant", "blob", "confirmation", "invitation", "membership", "secret", "session", "audit_chain",
    "audit_entry",
})  # fmt: skip


def empty_tenant(scope: TenantScope, *, force: bool = False, fill: Callable[[], object] = lambda: None) -> int:
    """Delete everything a tenant holds but people, keys, secrets and its audit trail, in one transaction; answers how many rows.

    Conflict while documents must be kept, unless it is forced.  `fill` works on the emptied tenant, in the same transaction: what
    it raises keeps everything.  Contents that nothing uses any more go by themselves, later.
    What processes and WebApps were granted and where secrets may go leaves with them, as when each is deleted; what owners
    withdrew or refused stays so.  Domains are given up, and the tenant may claim them again at once.
    """

    def empty() -> int:
        names = holding.names_of(scope)
        service.clear_tenant(scope, force=force)
        holding.give_back(scope, names)
        held = (TAKEN.keys() | LEFT.keys()) - KEPT
        tables = [table for table in reversed(open_source().tables()) if table in held]
        grants.forget_all(scope)
        confirmations.forget_undenied(scope, "secret")
        deleted = sum(db.execute(f'DELETE FROM "{table}" WHERE tenant_id = ?', (scope.tenant_id,)) for table in tables)  # noqa: S608
        audit.record(scope, "tenant.reset", scope.tenant_id, {"rows": deleted})
        fill()
        return deleted

    return db.write(empty)
