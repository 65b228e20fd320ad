"""Users, passwords and memberships."""

import secrets
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, ApplianceError, Conflict, NotFound, ScopeMissing, ValidationFailed
from appliance.core.events import hub
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit

from .keys import lineage
from .models import ApiKey, InvitationRow, Membership, Person, Session, Tenant
from .scopes import ROLES, scopes_of_role
from .sign_in.password_checks import SignInFailed
from .sign_in.password_rules import MAX_LENGTH, check_new_password
from .trails import record_everywhere, record_for_appliance

# RFC 9106 § 4, second recommended option, with one lane: 64 MiB and three passes.
_hasher = PasswordHasher(time_cost=3, memory_cost=65536, parallelism=1)


def create_user(login: str, password: str | None, *, actor: str = "system", expires_at: int | None = None) -> Person:
    """Create a local account, with None one without a password; AlreadyExists if the login is taken."""
    person = prepare_user(login, password, expires_at=expires_at)
    return db.write(lambda: insert_user(person, actor=actor))


def prepare_user(login: str, password: str | None, *, expires_at: int | None = None) -> Person:
    """Build an account without storing it, with None one without a password; hashing one is slow.  ValidationFailed.

    With `expires_at` the password is temporary: it can only be replaced, until then (`temporary_passwords`).
    """
    login = check_login(login)
    hashed = "" if password is None else hash_new_password(login, password)
    return Person(
        id=ids.new("usr"), login=login, password_hash=hashed, created_at=clock.now_ms(), language="", password_expires_at=expires_at
    )


def insert_user(person: Person, *, actor: str = "system") -> Person:
    """Inside a write: store a prepared account; AlreadyExists if the login is taken."""
    if (existing := Person.get_or_none(Person.login == person.login)) is not None:
        raise AlreadyExists(
            Sentence("there is already a user %(login)s", login=repr(person.login)), pointer="/login", extra={"id": existing.id}
        )
    person.save(force_insert=True)
    record_for_appliance("user.create", person.id, {"login": person.login}, actor=actor)
    return person


def check_login(login: str) -> str:
    """Normalize a login; ValidationFailed."""
    login = login.strip().lower()
    if not 1 <= len(login) <= 254 or any(c.isspace() or not c.isprintable() for c in login):
        raise ValidationFailed("a login must have 1 to 254 characters without spaces; use the e-mail address", pointer="/login")
    return login


def set_password(login: str, password: str, *, expires_at: int | None = None) -> Person:
    """Replace a password, with `expires_at` by a temporary one; all sessions of that user end.  ValidationFailed, NotFound.

    It is in the audit trails of the appliance and of the user's tenants, because whoever knows the password can act as the user.
    """
    hashed = hash_new_password(normalize_login(login), password)

    def store() -> Person:
        person = replace_password(login, hashed, expires_at)
        fields = {"login": person.login, "temporary": expires_at is not None}
        record_for_appliance("password.set", person.id, fields)
        record_everywhere(person.id, "password.set", fields, actor="system")
        return person

    return db.write(store)


def hash_new_password(login: str, password: str) -> str:
    """The hash of a password that follows the rules; ValidationFailed."""
    check_new_password(login, password)
    return _hasher.hash(password)


def replace_password(login: str, hashed: str, expires_at: int | None = None) -> Person:
    """Inside a write: store the new hash, with `expires_at` that of a temporary one, and end the user's sessions."""
    person = find_user(login)
    person.password_hash, person.password_expires_at = hashed, expires_at
    person.save()
    Session.delete().where(Session.user_id == person.id).execute()
    end_other_sign_ins(person.id)
    return person


def change_password(scope: TenantScope, login: str, old: str, new: str) -> Person:
    """Change one's own password, given the old one; all sessions of that user end.  SignInFailed, ValidationFailed."""
    checked = check_password(login, old)
    check_new_password(checked.login, new)
    if new == old:
        raise ValidationFailed("the new password must differ from the old one", pointer="/password")
    hashed = _hasher.hash(new)

    def change() -> Person:
        check_unchanged(checked)
        person = replace_password(login, hashed)
        audit.record(scope, "password.change", person.id, {"login": person.login})
        return person

    return db.write(change)


