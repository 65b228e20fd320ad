"""/api/v1/appliance/users: accounts of people, and their memberships of tenants."""

from typing import Annotated, Literal

from pydantic import Field

from appliance.api.frame.fields import CreatedAt
from appliance.api.frame.routing import Answer, Body, Call, ListQuery, Query, View, route
from appliance.api.tenants.tenants import Approver, DeletedView, Login, MemberView, Role, RoleName, UserId, member_view
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, Conflict, PolicyDenied, ValidationFailed
from appliance.core.pages import Page
from appliance.core.sentences import Sentence
from appliance.tenants import accounts, people, record_for_appliance
from appliance.tenants.sign_in import temporary_passwords

from .acting import actor_of, tenant_scope

LeaveTenants = Annotated[
    bool, Field(description="Whether tenants may be left without an owner, which is refused otherwise.")
]


class MembershipView(View):
    """A role of a person in a tenant."""

    tenant_id: Annotated[str, Field(description="Slug of the tenant.")]
    role: RoleName


class UserView(View):
    """An account, which belongs to the appliance, with its memberships of tenants."""

    id: UserId
    login: Login
    state: Annotated[Literal["active", "disabled"], Field(description="`disabled` while nothing of the account works.")]
    created_at: CreatedAt
    disabled_at: Annotated[
        str | None, Field(description="When it was disabled, RFC 3339 in UTC; absent while it is active.")
    ] = None
    password_expires_at: Annotated[
        str | None,
        Field(description="Until when the first sign-in can replace its temporary password, RFC 3339 in UTC; absent without one."),
    ] = None
    memberships: Annotated[list[MembershipView], Field(description="Its roles, by the id of the tenant.")]


class UserQuery(ListQuery):
    login: Annotated[Login | None, Field(max_length=254, description="Only the account with this login.")] = None


class CreateUser(Body):
    """A new account. Without a password it signs in with an identity provider, or after its person has chosen one by e-mail."""

    login: Annotated[Login, Field(min_length=1, max_length=254)]
    password: Annotated[
        str | None,
        Field(
            max_length=1024,
            description="Password by the rules of the appliance, which the first sign-in replaces; none if left out.",
        ),
    ] = None
    lasting: Annotated[
        bool, Field(description="Whether the password is not temporary, for accounts that programs sign in with.")
    ] = False


class ChangeUser(Body):
    disabled: Annotated[bool, Field(description="Whether nothing of the account works: its sessions end and its keys pause.")]
    leave_tenants_without_owner: LeaveTenants = False


class DeleteUserQuery(Query):
    leave_tenants_without_owner: LeaveTenants = False


class PutMembership(Body):
    role: Role
    approver: Approver = False


def _user_view(account: accounts.Account) -> UserView:
    return UserView(
        id=account.user_id, login=account.login, state="active" if account.disabled_at is None else "disabled",
        created_at=clock.rfc3339(account.created_at), disabled_at=clock.optional_rfc3339(account.disabled_at),
        password_expires_at=clock.optional_rfc3339(account.password_expires_at),
        memberships=[MembershipView(tenant_id=tenant_id, role=role) for tenant_id, role in account.roles],
    )  # fmt: skip


def _refuse_reserved(call: Call, login: str) -> None:
    """PolicyDenied for accounts that are worth more than any key: of administrators and for emergencies."""
    reserved = call.services.provisioning.reserved
    if people.normalize_login(login) in {people.normalize_login(each) for each in (*reserved.administrators, reserved.break_glass)}:
        raise PolicyDenied(
            Sentence(
                "%(login)s is an administrator of the appliance or its account for emergencies, which keys can neither create nor "
                "change; use `gos user` on the machine", login=login,
            ),
            extra={"reason": "reserved_login"},
        )


@route("GET", "/appliance/users", scope="appliance.read", returns=UserView, listed=True, query=UserQuery)
def list_users(call: Call) -> Page[UserView]:
    """List the accounts of the appliance.

    By login unless `sort` names `created_at`; with `login` only that account, if there is one.
    """
    query: UserQuery = call.query
    return accounts.page_accounts(query.page, query.login).map(_user_view)


