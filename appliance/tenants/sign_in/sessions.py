"""Console sessions: one on the base host for each sign-in, and those derived from it on tenants' hosts.

A sign-in is the root of every code and session that follows from it.  Signing out on any host of the appliance ends the
whole sign-in: that browser is signed out everywhere, other browsers of the person are not.
"""

import hmac
import secrets
from dataclasses import dataclass
from typing import Literal

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import Gone
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants import people
from appliance.tenants.models import Person, Session
from appliance.tenants.people import SignedIn
from appliance.tenants.scopes import scopes_of_role

CODE_MS = 60_000
Purpose = Literal["enter", "joined", "sign-out"]
"""The use of a one-time code: a session on a tenant's host, identifying who has just joined, or proving who signs out."""


# Read for every page, so in one statement.
_SIGNED_IN = """
SELECT s.tenant_id, s.root, s.expires_at, p.id, p.login, p.language, m.role
FROM session AS s
JOIN person AS p ON p.id = s.user_id
LEFT JOIN membership AS m ON m.tenant_id = s.tenant_id AND m.user_id = s.user_id
WHERE s.digest = ? AND s.kind = 'session'
"""


def new_root() -> str:
    """The id of a new sign-in."""
    return secrets.token_urlsafe(16)


def create_session(sealer: Sealer, user_id: str, tenant_id: str | None, *, lifetime_ms: int, root: str | None = None) -> str:
    """Create a session; returns its token, whose keyed digest is stored.  It belongs to the sign-in `root`, or starts a new one."""
    return db.write(lambda: _create_session(sealer, RedeemedCode(user_id, root or new_root()), tenant_id, lifetime_ms))


def sign_in(sealer: Sealer, checked: Person, *, lifetime_ms: int) -> str:
    """Create the session of a new sign-in on the base host, unless the password that was checked has been replaced since.

    SignInFailed: whoever replaces a password ends what was signed in with the earlier one.
    """

    def create() -> str:
        people.check_unchanged(checked)
        return _create_session(sealer, RedeemedCode(checked.id, new_root()), None, lifetime_ms)

    return db.write(create)


def _create_session(sealer: Sealer, who: "RedeemedCode", tenant_id: str | None, lifetime_ms: int) -> str:
    """Inside a write."""
    token = secrets.token_urlsafe(32)
    token = f"{token}.{who.user_id}.{_seal_of(sealer, token, who.user_id)}"
    _store(sealer.digest(token.encode()), who, tenant_id, "session", lifetime_ms)
    return token


def create_code(sealer: Sealer, user_id: str, tenant_id: str, purpose: Purpose, *, root: str) -> str:
    """Create a one-time code that carries the sign-in `root` from one host to another, for one purpose.

    Gone if that sign-in has ended.
    """
    token = secrets.token_urlsafe(32)

    def create() -> str:
        if root and not Session.select().where(Session.user_id == user_id, Session.root == root).exists():
            raise Gone("you have been signed out; sign in again")
        _store(sealer.digest(token.encode()), RedeemedCode(user_id, root), tenant_id, purpose, CODE_MS)
        return token

    return db.write(create)


def _store(digest: bytes, who: "RedeemedCode", tenant_id: str | None, kind: str, lifetime_ms: int) -> None:
    """Inside a write."""
    now = clock.now_ms()
    Session.delete().where(Session.expires_at < now).execute()
    Session.create(
        digest=digest, user_id=who.user_id, root=who.root, tenant_id=tenant_id, kind=kind, created_at=now,
        expires_at=now + lifetime_ms,
    )  # fmt: skip


def user_of_token(sealer: Sealer, token: str) -> str | None:
    """The user of a current or former session token; None if it was not issued here.  It grants no access."""
    secret, _, rest = token.partition(".")
    user_id, _, seal = rest.partition(".")
    return user_id if seal and hmac.compare_digest(seal.encode(), _seal_of(sealer, secret, user_id).encode()) else None


def _seal_of(sealer: Sealer, secret: str, user_id: str) -> str:
    return sealer.digest(f"session/{secret}/{user_id}".encode()).hex()[:32]


@dataclass(frozen=True)
class RedeemedCode:
    """The user of a one-time code, and the sign-in it belongs to."""

    user_id: str
    root: str


