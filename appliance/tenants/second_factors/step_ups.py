"""Forms that wait for a fresh proof of who sent them, and the proofs themselves."""

import secrets
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants import SignedIn
from appliance.tenants.models import StepUpRow
from appliance.tenants.sign_in import sessions
from appliance.tenants.trails import record_everywhere

LIFETIME_MS = 24 * 3_600_000
MOST = 20  # of a person; the oldest make room


@dataclass(frozen=True)
class StepUpRequest:
    """A form, or a page without one, that waits for a proof; `tenant_id` is None for a page of the base host.

    `form` is sealed by the console.  `is_sent` when it was sent already, after an earlier proof.
    """

    user_id: str
    login: str
    root: str
    tenant_id: str | None
    target: str
    form: str
    proven_by: str
    is_sent: bool

    @property
    def purpose(self) -> str:
        """What a passkey signs for this request."""
        return f"step-up/{self.user_id}/{self.root}"

    def is_of(self, person: SignedIn | None) -> bool:
        """Whether it was made in the sign-in of this person."""
        return person is not None and (person.user_id, person.root) == (self.user_id, self.root)


def store_request(sealer: Sealer, person: SignedIn, target: str, form: str) -> str:
    """Store what waits for a proof; returns the token that names it."""
    token, tenant_id = secrets.token_urlsafe(24), person.scope.tenant_id if person.scope else None
    digest = _digest(sealer, token)

    def store() -> None:
        now = clock.now_ms()
        StepUpRow.delete().where((StepUpRow.user_id == person.user_id) & (StepUpRow.expires_at < now)).execute()
        mine = StepUpRow.select(StepUpRow.digest).where(StepUpRow.user_id == person.user_id)
        older = [row.digest for row in mine.order_by(StepUpRow.created_at.desc()).offset(MOST - 1).limit(MOST)]
        StepUpRow.delete().where(StepUpRow.digest.in_(older)).execute()
        StepUpRow.create(
            digest=digest, user_id=person.user_id, root=person.root, tenant_id=tenant_id, target=target, form=form,
            created_at=now, expires_at=now + LIFETIME_MS,
        )  # fmt: skip

    db.write(store)
    return token


_REQUEST = """
SELECT s.user_id, p.login, s.root, s.tenant_id, s.target, s.form, s.proven_by, s.sent_at
FROM step_up AS s JOIN person AS p ON p.id = s.user_id
WHERE s.digest = ? AND s.expires_at > ?"""


def find_request(sealer: Sealer, token: str) -> StepUpRequest | None:
    """What waits under this token; None if it has expired, or the token is unknown."""
    rows = db.rows(_REQUEST, (_digest(sealer, token), clock.now_ms()))
    if not rows:
        return None
    user_id, login, root, tenant_id, target, form, proven_by, sent_at = rows[0]
    return StepUpRequest(
        user_id, login, root, tenant_id=tenant_id, target=target, form=form, proven_by=proven_by, is_sent=sent_at is not None
    )


def issue_code(sealer: Sealer, token: str, request: StepUpRequest, method: str) -> str:
    """The one-time code that tells the tenant's host of a proof; it counts in the browser that brings it.  Gone if signed out."""
    digest, tenant_id = _digest(sealer, token), request.tenant_id or ""

    def issue() -> str:
        StepUpRow.update(proven_by=method).where(StepUpRow.digest == digest).execute()
        return sessions.create_code(sealer, request.user_id, tenant_id, "proven", root=request.root)

    return db.write(issue)


def redeem_code(sealer: Sealer, code: str, request: StepUpRequest) -> bool:
    """Whether the code tells of a proof in the sign-in of the request, which is noted then."""

    def redeem() -> bool:
        redeemed = sessions.redeem_code(sealer, code, request.tenant_id or "", "proven")
        if redeemed is None or (redeemed.user_id, redeemed.root) != (request.user_id, request.root):
            return False
        record_proof(request, request.proven_by)
        return True

    return db.write(redeem)


def mark_sent(sealer: Sealer, token: str) -> None:
    """Note that the form goes to its page now, so that it does not go there by itself again."""
    digest, now = _digest(sealer, token), clock.now_ms()
    db.write(lambda: StepUpRow.update(sent_at=now).where(StepUpRow.digest == digest).execute())


def record_proof(request: StepUpRequest, method: str) -> None:
    """Inside a write: note in the sign-in that somebody has just proven who they are, and in the trails how and for which page."""
    sessions.record_proof(request.user_id, request.root)
    fields = {"method": method, "page": request.target.partition("?")[0]}
    if request.tenant_id is None:
        record_everywhere(request.user_id, "step_up.confirm", fields)
    else:
        audit.record(TenantScope(request.tenant_id, f"user:{request.user_id}"), "step_up.confirm", request.user_id, fields)


def _digest(sealer: Sealer, token: str) -> bytes:
    return sealer.digest(f"step-up/{token}".encode("utf-8", "replace"))
