"""/api/v1/appliance/tenants: create, change and delete tenants, set their quotas, and invite people to them."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from appliance.api.frame.routing import Answer, Body, Call, ListQuery, View, route
from appliance.api.tenants.invitations import InvitationView, Invite, invitation_view
from appliance.api.tenants.quotas import QuotaView, quota_view
from appliance.api.tenants.tenants import NoQuery, TenantName, TenantView
from appliance.backups.jobs import find_deletion
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, Conflict, ScopeMissing, ValidationFailed
from appliance.core.pages import Page
from appliance.quotas import KINDS, expiry
from appliance.tenants import InvitationSpec, Tenant, quota_settings, record_for_appliance, service

from .acting import actor_of, tenant_scope

Days = Annotated[
    int, Field(ge=1, le=quota_settings.MAX_DAYS, description="In how many days the sandbox expires, counted from now.")
]


class DeletionView(View):
    """The deletion of a tenant that is still there."""

    state: Annotated[
        Literal["running", "failed"], Field(description="`running`, or `failed` if the tenant stays, for the reason `problem`.")
    ]
    since: Annotated[str, Field(description="When it was started, RFC 3339 in UTC.")]
    problem: Annotated[str | None, Field(description="Why the tenant stays, as a sentence; absent while it is running.")] = None


class ManagedTenantView(TenantView):
    """A tenant as whoever runs the appliance sees it."""

    deletion: Annotated[
        DeletionView | None, Field(description="Its deletion, in progress or failed within the last hour; absent without one.")
    ] = None


class CreateTenant(Body):
    """A new tenant; a sandbox has small quotas and expires."""

    id: Annotated[str, Field(description="Slug that becomes part of its host names, at most 24 characters; it never changes.")]
    name: Annotated[
        TenantName | None, Field(min_length=1, max_length=service.MAX_NAME, description="Name that people read; by default the id.")
    ] = None
    sandbox: Annotated[bool, Field(description="Whether it is a sandbox, which expires and is deleted some days later.")] = False
    days: Annotated[
        Days | None, Field(description="In how many days the sandbox expires; by default `sandbox_tenants.days`.")
    ] = None


class ChangeTenant(Body):
    """What changes; members that are left out stay."""

    name: Annotated[TenantName | None, Field(min_length=1, max_length=service.MAX_NAME)] = None
    days: Days | None = None
    kind: Annotated[
        Literal["standard"] | None, Field(description="`standard` keeps a sandbox that expires: it does not expire any more.")
    ] = None


class TenantQuotas(Body):
    """All quotas that differ from the defaults."""

    quotas: Annotated[
        dict[str, str],
        Field(
            description="Amounts by the name of the quota, as people write them: `20GB`, `5000`, `12.50`, or `none` for no limit. "
            "The default applies to quotas that are left out."
        ),
    ]


def _tenant_view(call: Call, row: Tenant) -> ManagedTenantView:
    config, deletion = call.services.config, find_deletion(row.id)
    progress = None
    if deletion is not None:
        progress = DeletionView(
            state="failed" if deletion.state == "failed" else "running", since=clock.rfc3339(deletion.since),
            problem=deletion.problem,
        )  # fmt: skip
    return ManagedTenantView(
        id=row.id, name=row.name, kind=row.kind, base_url=config.tenant_url(row.id), cdn_url=config.cdn_url(row.id),
        created_at=clock.rfc3339(row.created_at), expires_at=clock.optional_rfc3339(expiry.find_expiry(row.id)),
        deletion=progress,
    )  # fmt: skip


@route("GET", "/appliance/tenants", scope="appliance.read", returns=ManagedTenantView, listed=True, query=ListQuery)
def list_tenants(call: Call) -> Page[ManagedTenantView]:
    """List the tenants of the appliance.

    By id unless `sort` names `name` or `created_at`.
    """
    query: ListQuery = call.query
    return service.page_tenants(query.page).map(lambda row: _tenant_view(call, row))


@route(
    "POST", "/appliance/tenants", scope="appliance.tenants", body=CreateTenant, returns=ManagedTenantView, status=201,
    errors=(AlreadyExists,),
)  # fmt: skip
def create_tenant(call: Call) -> Answer:
    """Create a tenant.

    It has no people yet: create users and give them memberships, or invite people. If the id is taken, the error names it in
    `id`, so that a program can continue with the existing tenant.
    """
    body: CreateTenant = call.body
    if body.days is not None and not body.sandbox:
        raise ValidationFailed("days is for tenants that expire; set sandbox to true as well", pointer="/days")
    days = call.services.config.sandbox_tenants.days if body.days is None else body.days
    expires_at = quota_settings.expiry_in(days) if body.sandbox else None
    row = service.create_tenant(
        body.id, body.name or body.id, kind="sandbox" if body.sandbox else "standard", expires_at=expires_at, actor=actor_of(call)
    )
    return Answer(_tenant_view(call, row), headers={"Location": f"/api/v1/appliance/tenants/{row.id}"})


@route("GET", "/appliance/tenants/{tenant_id}", scope="appliance.read", returns=ManagedTenantView)
def get_managed_tenant(call: Call, tenant_id: str) -> ManagedTenantView:
    """Show one tenant.

    Answers 404 once a deletion is complete.
    """
    return _tenant_view(call, service.get_tenant(tenant_id))


@route(
    "PATCH", "/appliance/tenants/{tenant_id}", scope="appliance.tenants", body=ChangeTenant, returns=ManagedTenantView,
    errors=(Conflict,),
)  # fmt: skip
def change_tenant(call: Call, tenant_id: str) -> ManagedTenantView:
    """Rename a tenant, or extend a sandbox.

    The id and all addresses stay. 409 for the expiry of a tenant that does not expire.
    """
    body, scope = call.body, tenant_scope(call, tenant_id)
    if body.days is not None and body.kind is not None:
        raise ValidationFailed("a tenant that is kept does not expire; leave out days or kind", pointer="/days")

    def change() -> None:
        if body.name is not None:
            service.rename_tenant(scope, body.name)
        if body.days is not None:
            quota_settings.extend_sandbox(scope, body.days)
        if body.kind is not None:
            quota_settings.keep_sandbox(scope)

    db.write(change)
    return _tenant_view(call, service.get_tenant(tenant_id))


@route(
    "DELETE", "/appliance/tenants/{tenant_id}", scope="appliance.tenants", returns=ManagedTenantView, status=202, atomic=False
)  # fmt: skip
def delete_tenant(call: Call, tenant_id: str) -> ManagedTenantView:
    """Delete a tenant with all its data.

    Done in the background, also if the appliance restarts: read the tenant until it answers 404. A tenant with documents that
    are retained or under a legal hold stays, which `deletion` says then.
    """
    view = _tenant_view(call, service.get_tenant(tenant_id))
    call.services.transfers.deletions.start(call.scope, tenant_id)
    return view.model_copy(update={"deletion": DeletionView(state="running", since=clock.rfc3339(clock.now_ms()))})


@route(
    "GET", "/appliance/tenants/{tenant_id}/quotas", scope="appliance.read", returns=QuotaView, listed=True, query=NoQuery
)  # fmt: skip
def list_tenant_quotas(call: Call, tenant_id: str) -> Page[QuotaView]:
    """List the quotas of a tenant.

    The list is complete: it has no pages.
    """
    return Page([quota_view(state) for state in call.services.limits.quotas.list_states(tenant_scope(call, tenant_id))])


@route(
    "PUT", "/appliance/tenants/{tenant_id}/quotas", scope="appliance.tenants", body=TenantQuotas, returns=QuotaView, listed=True
)  # fmt: skip
def put_tenant_quotas(call: Call, tenant_id: str) -> Page[QuotaView]:
    """Set the quotas of a tenant.

    The body replaces all quotas that were set before; those that it leaves out have their defaults again.
    """
    body: TenantQuotas = call.body
    scope = tenant_scope(call, tenant_id)
    unknown = sorted(set(body.quotas) - set(KINDS))
    if unknown:
        raise ValidationFailed("name only known quotas; GET shows them", pointer=f"/quotas/{unknown[0]}")
    amounts: Mapping[str, str] = dict.fromkeys(KINDS, quota_settings.DEFAULT) | body.quotas
    quota_settings.change_quotas(scope, amounts)
    return Page([quota_view(state) for state in call.services.limits.quotas.list_states(scope)])


@route(
    "POST", "/appliance/tenants/{tenant_id}/invitations", scope="appliance.users", body=Invite, returns=InvitationView,
    status=201, errors=(AlreadyExists, Conflict, ScopeMissing),
)  # fmt: skip
def invite_to_tenant(call: Call, tenant_id: str) -> Answer:
    """Invite a person to a tenant.

    The person has no account yet. Whoever opens the link chooses a password and becomes a member. Without `by_email`, the link
    is sent by e-mail if the tenant can send e-mails, and otherwise returned as `link`.
    """
    body, scope = call.body, tenant_scope(call, tenant_id)
    spec = InvitationSpec(body.login, body.role, body.approver, body.days)

    def invite() -> tuple[InvitationView, InvitationView]:
        sent = call.services.governance.invitations.invite(scope, spec, by_email=body.by_email)
        fields = {"tenant": tenant_id, "login": sent.invitation.login, "role": body.role}
        record_for_appliance("invitation.make", sent.invitation.id, fields, actor=actor_of(call))
        return invitation_view(sent.invitation, sent.link), invitation_view(sent.invitation)

    view, replay = db.write(invite)
    return Answer(view, replay=replay)
