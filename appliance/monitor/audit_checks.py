"""The verification of all audit trails on a schedule: a broken one is logged once, and counted for the metrics."""

import logging

from appliance.core.scope import APPLIANCE, TenantScope, tenant_ids

from . import audit
from .audit import ChainStatus

log = logging.getLogger(__name__)
AUDIT_CHECK_SECONDS = 6 * 3600.0


class AuditChecks:
    """What the latest verification found."""

    def __init__(self) -> None:
        self._broken: dict[str, int | None] = {}

    def verify_all(self) -> None:
        """Verify every trail, and log each that is broken for the first time, or at another entry than before."""
        broken: dict[str, int | None] = {}
        for tenant_id, status in verify_trails():
            if status.intact:
                continue
            broken[tenant_id] = status.broken_seq
            if self._broken.get(tenant_id, 0) != status.broken_seq:
                message = "the audit trail of %s is broken at entry %s: %s; `gos audit verify` says more"
                owner = "the appliance" if tenant_id == APPLIANCE else f"tenant {tenant_id}"
                log.error(message, owner, status.broken_seq, status.reason)
        self._broken = broken

    def count_broken(self) -> int:
        """How many trails were broken when they were last verified; 0 before the first time."""
        return len(self._broken)


def verify_trails(only: str | None = None) -> list[tuple[str, ChainStatus]]:
    """The status of the trails of the appliance and of each tenant, or of this one."""
    chosen = [APPLIANCE, *tenant_ids()] if only is None else [only]
    return [(tenant_id, audit.verify(TenantScope(tenant_id, "system"))) for tenant_id in chosen]
