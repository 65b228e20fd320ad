"""Resets a tenant, so that a solution can be applied to it as to a new one.

One write begins the reset: it refuses or decides it.  Then rows are deleted in short writes, and the write that fills the tenant
deletes the rest and ends the reset.
"""

from collections.abc import Callable
from functools import partial

from appliance.core.database import db
from appliance.core.database.bulk.short_writes import Permission
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants import service
from appliance.tenants.grants import confirmations, grants
from appliance.webapps.domains import name_ownership
from appliance.webapps.domains import service as domains

from .copying import open_source
from .emptying import empty_tables, stop_work
from .jobs import records
from .problems import JobControl
from .tenant_tables import EXPORTED, NOT_EXPORTED

# Kept: access and its credentials, the audit trail and how far it was forwarded, refusals of owners, what the operator has set and
# what is used of it, contents, which a following import may have stored already, and jobs on the tenant, such as the reset itself.
PRESERVED = frozenset({
    "api_key", "authority_grant", "blob", "confirmation", "invitation", "key_address", "key_request", "key_usage", "membership",
    "secret", "service_account", "session", "audit_chain", "audit_entry", "audit_forward", "tenant_job", "tenant_quota",
    "tenant_expiry", "quota_use", "quota_notice", "llm_usage",
})  # fmt: skip
_DELETABLE = (EXPORTED.keys() | NOT_EXPORTED.keys()) - PRESERVED


def begin_reset(claim: records.Claim, *, force: bool = False) -> int:
    """Inside a write: from now on the tenant refuses requests, nothing of it is executed, sent or served, and whoever has the job
    completes the reset.  Returns the number of rows deleted for that, which is stored in the job.  LeaseLost.

    Raises Conflict while documents must be retained, unless forced.  Grants of processes and WebApps are deleted; refusals and
    withdrawals by owners stay.  Domains are released, and the tenant may claim them again once it is reset.
    """
    scope = claim.scope
    service.begin_reset(scope, force=force)
    _delete_grants(scope)
    names = name_ownership.names_of(scope)
    domains.forget_tenant(scope)
    name_ownership.restore_tombstones(scope, names)
    deleted = stop_work(scope)
    records.save_deleted(claim, deleted)
    return deleted


def empty_for_reset(claim: records.Claim, before: int, course: JobControl) -> int:
    """Delete almost everything in short writes, and store the number of deleted rows in the job; returns it with `before`, what
    earlier processes have deleted.  LeaseLost, Stopped."""

    def check() -> bool:
        course.refuse_stopping()
        records.LEASES.check(claim.key, claim.fence)
        return True

    def record(deleted: int) -> None:
        records.save_deleted(claim, before + deleted)

    return before + empty_tables(claim.scope, _DELETABLE, Permission(check, record))


def clear_tenant(
    scope: TenantScope, *, force: bool = False, before: int = 0, fill: Callable[[int], object] = lambda _: None
) -> int:  # fmt: skip
    """Deletes all data of a tenant except `PRESERVED`, such as people, keys and quotas, and ends its reset; returns the number of
    rows, with `before`, those deleted by earlier writes.

    Everything happens in one transaction.  Raises Conflict while documents must be retained, unless forced.  `fill` gets that
    number and runs on the emptied tenant in the same transaction; an error in it undoes everything.  Unused contents are
    garbage-collected later.  Bindings of secrets are deleted; otherwise as `begin_reset`.
    """
    return db.write(partial(_clear, scope, force, before, fill))


def _clear(scope: TenantScope, force: bool, before: int, fill: Callable[[int], object]) -> int:
    names = name_ownership.names_of(scope)
    service.clear_tenant(scope, force=force)
    name_ownership.restore_tombstones(scope, names)
    tables = [table for table in reversed(open_source().tables()) if table in _DELETABLE]
    _delete_grants(scope)
    rows = [db.execute(f'DELETE FROM "{table}" WHERE tenant_id = ?', (scope.tenant_id,)) for table in tables]  # noqa: S608
    deleted = before + sum(rows)
    audit.record(scope, "tenant.reset", scope.tenant_id, {"rows": deleted})
    fill(deleted)
    service.end_reset(scope)
    return deleted


def _delete_grants(scope: TenantScope) -> None:
    grants.delete_all_grants(scope)
    confirmations.delete_unrefused(scope, "secret")
