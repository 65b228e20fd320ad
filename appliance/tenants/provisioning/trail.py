"""Records what a provider does in the audit trails of the tenants that it concerns."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from appliance.core.config.sign_in import IdentityProvider
from appliance.monitor import audit
from appliance.tenants import people, service
from appliance.tenants.trails import record_for_appliance


def tenants_of_groups(provider: IdentityProvider, names: Iterable[str]) -> list[str]:
    """The tenants in which groups of these names have a role."""
    selection = set(names)
    return _stored(rule.tenant for rule in provider.roles if rule.group in selection)


def record_token(
    provider: IdentityProvider | None, action: str, token_id: str, fields: Mapping[str, Any], *, actor: str
) -> None:
    """Inside a write: an entry about a token in the trail of the appliance, and in that of each tenant in which groups of the
    provider have a role; `provider` is None if it is not configured any more."""
    record_for_appliance(action, token_id, fields, actor=actor)
    for tenant_id in _stored(rule.tenant for rule in (provider.roles if provider else ())):
        audit.record(replace(service.system_scope(tenant_id), actor=actor), action, token_id, fields)


def record_for_groups(
    provider: IdentityProvider, names: Iterable[str], action: str, subject: str, fields: Mapping[str, Any]
) -> None:
    """Inside a write: an entry in the trail of each tenant in which groups of these names have a role."""
    _record(tenants_of_groups(provider, names), provider, action, subject, fields)


def record_for_person(provider: IdentityProvider, action: str, user_id: str, fields: Mapping[str, Any]) -> None:
    """Inside a write: an entry in the trail of each tenant of the person."""
    _record([tenant.id for tenant, _ in people.tenants_of(user_id)], provider, action, user_id, fields)


def _stored(tenants: Iterable[str]) -> list[str]:
    return [tenant for tenant in dict.fromkeys(tenants) if service.is_stored(tenant)]


def _record(tenants: Iterable[str], provider: IdentityProvider, action: str, subject: str, fields: Mapping[str, Any]) -> None:
    for tenant_id in tenants:
        audit.record(service.system_scope(tenant_id), action, subject, {**fields, "provider": provider.id})
