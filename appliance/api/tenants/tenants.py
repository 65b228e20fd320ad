"""/api/v1/tenant and /api/v1/members: the tenant itself and the people who work in it."""

from typing import Annotated, Literal

from pydantic import Field

from appliance.api.frame.routing import Body, Call, Query, View, route
from appliance.core import clock
from appliance.core.errors import NotFound
from appliance.core.pages import Page
from appliance.core.sentences import Sentence
from appliance.solutions import offboarding
from appliance.tenants import Member, Tenant, people, service

Role = Literal["viewer", "operator", "builder", "owner"]


class TenantView(View):
    """A tenant; `base_url` is the address of its console and API, `cdn_url` that of its public documents and shares."""

    id: str
    name: str
    kind: str
    base_url: str
    cdn_url: str
    created_at: str


class RenameTenant(Body):
    """The new name; the id and all addresses stay."""

    name: Annotated[str, Field(min_length=1, max_length=service.MAX_NAME)]


class MemberView(View):
    user_id: str
    login: str
    role: str
    approver: bool
    created_at: str


class RestingKeyView(View):
    """A key that the member issued, directly or through `depth` other keys; `loses` lists the scopes it would lose."""

    id: str
    name: str
    issuer: str
    depth: int
    scopes: list[str]
    loses: list[str]
    last_used_at: str | None = None


class RestingSessionView(View):
    created_at: str
    expires_at: str


class RestingProcessView(View):
    """A published version that keeps running without the member; `unfinished` counts its unfinished executions."""

    process_id: str
    name: str
    version: int
    published_by: str
    triggers: list[str]
    paused: bool
    unfinished: int


class MemberAuthorityView(View):
    """What depends on a member: keys as a tree, each after its issuer, sessions in this tenant, and published processes."""

    user_id: str
    login: str
    role: str
    keys: list[RestingKeyView]
    sessions: list[RestingSessionView]
    processes: list[RestingProcessView]


class AuthorityQuery(Query):
    """With `role`, the answer shows what keys would lose if the member had that role; without it, if they were removed."""

    role: Role | None = None


class RemoveQuery(Query):
    """Comma-separated ids from `GET …/authority`."""

    adopt_keys: Annotated[str, Field(description="Keys you become the issuer of; all others end.")] = ""
    adopt_processes: Annotated[str, Field(description="Published processes you become responsible for.")] = ""
    stop_processes: Annotated[str, Field(description="Published processes to pause; all others keep running.")] = ""


class RemovedMemberView(View):
    """The removed member, and what happened to their keys and processes."""

    deleted: str
    adopted_keys: list[str]
    ended_keys: list[str]
    adopted_processes: list[str]
    stopped_processes: list[str]


class AddMember(Body):
    login: Annotated[str, Field(min_length=1, max_length=254)]
    role: Role
    approver: bool = False


class DeletedView(View):
    """The id or name of the deleted resource."""

    deleted: str


class NoQuery(Query):
    """No parameters: the list is not paginated."""


@route("GET", "/tenant", scope=None, returns=TenantView)
def get_tenant(call: Call) -> TenantView:
    """Show the tenant of this key."""
    return _tenant_view(call, service.get_tenant(call.scope.tenant_id))


def _tenant_view(call: Call, row: Tenant) -> TenantView:
    config = call.services.config
    return TenantView(
        id=row.id, name=row.name, kind=row.kind, base_url=config.tenant_url(row.id), cdn_url=config.cdn_url(row.id),
        created_at=clock.rfc3339(row.created_at),
    )  # fmt: skip


@route("PATCH", "/tenant", scope="keys.write", body=RenameTenant, returns=TenantView)
def rename_tenant(call: Call) -> TenantView:
    """Rename the tenant of this key."""
    body: RenameTenant = call.body
    return _tenant_view(call, service.rename_tenant(call.scope, body.name))


def member_view(member: Member) -> MemberView:
    return MemberView(
        user_id=member.user_id, login=member.login, role=member.role, approver=member.approver,
        created_at=clock.rfc3339(member.created_at),
    )  # fmt: skip


@route("GET", "/members", scope="keys.read", returns=MemberView, listed=True, query=NoQuery)
def list_members(call: Call) -> Page[MemberView]:
    """List the people with a role in this tenant."""
    return Page([member_view(member) for member in people.list_members(call.scope)])


@route("POST", "/members", scope="keys.write", body=AddMember, returns=MemberView, status=201)
def add_member(call: Call) -> MemberView:
    """Give an existing user a role in this tenant, or change their role."""
    body: AddMember = call.body
    try:
        return member_view(people.add_member(call.scope, body.login, body.role, approver=body.approver))
    except NotFound as error:
        raise NotFound(Sentence("%(error)s; invite them with POST /api/v1/invitations", error=error), pointer="/login") from error


@route("GET", "/members/{user_id}/authority", scope="keys.read", query=AuthorityQuery, returns=MemberAuthorityView)
def get_member_authority(call: Call, user_id: str) -> MemberAuthorityView:
    """Show what depends on a member; check this before you remove them or lower their role.

    Their keys end or lose scopes unless another member adopts them; published versions keep running unless you stop them.
    """
    return _authority_view(offboarding.read_authority(call.scope, user_id, call.query.role))


def _authority_view(authority: offboarding.MemberAuthority) -> MemberAuthorityView:
    keys = [
        RestingKeyView(
            id=key.row.id, name=key.row.name, issuer=key.row.issuer, depth=key.depth, scopes=sorted(key.scopes),
            loses=sorted(key.loses), last_used_at=clock.optional_rfc3339(key.row.last_used_at),
        )
        for key in authority.keys
    ]  # fmt: skip
    sessions = [
        RestingSessionView(created_at=clock.rfc3339(each.created_at), expires_at=clock.rfc3339(each.expires_at))
        for each in authority.sessions
    ]
    processes = [
        RestingProcessView(
            process_id=each.process_id, name=each.name, version=each.version, published_by=each.published_by,
            triggers=list(each.triggers), paused=each.is_paused, unfinished=each.unfinished,
        )
        for each in authority.publications
    ]  # fmt: skip
    member = authority.member
    return MemberAuthorityView(
        user_id=member.user_id, login=member.login, role=member.role, keys=keys, sessions=sessions, processes=processes
    )


@route("DELETE", "/members/{user_id}", scope="keys.write", query=RemoveQuery, returns=RemovedMemberView)
def remove_member(call: Call, user_id: str) -> RemovedMemberView:
    """Remove a member from this tenant; the last owner cannot be removed.

    Every key that depends on them ends, except those you adopt; their published processes keep running, except those you stop.
    """
    query: RemoveQuery = call.query
    handover = offboarding.Handover(_ids(query.adopt_keys), _ids(query.adopt_processes), _ids(query.stop_processes))
    departure = offboarding.remove_member(call.scope, user_id, handover)
    return RemovedMemberView(deleted=user_id, **{name: list(ids) for name, ids in vars(departure).items()})


def _ids(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
