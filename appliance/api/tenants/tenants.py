"""/api/v1/tenant and /api/v1/members: the tenant itself and the people who work in it."""

from typing import Annotated, Literal

from pydantic import Field

from appliance.api.frame.fields import CreatedAt
from appliance.api.frame.routing import Body, Call, Query, View, route
from appliance.core import clock
from appliance.core.errors import Conflict, NotFound
from appliance.core.pages import Page
from appliance.core.sentences import Sentence
from appliance.quotas import expiry
from appliance.solutions import offboarding
from appliance.tenants import Member, Tenant, people, service

Role = Annotated[
    Literal["viewer", "operator", "builder", "owner"],
    Field(description="What the person may do: read, also run, also change, or everything including keys and members."),
]
RoleName = Annotated[str, Field(description="What the person may do: `viewer`, `operator`, `builder` or `owner`.")]
Login = Annotated[
    str, Field(description="Name the person signs in with, usually the e-mail address; 1 to 254 characters in lower case.")
]
Approver = Annotated[bool, Field(description="Whether the person may also decide requests for approval.")]
UserId = Annotated[str, Field(description="Identifies the person in all tenants; `usr_…`.")]
TenantName = Annotated[str, Field(description="Name that people read, 1 to 200 characters.")]


class TenantView(View):
    """A tenant; `base_url` is the address of its console and API, `cdn_url` that of its public documents and shares."""

    id: Annotated[
        str, Field(description="Slug that is part of its host names, at most 24 characters; it never changes.")
    ]
    name: TenantName
    kind: Annotated[
        str,
        Field(description="`standard`, or `sandbox` for one to try things out: a person got it at first sign-in, or it expires."),
    ]
    base_url: Annotated[str, Field(description="Address of its console and API, without a final slash.")]
    cdn_url: Annotated[str, Field(description="Address of its public documents and shares, without a final slash.")]
    created_at: CreatedAt
    expires_at: Annotated[
        str | None,
        Field(description="When a sandbox tenant expires, RFC 3339 in UTC; absent for others. It is deleted some days later."),
    ] = None


class RenameTenant(Body):
    """The new name; the id and all addresses stay."""

    name: Annotated[TenantName, Field(min_length=1, max_length=service.MAX_NAME)]


class MemberView(View):
    user_id: UserId
    login: Login
    role: RoleName
    approver: Approver
    disabled: Annotated[
        bool, Field(description="Whether the account is disabled: the role grants nothing until the operator enables it.")
    ]
    created_at: Annotated[str, Field(description="When the person became a member, RFC 3339 in UTC with milliseconds.")]


class RestingKeyView(View):
    """A key that the member issued, directly or through `depth` other keys; `loses` lists the scopes it would lose."""

    id: Annotated[str, Field(description="Identifies the key; `key_…`. It is not the key's text.")]
    name: Annotated[str, Field(description="What the key is for, as its issuer wrote it.")]
    issuer: Annotated[str, Field(description="Who issued it: the member (`user:…`) or another key of the tree (`key:…`).")]
    depth: Annotated[int, Field(description="How many keys lie between it and the member; 0 if the member issued it.")]
    scopes: Annotated[list[str], Field(description="Scopes it has now, sorted.")]
    loses: Annotated[list[str], Field(description="Those of its scopes that it would no longer have, sorted.")]
    last_used_at: Annotated[
        str | None, Field(description="When it was last used, exact to a minute, RFC 3339 in UTC; absent if never.")
    ] = None


class RestingSessionView(View):
    created_at: Annotated[str, Field(description="When the person signed in, RFC 3339 in UTC with milliseconds.")]
    expires_at: Annotated[str, Field(description="When the session ends at the latest, RFC 3339 in UTC.")]


class RestingProcessView(View):
    """A published version that keeps running without the member; `unfinished` counts its unfinished executions."""

    process_id: Annotated[str, Field(description="Slug of the process.")]
    name: Annotated[str, Field(description="Name of the process that people read.")]
    version: Annotated[int, Field(description="Number of the published version.")]
    published_by: Annotated[str, Field(description="Who published it: `user:…`, `key:…` or `system`.")]
    triggers: Annotated[
        list[str], Field(description="Kind and id of each trigger that starts it, such as `schedule nightly`, sorted.")
    ]
    paused: Annotated[bool, Field(description="Whether the process starts no new executions at present.")]
    unfinished: Annotated[int, Field(description="Number of its executions that have not ended.")]


class MemberAuthorityView(View):
    """What depends on a member: keys as a tree, each after its issuer, sessions in this tenant, and published processes."""

    user_id: UserId
    login: Login
    role: RoleName
    keys: Annotated[list[RestingKeyView], Field(description="Active keys that descend from the member, each after its issuer.")]
    sessions: Annotated[list[RestingSessionView], Field(description="Browsers in which the person is signed in to this tenant.")]
    processes: Annotated[list[RestingProcessView], Field(description="Published versions for which the member is responsible.")]
    service_accounts: Annotated[
        list[str], Field(description="Service accounts for which the member is responsible; they and their keys stay.")
    ]


