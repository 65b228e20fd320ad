"""Changes of an API key that leave its text as it is."""

from dataclasses import dataclass

from appliance.core.database import db
from appliance.core.errors import PolicyDenied, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants.models import ApiKey

from . import key_limits, keys, lineage, resource_limits
from .daily_quotas import check_quota
from .resource_limits import StoredLimits


@dataclass(frozen=True)
class KeyChanges:
    """What to change; None leaves a property as it is.

    A key can become an agent key, but never a service key again.  `is_unlimited` removes the limits to some resources,
    `daily_requests=0` the quota.
    """

    name: str | None = None
    is_agent: bool = False
    limits: StoredLimits | None = None
    is_unlimited: bool = False
    daily_requests: int | None = None
    records_requests: bool | None = None


def change_key(scope: TenantScope, key_id: str, changes: KeyChanges) -> ApiKey:
    """Change a key of the tenant, with the values before and after in the audit trail.

    NotFound; ValidationFailed, also for limits wider than those of the acting key; PolicyDenied if a key changes limits that apply
    to itself.
    """
    if changes == KeyChanges():
        raise ValidationFailed("nothing to change; send at least one member")
    if changes.name is not None:
        keys.check_name(changes.name)
    check_quota(changes.daily_requests or None)
    limits = resource_limits.normalize(changes.limits)

    def change() -> ApiKey:
        row = keys.get_key(scope, key_id)
        before = _properties(row)
        if changes.name is not None:
            row.name = changes.name.strip()
        if changes.limits is not None or changes.is_unlimited:
            _check_may_limit(scope, row)
            bounds = key_limits.find_limits(scope)
            resource_limits.check_within(limits, bounds.resources if bounds else None)
            row.limits = limits
        if changes.daily_requests is not None:
            _check_may_limit(scope, row)
            row.daily_requests = changes.daily_requests or None
        if changes.records_requests is not None:
            _check_may_limit(scope, row)
            row.records_requests = changes.records_requests
        if difference := audit.compare(before, _properties(row)):
            row.save(only=[ApiKey.name, ApiKey.limits, ApiKey.daily_requests, ApiKey.records_requests])
            audit.record(scope, "key.change", row.id, difference)
            db.after_commit(lineage.clear_cache)
        return keys.convert_to_agent_key(scope, key_id) if changes.is_agent else row

    return db.write(change)


def _properties(row: ApiKey) -> dict[str, object]:
    return {
        "name": row.name, "limits": row.limits, "daily_requests": row.daily_requests,
        "records_requests": bool(row.records_requests),
    }  # fmt: skip


def _check_may_limit(scope: TenantScope, row: ApiKey) -> None:
    """PolicyDenied if the acting key is this one, descends from it, or is an agent's and this one is not."""
    key_limits.check_no_descendant(scope, row, "change the limits of")
    if scope.actor == f"key:{row.id}" or (scope.has_agent_key and row.kind != "agent"):
        raise PolicyDenied("a key cannot change its own limits, nor an agent key those of a service key; ask an owner to do it")
