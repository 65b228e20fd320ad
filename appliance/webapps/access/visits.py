"""Visits: the sessions of whoever opens a WebApp, each good for one app only and no longer than what it rests on.

A visit rests on grounds (the password as it is now, a membership, an address that is allowed, a provider's client): it is
looked up again every second, and what no longer holds ends it.
"""

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass

from appliance.core import clock, ids
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants import people
from appliance.tenants import service as tenants
from appliance.webapps.models import VisitRow, WebAppRow

from .access import Access
from .visitors import Visitor

IDLE_MS = 12 * 3_600_000
LONGEST_MS = 7 * 86_400_000
BELIEVED_SECONDS = 1.0
SEEN_MS = 300_000  # a visit is marked as seen this often at most
MOST_KNOWN = 10_000
SIGN_IN_KEPT_MS = 3_600_000

Key = tuple[str, str, bytes]


@dataclass(frozen=True)
class Visit:
    """A visit as an operator sees it.  Times in milliseconds."""

    id: str
    kind: str
    subject: str
    email: str
    created_at: int
    seen_at: int
    expires_at: int


class Visits:
    """The visits of every tenant."""

    def __init__(self, sealer: Sealer) -> None:
        self.sealer = sealer
        self._known: dict[Key, tuple[Access, Visitor | None, float]] = {}
        self._lock = threading.Lock()

    # -- one visitor

    def open_visit(self, scope: TenantScope, app_id: str, access: Access, who: Visitor, replaces: str = "") -> str:
        """A new visit; answers the cookie's value.  The visit of `replaces`, an older value, ends."""
        token = secrets.token_urlsafe(32)
        grounds, now = self._grounds(scope, access), clock.now_ms()

        def insert() -> None:
            scope.get(WebAppRow, id=app_id)
            if replaces:
                self._delete(scope, app_id, VisitRow.digest == self._digest(replaces))
            scope.insert(
                VisitRow, id=ids.new("vis"), app_id=app_id, digest=self._digest(token), kind=who.kind, subject=who.id,
                email=who.email, grounds=grounds, created_at=now, seen_at=now, expires_at=now + LONGEST_MS,
            )  # fmt: skip
            audit.record(scope, "visit.open", app_id, {"kind": who.kind, "id": who.id})

        db.write(insert)
        return token

    def recall(self, scope: TenantScope, app_id: str, access: Access, token: str) -> Visitor | None:
        """What `find_visitor` said less than a second ago; None when it has to be asked again, or said None."""
        found = self._known.get((scope.tenant_id, app_id, self._digest(token)))
        if found is None or found[0] != access or clock.monotonic() - found[2] >= BELIEVED_SECONDS:
            return None
        return found[1]

    def find_visitor(self, scope: TenantScope, app_id: str, access: Access, token: str) -> Visitor | None:
        """Whose visit this is, as long as it holds for this app and its access."""
        digest, began = self._digest(token), clock.monotonic()
        row = scope.find(VisitRow, digest=digest, app_id=app_id)
        visitor = self._visitor(scope, access, row) if row is not None else None
        with self._lock:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[scope.tenant_id, app_id, digest] = (access, visitor, began)
        return visitor

    def _visitor(self, scope: TenantScope, access: Access, row: VisitRow) -> Visitor | None:
        now = clock.now_ms()
        if now >= min(row.expires_at, row.seen_at + IDLE_MS) or row.grounds != self._grounds(scope, access):
            return None
        member = people.find_member(scope, row.subject) if row.kind == "member" else None
        visitor = Visitor(row.kind, row.subject, row.email, row.id, member.roles if member else ())
        if not may_enter(scope, access, visitor):
            return None
        if now - row.seen_at > SEEN_MS:
            db.submit(lambda: scope.update(VisitRow, seen_at=now).where(VisitRow.id == row.id).execute())
        return visitor

    def close_visit(self, scope: TenantScope, app_id: str, token: str) -> None:
        """End a visit; ending one that is none is fine."""
        db.write(lambda: self._delete(scope, app_id, VisitRow.digest == self._digest(token)))

    # -- operators

    def list_visits(self, scope: TenantScope, app_id: str, request: PageRequest) -> Page[Visit]:
        """The visits that have not ended, newest first; NotFound for the app."""
        scope.get(WebAppRow, id=app_id)
        now = clock.now_ms()
        rows = scope.select(VisitRow).where(
            VisitRow.app_id == app_id, VisitRow.expires_at > now, VisitRow.seen_at > now - IDLE_MS
        )
        return paginate(rows, request, {"id": VisitRow.id}, default="-id").map(_show)

    def revoke_visit(self, scope: TenantScope, app_id: str, visit_id: str) -> None:
        """End somebody's visit; NotFound."""

        def revoke() -> None:
            scope.get(WebAppRow, id=app_id)
            row = scope.get(VisitRow, app_id=app_id, id=visit_id)
            self._delete(scope, app_id, VisitRow.id == row.id)
            audit.record(scope, "visit.revoke", app_id, {"visit": visit_id, "kind": row.kind, "id": row.subject})

        db.write(revoke)

    # -- inside

    def _delete(self, scope: TenantScope, app_id: str, which: object) -> None:
        scope.delete(VisitRow).where(VisitRow.app_id == app_id, which).execute()
        db.after_commit(self._forget_known)

    def _forget_known(self) -> None:
        with self._lock:
            self._known.clear()

    def _digest(self, token: str) -> bytes:
        return self.sealer.digest(b"visit/" + token.encode("utf-8", "replace"))

    def _grounds(self, scope: TenantScope, access: Access) -> str:
        """What a visit rests on beside who the visitor is; NotFound when the password's secret is not set."""
        proven = [access.kind, access.issuer, access.client_id]
        if access.kind == "password":
            proven += [access.secret, tenants.open_secret(scope, self.sealer, access.secret)]
        return self.sealer.digest(b"grounds/" + "\0".join(proven).encode()).hex()


def forget_person(user_id: str) -> None:
    """Inside a write: end every visit of a console user, whose password has changed; processes believe it within a second."""
    db.execute("DELETE FROM webapp_visit WHERE kind = 'member' AND subject = ?", (user_id,))


def may_enter(scope: TenantScope, access: Access, visitor: Visitor) -> bool:
    """Whether the access lets this visitor in, as things stand now."""
    if visitor.kind == "password":
        return access.kind == "password"
    if visitor.kind == "member":
        member = people.find_member(scope, visitor.id)
        return access.kind == "members" and member is not None and (not access.roles or member.role in access.roles)
    if visitor.kind == "user":
        return access.allows(visitor.email) or (access.kind == "oidc" and access.allows_everybody)
    return False


def purge(now: int, most: int = 5000) -> int:
    """Delete visits and sign-ins that are over; answers how many."""

    def delete(table: str, over: str, values: tuple[int, ...]) -> Callable[[], int]:
        chosen = f"SELECT tenant_id, id FROM {table} WHERE {over} LIMIT {most}"  # noqa: S608  names of ours
        return lambda: db.execute(f"DELETE FROM {table} WHERE (tenant_id, id) IN ({chosen})", values)  # noqa: S608

    visits = db.write(delete("webapp_visit", "expires_at <= ? OR seen_at <= ?", (now, now - IDLE_MS)))
    return visits + db.write(delete("webapp_sign_in", "created_at <= ?", (now - SIGN_IN_KEPT_MS,)))


def _show(row: VisitRow) -> Visit:
    expires = min(row.expires_at, row.seen_at + IDLE_MS)
    return Visit(row.id, row.kind, row.subject, row.email, row.created_at, row.seen_at, expires)
