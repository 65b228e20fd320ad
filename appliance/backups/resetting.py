"""Resets a tenant, so that a solution can be applied to it as to a new one."""

from collections.abc import Callable

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants import service
from appliance.tenants.grants import confirmations, grants
from appliance.webapps.domains import name_ownership

from .copying import open_source
from .tenant_tables import EXPORTED, NOT_EXPORTED

# Kept: access and its credentials, the audit trail, refusals of owners, contents, which a following import may have stored
# already, and jobs on the tenant, such as the reset itself.
PRESERVED = frozenset({
    "api_key", "authority_grant", "blob", "confirmation", "invitation", "key_address", "key_request", "key_usage", "membership",
    "secret", "service_account", "session", "audit_chain", "audit_entry", "tenant_job",
})  # fmt: skip


def clear_tenant(scope: TenantScope, *, force: bool = False, fill: Callable[[int], object] = lambda _: None) -> int:
    """Deletes all data of a tenant except people, keys, secrets and the audit trail; returns the number of rows.

    Everything happens in one transaction.  Raises Conflict while documents must be retained, unless forced.  `fill` gets that
    number and runs on the emptied tenant in the same transaction; an error in it undoes everything.  Unused contents are
    garbage-collected later.  Grants of processes and WebApps and bindings of secrets are deleted with them; refusals and
    withdrawals by owners stay.
    Domains are released, and the tenant may claim them again at once.
    """

    def empty() -> int:
        names = name_ownership.names_of(scope)
        service.clear_tenant(scope, force=force)
        name_ownership.restore_tombstones(scope, names)
        deletable = (EXPORTED.keys() | NOT_EXPORTED.keys()) - PRESERVED
        tables = [table for table in reversed(open_source().tables()) if table in deletable]
        grants.delete_all_grants(scope)
        confirmations.delete_unrefused(scope, "secret")
        deleted = sum(db.execute(f'DELETE FROM "{table}" WHERE tenant_id = ?', (scope.tenant_id,)) for table in tables)  # noqa: S608
        audit.record(scope, "tenant.reset", scope.tenant_id, {"rows": deleted})
        fill(deleted)
        return deleted

    return db.write(empty)
