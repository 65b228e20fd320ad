"""Accounts of the appliance: list, disable, enable and delete them.

A disabled account keeps its memberships, but nothing of it works: no sign-in, session, API key, invitation or decision.  A
deleted one leaves its login behind, so that what the person did keeps a name.
"""

from dataclasses import dataclass

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.sentences import Sentence
from appliance.monitor import audit

from . import people, service
from .keys import lineage
from .models import ApiKey, DeletedPerson, InvitationRow, Membership, Person, Session
from .trails import record_for_appliance

LEAVE_FLAG = "--leave-tenants-without-owner"


@dataclass(frozen=True)
class Account:
    """An account, with the id of each of its tenants and its role there; `disabled_at` is None while it is enabled.

    `password_expires_at` is until when its temporary password can be replaced; None if it has or is none.
    """

    user_id: str
    login: str
    created_at: int
    disabled_at: int | None
    roles: tuple[tuple[str, str], ...]
    password_expires_at: int | None = None

    @property
    def state(self) -> str:
        """`active` or `disabled`."""
        return "active" if self.disabled_at is None else "disabled"


def list_accounts() -> list[Account]:
    """Every account, by login."""
    roles: dict[str, list[tuple[str, str]]] = {}
    for user_id, tenant_id, role in db.rows("SELECT user_id, tenant_id, role FROM membership ORDER BY tenant_id"):
        roles.setdefault(user_id, []).append((tenant_id, role))
    return [
        Account(row.id, row.login, row.created_at, row.disabled_at, tuple(roles.get(row.id, ())), row.password_expires_at)
        for row in Person.select().order_by(Person.login)
    ]


def page_accounts(page: PageRequest, login: str | None = None) -> Page[Account]:
    """A page of the accounts, by login unless another order is requested; with a login only that one."""
    query = Person.select()
    if login is not None:
        query = query.where(Person.login == people.normalize_login(login))
    result = paginate(query, page, {"login": Person.login, "created_at": Person.created_at, "id": Person.id}, default="login")
    return result.map(_to_account)


def get_account(user_id: str) -> Account:
    """One account; NotFound."""
    return _to_account(people.get_user(user_id))


def _to_account(row: Person) -> Account:
    roles = db.rows("SELECT tenant_id, role FROM membership WHERE user_id = ? ORDER BY tenant_id", (row.id,))
    by_tenant = tuple((str(tenant), str(role)) for tenant, role in roles)
    return Account(row.id, row.login, row.created_at, row.disabled_at, by_tenant, row.password_expires_at)


def disable_account(
    login: str, *, may_leave_ownerless: bool = False, provider: str = "", actor: str = "system"
) -> None:  # fmt: skip
    """End everything the account gives access to, until it is enabled; other processes follow within a second.

    Its API keys pause, with all keys below them.  NotFound; Conflict if a tenant would have no enabled owner, unless that is
    allowed.  A disabled account stays as it is.
    `provider` is the identity provider that demands it, if one does; `actor` who asks for it.
    """

    def disable() -> None:
        person = people.find_user(login)
        if person.disabled_at is not None:
            return
        _check_owners_remain(person, may_leave_ownerless=may_leave_ownerless)
        _end_access(person.id)
        Person.update(disabled_at=clock.now_ms()).where(Person.id == person.id).execute()
        _record(person, "user.disable", provider, actor)

    db.write(disable)


def enable_account(login: str, *, provider: str = "", actor: str = "system") -> None:
    """Let the account be used again: its password, memberships and API keys work as before, its sessions have ended.  NotFound."""

    def enable() -> None:
        person = people.find_user(login)
        if person.disabled_at is None:
            return
        _end_access(person.id)
        Person.update(disabled_at=None).where(Person.id == person.id).execute()
        _record(person, "user.enable", provider, actor)

    db.write(enable)


def delete_account(
    login: str, *, may_leave_ownerless: bool = False, provider: str = "", actor: str = "system"
) -> None:  # fmt: skip
    """Delete the account with its memberships, sessions and password; its API keys end, and its login becomes free.

    What the person did keeps their login, as `find_former_name` returns it.  NotFound, Conflict as `disable_account`.
    """

    def delete() -> None:
        person = people.find_user(login)
        _check_owners_remain(person, may_leave_ownerless=may_leave_ownerless)
        _record(person, "user.delete", provider, actor)
        _delete(person, person.login)

    db.write(delete)


