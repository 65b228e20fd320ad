"""One-time codes that let a member who is signed in on the base host open a WebApp.

A code is valid once, for one app, one host and one browser; only its keyed digest is stored.
"""

import secrets
from dataclasses import dataclass

from appliance.core import clock, ids
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.webapps.models import SignInRow, WebAppRow

MEMBER_MS = 60_000


@dataclass(frozen=True)
class SignInTarget:
    """The app and host that a code is valid for."""

    scope: TenantScope
    app: str
    host: str


class SignIns:
    """Issues and redeems the one-time codes of every tenant."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def create_member_code(self, target: SignInTarget, state: str, user_id: str) -> str:
        """Create a code valid for one minute in the browser that holds `state`; NotFound for the app."""
        code = secrets.token_urlsafe(32)
        digest, now = self._digest(target, state, code), clock.now_ms()

        def insert() -> None:
            target.scope.get(WebAppRow, id=target.app)
            target.scope.insert(
                SignInRow, id=ids.new("sgn"), app_id=target.app, kind="member", subject=user_id, digest=digest, state="given",
                tries=0, created_at=now, expires_at=now + MEMBER_MS,
            )  # fmt: skip

        db.write(insert)
        return code

    def redeem_member_code(self, target: SignInTarget, state: str, code: str) -> str | None:
        """Redeem a code and return its user id; None when the code is wrong, used, expired, or for another target or browser."""
        scope, digest = target.scope, self._digest(target, state, code)

        def redeem() -> str | None:
            row = scope.find(SignInRow, app_id=target.app, kind="member", digest=digest)
            if row is None:
                return None
            scope.delete(SignInRow).where(SignInRow.id == row.id).execute()
            return str(row.subject) if row.expires_at > clock.now_ms() else None

        return db.write(redeem)

    def _digest(self, target: SignInTarget, binding: str, code: str) -> bytes:
        parts = (target.scope.tenant_id, target.app, target.host, binding, code)
        return self._sealer.digest(b"sign-in/" + "\0".join(parts).encode("utf-8", "replace"))
