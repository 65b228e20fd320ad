"""Memberships that follow the groups of a provider; those given by hand, or by another provider, are left alone."""

import logging
from collections.abc import Container, Mapping
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants import people, service
from appliance.tenants.keys import lineage
from appliance.tenants.models import Membership, Person, Session
from appliance.tenants.scopes import ROLES

from .sources import Source

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GroupMembership:
    """The role that a person's groups give in one tenant."""

    role: str
    approver: bool


def find_roles(provider: Source, groups: frozenset[str]) -> dict[str, GroupMembership]:
    """The highest role that the groups give in each tenant that exists."""
    roles: dict[str, GroupMembership] = {}
    for rule in provider.roles:
        if rule.group in groups and service.is_stored(rule.tenant):
            other = roles.get(rule.tenant, GroupMembership(rule.role, rule.approver))
            highest = max(rule.role, other.role, key=_rank)
            roles[rule.tenant] = GroupMembership(highest, rule.approver or other.approver)
    return roles


def _rank(role: str) -> int:
    return ROLES.index(role)


def apply_roles(
    person: Person, provider: Source, roles: Mapping[str, GroupMembership], *, only: Container[str] | None = None
) -> None:
    """Inside a write: make the person's memberships from this provider those in `roles`, in all tenants or in some of them."""
    selection = {tenant_id: each for tenant_id, each in roles.items() if only is None or tenant_id in only}
    rows = {row.tenant_id: row for row in Membership.select().where(Membership.user_id == person.id)}
    for tenant_id, membership in selection.items():
        row = rows.get(tenant_id)
        if row is None:
            _add(service.system_scope(tenant_id), person, provider, membership)
        elif row.source == provider.id and (row.role, bool(row.approver)) != (membership.role, membership.approver):
            _change(service.system_scope(tenant_id), person, provider, membership)
    for tenant_id, row in rows.items():
        if row.source == provider.id and tenant_id not in roles and (only is None or tenant_id in only):
            _remove(service.system_scope(tenant_id), person, provider)


def _details(person: Person, provider: Source, **more: object) -> dict[str, object]:
    return {"login": person.login, **more, "provider": provider.id}


def _add(scope: TenantScope, person: Person, provider: Source, new: GroupMembership) -> None:
    people.forget_invitation(scope.tenant_id, person.id)
    Membership.create(
        tenant_id=scope.tenant_id, user_id=person.id, role=new.role, approver=new.approver, created_at=clock.now_ms(),
        source=provider.id,
    )
    db.after_commit(lineage.clear_cache)
    audit.record(scope, "member.add", person.id, _details(person, provider, role=new.role, approver=new.approver))


def _change(scope: TenantScope, person: Person, provider: Source, new: GroupMembership) -> None:
    if new.role != "owner" and people.is_last_owner(scope.tenant_id, person.id):
        _keep_owner(scope, person, provider)
        return
    mine = (Membership.tenant_id == scope.tenant_id) & (Membership.user_id == person.id)
    Membership.update(role=new.role, approver=new.approver).where(mine).execute()
    db.after_commit(lineage.clear_cache)
    audit.record(scope, "member.add", person.id, _details(person, provider, role=new.role, approver=new.approver))


def _remove(scope: TenantScope, person: Person, provider: Source) -> None:
    if people.is_last_owner(scope.tenant_id, person.id):
        _keep_owner(scope, person, provider)
        return
    people.end_membership(scope, person.id, _details(person, provider))


def end_sessions_without_tenant(person: Person, provider: Source) -> bool:
    """Inside a write: sign out whoever has no membership left, unless the provider admits such people; whether it did."""
    if provider.allow_unknown or people.tenants_of(person.id):
        return False
    Session.delete().where(Session.user_id == person.id).execute()
    people.end_other_sign_ins(person.id)
    return True


def _keep_owner(scope: TenantScope, person: Person, provider: Source) -> None:
    """Leave a tenant its last owner, whatever the groups say, and say so where owners and administrators look."""
    audit.record(scope, "member.keep_owner", person.id, _details(person, provider))
    message = "%s remains the owner of the tenant %s, which has no other, although the groups of the provider %s no longer say so"
    arguments = (message, person.login, scope.tenant_id, provider.id)
    db.after_commit(lambda: log.warning(*arguments))


def report_last_owner(provider: Source, person: Person, tenant_id: str) -> None:
    """Inside a write: tell the tenant, and the log, that its only owner was deactivated."""
    audit.record(
        service.system_scope(tenant_id), "member.keep_owner", person.id, {"login": person.login, "provider": provider.id}
    )
    message = "%s is the only owner of the tenant %s and was deactivated by the provider %s; make somebody else owner"
    arguments = (message, person.login, tenant_id, provider.id)
    db.after_commit(lambda: log.warning(*arguments))
