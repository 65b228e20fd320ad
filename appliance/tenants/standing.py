"""Whether whoever began something may still do it, however much later it goes on."""

from collections.abc import Set as AbstractSet

from appliance.core import clock
from appliance.core.errors import PolicyDenied
from appliance.core.scope import TenantScope

from .models import ApiKey
from .people import find_member
from .scopes import NEVER_OF_AGENTS, scopes_of_role


def refuse_departed(scope: TenantScope, actor: str, held: AbstractSet[str]) -> None:
    """PolicyDenied once the key that acted is revoked or has expired, or the person is no member or no longer holds all of these
    scopes; whoever is neither key nor person passes."""
    kind, _, name = actor.partition(":")
    why = ""
    if kind == "key":
        why = _of_key(scope, name)
    elif kind == "user":
        why = _of_person(scope, name, held)
    if why:
        told = f"{why}, and nothing goes on in its name; have somebody who may start it anew"
        raise PolicyDenied(told, extra={"reason": "starter_departed"})


def _of_key(scope: TenantScope, key_id: str) -> str:
    row: ApiKey | None = ApiKey.get_or_none((ApiKey.tenant_id == scope.tenant_id) & (ApiKey.id == key_id))
    if row is None:
        return "the API key that started this is not known here"
    if row.revoked_at is not None:
        return "the API key that started this was revoked"
    is_over = min(row.expires_at, row.grace_until or row.expires_at) <= clock.now_ms()
    return "the API key that started this has expired" if is_over else ""


def _of_person(scope: TenantScope, user_id: str, held: AbstractSet[str]) -> str:
    member = find_member(scope, user_id)
    if member is None:
        return "who started this is no member of the tenant any more"
    lacking = sorted(held - NEVER_OF_AGENTS - scopes_of_role(member.role))
    return f"who started this does not hold {lacking[0]} any more" if lacking else ""
