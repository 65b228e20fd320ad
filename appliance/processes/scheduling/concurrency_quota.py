"""The quota of executions that a tenant runs at once: counted from their rows, so that a killed process keeps no place.

Executions beyond it wait in the queue.  Only the tenants that have this quota pay for it.
"""

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.quotas import find_limit, notices
from appliance.tenants import service as tenants

NAME = "concurrent_executions"


def is_limited(tenant_id: str) -> bool:
    """Whether the tenant has this quota."""
    return find_limit(tenant_id, NAME) is not None


def is_full(tenant_id: str) -> bool:
    """Whether the tenant runs as many executions as it may; only read, so another process may just be starting one."""
    limit = find_limit(tenant_id, NAME)
    return limit is not None and _count_up_to(tenant_id, limit) >= limit


def take_place(scope: TenantScope) -> bool:
    """Inside the write that starts an execution: whether the tenant may run one more.

    Until its commit, no other write starts one of this tenant.
    """
    limit = find_limit(scope.tenant_id, NAME)
    if limit is None:
        return True
    tenants.lock_tenant(scope.tenant_id)
    running = _count_up_to(scope.tenant_id, limit)
    notices.watch(scope.tenant_id, NAME, min(running + 1, limit), limit)
    return running < limit


def count_running(scope: TenantScope) -> int:
    """The executions that the tenant runs now."""
    sql = "SELECT count(*) FROM execution WHERE tenant_id = ? AND status = 'running'"
    return int(db.rows(sql, (scope.tenant_id,))[0][0])


def _count_up_to(tenant_id: str, limit: int) -> int:
    sql = "SELECT count(*) FROM (SELECT 1 FROM execution WHERE tenant_id = ? AND status = 'running' LIMIT ?) AS running"
    return int(db.rows(sql, (tenant_id, limit))[0][0])
