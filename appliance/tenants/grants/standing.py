"""Whether whoever began something may still do it, however much later it goes on."""

from collections.abc import Set as AbstractSet

from appliance.core import clock
from appliance.core.errors import PolicyDenied
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.tenants.keys import lineage
from appliance.tenants.keys.lineage import KeyAuthority
from appliance.tenants.people import find_member
from appliance.tenants.scopes import NEVER_OF_AGENTS, scopes_of_role


def refuse_departed(scope: TenantScope, actor: str, held: AbstractSet[str]) -> None:
    """PolicyDenied once the key that acted has ended, itself or with its issuer, or the person is no member, or either no longer
    holds all of these scopes; whoever is neither key nor person passes."""
    kind, _, name = actor.partition(":")
    why = ""
    if kind == "key":
        why = _why_not_key(lineage.read_by_id(scope, name), held)
    elif kind == "user":
        why = _of_person(scope, name, held)
    if why:
        told = Sentence("%(why)s, and nothing goes on in its name; have somebody who may start it anew", why=why)
        raise PolicyDenied(told, extra={"reason": "starter_departed"})


def is_still_allowed(scope: TenantScope, needed: str) -> bool:
    """Whether the actor may still use this scope, as known for half a second: asked again and again by what outlives its request,
    such as an event stream."""
    kind, _, name = scope.actor.partition(":")
    if kind == "key":
        return not _why_not_key(lineage.find_by_id(scope, name), {needed})
    return kind != "user" or not _of_person(scope, name, {needed})


def _why_not_key(authority: KeyAuthority | None, held: AbstractSet[str]) -> str:
    if authority is None:
        return "the API key that started this is not known here"
    if authority.row.revoked_at is not None:
        return "the API key that started this was revoked"
    if lineage.expiry_of(authority.row) <= clock.now_ms():
        return "the API key that started this has expired"
    if authority.ended or authority.ends_at <= clock.now_ms():
        return "the API key that started this has ended with whoever issued it"
    lacking = sorted(held - NEVER_OF_AGENTS - authority.scopes)
    return f"the API key that started this does not hold {lacking[0]} any more" if lacking else ""


def _of_person(scope: TenantScope, user_id: str, held: AbstractSet[str]) -> str:
    member = find_member(scope, user_id)
    if member is None:
        return "who started this is no member of the tenant any more"
    lacking = sorted(held - NEVER_OF_AGENTS - scopes_of_role(member.role))
    return f"who started this does not hold {lacking[0]} any more" if lacking else ""
