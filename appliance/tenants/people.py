"""Users, memberships and sessions of the console."""

import secrets
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, Conflict, NotFound, ScopeMissing, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit

from .keys import lineage
from .models import ApiKey, InvitationRow, Membership, Person, Session, Tenant
from .scopes import ROLES, scopes_of_role
from .sign_in.password_checks import SignInFailed

# RFC 9106 § 4, second recommended option, with one lane: 64 MiB and three passes.
_hasher = PasswordHasher(time_cost=3, memory_cost=65536, parallelism=1)


def create_user(login: str, password: str) -> Person:
    """A new local account; AlreadyExists when the login is taken."""
    person = prepare_user(login, password)
    return db.write(lambda: insert_user(person))


def prepare_user(login: str, password: str) -> Person:
    """An account that is not stored yet, its password hashed, which takes its time; ValidationFailed."""
    login = check_login(login)
    _check_password(password)
    return Person(
        id=ids.new("usr"), login=login, password_hash=_hasher.hash(password), created_at=clock.now_ms(), language=""
    )


def insert_user(person: Person) -> Person:
    """Inside a write: store a prepared account; AlreadyExists when the login is taken."""
    if Person.select().where(Person.login == person.login).exists():
        raise AlreadyExists(Sentence("there is a user %(login)s already", login=repr(person.login)), pointer="/login")
    person.save(force_insert=True)
    return person


def check_login(login: str) -> str:
    """A login as it is kept; ValidationFailed."""
    login = login.strip().lower()
    if not 1 <= len(login) <= 254 or any(c.isspace() or not c.isprintable() for c in login):
        raise ValidationFailed("a login has 1 to 254 characters without spaces; use the e-mail address", pointer="/login")
    return login


def _check_password(password: str) -> None:
    if not 12 <= len(password) <= 1000:
        raise ValidationFailed("a password has 12 to 1000 characters; a sentence is a good one", pointer="/password")


def set_password(login: str, password: str) -> Person:
    """Replace a password; every session of that user ends."""
    _check_password(password)
    hashed = _hasher.hash(password)
    return db.write(lambda: _replace_password(login, hashed))


def _replace_password(login: str, hashed: str) -> Person:
    """Inside a write."""
    person = find_user(login)
    person.password_hash = hashed
    person.save()
    Session.delete().where(Session.user_id == person.id).execute()
    forget_elsewhere(person.id)
    return person


def change_password(scope: TenantScope, login: str, old: str, new: str) -> Person:
    """One's own password, by whoever knows it; every session of that user ends.  SignInFailed, ValidationFailed."""
    check_password(login, old)
    _check_password(new)
    if new == old:
        raise ValidationFailed("the new password is the old one; choose another", pointer="/password")
    hashed = _hasher.hash(new)

    def change() -> Person:
        person = _replace_password(login, hashed)
        audit.record(scope, "password.change", person.id, {"login": person.login})
        return person

    return db.write(change)


_on_password: list[Callable[[str], None]] = []


def on_new_password(forget: Callable[[str], None]) -> None:
    """Have `forget(user_id)` called inside the write that replaces a password."""
    if forget not in _on_password:
        _on_password.append(forget)


def normalized(login: str) -> str:
    """A login as it is looked for, whatever was typed."""
    return login.strip().lower()


def forget_elsewhere(user_id: str) -> None:
    """Inside a write: what rests on a person's sign-in outside the console ends, as with a new password."""
    for forget in _on_password:
        forget(user_id)


def find_user(login: str) -> Person:
    """The user with this login; NotFound otherwise."""
    person: Person | None = Person.get_or_none(Person.login == login.strip().lower())
    if person is None:
        raise NotFound(Sentence("there is no user %(login)s", login=repr(login[:80])))
    return person


