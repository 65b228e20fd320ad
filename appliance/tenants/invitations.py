"""Invitations: a role in a tenant that waits for somebody who has no account yet; a link, good once and for a while, opens it."""

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
from .grants import standing
from .models import InvitationRow, Person
from .scopes import ALL, scopes_of_role

DAY_MS = 86_400_000
MOST_DAYS = 30
MOST_OPEN = 200
KEPT_MS = 30 * DAY_MS  # one that is over is still listed for so long
SEND_SECONDS = 30.0
_LOST_MS = 2 * round(SEND_SECONDS * 1000)

Sending = Literal["link", "sending", "sent", "failed"]


@dataclass(frozen=True)
class InvitationSpec:
    """Whom an invitation is for: the login of the account to be, and what they will be in the tenant."""

    login: str
    role: str
    approver: bool = False
    days: int = 7


@dataclass(frozen=True)
class Invitation:
    """A role that waits for somebody; `sending` says how the link went out, `problem` why a letter did not."""

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
        """`open` until it is over."""
        return "open" if self.expires_at > clock.now_ms() else "expired"


@dataclass(frozen=True)
class Offer:
    """An invitation as whoever holds its link sees it."""

    tenant_id: str
    tenant: str
    login: str
    role: str
    approver: bool
    expires_at: int
    has_account: bool


def refuse_reserved(login: str, reserved: Collection[str]) -> None:
    """ValidationFailed for the login of somebody who is to run the appliance and has no account: holding a link proves nothing."""
    if login in {each.strip().lower() for each in reserved} and not _has_account(login):
        told = "is to run this appliance and has no account yet; whoever runs it makes that with `gos user add LOGIN`"
        raise ValidationFailed(Sentence("%(login)s %(told)s", login=login, told=told), pointer="/login")


def invite(scope: TenantScope, sealer: Sealer, spec: InvitationSpec, sending: Sending = "link") -> tuple[Invitation, str]:
    """An invitation and, this once, the token of its link; it takes the place of an earlier one to the same login.

    ValidationFailed, ScopeMissing for a role that may more than the one who invites; AlreadyExists for a member.
    """
    login = people.check_login(spec.login)
    people.check_role(scope, spec.role)
    if not 1 <= spec.days <= MOST_DAYS:
        raise ValidationFailed(Sentence("an invitation is good for 1 to %(most_days)s days", most_days=MOST_DAYS), pointer="/days")
    token, now = secrets.token_urlsafe(32), clock.now_ms()
    row = InvitationRow(
        id=ids.new("inv"), tenant_id=scope.tenant_id, login=login, role=spec.role, approver=spec.approver,
        digest=_digest(sealer, token), state=sending, problem="", invited_by=scope.actor, created_at=now,
        expires_at=now + spec.days * DAY_MS,
    )  # fmt: skip

    def insert() -> None:
        if any(member.login == login for member in people.list_members(scope)):
            raise AlreadyExists(Sentence("%(login)s is a member already; change their role instead", login=login), pointer="/login")
        mine = InvitationRow.tenant_id == scope.tenant_id
        InvitationRow.delete().where(mine & (InvitationRow.login == login)).execute()
        if InvitationRow.select().where(mine & (InvitationRow.expires_at > now)).count() >= MOST_OPEN:
            raise Conflict(
                Sentence("%(most_open)s invitations are open; revoke those that nobody will accept", most_open=MOST_OPEN),
                pointer="/login",
            )
        row.save(force_insert=True)
        audit.record(scope, "invitation.make", row.id, {"login": login, "role": spec.role, "approver": spec.approver})

    db.write(insert)
    return _invitation(row), token


def list_invitations(scope: TenantScope) -> list[Invitation]:
    """Those that wait or are over without having been accepted, by login."""
    rows = InvitationRow.select().where(InvitationRow.tenant_id == scope.tenant_id).order_by(InvitationRow.login)
    return [_invitation(row) for row in rows]


def get_invitation(scope: TenantScope, invitation_id: str) -> Invitation:
    """One of them; NotFound otherwise."""
    return _invitation(_get(scope, invitation_id))


