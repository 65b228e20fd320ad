"""Visitor sessions of WebApps, each valid for one app.

A visit depends on what was proven at sign-in (the current password, a membership, an allowed address, a provider's client).
This is re-checked every second, and the visit ends when it no longer holds.
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
CACHE_SECONDS = 1.0
SEEN_UPDATE_MS = 300_000  # `seen_at` is updated at most this often
MAX_CACHED = 10_000
SIGN_IN_RETENTION_MS = 3_600_000

Key = tuple[str, str, bytes]


@dataclass(frozen=True)
class Visit:
    """A visit as shown to an operator. Times in milliseconds."""

    id: str
    kind: str
    subject: str
    email: str
    created_at: int
    seen_at: int
    expires_at: int


class Visits:
    """Visitor sessions of every tenant."""

    def __init__(self, sealer: Sealer) -> None:
        self.sealer = sealer
        self._cache: dict[Key, tuple[Access, Visitor | None, float]] = {}
        self._lock = threading.Lock()

    # -- one visitor

    def open_visit(self, scope: TenantScope, app_id: str, access: Access, visitor: Visitor, replaces: str = "") -> str:
        """Open a visit and return its cookie value. A visit with the earlier cookie value `replaces` is closed."""
        token = secrets.token_urlsafe(32)
        digest, now = self._grounds_digest(scope, access), clock.now_ms()

        def insert() -> None:
            scope.get(WebAppRow, id=app_id)
            if replaces:
                self._delete(scope, app_id, VisitRow.digest == self._digest(replaces))
            scope.insert(
                VisitRow, id=ids.new("vis"), app_id=app_id, digest=self._digest(token), kind=visitor.kind, subject=visitor.id,
                email=visitor.email, grounds=digest, created_at=now, seen_at=now, expires_at=now + LONGEST_MS,
            )  # fmt: skip
            audit.record(scope, "visit.open", app_id, {"kind": visitor.kind, "id": visitor.id})

        db.write(insert)
        return token

    def find_cached_visitor(self, scope: TenantScope, app_id: str, access: Access, token: str) -> Visitor | None:
        """The result of `find_visitor` if it is less than a second old; None when there is none, or when the result was None."""
        cached = self._cache.get((scope.tenant_id, app_id, self._digest(token)))
        if cached is None or cached[0] != access or clock.monotonic() - cached[2] >= CACHE_SECONDS:
            return None
        return cached[1]

    def find_visitor(self, scope: TenantScope, app_id: str, access: Access, token: str) -> Visitor | None:
        """The visitor of this session, or None when it is not valid for this app and its current access."""
        digest, started_at = self._digest(token), clock.monotonic()
        row = scope.find(VisitRow, digest=digest, app_id=app_id)
        visitor = self._visitor(scope, access, row) if row is not None else None
        with self._lock:
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            self._cache[scope.tenant_id, app_id, digest] = (access, visitor, started_at)
        return visitor

    def _visitor(self, scope: TenantScope, access: Access, row: VisitRow) -> Visitor | None:
        now = clock.now_ms()
        if now >= min(row.expires_at, row.seen_at + IDLE_MS) or row.grounds != self._grounds_digest(scope, access):
            return None
        member = people.find_member(scope, row.subject) if row.kind == "member" else None
        visitor = Visitor(row.kind, row.subject, row.email, row.id, member.roles if member else ())
        if not may_enter(scope, access, visitor):
            return None
        if now - row.seen_at > SEEN_UPDATE_MS:
            db.submit(lambda: scope.update(VisitRow, seen_at=now).where(VisitRow.id == row.id).execute())
        return visitor

    def close_visit(self, scope: TenantScope, app_id: str, token: str) -> None:
        """Close a visit; does nothing when there is none."""
        db.write(lambda: self._delete(scope, app_id, VisitRow.digest == self._digest(token)))

    # -- operators

    def list_visits(self, scope: TenantScope, app_id: str, request: PageRequest) -> Page[Visit]:
        """Open visits, newest first; NotFound for the app."""
        scope.get(WebAppRow, id=app_id)
        now = clock.now_ms()
        rows = scope.select(VisitRow).where(
            VisitRow.app_id == app_id, VisitRow.expires_at > now, VisitRow.seen_at > now - IDLE_MS
        )
        return paginate(rows, request, {"id": VisitRow.id}, default="-id").map(_to_visit)

    def revoke_visit(self, scope: TenantScope, app_id: str, visit_id: str) -> None:
        """Close another person's visit; NotFound."""

        def revoke() -> None:
            scope.get(WebAppRow, id=app_id)
            row = scope.get(VisitRow, app_id=app_id, id=visit_id)
            self._delete(scope, app_id, VisitRow.id == row.id)
            audit.record(scope, "visit.revoke", app_id, {"visit": visit_id, "kind": row.kind, "id": row.subject})

        db.write(revoke)

    # -- inside

    def _delete(self, scope: TenantScope, app_id: str, condition: object) -> None:
        scope.delete(VisitRow).where(VisitRow.app_id == app_id, condition).execute()
        db.after_commit(self._clear_cache)

    def _clear_cache(self) -> None:
        with self._lock:
            self._cache.clear()

    def _digest(self, token: str) -> bytes:
        return self.sealer.digest(b"visit/" + token.encode("utf-8", "replace"))

    def _grounds_digest(self, scope: TenantScope, access: Access) -> str:
        """Digest of what a visit depends on besides the visitor; NotFound when the password's secret is not set."""
        parts = [access.kind, access.issuer, access.client_id]
        if access.kind == "password":
            parts += [access.secret, tenants.unseal_secret(scope, self.sealer, access.secret)]
        return self.sealer.digest(b"grounds/" + "\0".join(parts).encode()).hex()


def forget_person(user_id: str) -> None:
    """Inside a write: close every visit of a console user whose password has changed; other processes notice within a second."""
    db.execute("DELETE FROM webapp_visit WHERE kind = 'member' AND subject = ?", (user_id,))


def may_enter(scope: TenantScope, access: Access, visitor: Visitor) -> bool:
    """Whether the access currently admits this visitor."""
    if visitor.kind == "password":
        return access.kind == "password"
    if visitor.kind == "member":
        member = people.find_member(scope, visitor.id)
        return access.kind == "members" and member is not None and (not access.roles or member.role in access.roles)
    if visitor.kind == "user":
        return access.allows(visitor.email) or (access.kind == "oidc" and access.allows_everybody)
    return False


def purge(now: int, most: int = 5000) -> int:
    """Delete expired visits and sign-in codes; returns how many."""

    def delete(table: str, condition: str, values: tuple[int, ...]) -> Callable[[], int]:
        expired = f"SELECT tenant_id, id FROM {table} WHERE {condition} LIMIT {most}"  # noqa: S608  table names are constants
        return lambda: db.execute(f"DELETE FROM {table} WHERE (tenant_id, id) IN ({expired})", values)  # noqa: S608

    visits = db.write(delete("webapp_visit", "expires_at <= ? OR seen_at <= ?", (now, now - IDLE_MS)))
    return visits + db.write(delete("webapp_sign_in", "created_at <= ?", (now - SIGN_IN_RETENTION_MS,)))


def _to_visit(row: VisitRow) -> Visit:
    expires = min(row.expires_at, row.seen_at + IDLE_MS)
    return Visit(
        id=row.id, kind=row.kind, subject=row.subject, email=row.email, created_at=row.created_at, seen_at=row.seen_at,
        expires_at=expires,
    )
