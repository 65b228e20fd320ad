"""Who may decide a request."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial

from appliance.core.errors import PolicyDenied
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.tenants import ROLES, Member, people, service
from appliance.tenants.keys import lineage

from .human_requests import Kind


@dataclass(frozen=True)
class Audience:
    """What of a request determines who may decide it.

    `askers` are the actors behind it; the people behind them may not approve it.
    """

    kind: Kind
    approvers: tuple[str, ...]
    askers: tuple[str, ...]
    is_of_execution: bool


def check_may_decide(scope: TenantScope, user_id: str, audience: Audience) -> bool:
    """PolicyDenied unless this person may decide; returns whether they would approve their own request.

    An approval needs the flag `approver` or the role owner; an input or a choice the role operator or higher.  If a request
    names approvers, only they may decide.  Except in a sandbox tenant, no one may approve what they requested or started
    themselves.
    """
    member = people.find_member(scope, user_id)
    return _check(member, audience, partial(lineage.people_behind, scope), partial(_is_sandbox, scope))


def find_decidable(scope: TenantScope, user_id: str, requests: Mapping[str, Audience]) -> set[str]:
    """The keys of the requests that this person may decide; the number of queries does not depend on their number."""
    if not requests:
        return set()
    member = people.find_member(scope, user_id)
    behind = lineage.people_behind_each(scope, {actor for each in requests.values() for actor in each.askers})
    is_sandbox = cache(partial(_is_sandbox, scope))

    def can_decide(audience: Audience) -> bool:
        try:
            _check(member, audience, behind.__getitem__, is_sandbox)
        except PolicyDenied:
            return False
        return True

    return {key for key, audience in requests.items() if can_decide(audience)}


def _check(
    member: Member | None, audience: Audience, behind: Callable[[str], frozenset[str]], is_sandbox: Callable[[], bool]
) -> bool:
    if member is None:
        raise PolicyDenied("only members of this tenant can decide; ask an owner to add you")
    if audience.approvers and not any(_matches_approver(member, name) for name in audience.approvers):
        raise PolicyDenied(
            Sentence("only %(who)s can decide this; ask one of them", who=", ".join(map(_describe_approver, audience.approvers)))
        )
    if audience.kind != "approval":
        if not audience.approvers and not _has_role(member, "operator"):
            raise PolicyDenied("only an operator, a builder or an owner can answer this; ask one of them")
        return False
    if not member.approver and member.role != "owner":
        raise PolicyDenied("only an approver can decide this; ask one, or ask an owner to make you an approver")
    is_self_approval = any(member.user_id in behind(actor) for actor in audience.askers)
    if is_self_approval and not is_sandbox():
        if audience.is_of_execution:
            raise PolicyDenied("you started this execution, or created the API key that did; somebody else must decide")
        raise PolicyDenied("you made this request, or created the API key that did; somebody else must decide")
    return is_self_approval


def _is_sandbox(scope: TenantScope) -> bool:
    return bool(service.get_tenant(scope.tenant_id).kind == "sandbox")


def find_deciders(scope: TenantScope, audience: Audience) -> list[Member]:
    """The members who may decide the request, ordered by login."""
    return [member for member in people.list_members(scope) if _may_decide(scope, member, audience)]


def _may_decide(scope: TenantScope, member: Member, audience: Audience) -> bool:
    try:
        check_may_decide(scope, member.user_id, audience)
    except PolicyDenied:
        return False
    return True


def _matches_approver(member: Member, name: str) -> bool:
    kind, _, value = name.partition(":")
    return _has_role(member, value) if kind == "role" else member.login == value


def _has_role(member: Member, least: str) -> bool:
    return ROLES.index(member.role) >= ROLES.index(least)


def _describe_approver(name: str) -> str:
    kind, _, value = name.partition(":")
    return value if kind == "user" else {"owner": "an owner", "operator": "an operator"}.get(value, f"a {value}")
