"""What each tenant may use: the amount set for it, else the default of sandbox tenants or of all.

Read from the database at most once a second for each tenant, so other processes follow a change within a second.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from appliance.core import clock
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.database.caches import Cache
from appliance.core.scope import APPLIANCE, TenantScope

from .kinds import KINDS, NANO
from .models import QuotaNoticeRow, QuotaRow

FRESH_SECONDS = 1.0
_STILL_ALLOWED = frozenset({"requests_per_day"})
"""What an expired tenant can go on using, so that its people can export what they need."""
Amounts = Mapping[str, int | None]


@dataclass
class Defaults:
    """The quotas of tenants for which nothing was set; None does not limit."""

    standard: Amounts = field(default_factory=dict)
    sandbox: Amounts = field(default_factory=dict)


@dataclass(frozen=True)
class TenantLimits:
    """The quotas of one tenant; `own` are the names of those that were set for it."""

    amounts: Amounts
    own: frozenset[str]
    expires_at: int | None

    @property
    def is_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= clock.now_ms()

    def find(self, name: str) -> int | None:
        """The amount of a quota, None without a limit; an expired tenant can use nothing more."""
        return 0 if self.is_expired and name not in _STILL_ALLOWED else self.amounts[name]


defaults = Defaults()
_limits: Cache[str, tuple[TenantLimits, float]] = Cache(1_000)


def configure(config: Config) -> None:
    """Sets the defaults of this process; in the configuration, 0 is no limit."""
    defaults.standard = _amounts(vars(config.quotas), config.limits.tenant_storage_mb)
    defaults.sandbox = _amounts(vars(config.sandbox_tenants), config.sandbox_tenants.storage_mb)
    _limits.clear()


def _amounts(settings: Mapping[str, int], storage_mb: int) -> Amounts:
    amounts: dict[str, int | None] = {"storage": storage_mb << 20 or None}
    for name, kind in KINDS.items():
        if name != "storage":
            amounts[name] = settings[name] * (NANO if kind.unit == "money" else 1) or None
    return amounts


def set_default(name: str, amount: int | None) -> None:
    """Sets one default of all tenants that are no sandboxes."""
    defaults.standard = {**defaults.standard, name: amount}
    _limits.clear()


def is_special(tenant_id: str, name: str) -> bool:
    """Whether another limit than the default of all tenants applies."""
    limits = limits_of(tenant_id)
    return name in limits.own or limits.expires_at is not None


def limits_of(tenant_id: str) -> TenantLimits:
    """The quotas of a tenant, at most a second old."""
    cached, now = _limits.get(tenant_id), clock.monotonic()
    if cached is not None and now - cached[1] < FRESH_SECONDS:
        return cached[0]
    limits = _read(tenant_id)
    _limits[tenant_id] = limits, now
    return limits


def _read(tenant_id: str) -> TenantLimits:
    if tenant_id == APPLIANCE:
        return TenantLimits(dict.fromkeys(KINDS), frozenset(), None)
    rows = db.rows(
        "SELECT name, amount FROM tenant_quota WHERE tenant_id = ? "
        "UNION ALL SELECT 'expires_at', expires_at FROM tenant_expiry WHERE tenant_id = ?",
        (tenant_id, tenant_id),
    )
    values = {str(name): amount for name, amount in rows}
    expires_at = values.get("expires_at")
    own = {name: amount for name, amount in values.items() if name in KINDS}
    base = dict.fromkeys(KINDS) | dict(defaults.standard if expires_at is None else defaults.sandbox)
    return TenantLimits(base | own, frozenset(own), expires_at)


def find_limit(tenant_id: str, name: str) -> int | None:
    """The amount of a tenant's quota now, None without a limit."""
    return limits_of(tenant_id).find(name)


def find_new_limit(name: str, own: Amounts) -> int | None:
    """The amount of a quota of a tenant that does not exist yet and will have these of its own; None without a limit."""
    return own[name] if name in own else defaults.standard.get(name)


def read_own(scope: TenantScope) -> Amounts:
    """The quotas that were set for the tenant, from the database."""
    rows = scope.select(QuotaRow, QuotaRow.name, QuotaRow.amount)
    return {row.name: row.amount for row in rows if row.name in KINDS}


def set_own(scope: TenantScope, name: str, amount: int | None) -> None:
    """Inside a write: set a quota of the tenant; None for no limit."""
    reset_own(scope, name)
    scope.insert(QuotaRow, name=name, amount=amount, set_at=clock.now_ms())


def reset_own(scope: TenantScope, name: str) -> None:
    """Inside a write: let the default apply to the tenant again.  Another limit has warnings of its own."""
    scope.delete(QuotaRow).where(QuotaRow.name == name).execute()
    scope.delete(QuotaNoticeRow).where(QuotaNoticeRow.name == name).execute()
    forget_later(scope.tenant_id)


def forget_later(tenant_id: str) -> None:
    """Inside a write: read the tenant's quotas again after it."""
    db.after_commit(partial(_forget, tenant_id))


def _forget(tenant_id: str) -> None:
    _limits.pop(tenant_id, None)