@dataclass(frozen=True)
class SignInsEnded:
    """A password was replaced, so everything that depends on the user's earlier sign-ins ends.  Published inside the write."""

    user_id: str


def normalize_login(login: str) -> str:
    """A login in the form in which it is stored."""
    return login.strip().lower()


def end_other_sign_ins(user_id: str) -> None:
    """Inside a write: end whatever else depends on a person's sign-in, such as sign-ins to WebApps."""
    hub.publish(SignInsEnded(user_id))


def find_user(login: str) -> Person:
    """The user with this login; NotFound."""
    person: Person | None = Person.get_or_none(Person.login == login.strip().lower())
    if person is None:
        raise NotFound(Sentence("there is no user %(login)s", login=repr(login[:80])))
    return person


def get_user(user_id: str) -> Person:
    """The user with this id; NotFound."""
    person: Person | None = Person.get_or_none(Person.id == user_id)
    if person is None:
        raise NotFound(Sentence("there is no user %(login)s", login=repr(user_id[:80])))
    return person


class AccountDisabled(ApplianceError):
    """The password is right, and the account is disabled; whoever does not know the password does not learn that."""

    code, status = "account_disabled", 403


class PasswordExpired(ApplianceError):
    """The password is right, and was a temporary one whose time is over."""

    code, status = "password_expired", 403


def check_password(login: str, password: str) -> Person:
    """The user with this login and password; SignInFailed takes as long for an unknown login, AccountDisabled, PasswordExpired.

    Whoever lets the user in asks `temporary_passwords.must_replace` first.
    `password_checks` limits attempts: accounts are never locked, because anyone could lock somebody else's.
    """
    person: Person | None = Person.get_or_none(Person.login == normalize_login(login))
    try:
        is_possible = len(password) <= MAX_LENGTH  # a longer one only costs time
        _hasher.verify((person and person.password_hash) or _dummy_hash(), password if is_possible else "")
    except (VerificationError, InvalidHashError) as error:
        raise SignInFailed("the login or the password is wrong") from error
    if person is None:
        raise SignInFailed("the login or the password is wrong")
    _check_enabled(person)
    if person.password_expires_at is not None and person.password_expires_at <= clock.now_ms():
        raise PasswordExpired(
            "this password was only for a first sign-in, and its time is over; ask the operator of this appliance to set another "
            "one with `gos user password`"
        )
    return person


def has_password(user_id: str) -> bool:
    """Whether this person can sign in with a password; accounts of identity providers have none."""
    return bool(Person.select().where(Person.id == user_id, Person.password_hash != "").exists())


def check_unchanged(checked: Person) -> None:
    """Inside a write: SignInFailed if the password that `check_password` checked has been replaced since, AccountDisabled."""
    person: Person | None = Person.get_or_none(Person.id == checked.id)
    if person is None or person.password_hash != checked.password_hash:
        raise SignInFailed("the password has just been changed; sign in with the new one")
    _check_enabled(person)


def check_enabled(user_id: str) -> None:
    """Inside a write: AccountDisabled unless the account exists and is enabled."""
    _check_enabled(Person.get_or_none(Person.id == user_id))


def _check_enabled(person: Person | None) -> None:
    if person is None or person.disabled_at is not None:
        raise AccountDisabled("this account is disabled; ask the operator of this appliance to enable it")


@cache
def _dummy_hash() -> str:
    """A hash to compare unknown logins with, so that they take as long as known ones; no password matches it."""
    salt, tag = (b64encode(secrets.token_bytes(size)).rstrip(b"=").decode() for size in (_hasher.salt_len, _hasher.hash_len))
    cost = f"m={_hasher.memory_cost},t={_hasher.time_cost},p={_hasher.parallelism}"
    return f"$argon2id$v=19${cost}${salt}${tag}"


@dataclass(frozen=True)
class Member:
    """A user's role in one tenant; `language` is empty if they have chosen none.

    The role of a disabled account grants nothing until the account is enabled.
    """

    user_id: str
    login: str
    role: str
    approver: bool
    created_at: int
    language: str = ""
    is_disabled: bool = False

    @property
    def roles(self) -> tuple[str, ...]:
        """The role, and `approver` if the member has that flag."""
        return (self.role, "approver") if self.approver else (self.role,)