class AuthorityQuery(Query):
    """With `role`, the answer shows what keys would lose if the member had that role; without it, if they were removed."""

    role: Annotated[Role,
    Field(description="Role to compare with, as if the member had it; none at all if left out.")] | None = None


class RemoveQuery(Query):
    """Comma-separated ids from `GET …/authority`."""

    adopt_keys: Annotated[
        str, Field(description="Ids of the keys you become the issuer of, separated by commas; all others end.")
    ] = ""
    adopt_processes: Annotated[
        str, Field(description="Slugs of the processes you become responsible for, separated by commas.")
    ] = ""
    stop_processes: Annotated[
        str, Field(description="Slugs of the processes to pause, separated by commas; all others keep running.")
    ] = ""


class RemovedMemberView(View):
    """The removed member, and what happened to their keys and processes."""

    deleted: Annotated[str, Field(description="Id of the person who is no longer a member; `usr_…`.")]
    adopted_keys: Annotated[list[str], Field(description="Ids of the keys whose issuer the caller became.")]
    ended_keys: Annotated[list[str], Field(description="Ids of the keys that no longer work.")]
    adopted_processes: Annotated[list[str], Field(description="Slugs of the processes the caller became responsible for.")]
    stopped_processes: Annotated[list[str], Field(description="Slugs of the processes that were paused.")]


class AddMember(Body):
    login: Annotated[Login, Field(min_length=1, max_length=254)]
    role: Role
    approver: Approver = False


class DeletedView(View):
    """The id or name of the deleted resource."""

    deleted: Annotated[str, Field(description="Id, name or path of what no longer exists or is in effect, as the request gave it.")]


class NoQuery(Query):
    """No parameters: the list is not paginated."""


@route("GET", "/tenant", scope=None, returns=TenantView)
def get_tenant(call: Call) -> TenantView:
    """Show the tenant of this key.

    Needs no scope: any valid key of the tenant may read it.
    """
    return _tenant_view(call, service.get_tenant(call.scope.tenant_id))


def _tenant_view(call: Call, row: Tenant) -> TenantView:
    config = call.services.config
    return TenantView(
        id=row.id, name=row.name, kind=row.kind, base_url=config.tenant_url(row.id), cdn_url=config.cdn_url(row.id),
        created_at=clock.rfc3339(row.created_at), expires_at=clock.optional_rfc3339(expiry.find_expiry(row.id)),
    )  # fmt: skip


@route("PATCH", "/tenant", scope="keys.write", body=RenameTenant, returns=TenantView)
def rename_tenant(call: Call) -> TenantView:
    """Rename the tenant of this key.

    The name is shown to people; the id, which is part of every address, stays.
    """
    body: RenameTenant = call.body
    return _tenant_view(call, service.rename_tenant(call.scope, body.name))


def member_view(member: Member) -> MemberView:
    return MemberView(
        user_id=member.user_id, login=member.login, role=member.role, approver=member.approver,
        disabled=member.is_disabled, created_at=clock.rfc3339(member.created_at),
    )  # fmt: skip


@route("GET", "/members", scope="keys.read", returns=MemberView, listed=True, query=NoQuery)
def list_members(call: Call) -> Page[MemberView]:
    """List the tenant's members.

    Members are people with a role in this tenant. The list is complete: it has no pages.
    """
    return Page([member_view(member) for member in people.list_members(call.scope, with_disabled=True)])


@route("POST", "/members", scope="keys.write", body=AddMember, returns=MemberView, status=201, errors=(Conflict, NotFound))
def add_member(call: Call) -> MemberView:
    """Add a member or change their role.

    The person must have an account; invite others with `POST /invitations`.
    """
    body: AddMember = call.body
    try:
        return member_view(people.add_member(call.scope, body.login, body.role, approver=body.approver))
    except NotFound as error:
        raise NotFound(Sentence("%(error)s; invite them with POST /api/v1/invitations", error=error), pointer="/login") from error


@route("GET", "/members/{user_id}/authority", scope="keys.read", query=AuthorityQuery, returns=MemberAuthorityView)
def get_member_authority(call: Call, user_id: str) -> MemberAuthorityView:
    """Show what depends on a member.

    Check this before you remove them or lower their role. Their keys end or lose scopes unless another member adopts them;
    published versions keep running unless you stop them.
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
        user_id=member.user_id, login=member.login, role=member.role, keys=keys, sessions=sessions, processes=processes,
        service_accounts=list(authority.accounts),
    )


@route("DELETE", "/members/{user_id}", scope="keys.write", query=RemoveQuery, returns=RemovedMemberView, errors=(Conflict,))
def remove_member(call: Call, user_id: str) -> RemovedMemberView:
    """Remove a member from this tenant.

    The last owner cannot be removed. Every key that depends on them ends, except those you adopt; their published processes
    keep running, except those you stop.
    """
    query: RemoveQuery = call.query
    handover = offboarding.Handover(_ids(query.adopt_keys), _ids(query.adopt_processes), _ids(query.stop_processes))
    departure = offboarding.remove_member(call.scope, user_id, handover)
    return RemovedMemberView(deleted=user_id, **{name: list(ids) for name, ids in vars(departure).items()})


def _ids(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
