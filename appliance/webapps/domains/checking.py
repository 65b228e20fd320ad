"""Probes domains when they are due or on request, and stores the result.

Starting a probe increments `checks`, which also keeps other processes away for a while. Only the latest probe may store its
result, and only for the claim it started with, so that a slow probe cannot overwrite newer results or decisions.
"""

import threading

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, RateLimited
from appliance.core.leases import LeaseTable
from appliance.core.scope import TenantScope
from appliance.monitor import audit, webhooks
from appliance.tenants import system_scope
from appliance.webapps.certificates.service import forget_certificate

from . import name_ownership
from .host_table import mark_changed
from .models import DomainRow
from .probing import Prober, ProbeResult
from .records import DomainSettings
from .transitions import Transition, decide

LEASE_MS = 120_000
LEASES = LeaseTable(DomainRow, ("tenant_id", "host", "token"), lease="next_check_at", fence="checks")
FARTHEST_MS = 24 * 3_600_000  # limits the effect of a clock that ran ahead
ROUND_SECONDS = 2.0
AT_ONCE = 8  # probes on request that may run at once in this process, at most one per tenant


class DomainChecker:
    """Runs the probes of this process."""

    def __init__(self, settings: DomainSettings, outside: Prober) -> None:
        self._settings = settings
        self._outside = outside
        self._probing: set[str] = set()  # tenants with a probe in progress
        self._lock = threading.Lock()

    def check_now(self, scope: TenantScope, row: DomainRow) -> None:
        """Probe on request, and restart the backoff. RateLimited while a probe of the same tenant, or too many others, are
        running."""
        with self._lock:
            if scope.tenant_id in self._probing or len(self._probing) >= AT_ONCE:
                raise RateLimited("another domain is being checked; try again in a moment", headers={"Retry-After": "3"})
            self._probing.add(scope.tenant_id)
        try:
            self._check(scope, row, resets_backoff=True)
        finally:
            with self._lock:
                self._probing.remove(scope.tenant_id)

    def check_due(self) -> int:
        """Probe the domains that are due, verified ones first, for about two seconds; returns how many."""
        deadline, done = clock.monotonic() + ROUND_SECONDS, 0
        due = db.rows(
            "SELECT tenant_id, host FROM domain WHERE next_check_at <= ? OR next_check_at > ? "
            "ORDER BY CASE WHEN verified_at IS NULL THEN 1 ELSE 0 END, next_check_at LIMIT 50",
            (clock.now_ms(), clock.now_ms() + FARTHEST_MS),
        )
        for number, (tenant_id, host) in enumerate(due):
            if number and clock.monotonic() > deadline:
                break
            scope = system_scope(str(tenant_id))
            row = scope.find(DomainRow, host=host)
            if row is not None and row.next_check_at is not None and not 0 < row.next_check_at - clock.now_ms() <= FARTHEST_MS:
                done += self._check(scope, row, resets_backoff=False)
        return done

    @staticmethod
    def next_due() -> int | None:
        """When the first domain is due (epoch ms), None without one."""
        return LEASES.next_due("next_check_at IS NOT NULL")

    def _check(self, scope: TenantScope, row: DomainRow, *, resets_backoff: bool) -> bool:
        until = None if row.next_check_at is None else clock.now_ms() + LEASE_MS
        if not db.write(lambda: LEASES.claim(_key(row), row.checks, until=until)):
            return False
        is_held = name_ownership.is_held(scope, row.host)
        look = self._outside.probe(scope.tenant_id, row, is_held=is_held)
        return db.write(lambda: self._store_result(scope, row, look, resets_backoff=resets_backoff))

    def _store_result(self, scope: TenantScope, probed: DomainRow, result: ProbeResult, *, resets_backoff: bool) -> bool:
        if not LEASES.is_current(_key(probed), probed.checks + 1):
            return False  # released, claimed again, approved, or probed again in the meantime
        row = scope.get(DomainRow, host=probed.host)
        if resets_backoff:
            row.tries = 0
        transition = decide(self._settings, row, result, clock.now_ms(), is_held=name_ownership.is_held(scope, row.host))
        _apply(scope, row, result, transition)
        return True


def _key(row: DomainRow) -> tuple[str, str, str]:
    return row.tenant_id, row.host, row.token


def _apply(scope: TenantScope, row: DomainRow, result: ProbeResult, transition: Transition) -> None:
    changes = dict(transition.changes)
    if transition.acquires:
        try:
            mark_verified(scope, row)
        except AlreadyExists as error:
            changes = {
                "state": "pending_dns",
                "error": error.message,
                "next_check_at": changes["next_check_at"],
                "tries": row.tries + 1,
            }
    data = {"webapp": row.app_id, "error": changes.get("error")}
    if transition.releases:
        for name in row.names:
            forget_certificate(scope.tenant_id, name)
        name_ownership.release(scope, row.host)
        audit.record(scope, "domain.disable", row.host, data)
    if transition.alerts:
        audit.record(scope, "domain.failing", row.host, data)
        webhooks.emit(scope, "domain.failing", lambda: {"domain": row.host, **data})
    if transition.recovers:
        audit.record(scope, "domain.recover", row.host, {"webapp": row.app_id})
    changes |= {"records": [each.as_json() for each in result.records], "checked_at": clock.now_ms()}
    LEASES.settle(_key(row), row.checks, changes)
    state_before = (row.state, row.failing_since is None, row.leads_here)
    if state_before != (changes.get("state", row.state), changes.get("failing_since") is None, changes.get("leads_here")):
        mark_changed()


def mark_verified(scope: TenantScope, row: DomainRow) -> None:
    """Inside a write: the domain is verified, so its names now belong to the tenant; AlreadyExists when another tenant has
    them."""
    with db.savepoint():
        name_ownership.acquire(scope, row)
    audit.record(scope, "domain.verify", row.host, {"webapp": row.app_id, "method": row.method})
    mark_changed()
