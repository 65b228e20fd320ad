"""Who may decide what is asked of people."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

from appliance.core.errors import PolicyDenied
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.tenants import ROLES, Member, people, service
from appliance.tenants.keys import lineage

from .questions import HumanRequest


def check_decides(scope: TenantScope, user_id: str, request: HumanRequest, askers: Sequence[str]) -> bool:
    """PolicyDenied unless this person may decide; answers whether they approve what they themselves asked for.

    An approval takes the flag `approver`, or an owner; an input or a choice an operator or a higher role.  Where a request
    names who decides, only these do.  Nobody approves what they asked for or began, as one of the actors `askers`, except in
    a sandbox tenant.
    """
    member = people.find_member(scope, user_id)
    return _check(member, request, askers, partial(lineage.people_behind, scope), partial(_is_sandbox, scope))


Asked = tuple[HumanRequest, Sequence[str]]


def find_decidable(scope: TenantScope, user_id: str, asked: Mapping[str, Asked]) -> set[str]:
    """The keys of the requests, each with its askers, that this person may decide: by as many queries whatever their number."""
    if not asked:
        return set()
    member = people.find_member(scope, user_id)
    behind = lineage.people_behind_each(scope, {actor for _, askers in asked.values() for actor in askers})
    is_sandbox = cache(partial(_is_sandbox, scope))

    def may(request: HumanRequest, askers: Sequence[str]) -> bool:
        try:
            _check(member, request, askers, behind.__getitem__, is_sandbox)
        except PolicyDenied:
            return False
        return True

    return {key for key, (request, askers) in asked.items() if may(request, askers)}


def _check(
    member: Member | None, request: HumanRequest, askers: Sequence[str],
    behind: Callable[[str], frozenset[str]], is_sandbox: Callable[[], bool],
) -> bool:  # fmt: skip
    if member is None:
        raise PolicyDenied("only a member of this tenant decides; ask an owner for a role in it")
    if request.approvers and not any(_is_named(member, name) for name in request.approvers):
        raise PolicyDenied(Sentence("this is decided by %(who)s; ask one of them", who=', '.join(map(_who, request.approvers))))
    if request.kind != "approval":
        if not request.approvers and not _has_role(member, "operator"):
            raise PolicyDenied("this is answered by an operator, a builder or an owner; ask one of them")
        return False
    if not member.approver and member.role != "owner":
        raise PolicyDenied("this is decided by an approver; ask one, or have an owner make you an approver")
    own = any(member.user_id in behind(actor) for actor in askers)
    if own and not is_sandbox():
        asked = "started this execution" if request.origin.execution_id else "asked for this"
        raise PolicyDenied(Sentence("you %(asked)s, or made the key that did; somebody else decides", asked=asked))
    return own


def _is_sandbox(scope: TenantScope) -> bool:
    return bool(service.get_tenant(scope.tenant_id).kind == "sandbox")


def find_deciders(scope: TenantScope, request: HumanRequest, askers: Sequence[str]) -> list[Member]:
    """The members who may decide the request, by login."""
    return [member for member in people.list_members(scope) if _may(scope, member, request, askers)]


def _may(scope: TenantScope, member: Member, request: HumanRequest, askers: Sequence[str]) -> bool:
    try:
        check_decides(scope, member.user_id, request, askers)
    except PolicyDenied:
        return False
    return True


def _is_named(member: Member, name: str) -> bool:
    kind, _, value = name.partition(":")
    return _has_role(member, value) if kind == "role" else member.login == value


def _has_role(member: Member, least: str) -> bool:
    return ROLES.index(member.role) >= ROLES.index(least)


def _who(name: str) -> str:
    kind, _, value = name.partition(":")
    return value if kind == "user" else {"owner": "an owner", "operator": "an operator"}.get(value, f"a {value}")
