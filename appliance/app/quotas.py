"""Quotas of tenants in the whole appliance: what is used of each, the warnings, and the end of sandbox tenants."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from appliance.blobs import quota as storage
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.core.scope import TenantScope, tenant_ids
from appliance.datapool import count_entities
from appliance.llm import usage as llm_usage
from appliance.monitor import audit, emit, metrics
from appliance.processes.scheduling import concurrency_quota
from appliance.quotas import KINDS, QuotaUsage, daily, expiry, find_limit, notices, to_number
from appliance.tenants import quota_settings
from appliance.tenants import service as tenants
from appliance.tenants.keys import daily_quotas

log = logging.getLogger(__name__)
DAY = 86_400_000
CLEARLY_LESS = 70.0
"""A warning about what a tenant has at any time ends below this percentage."""
MOST_SERIES = 900
METRICS_SECONDS = 60.0


def make_usage() -> QuotaUsage:
    """Connects each quota with the part that knows its use."""
    readers: dict[str, Callable[[TenantScope], int]] = {
        "storage": storage.used_bytes, "entities": count_entities,
        "executions_per_day": lambda scope: daily.read_used(scope.tenant_id, "executions_per_day"),
        "concurrent_executions": concurrency_quota.count_running, "requests_per_day": daily_quotas.read_tenant_usage,
        **{name: partial(_read_llm, name) for name in llm_usage.TENANT_QUOTAS},
    }  # fmt: skip
    return QuotaUsage(readers)


def _read_llm(name: str, scope: TenantScope) -> int:
    return llm_usage.read_quota(scope, name)


# -- warnings


def give_warnings() -> None:
    """Warn the tenants that this process has found near a quota, each once in a period."""
    known = set(tenant_ids())
    for near in notices.take_pending():
        if near.tenant_id in known and not notices.is_recorded(near.tenant_id, near.name, near.period):
            db.write(partial(_warn, near))


def _warn(near: notices.NearQuota) -> None:
    scope, kind = tenants.system_scope(near.tenant_id), KINDS[near.name]
    if not notices.record(scope, near.name, near.period):
        return
    resets_at = kind.period_of(clock.now_ms())[1]
    data: dict[str, Any] = {"quota": near.name, "used": to_number(kind, near.used), "limit": to_number(kind, near.limit)}
    if resets_at is not None:
        data["resets_at"] = clock.rfc3339(resets_at)
    audit.record(scope, "quota.warning", near.name, data)
    emit(scope, "quota.warning", lambda: data)
    text = "the tenant %s uses %s of the %s that its quota %s allows"
    db.after_commit(lambda: log.warning(text, near.tenant_id, data["used"], data["limit"], near.name))


def withdraw_warnings(usage: QuotaUsage) -> None:
    """Withdraw the warnings about what tenants have at any time and use clearly less of now."""
    for tenant_id, name in notices.list_lasting():
        scope = tenants.system_scope(tenant_id)
        percent = usage.read_state(scope, name).percent
        if percent is None or percent < CLEARLY_LESS:
            db.write(partial(notices.withdraw, scope, name))


# -- sandbox tenants


def end_sandboxes(config: Config) -> None:
    """Warn sandbox tenants before they expire and when they have, and delete those whose days of grace are over.

    These days begin with the notice that the tenant has expired, so a clock that jumps ahead deletes nothing at once.
    """
    now, settings = clock.now_ms(), config.sandbox_tenants
    for each in expiry.list_expiring(now + settings.warn_days * DAY):
        expired_at = notices.recorded_at(each.tenant_id, "expired", each.expires_at)
        if each.expires_at > now:
            _announce(each, "expiring", each.expires_at + settings.grace_days * DAY)
        elif expired_at is None:
            _announce(each, "expired", now + settings.grace_days * DAY)
        elif expired_at + settings.grace_days * DAY <= now:
            _delete(each)


def _announce(each: expiry.Expiry, name: str, deleted_after: int) -> None:
    scope = tenants.system_scope(each.tenant_id)

    def write() -> None:
        if notices.record(scope, name, each.expires_at):
            data = {"expires_at": clock.rfc3339(each.expires_at), "deleted_after": clock.rfc3339(deleted_after)}
            audit.record(scope, f"tenant.{name}", each.tenant_id, data)
            emit(scope, f"tenant.{name}", lambda: data)
            text = "the sandbox tenant %s expires at %s and is deleted after %s"
            db.after_commit(lambda: log.warning(text, each.tenant_id, data["expires_at"], data["deleted_after"]))

    if not notices.is_recorded(each.tenant_id, name, each.expires_at):
        db.write(write)


def _delete(each: expiry.Expiry) -> None:
    try:
        if quota_settings.delete_expired(each.tenant_id, each.expires_at):
            log.warning("the sandbox tenant %s has been deleted; it expired at %s", each.tenant_id, clock.rfc3339(each.expires_at))
    except ApplianceError as error:
        log.warning("the sandbox tenant %s has expired, but is kept: %s", each.tenant_id, error.message)


def tidy(usage: QuotaUsage, config: Config) -> None:
    """What one process does for all, every minute."""
    withdraw_warnings(usage)
    end_sandboxes(config)
    daily.purge(clock.now_ms())
    notices.purge(clock.now_ms())


# -- metrics


class QuotaMetrics:
    """The largest share of each quota that a tenant uses, which names no tenant; read at most once a minute."""

    def __init__(self, usage: QuotaUsage) -> None:
        self._usage = usage
        self._read_at = -METRICS_SECONDS
        self._shares: metrics.Values = {}

    def read_shares(self) -> metrics.Values:
        """By quota, used / limit of the tenant that is nearest to it."""
        if clock.monotonic() - self._read_at >= METRICS_SECONDS:
            limits = [(tenant, name) for tenant in tenant_ids() for name in KINDS if find_limit(tenant, name) is not None]
            shares: dict[tuple[str, ...], float] = {}
            for tenant, name in limits[:MOST_SERIES]:
                state = self._usage.read_state(tenants.system_scope(tenant), name)
                share = float(to_number(state.kind, state.used)) / max(float(to_number(state.kind, state.limit or 0)), 1e-9)
                shares[(name,)] = max(share, shares.get((name,), 0.0))
            self._shares, self._read_at = shares, clock.monotonic()
        return self._shares


def add_gauges(usage: QuotaUsage) -> None:
    """Have the registry ask for the quotas of all tenants whenever it is read."""
    help_text = "The share of a quota that the tenant nearest to it uses, 1 at the limit."
    metrics.registry.gauges("gos_quota_share", help_text, ("quota",), QuotaMetrics(usage).read_shares)