def add_member(scope: TenantScope, login: str, role: str, *, approver: bool = False) -> Member:
    """Give an existing user a role, or change it; neither the new nor the old role may exceed the actor's scopes."""
    check_role(scope, role)

    def add() -> Member:
        current = lineage.reload_scope(scope)
        check_role(current, role)
        if member := find_member(scope, find_user(login).id, with_disabled=True):
            _check_role_not_wider(current, member.role, f"change the role of somebody who is {member.role}")
        return store_member(scope, login, role, approver=approver)

    return db.write(add)


def store_member(scope: TenantScope, login: str, role: str, *, approver: bool) -> Member:
    """Inside a write: store a membership whose role was already checked; Conflict if it would leave no owner."""
    tenant_id, person, now = scope.tenant_id, find_user(login), clock.now_ms()
    if role != "owner":
        _check_not_last_owner(tenant_id, person.id)
    Membership.delete().where((Membership.tenant_id == tenant_id) & (Membership.user_id == person.id)).execute()
    forget_invitation(tenant_id, person.id)
    Membership.create(tenant_id=tenant_id, user_id=person.id, role=role, approver=approver, created_at=now)
    db.after_commit(lineage.clear_cache)
    audit.record(scope, "member.add", person.id, {"login": person.login, "role": role, "approver": approver})
    return Member(
        person.id, person.login, role, approver, now, language=person.language, is_disabled=person.disabled_at is not None
    )


def check_role(scope: TenantScope, role: str) -> None:
    """ValidationFailed for an unknown role; ScopeMissing if it exceeds the actor's scopes."""
    if role not in ROLES:
        raise ValidationFailed(
            Sentence("%(role)s is not a role; the roles are %(roles)s", role=repr(role), roles=", ".join(ROLES)), pointer="/role"
        )
    _check_role_not_wider(scope, role, f"make somebody {role}")


def list_members(scope: TenantScope, *, with_disabled: bool = False) -> list[Member]:
    """The members of this tenant, by login; those whose account is disabled only on request, to show them."""
    members = [_to_member(row) for row in db.rows(f"{_MEMBER} ORDER BY p.login", (scope.tenant_id,))]
    return [member for member in members if with_disabled or not member.is_disabled]


_MEMBER = """
SELECT m.user_id, p.login, m.role, m.approver, m.created_at, p.language, p.disabled_at
FROM membership AS m JOIN person AS p ON p.id = m.user_id
WHERE m.tenant_id = ?"""


def find_member(scope: TenantScope, user_id: str, *, with_disabled: bool = False) -> Member | None:
    """This user's membership of this tenant, or None; that of a disabled account, which grants nothing, only on request."""
    rows = db.rows(f"{_MEMBER} AND m.user_id = ?", (scope.tenant_id, user_id))
    member = _to_member(rows[0]) if rows else None
    return member if member is None or with_disabled or not member.is_disabled else None


def hide_first_steps(scope: TenantScope, user_id: str) -> None:
    """Hide the first steps of this tenant from this person permanently."""
    mine = (Membership.tenant_id == scope.tenant_id) & (Membership.user_id == user_id)
    db.write(lambda: Membership.update(steps_hidden_at=clock.now_ms()).where(mine).execute())


def has_hidden_first_steps(scope: TenantScope, user_id: str) -> bool:
    """Whether this person has hidden the first steps."""
    mine = (Membership.tenant_id == scope.tenant_id) & (Membership.user_id == user_id)
    return bool(Membership.select().where(mine & Membership.steps_hidden_at.is_null(False)).exists())


def _to_member(row: tuple[Any, ...]) -> Member:
    user_id, login, role, approver, created_at, language, disabled_at = row
    return Member(
        user_id, login, role, bool(approver), created_at, language=language, is_disabled=disabled_at is not None
    )