def erase_account(user_id: str, pseudonym: str, *, may_leave_ownerless: bool = False) -> None:
    """Inside a write: delete the account, or what is left of a deleted one, so that its id leads to the pseudonym only.

    The caller records it.  Conflict as `disable_account`.
    """
    person: Person | None = Person.get_or_none(Person.id == user_id)
    if person is None:
        DeletedPerson.update(login=pseudonym).where(DeletedPerson.id == user_id).execute()
        return
    _check_owners_remain(person, may_leave_ownerless=may_leave_ownerless)
    _delete(person, pseudonym)


def _delete(person: Person, former_name: str) -> None:
    """Inside a write: delete an account; its id gets this name from now on."""
    for tenant_id in _tenants_of(person.id):
        people.orphan_keys(tenant_id, person.id)
    _end_access(person.id)
    InvitationRow.delete().where(InvitationRow.login == person.login).execute()
    Membership.delete().where(Membership.user_id == person.id).execute()
    Person.delete().where(Person.id == person.id).execute()
    DeletedPerson.create(id=person.id, login=former_name, deleted_at=clock.now_ms())


def _end_access(user_id: str) -> None:
    """Inside a write: end the account's sessions, one-time codes and visits to WebApps."""
    Session.delete().where(Session.user_id == user_id).execute()
    people.end_other_sign_ins(user_id)
    db.after_commit(lineage.clear_cache)


def _record(person: Person, action: str, provider: str, actor: str) -> None:
    """Inside a write: an entry in the audit trail of the appliance, and of each tenant of the person."""
    fields = {"login": person.login} | ({"provider": provider} if provider else {})
    for tenant_id in _tenants_of(person.id):
        audit.record(service.system_scope(tenant_id, actor), action, person.id, fields)
    record_for_appliance(action, person.id, fields, actor=actor)


def _tenants_of(user_id: str) -> list[str]:
    return [str(row[0]) for row in db.rows("SELECT tenant_id FROM membership WHERE user_id = ? ORDER BY tenant_id", (user_id,))]


def list_sole_tenants(user_id: str) -> list[str]:
    """The tenants that would have no enabled owner without this person."""
    return [str(row[0]) for row in db.rows(_ONLY_OWNER, (user_id,))]


_ONLY_OWNER = """
SELECT m.tenant_id FROM membership AS m WHERE m.user_id = ? AND m.role = 'owner' AND NOT EXISTS (
  SELECT 1 FROM membership AS other JOIN person AS p ON p.id = other.user_id
  WHERE other.tenant_id = m.tenant_id AND other.role = 'owner' AND other.user_id <> m.user_id AND p.disabled_at IS NULL)
ORDER BY m.tenant_id"""


def _check_owners_remain(person: Person, *, may_leave_ownerless: bool) -> None:
    """Conflict if the person is the only enabled owner of a tenant."""
    tenants = list_sole_tenants(person.id)
    if tenants and not may_leave_ownerless:
        raise Conflict(Sentence(
            "%(login)s is the only owner of %(tenants)s; make somebody else owner first, or use %(flag)s",
            login=person.login, tenants=", ".join(tenants), flag=LEAVE_FLAG,
        ))


@dataclass(frozen=True)
class FormerName:
    """The login of somebody who is no longer a member; `is_deleted` if their account was deleted."""

    login: str
    is_deleted: bool


def find_former_name(user_id: str) -> FormerName | None:
    """The login of a person who is not a member, even if their account was deleted; None if the id is unknown."""
    rows = db.rows(
        "SELECT login, 0 FROM person WHERE id = ? UNION ALL SELECT login, 1 FROM deleted_person WHERE id = ?", (user_id, user_id)
    )
    return FormerName(str(rows[0][0]), bool(rows[0][1])) if rows else None


@dataclass(frozen=True)
class KnownPerson:
    """An account, or one that was deleted."""

    user_id: str
    login: str
    is_deleted: bool


def find_known(text: str) -> list[KnownPerson]:
    """Who has this login or id: the account, otherwise every deleted one."""
    login = people.normalize_login(text)
    sql = "SELECT id, login, {number} FROM {table} WHERE id = ? OR login = ? ORDER BY id"
    present = db.rows(sql.format(number=0, table="person"), (text.strip(), login))
    rows = present or db.rows(sql.format(number=1, table="deleted_person"), (text.strip(), login))
    return [KnownPerson(str(user_id), str(name), bool(is_deleted)) for user_id, name, is_deleted in rows]


def has_account(login: str) -> bool:
    """Whether an account has this login now."""
    return bool(Person.select().where(Person.login == people.normalize_login(login)).exists())


def list_issued_keys(user_id: str) -> list[str]:
    """The ids of the API keys that this person issued, in any tenant."""
    return [str(row.id) for row in ApiKey.select(ApiKey.id).where(ApiKey.issuer == f"user:{user_id}").order_by(ApiKey.id)]