def revoke_invitation(scope: TenantScope, invitation_id: str) -> Invitation:
    """Take it back: its link opens nothing from now on.  NotFound."""

    def revoke() -> Invitation:
        row = _get(scope, invitation_id)
        row.delete_instance()
        audit.record(scope, "invitation.revoke", row.id, {"login": row.login})
        return _invitation(row)

    return db.write(revoke)


def note_sending(scope: TenantScope, invitation_id: str, sending: Sending, problem: str = "") -> None:
    """Remember what became of the letter."""
    of = (InvitationRow.tenant_id == scope.tenant_id) & (InvitationRow.id == invitation_id)
    db.write(lambda: InvitationRow.update(state=sending, problem=problem[:500]).where(of).execute())


def read_offer(sealer: Sealer, token: str) -> Offer:
    """What the link of an invitation offers; Gone when it is unknown, used, revoked or over, which is not told apart."""
    row = _open_row(sealer, token)
    known = _has_account(row.login)
    name = service.get_tenant(row.tenant_id).name
    return Offer(row.tenant_id, name, row.login, row.role, bool(row.approver), row.expires_at, known)


def accept(sealer: Sealer, token: str, password: str, reserved: Collection[str] = ()) -> tuple[Person, str]:
    """Use an invitation up: the account with this new password, or an account of that login whose password it is, is a member
    from now on.  Answers who and of which tenant.  Gone, SignInFailed, ValidationFailed, also for a `reserved` login."""
    row = _open_row(sealer, token)
    refuse_reserved(row.login, reserved)
    if _has_account(row.login):
        person, is_new = people.check_password(row.login, password), False
    else:
        person, is_new = people.prepare_user(row.login, password), True

    def join() -> tuple[Person, str]:
        offered = _open_row(sealer, token)
        if is_new:
            people.insert_user(person)
        scope = TenantScope(offered.tenant_id, f"user:{person.id}", ALL)
        fields = {"login": person.login, "role": offered.role, "by": offered.invited_by, "account": "new" if is_new else "known"}
        audit.record(scope, "invitation.accept", offered.id, fields)
        if people.find_member(scope, person.id) is None:  # a role that was given meanwhile stays
            people.place_member(scope, person.login, offered.role, approver=bool(offered.approver))
        offered.delete_instance()
        return person, str(offered.tenant_id)

    return db.write(join)


def purge(now: int) -> int:
    """Forget invitations that were over long ago; answers how many."""
    return db.write(lambda: int(InvitationRow.delete().where(InvitationRow.expires_at <= now - KEPT_MS).execute()))


def _open_row(sealer: Sealer, token: str) -> InvitationRow:
    over = Gone("this invitation is over: it was used, taken back or is too old; ask whoever invited you for another")
    row: InvitationRow | None = InvitationRow.get_or_none(InvitationRow.digest == _digest(sealer, token))
    if row is None or row.expires_at <= clock.now_ms():
        raise over
    try:  # who invited must still be one who may
        standing.refuse_departed(service.system_scope(row.tenant_id), row.invited_by, scopes_of_role(row.role))
    except PolicyDenied as error:
        raise over from error
    return row


def _has_account(login: str) -> bool:
    return bool(Person.select().where(Person.login == login).exists())


def _get(scope: TenantScope, invitation_id: str) -> InvitationRow:
    of = (InvitationRow.tenant_id == scope.tenant_id) & (InvitationRow.id == invitation_id)
    row: InvitationRow | None = InvitationRow.get_or_none(of)
    if row is None:
        raise NotFound(Sentence("there is no invitation %(invitation_id)s here", invitation_id=repr(invitation_id[:80])))
    return row


def _digest(sealer: Sealer, token: str) -> bytes:
    return sealer.digest(b"invitation/" + token.encode("utf-8", "replace"))


def _invitation(row: InvitationRow) -> Invitation:
    sending, problem = cast(Sending, row.state), row.problem
    if sending == "sending" and row.created_at < clock.now_ms() - _LOST_MS:  # the appliance was stopped meanwhile
        sending, problem = "failed", "nobody knows whether the letter left; invite them again"
    return Invitation(
        row.id, row.login, row.role, bool(row.approver), sending, problem, row.invited_by, row.created_at, row.expires_at
    )
