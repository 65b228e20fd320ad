"""Warnings that a tenant nears a quota: noted where the use is compared, then given once in each period by a periodic job."""

from dataclasses import dataclass

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.caches import Cache
from appliance.core.scope import TenantScope

from .kinds import KINDS, SHARE

PAUSE_SECONDS = 30.0


@dataclass(frozen=True)
class NearQuota:
    """A tenant that uses most of a quota in the period that began then (epoch ms)."""

    tenant_id: str
    name: str
    period: int
    used: int
    limit: int


_noted: Cache[tuple[str, str, int], float] = Cache(10_000)
_pending: dict[tuple[str, str, int], NearQuota] = {}


def watch(tenant_id: str, name: str, used: int, limit: int) -> None:
    """Note that this much of a quota is used; costs nothing below 80 percent, and may be called in a repeatable write."""
    if used < limit * SHARE:
        return
    key = tenant_id, name, KINDS[name].warning_period_of(clock.now_ms())
    noted_at, now = _noted.get(key), clock.monotonic()
    if noted_at is None or now - noted_at >= PAUSE_SECONDS:
        _noted[key] = now
        _pending[key] = NearQuota(*key, used, limit)


def has_pending() -> bool:
    """Whether a warning may have to be given."""
    return bool(_pending)


def take_pending() -> list[NearQuota]:
    """What was noted since the last call."""
    return [_pending.pop(key) for key in list(_pending)]


def is_recorded(tenant_id: str, name: str, period: int) -> bool:
    """Whether the tenant was warned in this period."""
    sql = "SELECT 1 FROM quota_notice WHERE tenant_id = ? AND name = ? AND period = ?"
    return bool(db.rows(sql, (tenant_id, name, period)))


def record(scope: TenantScope, name: str, period: int) -> bool:
    """Inside a write: record a warning; False if it was recorded before, in whichever process."""
    values = (scope.tenant_id, name, period, clock.now_ms())
    sql = "INSERT INTO quota_notice (tenant_id, name, period, at) VALUES (?, ?, ?, ?) "
    return bool(db.execute(sql + "ON CONFLICT (tenant_id, name, period) DO NOTHING", values))


def withdraw(scope: TenantScope, name: str) -> None:
    """Inside a write: forget the warning about what a tenant has at any time, so that it is given again when it is near again."""
    db.execute("DELETE FROM quota_notice WHERE tenant_id = ? AND name = ? AND period = 0", (scope.tenant_id, name))


def recorded_at(tenant_id: str, name: str, period: int) -> int | None:
    """When the tenant was warned in this period, in epoch ms."""
    sql = "SELECT at FROM quota_notice WHERE tenant_id = ? AND name = ? AND period = ?"
    rows = db.rows(sql, (tenant_id, name, period))
    return int(rows[0][0]) if rows else None


def list_current(tenant_id: str) -> list[str]:
    """The names of the quotas with a warning in their current period, and `expiring` or `expired`."""
    rows = db.rows("SELECT name, period FROM quota_notice WHERE tenant_id = ?", (tenant_id,))
    now = clock.now_ms()
    return [str(name) for name, period in rows if name not in KINDS or KINDS[name].warning_period_of(now) == period]


def list_lasting() -> list[tuple[str, str]]:
    """(tenant, quota) of all warnings about what a tenant has at any time."""
    rows = db.rows("SELECT tenant_id, name FROM quota_notice WHERE period = 0")
    return [(str(tenant_id), str(name)) for tenant_id, name in rows if name in KINDS]


def purge(now: int) -> int:
    """Delete the warnings of periods that ended long ago; returns how many."""
    before = now - 70 * 86_400_000
    sql = "DELETE FROM quota_notice WHERE period > 0 AND period < ? AND name NOT IN ('expiring', 'expired')"
    return db.write(lambda: db.execute(sql, (before,)))
