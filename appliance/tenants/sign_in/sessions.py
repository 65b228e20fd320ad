"""Console sessions: one on the base host for each sign-in, and those derived from it on tenants' hosts.

A sign-in is the root of every code and session that follows from it.  Signing out on any host of the appliance ends the
whole sign-in: that browser is signed out everywhere, other browsers of the person are not.
"""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

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

from .clients import UNKNOWN_CLIENT, Client

CODE_MS = 60_000
LONGEST_MS = 30 * 86_400_000  # a sign-in ends after this time, however much it is used
USED_UPDATE_MS = 300_000  # the last use of a session is updated at most this often
Purpose = Literal["enter", "joined", "sign-out", "proven"]
"""The use of a one-time code: a session on a tenant's host, identifying who has just joined, proving who signs out, or that
somebody has just proven who they are."""


# Read for every page, so in one statement.
_SIGNED_IN = """
SELECT s.tenant_id, s.root, s.created_at, s.expires_at, s.used_at, s.used_address, s.proven_at, p.id, p.login, p.language, m.role
FROM session AS s
JOIN person AS p ON p.id = s.user_id
LEFT JOIN membership AS m ON m.tenant_id = s.tenant_id AND m.user_id = s.user_id
WHERE s.digest = ? AND s.kind = 'session' AND p.disabled_at IS NULL
"""


def new_root() -> str:
    """The id of a new sign-in."""
    return secrets.token_urlsafe(16)


def create_session(sealer: Sealer, user_id: str, tenant_id: str | None, *, lifetime_ms: int, root: str | None = None) -> str:
    """Create a session; returns its token, whose keyed digest is stored.  It belongs to the sign-in `root`, or starts a new one."""
    who = RedeemedCode(user_id, root or new_root())
    return db.write(lambda: _create_session(sealer, who, tenant_id, lifetime_ms, UNKNOWN_CLIENT))


def begin_sign_in(sealer: Sealer, user_id: str, *, root: str, lifetime_ms: int, client: Client) -> str:
    """Create the first session of the new sign-in `root`, on the base host, for a person who has just proven who they are."""
    return db.write(lambda: _create_session(sealer, RedeemedCode(user_id, root), None, lifetime_ms, client))


def sign_in(sealer: Sealer, checked: Person, *, lifetime_ms: int, client: Client = UNKNOWN_CLIENT) -> str:
    """Create the session of a new sign-in on the base host, unless the password that was checked has been replaced since.

    The person has proven everything that their account can prove.

    SignInFailed: whoever replaces a password ends what was signed in with the earlier one.
    """

    def create() -> str:
        people.check_unchanged(checked)
        root = new_root()
        token = _create_session(sealer, RedeemedCode(checked.id, root), None, lifetime_ms, client)
        record_proof(checked.id, root)
        return token

    return db.write(create)


def _create_session(sealer: Sealer, who: "RedeemedCode", tenant_id: str | None, lifetime_ms: int, client: Client) -> str:
    """Inside a write: AccountDisabled."""
    people.check_enabled(who.user_id)
    token = secrets.token_urlsafe(32)
    token = f"{token}.{who.user_id}.{_seal_of(sealer, token, who.user_id)}"
    digest = sealer.digest(token.encode())
    began_at = _beginning(who)
    _store(digest, who, tenant_id, "session", lifetime_ms)
    used = Session.update(
        browser=client.browser, system=client.system, address=client.address, used_address=client.address, used_at=clock.now_ms(),
        proven_at=_last_proof(who), created_at=began_at,
    )  # fmt: skip
    used.where(Session.digest == digest).execute()
    return token


def _beginning(who: "RedeemedCode") -> int:
    """Inside a write: when this sign-in began; now for a new one.  It is the `created_at` of all its sessions."""
    sql = "SELECT MIN(created_at) FROM session WHERE user_id = ? AND root = ? AND kind = 'session'"
    return int(db.rows(sql, (who.user_id, who.root))[0][0] or clock.now_ms())


