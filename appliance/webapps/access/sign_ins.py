"""The code that the base host gives a member on the way to a WebApp.

It is good for one app, one host and one browser, once; only its keyed digest is stored.
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
class Place:
    """Where a code is good: an app on one of its hosts."""

    scope: TenantScope
    app: str
    host: str


class SignIns:
    """The codes of every tenant."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def give_member_code(self, place: Place, state: str, user_id: str) -> str:
        """A code with which the browser that holds `state` gets in within a minute; NotFound for the app."""
        code = secrets.token_urlsafe(32)
        digest, now = self._digest(place, state, code), clock.now_ms()

        def insert() -> None:
            place.scope.get(WebAppRow, id=place.app)
            place.scope.insert(
                SignInRow, id=ids.new("sgn"), app_id=place.app, kind="member", subject=user_id, digest=digest, state="given",
                tries=0, created_at=now, expires_at=now + MEMBER_MS,
            )  # fmt: skip

        db.write(insert)
        return code

    def take_member_code(self, place: Place, state: str, code: str) -> str | None:
        """The user behind a code, once; None when it is wrong, another place's or browser's, used or too old."""
        scope, digest = place.scope, self._digest(place, state, code)

        def take() -> str | None:
            row = scope.find(SignInRow, app_id=place.app, kind="member", digest=digest)
            if row is None:
                return None
            scope.delete(SignInRow).where(SignInRow.id == row.id).execute()
            return str(row.subject) if row.expires_at > clock.now_ms() else None

        return db.write(take)

    def _digest(self, place: Place, binding: str, code: str) -> bytes:
        parts = (place.scope.tenant_id, place.app, place.host, binding, code)
        return self._sealer.digest(b"sign-in/" + "\0".join(parts).encode("utf-8", "replace"))
