"""Checks whether the actor who started something may still do it when it continues later."""

from collections.abc import Set as AbstractSet

from appliance.core import clock
from appliance.core.errors import PolicyDenied
from appliance.core.scope import ResourceNames, TenantScope
from appliance.core.sentences import Sentence
from appliance.tenants.keys import lineage
from appliance.tenants.keys.lineage import KeyAuthority
from appliance.tenants.people import find_member
from appliance.tenants.scopes import FORBIDDEN_TO_AGENTS, scopes_of_role


def check_still_allowed(scope: TenantScope, actor: str, needed: AbstractSet[str]) -> None:
    """PolicyDenied if the actor's API key has ended (itself or with its issuer), the person is disabled or no longer a member, or
    either has lost one of the scopes `held`; other actors pass."""
    kind, _, name = actor.partition(":")
    why = ""
    if kind == "key":
        why = _key_problem(lineage.load_authority(scope, name), needed)
    elif kind == "user":
        why = _person_problem(scope, name, needed)
    if why:
        message = Sentence("%(why)s, so it cannot continue; ask someone with permission to start it again", why=why)
        raise PolicyDenied(message, extra={"reason": "starter_departed"})


def is_still_allowed(scope: TenantScope, needed: str) -> bool:
    """Whether the actor may still use this scope, cached for half a second; for repeated checks of what outlives its request,
    such as an event stream.  A key whose limits were changed meanwhile may not."""
    kind, _, name = scope.actor.partition(":")
    if kind == "key":
        authority = lineage.find_by_id(scope, name)
        return not _key_problem(authority, {needed}) and authority is not None and authority.limits == scope.limits
    return kind != "user" or not _person_problem(scope, name, {needed})


def limits_of(scope: TenantScope, actor: str) -> ResourceNames | None:
    """The resources to which the actor's API key is limited now, for work that continues; None if it is no key, or not limited."""
    kind, _, name = actor.partition(":")
    authority = lineage.find_by_id(scope, name) if kind == "key" else None
    return None if authority is None else authority.limits


def _key_problem(authority: KeyAuthority | None, needed: AbstractSet[str]) -> str:
    if authority is None:
        return "the API key that started this does not exist in this tenant"
    if authority.row.revoked_at is not None:
        return "the API key that started this was revoked"
    if lineage.expiry_of(authority.row) <= clock.now_ms():
        return "the API key that started this has expired"
    if authority.ended or authority.ends_at <= clock.now_ms():
        return "the API key that started this has ended with its issuer"
    missing = sorted(needed - FORBIDDEN_TO_AGENTS - authority.scopes)
    return f"the API key that started this no longer has the scope {missing[0]}" if missing else ""


def _person_problem(scope: TenantScope, user_id: str, needed: AbstractSet[str]) -> str:
    member = find_member(scope, user_id, with_disabled=True)
    if member is not None and member.is_disabled:
        return "the account of the person who started this is disabled"
    if member is None:
        return "the person who started this is no longer a member of the tenant"
    missing = sorted(needed - FORBIDDEN_TO_AGENTS - scopes_of_role(member.role))
    return f"the person who started this no longer has the scope {missing[0]}" if missing else ""