def _last_proof(who: "RedeemedCode") -> int:
    """Inside a write: when somebody last proved who they are in this sign-in; 0 if they did not."""
    sql = "SELECT COALESCE(MAX(proven_at), 0) FROM session WHERE user_id = ? AND root = ?"
    return int(db.rows(sql, (who.user_id, who.root))[0][0])


def record_proof(user_id: str, root: str) -> None:
    """Inside a write: note that somebody has just proven who they are in this sign-in, on every host."""
    of_sign_in = (Session.user_id == user_id) & (Session.root == root)
    Session.update(proven_at=clock.now_ms()).where(of_sign_in).execute()


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


def enter(sealer: Sealer, token: str, tenant_id: str, *, lifetime_ms: int, client: Client = UNKNOWN_CLIENT) -> str | None:
    """Use a one-time code to create a session of the same sign-in on this tenant's host; returns its token, or None like
    `redeem_code`.  Both in one write, so that whoever signs out ends either of them."""

    def exchange() -> str | None:
        redeemed = redeem_code(sealer, token, tenant_id, "enter")
        if redeemed is None:
            return None
        who = RedeemedCode(redeemed.user_id, redeemed.root or new_root())
        _record(tenant_id, who.user_id, "session.open", vars(client))
        return _create_session(sealer, who, tenant_id, lifetime_ms, client)

    return db.write(exchange)


def _record(tenant_id: str, user_id: str, action: str, fields: Mapping[str, Any]) -> None:
    """Inside a write: an entry in the trail of the tenant whose session it is, by the person."""
    audit.record(TenantScope(tenant_id, f"user:{user_id}"), action, user_id, fields)


@dataclass(frozen=True)
class SessionUse:
    """A request in a session: its id, the address that it comes from, and how long a sign-in may be used."""

    request_id: str = ""
    address: str = ""
    longest_ms: int = LONGEST_MS


def find_session(sealer: Sealer, token: str, tenant_id: str | None, *, lifetime_ms: int, use: SessionUse) -> SignedIn | None:
    """The session of this token on this host, or None.

    Using a session extends it, up to the longest time of its sign-in, and its last use is exact to five minutes.
    """
    digest = sealer.digest(token.encode())
    rows = db.rows(_SIGNED_IN, (digest,))
    if not rows:
        return None
    of_tenant, root, began_at, expires_at, used_at, used_address, proven_at, user_id, login, language, role = rows[0]
    now, end = clock.now_ms(), began_at + use.longest_ms
    if of_tenant != tenant_id or min(expires_at, end) <= now:
        return None
    extended = min(now + lifetime_ms, end)
    if now - used_at > USED_UPDATE_MS or extended - expires_at > lifetime_ms * 0.1:
        used = Session.update(expires_at=extended, used_at=now, used_address=use.address or used_address)
        db.submit(lambda: used.where(Session.digest == digest).execute(), is_shared=True)
    if tenant_id is None:
        return SignedIn(user_id, login, None, None, language, root=root, proven_at=proven_at)
    if role is None:
        return None
    scope = TenantScope(tenant_id, f"user:{user_id}", scopes_of_role(role), use.request_id)
    return SignedIn(user_id, login, role, scope, language, root=root, proven_at=proven_at)


@dataclass(frozen=True)
class OpenSignIn:
    """A sign-in with the tenants that it has been used in; it has a session on the host of each, and on the base host.

    `client` is what signed in; `used_at` and `used_address` are those of the last use of any of its sessions.
    """

    id: str
    client: Client
    created_at: int
    used_at: int
    used_address: str
    tenants: tuple[str, ...]
    is_this: bool


def list_sign_ins(sealer: Sealer, user_id: str, token: str) -> list[OpenSignIn]:
    """A user's sign-ins that have a valid session, the last used first; `token` is that of the current session."""
    this = sealer.digest(token.encode())
    sign_ins: dict[str, list[Session]] = {}
    for row in _open_sessions(user_id).order_by(Session.created_at):
        sign_ins.setdefault(row.root, []).append(row)
    listed = [_to_sign_in(sealer, rows, this) for rows in sign_ins.values()]
    return sorted(listed, key=lambda each: -each.used_at)


