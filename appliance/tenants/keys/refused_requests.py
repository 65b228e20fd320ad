"""Writes to audit trails what keys were not allowed to do, and to the appliance's which keys were not accepted."""

from functools import partial

from appliance.core.database import db
from appliance.core.networks import network_of
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants.sign_in.counts import MemoryCounts
from appliance.tenants.sign_in.refused_tries import RefusedTries
from appliance.tenants.trails import record_for_appliance

RECORDED_AT_THE_DECISION = {"policy_denied", "approval_required"}


class RefusedRequests:
    """Counted by key, operation and error code, or by network for keys that were not accepted, in each process."""

    def __init__(self) -> None:
        self._tries = RefusedTries(MemoryCounts("refused requests"))

    def record(self, scope: TenantScope, operation: str, code: str) -> None:
        """Record a request of the scope's actor that was answered with 403; waits for nothing."""
        if code in RECORDED_AT_THE_DECISION:
            return
        if times := self._tries.count((scope.tenant_id, scope.actor, operation, code)):
            fields = {"code": code, "times_today": times, "request_id": scope.request_id}
            db.submit(partial(audit.record, scope, "request.refuse", operation, fields))

    def record_key(self, kind: str, code: str, address: str) -> None:
        """Record that a key or token was not accepted, of which nothing is written down; waits for nothing."""
        network = network_of(address)
        if times := self._tries.count((kind, code, network)):
            fields = {"code": code, "network": network, "times_today": times}
            db.submit(partial(record_for_appliance, "key.refuse", kind, fields))
