"""Invitations: a role in a tenant for someone without an account; a link, valid once and for limited time, accepts it."""

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, cast

from appliance.core import clock, ids
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, Conflict, Gone, NotFound, PolicyDenied, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit

from . import people, service
from .grants import continued_access
from .models import InvitationRow, Person
from .scopes import ALL_SCOPES, scopes_of_role

DAY_MS = 86_400_000
MAX_DAYS = 30
MAX_OPEN = 200
RETENTION_MS = 30 * DAY_MS  # how long an expired one stays listed
SEND_SECONDS = 30.0
_SENDING_TIMEOUT_MS = 2 * round(SEND_SECONDS * 1000)

Sending = Literal["link", "sending", "sent", "failed"]


@dataclass(frozen=True)
class InvitationSpec:
    """The invited person's login, and their role in the tenant."""

    login: str
    role: str
    approver: bool = False
    days: int = 7


@dataclass(frozen=True)
class Invitation:
    """A pending invitation; `sending` is the state of its e-mail, `problem` the reason why sending failed."""

    id: str
    login: str
    role: str
    approver: bool
    sending: Sending
    problem: str
    invited_by: str
    created_at: int
    expires_at: int

    @property
    def state(self) -> str:
        """`open` or `expired`."""
        return "open" if self.expires_at > clock.now_ms() else "expired"


@dataclass(frozen=True)
class Offer:
    """An invitation as shown to the holder of its link."""

    tenant_id: str
    tenant: str
    login: str
    role: str
    approver: bool
    expires_at: int
    has_account: bool


def check_not_reserved(login: str, reserved: Collection[str]) -> None:
    """ValidationFailed for the login of an appliance administrator without an account: a link does not prove their identity."""
    if login in {each.strip().lower() for each in reserved} and not _has_account(login):
        raise ValidationFailed(
            Sentence(
                "%(login)s is an administrator of this appliance without an account; ask its operator to create the account "
                "with `gos user add LOGIN`",
                login=login,
            ),
            pointer="/login",
        )


def invite(scope: TenantScope, sealer: Sealer, spec: InvitationSpec, sending: Sending = "link") -> tuple[Invitation, str]:
    """Create an invitation; returns it with its link's token, which is shown only now.  Replaces an earlier one for the login.

    ValidationFailed, ScopeMissing for a role with more permissions than the inviter; AlreadyExists for a member.
    """
    login = people.check_login(spec.login)
    people.check_role(scope, spec.role)
    if not 1 <= spec.days <= MAX_DAYS:
        raise ValidationFailed(
            Sentence("an invitation can be valid for 1 to %(most_days)s days", most_days=MAX_DAYS), pointer="/days"
        )
    token, now = secrets.token_urlsafe(32), clock.now_ms()
    row = InvitationRow(
        id=ids.new("inv"), tenant_id=scope.tenant_id, login=login, role=spec.role, approver=spec.approver,
        digest=_digest(sealer, token), state=sending, problem="", invited_by=scope.actor, created_at=now,
        expires_at=now + spec.days * DAY_MS,
    )  # fmt: skip

    def insert() -> None:
        if any(member.login == login for member in people.list_members(scope, with_disabled=True)):
            raise AlreadyExists(Sentence("%(login)s is already a member; change their role instead", login=login), pointer="/login")
        mine = InvitationRow.tenant_id == scope.tenant_id
        InvitationRow.delete().where(mine & (InvitationRow.login == login)).execute()
        if InvitationRow.select().where(mine & (InvitationRow.expires_at > now)).count() >= MAX_OPEN:
            raise Conflict(
                Sentence("there are already %(most_open)s open invitations; revoke some of them first", most_open=MAX_OPEN),
                pointer="/login",
            )
        row.save(force_insert=True)
        audit.record(scope, "invitation.make", row.id, {"login": login, "role": spec.role, "approver": spec.approver})

    db.write(insert)
    return _from_row(row), token


def list_invitations(scope: TenantScope) -> list[Invitation]:
    """Open and expired invitations, by login."""
    rows = InvitationRow.select().where(InvitationRow.tenant_id == scope.tenant_id).order_by(InvitationRow.login)
    return [_from_row(row) for row in rows]


def get_invitation(scope: TenantScope, invitation_id: str) -> Invitation:
    """One invitation; NotFound."""
    return _from_row(_get(scope, invitation_id))