def _open_sessions(user_id: str) -> Any:
    return Session.select().where(Session.user_id == user_id, Session.kind == "session", Session.expires_at > clock.now_ms())


def _to_sign_in(sealer: Sealer, rows: list[Session], this: bytes) -> OpenSignIn:
    """The sign-in of these sessions, the oldest first."""
    first, last = rows[0], max(rows, key=lambda row: row.used_at)
    return OpenSignIn(
        id=_sign_in_id(sealer, first), client=Client(first.browser, first.system, first.address), created_at=first.created_at,
        used_at=max(last.used_at, first.created_at), used_address=last.used_address,
        tenants=tuple(sorted({row.tenant_id for row in rows if row.tenant_id})),
        is_this=any(bytes(row.digest) == this for row in rows),
    )  # fmt: skip


def _sign_in_id(sealer: Sealer, row: Session) -> str:
    """Identifies a sign-in on pages, in place of `root`."""
    return sealer.digest(f"sign-in/{row.user_id}/{row.root}".encode()).hex()[:32]


@dataclass(frozen=True)
class OpenSession:
    """A session of a member on a tenant's host."""

    created_at: int
    expires_at: int


def list_sessions_in(scope: TenantScope, user_id: str) -> list[OpenSession]:
    """A user's valid sessions on this tenant's host, newest first."""
    theirs = (Session.user_id == user_id) & (Session.tenant_id == scope.tenant_id) & (Session.kind == "session")
    rows = Session.select().where(theirs & (Session.expires_at > clock.now_ms())).order_by(Session.created_at.desc())
    return [OpenSession(row.created_at, row.expires_at) for row in rows]


def close_other_sessions(scope: TenantScope, sealer: Sealer, user_id: str, token: str) -> int:
    """End every session of a user except the current one; returns their number."""
    this = sealer.digest(token.encode())

    def close() -> int:
        ended = int(Session.delete().where((Session.user_id == user_id) & (Session.digest != this)).execute())
        people.end_other_sign_ins(user_id)  # WebApps require a new sign-in, too
        audit.record(scope, "session.end_others", user_id, {"ended": ended})
        return ended

    return db.write(close)


def close_one_sign_in(scope: TenantScope, sealer: Sealer, user_id: str, sign_in_id: str) -> None:
    """End one of a user's sign-ins on every host, by its id in `list_sign_ins`; one that has ended already is not an error."""

    def close() -> None:
        for row in _open_sessions(user_id):
            if hmac.compare_digest(_sign_in_id(sealer, row).encode(), sign_in_id.encode("utf-8", "replace")):
                Session.delete().where(Session.user_id == user_id, Session.root == row.root).execute()
                audit.record(scope, "session.end", user_id, {"browser": row.browser, "system": row.system})
                return

    db.write(close)


def close_all_sessions(scope: TenantScope, user_id: str) -> int:
    """End every session of a user, the current one included, and what else depends on their sign-ins; returns their number."""

    def close() -> int:
        ended = int(Session.delete().where(Session.user_id == user_id).execute())
        people.end_other_sign_ins(user_id)
        audit.record(scope, "session.end_all", user_id, {"ended": ended})
        return ended

    return db.write(close)


def close_sign_in(sealer: Sealer, token: str) -> None:
    """Sign a browser out: end the session of this token and every session and code of the same sign-in, on any host.

    A session older than sign-in ids ends with all such sessions of its user.  An unknown token is not an error.
    """
    digest = sealer.digest(token.encode())

    def close() -> None:
        row = Session.get_or_none(Session.digest == digest)
        if row is None:
            return
        of_sign_in = (Session.user_id == row.user_id) & (Session.root == row.root)
        for session in Session.select().where(of_sign_in, Session.kind == "session", Session.tenant_id.is_null(False)):
            _record(session.tenant_id, row.user_id, "session.close", {})
        Session.delete().where(of_sign_in).execute()

    db.write(close)