def check_password(login: str, password: str) -> Person:
    """The user, when login and password fit; SignInFailed takes as long for a login that nobody has.

    How often somebody may try is the business of `password_checks`: an account is never locked, or anybody could lock it.
    """
    person: Person | None = Person.get_or_none(Person.login == normalized(login))
    try:
        _hasher.verify(person.password_hash if person else _hash_of_nobody(), password[:1000])
    except (VerificationError, InvalidHashError) as error:
        raise SignInFailed("the login or the password is wrong") from error
    if person is None:
        raise SignInFailed("the login or the password is wrong")
    return person


@cache
def _hash_of_nobody() -> str:
    """What an unknown login is compared with, so that it takes as long as a known one; no password has this hash."""
    salt, tag = (b64encode(secrets.token_bytes(size)).rstrip(b"=").decode() for size in (_hasher.salt_len, _hasher.hash_len))
    cost = f"m={_hasher.memory_cost},t={_hasher.time_cost},p={_hasher.parallelism}"
    return f"$argon2id$v=19${cost}${salt}${tag}"


@dataclass(frozen=True)
class Member:
    """A user's role in one tenant; `language` is empty when they have chosen none."""

    user_id: str
    login: str
    role: str
    approver: bool
    created_at: int
    language: str = ""

    @property
    def roles(self) -> tuple[str, ...]:
        """The role, and `approver` for whoever has that flag."""
        return (self.role, "approver") if self.approver else (self.role,)


def add_member(scope: TenantScope, login: str, role: str, *, approver: bool = False) -> Member:
    """Give an existing user a role, or change it; neither the new nor the old one may more than the one who gives it."""
    check_role(scope, role)

    def add() -> Member:
        giver = lineage.reread(scope)
        check_role(giver, role)
        held = role_in(scope.tenant_id, find_user(login).id)
        if held is not None:
            _refuse_wider(giver, held, f"change the role of somebody who is {held}")
        return place_member(scope, login, role, approver=approver)

    return db.write(add)


def place_member(scope: TenantScope, login: str, role: str, *, approver: bool) -> Member:
    """Inside a write: the same, of a role whose giver was allowed to give it; Conflict when it would leave no owner."""
    tenant_id, person, now = scope.tenant_id, find_user(login), clock.now_ms()
    if role != "owner":
        _refuse_last_owner(tenant_id, person.id)
    Membership.delete().where((Membership.tenant_id == tenant_id) & (Membership.user_id == person.id)).execute()
    _forget_invitation(tenant_id, person.id)
    Membership.create(tenant_id=tenant_id, user_id=person.id, role=role, approver=approver, created_at=now)
    db.after_commit(lineage.forget_authorities)
    audit.record(scope, "member.add", person.id, {"login": person.login, "role": role, "approver": approver})
    return Member(person.id, person.login, role, approver, now, person.language)


def check_role(scope: TenantScope, role: str) -> None:
    """ValidationFailed unless there is such a role; ScopeMissing when it may more than the one who would give it."""
    if role not in ROLES:
        raise ValidationFailed(
            Sentence("%(role)s is not a role; known are %(roles)s", role=repr(role), roles=", ".join(ROLES)), pointer="/role"
        )
    _refuse_wider(scope, role, f"make somebody {role}")


def list_members(scope: TenantScope) -> list[Member]:
    """Everybody with a role in this tenant, by login."""
    return [_member(row) for row in _members(scope).order_by(Person.login).dicts()]


def find_member(scope: TenantScope, user_id: str) -> Member | None:
    """This user's role in this tenant, or None."""
    row = _members(scope).where(Membership.user_id == user_id).dicts().get_or_none()
    return None if row is None else _member(row)


def hide_first_steps(scope: TenantScope, user_id: str) -> None:
    """Show this person the first steps of this tenant no more."""
    mine = (Membership.tenant_id == scope.tenant_id) & (Membership.user_id == user_id)
    db.write(lambda: Membership.update(steps_hidden_at=clock.now_ms()).where(mine).execute())


def has_hidden_first_steps(scope: TenantScope, user_id: str) -> bool:
    """Whether this person put them away."""
    mine = (Membership.tenant_id == scope.tenant_id) & (Membership.user_id == user_id)
    return bool(Membership.select().where(mine & Membership.steps_hidden_at.is_null(False)).exists())


