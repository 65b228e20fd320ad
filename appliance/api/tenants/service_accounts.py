"""/api/v1/service-accounts: programs as members of the tenant, and their API keys."""

from typing import Annotated

from pydantic import Field

from appliance.api.frame.fields import CreatedAt, CreatedBy
from appliance.api.frame.routing import Answer, Body, Call, View, route
from appliance.core import clock
from appliance.core.errors import Conflict
from appliance.core.pages import Page
from appliance.tenants import AccountChanges, AccountSpec, ServiceAccount, service_accounts
from appliance.tenants.keys import daily_quotas, keys, lineage

from .keys import IssueKey, KeyView, answer_new_key, key_view, lifetime_of, spec_of
from .tenants import DeletedView

AccountId = Annotated[
    str, Field(description="Slug of the account, which the audit trail names as `service:<id>`; it never changes.")
]
Title = Annotated[str, Field(description="Name that people read, 1 to 200 characters.")]
Description = Annotated[str, Field(description="What the program does and where it runs, at most 2,000 characters.")]
AccountScopes = Annotated[
    list[str], Field(description="What its keys may do at most, such as `documents.read`; the contract lists all scopes.")
]
Responsible = Annotated[str, Field(description="Login of the member who is responsible for it.")]


class CreateServiceAccount(Body):
    id: Annotated[AccountId, Field(min_length=1, max_length=63)]
    title: Annotated[Title, Field(min_length=1, max_length=service_accounts.MAX_TITLE)]
    scopes: AccountScopes
    description: Annotated[Description, Field(max_length=service_accounts.MAX_DESCRIPTION)] = ""
    responsible: Annotated[
        str | None,
        Field(max_length=254, description="Login of the responsible member; by default the person who issued the calling key."),
    ] = None


class ChangeServiceAccount(Body):
    title: Annotated[Title, Field(min_length=1, max_length=service_accounts.MAX_TITLE)] | None = None
    scopes: AccountScopes | None = None
    description: Annotated[Description, Field(max_length=service_accounts.MAX_DESCRIPTION)] | None = None
    responsible: Annotated[Responsible, Field(max_length=254)] | None = None
    disabled: Annotated[
        bool | None, Field(description="True refuses all its keys within half a second; false lets them work again.")
    ] = None


class ServiceAccountView(View):
    """A program as a member of the tenant; its keys depend on it, and on no person."""

    id: AccountId
    title: Title
    description: Description
    scopes: AccountScopes
    responsible: Annotated[
        str | None, Field(description="Login of the responsible member; absent if nobody is, because they left or are disabled.")
    ] = None
    disabled: Annotated[bool, Field(description="Whether it is disabled: its keys are refused until it is enabled.")]
    created_by: CreatedBy
    created_at: CreatedAt


def _to_view(account: ServiceAccount) -> ServiceAccountView:
    return ServiceAccountView(
        id=account.id, title=account.title, description=account.description, scopes=list(account.scopes),
        responsible=account.responsible or None, disabled=account.disabled_at is not None, created_by=account.created_by,
        created_at=clock.rfc3339(account.created_at),
    )  # fmt: skip


@route("GET", "/service-accounts", scope="keys.read", returns=ServiceAccountView, listed=True)
def list_service_accounts(call: Call) -> Page[ServiceAccountView]:
    """List the tenant's service accounts.

    By name. Deleted ones are left out; the audit trail still names them.
    """
    return service_accounts.list_accounts(call.scope, call.query.page).map(_to_view)


@route(
    "POST", "/service-accounts", scope="keys.write", body=CreateServiceAccount, returns=ServiceAccountView, status=201,
    errors=(Conflict,),
)  # fmt: skip
def create_service_account(call: Call) -> Answer:
    """Create a service account.

    You must have every scope that you give it. Its keys do not end when you leave. The name of a deleted account stays taken.
    """
    body: CreateServiceAccount = call.body
    spec = AccountSpec(body.id, body.title, body.scopes, description=body.description, responsible=body.responsible)
    account = service_accounts.create_account(call.scope, spec)
    return Answer(_to_view(account), headers={"Location": f"/api/v1/service-accounts/{account.id}"})


@route("GET", "/service-accounts/{account_id}", scope="keys.read", returns=ServiceAccountView)
def get_service_account(call: Call, account_id: str) -> ServiceAccountView:
    """Show one service account.

    `responsible` is absent if the responsible person has left or their account is disabled; choose another one then.
    """
    return _to_view(service_accounts.get_account(call.scope, account_id))


@route(
    "PATCH", "/service-accounts/{account_id}", scope="keys.write", body=ChangeServiceAccount, returns=ServiceAccountView,
    errors=(Conflict,),
)  # fmt: skip
def change_service_account(call: Call, account_id: str) -> ServiceAccountView:
    """Change, disable or enable a service account.

    You must have every scope that you add, and all of them to enable it. Its keys follow within half a second. Its own keys
    cannot change it.
    """
    body: ChangeServiceAccount = call.body
    changes = AccountChanges(
        body.title, body.description, body.scopes, responsible=body.responsible, is_disabled=body.disabled
    )
    return _to_view(service_accounts.change_account(call.scope, account_id, changes))


@route("DELETE", "/service-accounts/{account_id}", scope="keys.write", returns=DeletedView)
def delete_service_account(call: Call, account_id: str) -> DeletedView:
    """Delete a service account.

    All its keys are revoked, and the keys below them end. Its name stays taken.
    """
    service_accounts.delete_account(call.scope, account_id)
    return DeletedView(deleted=account_id)


@route("GET", "/service-accounts/{account_id}/keys", scope="keys.read", returns=KeyView, listed=True)
def list_service_account_keys(call: Call, account_id: str) -> Page[KeyView]:
    """List the keys of a service account.

    The newest come first, with revoked and expired ones among them. `/keys/{id}` shows, changes, rotates and revokes them.
    """
    account = service_accounts.get_account(call.scope, account_id)
    issuers, usage = lineage.load_issuers(call.scope), daily_quotas.read_usage(call.scope)
    page = keys.list_keys(call.scope, call.query.page, account.actor)
    return page.map(lambda row: key_view(row, issuers=issuers, usage=usage))


@route(
    "POST", "/service-accounts/{account_id}/keys", scope="keys.write", body=IssueKey, returns=KeyView, status=201,
    errors=(Conflict,),
)  # fmt: skip
def issue_service_account_key(call: Call, account_id: str) -> Answer:
    """Issue a key of a service account.

    Its scopes must be among yours and among those of the account. It depends on the account, and on no person or other key; the
    rate limit, addresses, expiry and limits of the calling key apply to it as to any key that it issues.
    """
    body: IssueKey = call.body
    row, text = service_accounts.issue_key(
        call.scope, call.services.sealer, account_id, spec_of(call, body), lifetime_ms=lifetime_of(body.expires_at)
    )
    return answer_new_key(row, text)