def revoke_invitation(scope: TenantScope, invitation_id: str) -> Invitation:
    """Revoke an invitation: its link no longer works.  NotFound."""

    def revoke() -> Invitation:
        row = _get(scope, invitation_id)
        row.delete_instance()
        audit.record(scope, "invitation.revoke", row.id, {"login": row.login})
        return _from_row(row)

    return db.write(revoke)


def record_sending(scope: TenantScope, invitation_id: str, sending: Sending, problem: str = "") -> None:
    """Record the result of sending the e-mail."""
    of = (InvitationRow.tenant_id == scope.tenant_id) & (InvitationRow.id == invitation_id)
    db.write(lambda: InvitationRow.update(state=sending, problem=problem[:500]).where(of).execute())


def read_offer(sealer: Sealer, token: str) -> Offer:
    """What an invitation link offers; Gone if it is unknown, used, revoked or expired, without telling which."""
    row = _open_row(sealer, token)
    has_account = _has_account(row.login)
    name = service.get_tenant(row.tenant_id).name
    return Offer(
        tenant_id=row.tenant_id, tenant=name, login=row.login, role=row.role, approver=bool(row.approver),
        expires_at=row.expires_at, has_account=has_account,
    )


def accept(sealer: Sealer, token: str, password: str, reserved: Collection[str] = ()) -> tuple[Person, str]:
    """Accept an invitation: create the account with this password, or check the password of an existing account, and add the
    membership.  Returns the person and tenant id.  Gone, SignInFailed, AccountDisabled, ValidationFailed, also for a `reserved`
    login."""
    row = _open_row(sealer, token)
    check_not_reserved(row.login, reserved)
    if _has_account(row.login):
        person, is_new = people.check_password(row.login, password), False
    else:
        person, is_new = people.prepare_user(row.login, password), True

    def join() -> tuple[Person, str]:
        invitation = _open_row(sealer, token)
        if is_new:
            people.insert_user(person)
        else:
            people.check_unchanged(person)
        scope = TenantScope(invitation.tenant_id, f"user:{person.id}", ALL_SCOPES)
        fields = {
            "login": person.login,
            "role": invitation.role,
            "by": invitation.invited_by,
            "account": "new" if is_new else "known",
        }
        audit.record(scope, "invitation.accept", invitation.id, fields)
        if people.find_member(scope, person.id) is None:  # a role given in the meantime stays
            people.store_member(scope, person.login, invitation.role, approver=bool(invitation.approver))
        invitation.delete_instance()
        return person, str(invitation.tenant_id)

    return db.write(join)


def purge(now: int) -> int:
    """Delete invitations that expired long ago; returns their number."""
    return db.write(lambda: int(InvitationRow.delete().where(InvitationRow.expires_at <= now - RETENTION_MS).execute()))


def _open_row(sealer: Sealer, token: str) -> InvitationRow:
    invalid = Gone("this invitation is no longer valid: it was used, revoked or has expired; ask for a new one")
    row: InvitationRow | None = InvitationRow.get_or_none(InvitationRow.digest == _digest(sealer, token))
    if row is None or row.expires_at <= clock.now_ms():
        raise invalid
    try:  # the inviter must still have permission
        continued_access.check_still_allowed(service.system_scope(row.tenant_id), row.invited_by, scopes_of_role(row.role))
    except PolicyDenied as error:
        raise invalid from error
    return row


def _has_account(login: str) -> bool:
    return bool(Person.select().where(Person.login == login).exists())


def _get(scope: TenantScope, invitation_id: str) -> InvitationRow:
    of = (InvitationRow.tenant_id == scope.tenant_id) & (InvitationRow.id == invitation_id)
    row: InvitationRow | None = InvitationRow.get_or_none(of)
    if row is None:
        raise NotFound(Sentence("there is no invitation %(invitation_id)s in this tenant", invitation_id=repr(invitation_id[:80])))
    return row


def _digest(sealer: Sealer, token: str) -> bytes:
    return sealer.digest(b"invitation/" + token.encode("utf-8", "replace"))


def _from_row(row: InvitationRow) -> Invitation:
    sending, problem = cast(Sending, row.state), row.problem
    if sending == "sending" and row.created_at < clock.now_ms() - _SENDING_TIMEOUT_MS:  # the appliance was stopped while sending
        sending, problem = "failed", "it is not known whether the e-mail was sent; invite them again"
    return Invitation(
        id=row.id, login=row.login, role=row.role, approver=bool(row.approver), sending=sending, problem=problem,
        invited_by=row.invited_by, created_at=row.created_at, expires_at=row.expires_at,
    )