def redeem_code(sealer: Sealer, token: str, tenant_id: str, purpose: Purpose) -> RedeemedCode | None:
    """Use a one-time code for this tenant and purpose; None if it is wrong, used, expired, or the person signed out
    meanwhile."""
    digest = sealer.digest(token.encode())

    def redeem() -> RedeemedCode | None:
        is_match = (Session.digest == digest) & (Session.kind == purpose) & (Session.tenant_id == tenant_id)
        row = Session.get_or_none(is_match)
        if row is None:
            return None
        Session.delete().where(is_match).execute()
        return RedeemedCode(row.user_id, row.root) if row.expires_at > clock.now_ms() else None

    return db.write(redeem)


def enter(sealer: Sealer, token: str, tenant_id: str, *, lifetime_ms: int) -> str | None:
    """Use a one-time code to create a session of the same sign-in on this tenant's host; returns its token, or None like
    `redeem_code`.  Both in one write, so that whoever signs out ends either of them."""

    def exchange() -> str | None:
        redeemed = redeem_code(sealer, token, tenant_id, "enter")
        if redeemed is None:
            return None
        who = RedeemedCode(redeemed.user_id, redeemed.root or new_root())
        return _create_session(sealer, who, tenant_id, lifetime_ms)

    return db.write(exchange)


def find_session(sealer: Sealer, token: str, tenant_id: str | None, *, lifetime_ms: int, request_id: str) -> SignedIn | None:
    """The session of this token on this host, or None.  Using a session extends it."""
    digest = sealer.digest(token.encode())
    rows = db.rows(_SIGNED_IN, (digest,))
    if not rows:
        return None
    of_tenant, root, expires_at, user_id, login, language, role = rows[0]
    now = clock.now_ms()
    if of_tenant != tenant_id or expires_at <= now:
        return None
    if expires_at - now < lifetime_ms * 0.9:
        db.submit(lambda: Session.update(expires_at=now + lifetime_ms).where(Session.digest == digest).execute(), is_shared=True)
    if tenant_id is None:
        return SignedIn(user_id, login, None, None, language, root)
    if role is None:
        return None
    scope = TenantScope(tenant_id, f"user:{user_id}", scopes_of_role(role), request_id)
    return SignedIn(user_id, login, role, scope, language, root)


@dataclass(frozen=True)
class OpenSession:
    """A sign-in of a user: on a tenant's host, or on the base host if `tenant_id` is None."""

    tenant_id: str | None
    created_at: int
    expires_at: int
    is_this: bool


def list_sessions(sealer: Sealer, user_id: str, token: str) -> list[OpenSession]:
    """A user's valid sessions, newest first; `token` is that of the current session."""
    this = sealer.digest(token.encode())
    mine = (Session.user_id == user_id) & (Session.kind == "session") & (Session.expires_at > clock.now_ms())
    rows = Session.select().where(mine).order_by(Session.created_at.desc())
    return [OpenSession(row.tenant_id, row.created_at, row.expires_at, bytes(row.digest) == this) for row in rows]


def list_sessions_in(scope: TenantScope, user_id: str) -> list[OpenSession]:
    """A user's valid sessions on this tenant's host, newest first."""
    theirs = (Session.user_id == user_id) & (Session.tenant_id == scope.tenant_id) & (Session.kind == "session")
    rows = Session.select().where(theirs & (Session.expires_at > clock.now_ms())).order_by(Session.created_at.desc())
    return [OpenSession(row.tenant_id, row.created_at, row.expires_at, False) for row in rows]


def close_other_sessions(scope: TenantScope, sealer: Sealer, user_id: str, token: str) -> int:
    """End every session of a user except the current one; returns their number."""
    this = sealer.digest(token.encode())

    def close() -> int:
        ended = int(Session.delete().where((Session.user_id == user_id) & (Session.digest != this)).execute())
        people.end_other_sign_ins(user_id)  # WebApps require a new sign-in, too
        audit.record(scope, "session.end_others", user_id, {"ended": ended})
        return ended

    return db.write(close)


def close_sign_in(sealer: Sealer, token: str) -> None:
    """Sign a browser out: end the session of this token and every session and code of the same sign-in, on any host.

    A session older than sign-in ids ends with all such sessions of its user.  An unknown token is not an error.
    """
    digest = sealer.digest(token.encode())

    def close() -> None:
        row = Session.get_or_none(Session.digest == digest)
        if row is not None:
            Session.delete().where((Session.user_id == row.user_id) & (Session.root == row.root)).execute()

    db.write(close)
