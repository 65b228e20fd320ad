"""What an actor of the past may do now."""

from appliance.core import clock
from appliance.core.scope import TenantScope

from .keys import lineage
from .people import find_member
from .scopes import ALL, scopes_of_role


def scopes_of_actor(scope: TenantScope, actor: str) -> frozenset[str] | None:
    """The scopes of a member, key or the appliance itself in this tenant; None when they are gone, or nobody knows who it was.

    A key may no more than whoever it rests on may now, and is gone with them, also while it goes on until somebody adopts it.
    """
    kind, _, name = actor.partition(":")
    if actor == "system":
        return ALL
    if kind == "user":
        member = find_member(scope, name)
        return scopes_of_role(member.role) if member is not None else None
    if kind == "key":
        return _scopes_of_key(scope, name)
    return None


def _scopes_of_key(scope: TenantScope, key_id: str) -> frozenset[str] | None:
    authority = lineage.read_by_id(scope, key_id)
    if authority is None or not lineage.is_alive(authority.row) or authority.ended or authority.ends_at <= clock.now_ms():
        return None
    is_orphan = any(key.orphaned_at is not None for key in (authority.row, *authority.ancestors))
    return None if is_orphan else authority.scopes
