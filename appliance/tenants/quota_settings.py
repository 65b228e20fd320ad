"""Who runs the appliance sets quotas of tenants, and how long sandbox tenants live; each change is in the tenant's audit trail."""

from collections.abc import Mapping

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.quotas import KINDS, expiry, find_kind, format_amount, limits, parse_amount

from .models import Tenant
from .service import close_tenant, delete_closed, get_tenant, system_scope
from .trails import record_for_appliance

DAY = 86_400_000
MAX_DAYS = 3650
DEFAULT = "default"
"""Written in place of an amount: the default of the appliance applies again."""


def change_quotas(scope: TenantScope, amounts: Mapping[str, str]) -> None:
    """Set quotas of the scope's tenant to amounts as people write them, `none`, or `default`.

    All or none; ValidationFailed, NotFound.
    """
    parse_quotas(amounts)

    def save() -> None:
        get_tenant(scope.tenant_id)
        store_quotas(scope, amounts)

    db.write(save)


def parse_quotas(amounts: Mapping[str, str]) -> dict[str, int | None]:
    """The amounts, without those that are to be the default.  ValidationFailed."""
    kinds = {find_kind(name): text for name, text in amounts.items()}
    return {kind.name: parse_amount(kind, text) for kind, text in kinds.items() if text.strip().lower() != DEFAULT}


def store_quotas(scope: TenantScope, amounts: Mapping[str, str]) -> None:
    """Inside a write: set the quotas of the scope's tenant, and record it.  ValidationFailed."""
    parsed = parse_quotas(amounts)
    before = limits.read_own(scope)
    for name in amounts:
        if name in parsed:
            limits.set_own(scope, name, parsed[name])
        else:
            limits.reset_own(scope, name)
    after = limits.read_own(scope)
    changes = audit.compare(_as_text(before), _as_text(after))
    for name, (old, new) in changes.items():
        audit.record(scope, "quota.set", name, {"from": old or DEFAULT, "to": new or DEFAULT})
    if changes:
        record_for_appliance("tenant.quotas", scope.tenant_id, changes, actor=scope.actor)


def _as_text(amounts: Mapping[str, int | None]) -> dict[str, str]:
    return {name: format_amount(KINDS[name], amount) for name, amount in amounts.items()}


def check_days(days: int) -> int:
    """ValidationFailed unless a sandbox tenant can live so many days."""
    if not 1 <= days <= MAX_DAYS:
        raise ValidationFailed(Sentence("days must be from 1 to %(most)s", most=MAX_DAYS), pointer="/days")
    return days


def expiry_in(days: int) -> int:
    """When a sandbox tenant made now expires, in epoch milliseconds.  ValidationFailed for a number of days that is not allowed."""
    return clock.now_ms() + check_days(days) * DAY


def extend_sandbox(scope: TenantScope, days: int) -> int:
    """Let a sandbox tenant that expires do so in `days` from now; returns when.  Conflict if it does not expire."""
    expires_at = expiry_in(days)
    _change_expiry(scope, expires_at)
    return expires_at


def keep_sandbox(scope: TenantScope) -> None:
    """Make a sandbox tenant that expires a standard one, which does not.  Conflict if it does not expire."""
    _change_expiry(scope, None)


def _change_expiry(scope: TenantScope, expires_at: int | None) -> None:
    def change() -> None:
        get_tenant(scope.tenant_id)
        before = expiry.find_expiry(scope.tenant_id)
        if before is None:
            raise Conflict(
                Sentence("the tenant %(tenant)s does not expire; only those made with --sandbox do", tenant=repr(scope.tenant_id))
            )
        expiry.set_expiry(scope, expires_at)
        limits.forget_later(scope.tenant_id)
        if expires_at is None:
            Tenant.update(kind="standard").where(Tenant.id == scope.tenant_id).execute()
            action, fields = "tenant.keep", {"expires_at": clock.rfc3339(before)}
        else:
            action, fields = "tenant.extend", {"from": clock.rfc3339(before), "to": clock.rfc3339(expires_at)}
        audit.record(scope, action, scope.tenant_id, fields)
        record_for_appliance(action, scope.tenant_id, fields, actor=scope.actor)

    db.write(change)


def delete_expired(tenant_id: str, expires_at: int) -> bool:
    """Delete a sandbox tenant that still expires at this time; False if that has changed since.

    Conflict while documents are retained, which keep the tenant, or while it is being reset.
    """

    def close() -> bool:
        row = Tenant.get_or_none((Tenant.id == tenant_id) & Tenant.closed_at.is_null())
        if row is None or row.kind != "sandbox" or expiry.find_expiry(tenant_id) != expires_at:
            return False
        close_tenant(system_scope(tenant_id), details={"expired_at": clock.rfc3339(expires_at)})
        return True

    if is_closed := db.write(close):
        delete_closed(tenant_id)
    return is_closed
