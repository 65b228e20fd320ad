"""Looks up the current permissions of an actor who acted earlier."""

from appliance.core import clock
from appliance.core.scope import TenantScope

from .keys import lineage
from .people import find_member
from .scopes import ALL_SCOPES, scopes_of_role


def scopes_of_actor(scope: TenantScope, actor: str) -> frozenset[str] | None:
    """The current scopes of a member, an API key or the appliance itself in this tenant; None if it is gone or unknown.

    A key is limited by its issuer's current permissions; it is gone with its issuer, even while it keeps working until adoption.
    """
    kind, _, name = actor.partition(":")
    if actor == "system":
        return ALL_SCOPES
    if kind == "user":
        member = find_member(scope, name)
        return scopes_of_role(member.role) if member is not None else None
    if kind == "key":
        return _scopes_of_key(scope, name)
    return None


def _scopes_of_key(scope: TenantScope, key_id: str) -> frozenset[str] | None:
    authority = lineage.load_authority(scope, key_id)
    if authority is None or not lineage.is_alive(authority.row) or authority.ended or authority.ends_at <= clock.now_ms():
        return None
    is_orphan = any(key.orphaned_at is not None for key in (authority.row, *authority.ancestors))
    return None if is_orphan else authority.scopes