def _members(scope: TenantScope) -> Any:
    query = Membership.select(Membership, Person.login, Person.language).join(Person, on=(Person.id == Membership.user_id))
    return query.where(Membership.tenant_id == scope.tenant_id)


def _member(row: Mapping[str, Any]) -> Member:
    return Member(row["user_id"], row["login"], row["role"], bool(row["approver"]), row["created_at"], row["language"])


def remove_member(scope: TenantScope, user_id: str) -> None:
    """Take a user's role, unless it may more than the one who takes it; the last owner stays."""

    def remove() -> None:
        mine = Membership.tenant_id == scope.tenant_id
        row = Membership.get_or_none(mine & (Membership.user_id == user_id))
        if row is None:
            raise NotFound(Sentence("there is no member %(user_id)s here", user_id=repr(user_id[:80])))
        _refuse_wider(lineage.reread(scope), row.role, f"remove somebody who is {row.role}")
        _refuse_last_owner(scope.tenant_id, user_id)
        Membership.delete().where(mine & (Membership.user_id == user_id)).execute()
        _forget_invitation(scope.tenant_id, user_id)
        Session.delete().where((Session.user_id == user_id) & (Session.tenant_id == scope.tenant_id)).execute()
        _orphan_keys(scope.tenant_id, user_id)
        audit.record(scope, "member.remove", user_id)

    db.write(remove)


def _orphan_keys(tenant_id: str, user_id: str) -> None:
    """Inside a write: what they issued has ended until somebody adopts it, also when they come back one day."""
    theirs = (ApiKey.tenant_id == tenant_id) & (ApiKey.issuer == f"user:{user_id}") & ApiKey.orphaned_at.is_null()
    ApiKey.update(orphaned_at=clock.now_ms()).where(theirs).execute()
    db.after_commit(lineage.forget_authorities)


def _forget_invitation(tenant_id: str, user_id: str) -> None:
    """Inside a write: who was given or lost a role joins by no earlier link."""
    theirs = InvitationRow.login.in_(Person.select(Person.login).where(Person.id == user_id))
    InvitationRow.delete().where((InvitationRow.tenant_id == tenant_id) & theirs).execute()


def _refuse_wider(scope: TenantScope, role: str, what: str) -> None:
    """ScopeMissing when the role may more than the one who gives, changes or takes it."""
    if excess := sorted(scopes_of_role(role) - scope.scopes):
        raise ScopeMissing(Sentence("you cannot %(what)s: you do not hold %(excess)s", what=what, excess=', '.join(excess[:5])))


def _refuse_last_owner(tenant_id: str, user_id: str) -> None:
    """Conflict when this user is the only owner."""
    owners = Membership.select().where((Membership.tenant_id == tenant_id) & (Membership.role == "owner"))
    if [row.user_id for row in owners] == [user_id]:
        raise Conflict("a tenant keeps at least one owner; make somebody else owner first")


def tenants_of(user_id: str) -> list[tuple[Tenant, str]]:
    """The tenants a user belongs to with the role in each, by name."""
    query = (
        Tenant.select(Tenant, Membership.role.alias("role"))
        .join(Membership, on=(Membership.tenant_id == Tenant.id))
        .where(Membership.user_id == user_id)
        .order_by(Tenant.name)
    )
    return [(row, row.membership.role) for row in query]


@dataclass(frozen=True)
class SignedIn:
    """A person's session: who, with which role where; `scope` is None on the base host, `language` empty when none is chosen.

    `root` names the sign-in that the session came from.
    """

    user_id: str
    login: str
    role: str | None
    scope: TenantScope | None
    language: str = ""
    root: str = ""


def role_in(tenant_id: str, user_id: str) -> str | None:
    """A user's role in a tenant, None without one."""
    row = Membership.get_or_none((Membership.tenant_id == tenant_id) & (Membership.user_id == user_id))
    return None if row is None else str(row.role)