@route(
    "POST", "/appliance/users", scope="appliance.users", body=CreateUser, returns=UserView, status=201,
    errors=(AlreadyExists, PolicyDenied),
)  # fmt: skip
def create_user(call: Call) -> Answer:
    """Create an account.

    It has no membership yet. Its password is temporary unless `lasting` is true. If the login is taken, the error has the id of
    the account in `id`, so that a program can continue with it.
    """
    body: CreateUser = call.body
    _refuse_reserved(call, body.login)
    if body.lasting and body.password is None:
        raise ValidationFailed("lasting is for a password; send one, or leave lasting out", pointer="/lasting")
    is_temporary = body.password is not None and not body.lasting
    until = temporary_passwords.temporary_until(call.services.config) if is_temporary else None
    person = people.create_user(body.login, body.password, actor=actor_of(call), expires_at=until)
    view = _user_view(accounts.get_account(person.id))
    return Answer(view, headers={"Location": f"/api/v1/appliance/users/{person.id}"})


@route("GET", "/appliance/users/{user_id}", scope="appliance.read", returns=UserView)
def get_user(call: Call, user_id: str) -> UserView:
    """Show one account.

    With its memberships of tenants, and whether it is disabled. 404 once it is deleted.
    """
    return _user_view(accounts.get_account(user_id))


@route(
    "PATCH", "/appliance/users/{user_id}", scope="appliance.users", body=ChangeUser, returns=UserView,
    errors=(Conflict, PolicyDenied),
)  # fmt: skip
def change_user(call: Call, user_id: str) -> UserView:
    """Disable or enable an account.

    While it is disabled, nothing of it works: sessions, keys, decisions, invitations. Memberships stay.
    """
    body, account = call.body, accounts.get_account(user_id)
    _refuse_reserved(call, account.login)
    if body.disabled:
        leave = body.leave_tenants_without_owner
        accounts.disable_account(account.login, may_leave_ownerless=leave, actor=actor_of(call))
    else:
        accounts.enable_account(account.login, actor=actor_of(call))
    return _user_view(accounts.get_account(user_id))


@route(
    "DELETE", "/appliance/users/{user_id}", scope="appliance.users", query=DeleteUserQuery, returns=DeletedView,
    errors=(Conflict, PolicyDenied),
)  # fmt: skip
def delete_user(call: Call, user_id: str) -> DeletedView:
    """Delete an account.

    Its memberships, sessions and keys end, and its login becomes free; what the person did keeps their login.
    """
    account = accounts.get_account(user_id)
    _refuse_reserved(call, account.login)
    leave = call.query.leave_tenants_without_owner
    accounts.delete_account(account.login, may_leave_ownerless=leave, actor=actor_of(call))
    return DeletedView(deleted=user_id)


@route(
    "PUT", "/appliance/users/{user_id}/memberships/{tenant_id}", scope="appliance.users", body=PutMembership, returns=MemberView,
    errors=(Conflict,),
)  # fmt: skip
def put_membership(call: Call, user_id: str, tenant_id: str) -> MemberView:
    """Give a person a role in a tenant.

    Or change it; a role that the person has already stays as it is. The last owner of a tenant keeps that role.
    """
    body, account, scope = call.body, accounts.get_account(user_id), tenant_scope(call, tenant_id)

    def put() -> MemberView:
        member = people.find_member(scope, user_id, with_disabled=True)
        if member is None or (member.role, member.approver) != (body.role, body.approver):
            member = people.add_member(scope, account.login, body.role, approver=body.approver)
            fields = {"tenant": tenant_id, "login": account.login, "role": body.role, "approver": body.approver}
            record_for_appliance("member.add", user_id, fields, actor=actor_of(call))
        return member_view(member)

    return db.write(put)


@route(
    "DELETE", "/appliance/users/{user_id}/memberships/{tenant_id}", scope="appliance.users", returns=DeletedView,
    errors=(Conflict,),
)  # fmt: skip
def delete_membership(call: Call, user_id: str, tenant_id: str) -> DeletedView:
    """Remove a person from a tenant.

    Keys that they issued there end. The last owner cannot be removed.
    """
    scope = tenant_scope(call, tenant_id)

    def remove() -> None:
        people.remove_member(scope, user_id)
        record_for_appliance("member.remove", user_id, {"tenant": tenant_id}, actor=actor_of(call))

    db.write(remove)
    return DeletedView(deleted=tenant_id)