def remove_member(scope: TenantScope, user_id: str) -> None:
    """Remove a member, unless their role exceeds the actor's scopes; the last owner cannot be removed."""

    def remove() -> None:
        mine = Membership.tenant_id == scope.tenant_id
        row = Membership.get_or_none(mine & (Membership.user_id == user_id))
        if row is None:
            raise NotFound(Sentence("there is no member %(user_id)s in this tenant", user_id=repr(user_id[:80])))
        _check_role_not_wider(lineage.reload_scope(scope), row.role, f"remove somebody who is {row.role}")
        _check_not_last_owner(scope.tenant_id, user_id)
        end_membership(scope, user_id)

    db.write(remove)


def end_membership(scope: TenantScope, user_id: str, details: Mapping[str, Any] | None = None) -> None:
    """Inside a write: delete a membership, of which the caller has checked that it may end, and what depends on it."""
    Membership.delete().where((Membership.tenant_id == scope.tenant_id) & (Membership.user_id == user_id)).execute()
    forget_invitation(scope.tenant_id, user_id)
    Session.delete().where((Session.user_id == user_id) & (Session.tenant_id == scope.tenant_id)).execute()
    orphan_keys(scope.tenant_id, user_id)
    audit.record(scope, "member.remove", user_id, details)


def orphan_keys(tenant_id: str, user_id: str) -> None:
    """Inside a write: mark the keys this person issued as orphaned; they stay ended even if the person is added again."""
    theirs = (ApiKey.tenant_id == tenant_id) & (ApiKey.issuer == f"user:{user_id}") & ApiKey.orphaned_at.is_null()
    ApiKey.update(orphaned_at=clock.now_ms()).where(theirs).execute()
    db.after_commit(lineage.clear_cache)


def forget_invitation(tenant_id: str, user_id: str) -> None:
    """Inside a write: delete open invitations of someone who was given or lost a role, so that an old link does not work."""
    theirs = InvitationRow.login.in_(Person.select(Person.login).where(Person.id == user_id))
    InvitationRow.delete().where((InvitationRow.tenant_id == tenant_id) & theirs).execute()


def _check_role_not_wider(scope: TenantScope, role: str, what: str) -> None:
    """ScopeMissing if the role exceeds the actor's scopes."""
    if excess := sorted(scopes_of_role(role) - scope.scopes):
        raise ScopeMissing(Sentence("you cannot %(what)s: you do not have %(excess)s", what=what, excess=', '.join(excess[:5])))


def _check_not_last_owner(tenant_id: str, user_id: str) -> None:
    """Conflict if this user is the only owner, or the only one whose account is enabled."""
    if is_last_owner(tenant_id, user_id):
        raise Conflict("a tenant must have at least one owner whose account is enabled; make somebody else owner first")


def is_last_owner(tenant_id: str, user_id: str) -> bool:
    """Whether this user is the only owner of the tenant, or the only one whose account is enabled."""
    rows = db.rows(_OWNERS, (tenant_id,))
    owners, enabled = [row[0] for row in rows], [row[0] for row in rows if row[1] is None]
    return [user_id] in (owners, enabled)


_OWNERS = """
SELECT m.user_id, p.disabled_at FROM membership AS m JOIN person AS p ON p.id = m.user_id
WHERE m.tenant_id = ? AND m.role = 'owner'"""

_TENANTS_OF = """
SELECT t.id, t.name, t.kind, t.created_at, m.role FROM membership AS m JOIN tenant AS t ON t.id = m.tenant_id
WHERE m.user_id = ? AND t.closed_at IS NULL ORDER BY t.name
"""


def tenants_of(user_id: str) -> list[tuple[Tenant, str]]:
    """The tenants a user belongs to with their role in each, by name."""
    rows = db.rows(_TENANTS_OF, (user_id,))
    return [(Tenant(id=id_, name=name, kind=kind, created_at=at), role) for id_, name, kind, at, role in rows]


@dataclass(frozen=True)
class SignedIn:
    """A signed-in person: user, role and tenant; `scope` is None on the base host, `language` empty if none is chosen.

    `root` identifies the sign-in the session belongs to, and `proven_at` is the last proof in it, in ms; 0 if none counts.
    """

    user_id: str
    login: str
    role: str | None
    scope: TenantScope | None
    language: str = ""
    root: str = ""
    proven_at: int = 0
