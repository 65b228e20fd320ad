"""Expires overdue requests, and deletes requests that were closed long ago."""

from functools import partial

from appliance.core import clock
from appliance.core.database import db
from appliance.core.events import hub
from appliance.core.leases.open_tenants import FENCED
from appliance.governance.approvals import approvals
from appliance.governance.models import ApprovalRow
from appliance.monitor import audit, delete_older
from appliance.tenants import service as tenants


def expire_due() -> int:
    """Expire overdue requests and unused approved actions of every tenant; returns their number.

    An execution's requests end with its wait instead, so that the two agree.
    """
    now = clock.now_ms()
    due = db.rows(
        "SELECT tenant_id, id, status FROM approval WHERE expires_at <= ? AND ((status = 'pending' AND execution_id IS NULL) "  # noqa: S608
        f"OR (status = 'approved' AND action_digest IS NOT NULL)) AND tenant_id NOT IN ({FENCED}) ORDER BY expires_at LIMIT 1000",
        (now,),
    )
    return sum(
        db.write(partial(_expire if status == "pending" else _expire_unused, tenant, request)) for tenant, request, status in due
    )


def _expire(tenant_id: str, approval_id: str) -> int:
    scope = tenants.system_scope(tenant_id)
    if approvals.get_approval(scope, approval_id).status != "pending":
        return 0
    hub.publish(approvals.ApprovalClosed(scope, approvals.expire_approval(scope, approval_id)))
    return 1


def _expire_unused(tenant_id: str, approval_id: str) -> int:
    scope = tenants.system_scope(tenant_id)
    unused = (ApprovalRow.id == approval_id) & (ApprovalRow.status == "approved")
    if not scope.update(ApprovalRow, status="expired").where(unused).execute():
        return 0
    facts = approvals.audit_details(approvals.get_approval(scope, approval_id))
    audit.record(scope, "approval.expire", approval_id, facts | {"unused": True})
    return 1


def purge(before_ms: int) -> int:
    """Delete every tenant's requests that were closed before this time; returns their number."""
    return delete_older("approval", "id", "closed_at", before_ms)
