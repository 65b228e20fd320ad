"""Writes requests that a key was not allowed to make to the audit trail of its tenant."""

from functools import partial

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants.sign_in.counts import MemoryCounts
from appliance.tenants.sign_in.refused_tries import RefusedTries

RECORDED_AT_THE_DECISION = {"policy_denied", "approval_required"}


class RefusedRequests:
    """Counted by key, operation and error code, in each process."""

    def __init__(self) -> None:
        self._tries = RefusedTries(MemoryCounts("refused requests"))

    def record(self, scope: TenantScope, operation: str, code: str) -> None:
        """Record a request of the scope's actor that was answered with 403; waits for nothing."""
        if code in RECORDED_AT_THE_DECISION:
            return
        if times := self._tries.count((scope.tenant_id, scope.actor, operation, code)):
            fields = {"code": code, "times_today": times, "request_id": scope.request_id}
            db.submit(partial(audit.record, scope, "request.refuse", operation, fields))
