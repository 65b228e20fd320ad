"""/api/v1/tenant, /api/v1/members and /api/v1/secrets"""

from typing import Annotated, Literal

from pydantic import Field

from appliance.core import clock
from appliance.core.errors import NotFound
from appliance.core.pages import Page
from appliance.tenants import people, service
from appliance.tenants.people import Member
from appliance.tenants.service import SecretName, Tenant

from .routing import Body, Call, Query, View, route


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


class AddMember(Body):
    login: Annotated[str, Field(min_length=1, max_length=254)]
    role: Literal["viewer", "operator", "builder", "owner"]
    approver: bool = False


class SecretView(View):
    name: str
    updated_at: str


class PutSecret(Body):
    value: Annotated[str, Field(min_length=1, max_length=65_536)]


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
        raise NotFound(f"{error}; invite them by POST /api/v1/invitations", pointer="/login") from error


@route("DELETE", "/members/{user_id}", scope="keys.write", returns=DeletedView)
def remove_member(call: Call, user_id: str) -> DeletedView:
    """Take a user's role in this tenant; the last owner stays."""
    people.remove_member(call.scope, user_id)
    return DeletedView(deleted=user_id)


def secret_view(secret: SecretName) -> SecretView:
    return SecretView(name=secret.name, updated_at=clock.rfc3339(secret.updated_at))


@route("GET", "/secrets", scope="secrets.write", returns=SecretView, listed=True, query=NoQuery)
def list_secrets(call: Call) -> Page[SecretView]:
    """List the names of the tenant's secrets; values never leave."""
    return Page([secret_view(secret) for secret in service.list_secrets(call.scope)])


@route("PUT", "/secrets/{name}", scope="secrets.write", body=PutSecret, returns=SecretView)
def set_secret(call: Call, name: str) -> SecretView:
    """Set a secret; it is stored sealed and can be replaced, not read."""
    return secret_view(service.set_secret(call.scope, call.services.sealer, name, call.body.value))


@route("DELETE", "/secrets/{name}", scope="secrets.write", returns=DeletedView)
def delete_secret(call: Call, name: str) -> DeletedView:
    """Delete a secret."""
    service.delete_secret(call.scope, name)
    return DeletedView(deleted=name)
