"""/api/v1/tenant and /api/v1/members"""

from typing import Annotated, Literal

from pydantic import Field

from appliance.api.frame.routing import Body, Call, Query, View, route
from appliance.core import clock
from appliance.core.errors import NotFound
from appliance.core.pages import Page
from appliance.core.sentences import Sentence
from appliance.solutions import departures
from appliance.tenants import Member, Tenant, people, service

Role = Literal["viewer", "operator", "builder", "owner"]


class TenantView(View):
    """A tenant: `base_url` leads to its console and API, `cdn_url` to its public documents and shares."""

    id: str
    name: str
    kind: str
    base_url: str
    cdn_url: str
    created_at: str


class RenameTenant(Body):
    """The id, and with it every address, stays."""

    name: Annotated[str, Field(min_length=1, max_length=service.LONGEST_NAME)]


class MemberView(View):
    user_id: str
    login: str
    role: str
    approver: bool
    created_at: str


class RestingKeyView(View):
    """A key that goes back to the member, `depth` keys below them; `loses` are the scopes that it would lose."""

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
    """A published version that goes on without the member; `unfinished` counts its executions that are not over."""

    process_id: str
    name: str
    version: int
    published_by: str
    triggers: list[str]
    paused: bool
    unfinished: int


class MemberAuthorityView(View):
    """What rests on a member: keys as a tree, each after its issuer, sessions in this tenant, and published processes."""

    user_id: str
    login: str
    role: str
    keys: list[RestingKeyView]
    sessions: list[RestingSessionView]
    processes: list[RestingProcessView]


class AuthorityQuery(Query):
    """What keys would lose if the member had this `role`; without one, if they were removed."""

    role: Role | None = None


class RemoveQuery(Query):
    """Ids with commas between, of what `GET …/authority` lists."""

    adopt_keys: Annotated[str, Field(description="Keys that you become the issuer of; the others end.")] = ""
    adopt_processes: Annotated[str, Field(description="Published processes that you answer for from now on.")] = ""
    stop_processes: Annotated[str, Field(description="Published processes that are paused; the others go on.")] = ""


class RemovedMemberView(View):
    """Who was removed, and what became of what rested on them."""

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
    """What was deleted."""

    deleted: str


class NoQuery(Query):
    """A list that is answered whole."""


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
    """Call the tenant of this key something else."""
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
    """Give an existing user a role in this tenant, or change it."""
    body: AddMember = call.body
    try:
        return member_view(people.add_member(call.scope, body.login, body.role, approver=body.approver))
    except NotFound as error:
        raise NotFound(Sentence("%(error)s; invite them by POST /api/v1/invitations", error=error), pointer="/login") from error


@route("GET", "/members/{user_id}/authority", scope="keys.read", query=AuthorityQuery, returns=MemberAuthorityView)
def get_member_authority(call: Call, user_id: str) -> MemberAuthorityView:
    """Show what rests on a member: look here before you remove them or lower their role.

    Their keys end or shrink with them unless somebody adopts them; published versions go on unless you stop them.
    """
    return _authority_view(departures.read_authority(call.scope, user_id, call.query.role))


def _authority_view(found: departures.MemberAuthority) -> MemberAuthorityView:
    keys = [
        RestingKeyView(
            id=key.row.id, name=key.row.name, issuer=key.row.issuer, depth=key.depth, scopes=sorted(key.scopes),
            loses=sorted(key.loses), last_used_at=clock.optional_rfc3339(key.row.last_used_at),
        )
        for key in found.keys
    ]  # fmt: skip
    sessions = [
        RestingSessionView(created_at=clock.rfc3339(each.created_at), expires_at=clock.rfc3339(each.expires_at))
        for each in found.sessions
    ]
    processes = [
        RestingProcessView(
            process_id=each.process_id, name=each.name, version=each.version, published_by=each.published_by,
            triggers=list(each.triggers), paused=each.is_paused, unfinished=each.unfinished,
        )
        for each in found.publications
    ]  # fmt: skip
    member = found.member
    return MemberAuthorityView(
        user_id=member.user_id, login=member.login, role=member.role, keys=keys, sessions=sessions, processes=processes
    )


@route("DELETE", "/members/{user_id}", scope="keys.write", query=RemoveQuery, returns=RemovedMemberView)
def remove_member(call: Call, user_id: str) -> RemovedMemberView:
    """Take a user's role in this tenant; the last owner stays.

    Every key that goes back to them ends, except what you adopt; their published processes go on, except what you stop.
    """
    chosen: RemoveQuery = call.query
    handover = departures.Handover(_ids(chosen.adopt_keys), _ids(chosen.adopt_processes), _ids(chosen.stop_processes))
    departure = departures.remove_member(call.scope, user_id, handover)
    return RemovedMemberView(deleted=user_id, **{name: list(ids) for name, ids in vars(departure).items()})


def _ids(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
